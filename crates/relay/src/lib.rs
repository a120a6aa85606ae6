//! The relay: a publicly reachable service that joins two outgoing connections
//! by their connection id. It sees what the agents let it see, ciphertext
//! between sites that don't trust each other, and copies it without user space.
//!
//! | module | does |
//! |---|---|
//! | [`matcher`] | decides: tickets in, pairs out, no I/O |
//! | [`admission`] | the port: takes connections and their tickets |
//! | [`plane`] | the data plane: worker threads that carry the bytes |
//! | [`config`] | the `[relay]` section |
//! | `address` | where agents reach the relay if nobody says |
//! | [`prober`] | dials nodes that want to know what is let in to them |
//! | `control` | the attachment to the broker |
//! | `service` | all of it together: [`run`] |

#![forbid(unsafe_code)]

mod address;
pub mod admission;
pub mod config;
mod control;
mod flow;
pub mod matcher;
mod pipe;
pub mod plane;
pub mod prober;
mod service;
mod worker;

pub use config::RelayConfig;
pub use service::{RelayError, run};
