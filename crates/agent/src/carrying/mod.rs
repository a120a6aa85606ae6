//! The initiator's side of a program's connection, and the sockets that programs
//! get.
//!
//! | module | what |
//! |---|---|
//! | [`shim_socket`] | serves the shims' requests |
//! | `notices` | what processes tell of themselves |
//! | [`connect`] | opens a connection for a program |
//! | `persist` | tries again while it can't be made |
//! | `reaching` | connects to the acceptor's agent, by the first way that works |
//! | [`introduction`] | introduces it to the acceptor's agent |
//! | [`agent_connection`] | a connection between two agents: a socket, or a trunk's stream |
//! | [`names`] | the ends of handed-over sockets |
//! | [`sockets`], [`ports`] | identifiers of sockets; ports of programs that bound none |
//! | [`black_hole`] | the listener at which connects stay pending |

pub(crate) mod agent_connection;
pub(crate) mod black_hole;
pub(crate) mod connect;
pub(crate) mod introduction;
pub(crate) mod names;
mod notices;
pub(crate) mod persist;
pub(crate) mod ports;
mod reaching;
pub(crate) mod shim_socket;
pub(crate) mod sockets;
