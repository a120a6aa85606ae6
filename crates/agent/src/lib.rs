//! The agent: one per node. It makes and accepts connections for the node's
//! processes, hands them over as open sockets, and starts remote processes.
//! Connections are opened by [`isthmus_reach`].
//!
//! | module | what |
//! |---|---|
//! | [`uplink`] | the way to the gateway |
//! | [`accepting`] | the acceptor's side of connections |
//! | [`carrying`] | the initiator's side; what programs see of connections |
//! | [`jobs`] | the node and its jobs |
//! | [`starting`] | starting processes, and what a job needs for it |
//! | [`observing`] | heartbeats, measurements, the account of connections |
//! | [`service`] | all of it, as a service |

pub mod accepting;
pub mod carrying;
pub mod config;
pub mod jobs;
pub mod observing;
pub mod port_range;
pub mod service;
pub mod starting;
pub mod uplink;

pub use config::AgentConfig;
pub use service::run;
