//! The relay: a publicly reachable service that splices two outgoing connections by
//! their connection id. Between sites that don't trust each other it carries
//! ciphertext only. The bytes don't enter its memory.
//!
//! | module | does |
//! |---|---|
//! | [`config`] | the `[relay]` section |
//! | [`prober`] | dials nodes and gateways for reach tests |
//! | `control` | the attachment to the broker, also of a gateway that relays |
//! | `service` | port, data plane and attachment together: [`run`] |
//!
//! [`isthmus_splice`] matches tickets and carries bytes.

#![forbid(unsafe_code)]

mod config;
mod control;
mod prober;
mod service;

pub use config::{DEFAULT_PORT, RelayConfig};
pub use control::{Attachment, Kind};
pub use prober::Prober;
pub use service::{Listens, RelayError, run};
