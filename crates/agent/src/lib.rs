//! The agent: one per node. It opens and accepts connections for the node's
//! processes, passes them on as open sockets, and starts remote processes.
//! [`isthmus_reach`] opens the connections.
//!
//! | module | what |
//! |---|---|
//! | `uplink` | the attachment to the gateway |
//! | `accepting` | the acceptor's side of connections |
//! | `carrying` | the initiator's side, and the sockets that programs get |
//! | [`jobs`] | the node and its jobs |
//! | `trunks` | the trunks to other nodes |
//! | [`starting`] | starting processes, and the checks before |
//! | `pilots` | nodes that a batch scheduler gives |
//! | `observing` | heartbeats, measurements, the account of connections |
//! | [`runtime_directory`] | where the agent's socket and its jobs' directories are |
//! | `requirements` | what the agent needs of its node |
//! | `service` | all of it, as a service |
//! | `upgrade` | another program takes this one's place between jobs |
//!
//! Imports go down through layers. These are, from below: what a job and a node have; the
//! job and the node; what observes them, and connections of other nodes' programs; trunks, and
//! calls over them; a job's start, heartbeats and end; the services for agents, users and programs;
//! `service`.

mod accepting;
mod carrying;
pub mod config;
pub mod jobs;
mod observing;
mod pilots;
mod port_range;
mod requirements;
pub mod runtime_directory;
mod service;
pub mod starting;
mod trunks;
mod upgrade;
mod uplink;

pub use config::AgentConfig;
pub use requirements::check;
pub use service::run;
