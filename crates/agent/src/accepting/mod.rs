//! The acceptor's side of connections.
//!
//! | module | what |
//! |---|---|
//! | [`incoming`] | what arrives at the agent's port, or over a relay |
//! | [`programs`] | the connections of other nodes' programs |
//! | [`knock`] | how a connection gets into a program's queue |
//! | [`watched`] | when the agent looks at a knock that no shim has fetched |
//! | [`past`] | programs that take it out past their shim |

pub(crate) mod incoming;
pub(crate) mod knock;
pub(crate) mod past;
pub(crate) mod programs;
mod watched;
