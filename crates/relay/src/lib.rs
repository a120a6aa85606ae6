//! The relay: a publicly reachable service that joins two outgoing connections
//! by their connection id. It sees what the agents let it see, ciphertext
//! between sites that don't trust each other, and copies it without user space.
//!
//! | module | does |
//! |---|---|
//! | [`config`] | the `[relay]` section |
//! | [`prober`] | dials nodes that want to know what is let in to them |
//! | `control` | the attachment to the broker |
//! | `service` | all of it together: [`run`] |
//!
//! Matching tickets and carrying bytes is [`isthmus_splice`]'s.

#![forbid(unsafe_code)]

mod config;
mod control;
mod prober;
mod service;

pub use config::RelayConfig;
pub use service::{RelayError, run};
