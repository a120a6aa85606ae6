//! The initiator's side of a program's connection, and what programs see of connections.
//!
//! | module | what |
//! |---|---|
//! | [`shim_socket`] | what shims ask for |
//! | [`introduction`] | how a job's connection is introduced |
//! | [`mod@pump`] | carrying an encrypted connection for a program |
//! | [`names`] | the ends of handed-over sockets |
//! | [`sockets`], [`ports`] | names of sockets; ports of programs that bound none |
//! | [`black_hole`] | where a pending connect waits |

pub mod black_hole;
pub mod introduction;
pub mod names;
pub mod ports;
pub mod pump;
pub mod shim_socket;
pub mod sockets;
