//! The acceptor's side of connections.
//!
//! | module | what |
//! |---|---|
//! | [`incoming`] | what arrives at the agent's port, or over a relay |
//! | [`knock`] | how a connection gets into a program's queue |
//! | [`past`] | programs that take it out past their shim |

pub(crate) mod incoming;
pub(crate) mod knock;
pub(crate) mod past;
