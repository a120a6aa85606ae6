//! The gateway: the hop between a site's agents and the broker. It serves the
//! broker's own services inside the site, answers what it knows itself, and
//! passes the rest on over one outgoing connection.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | the `[gateway]` section |
//! | [`roster`] | the site's agents, their addresses and jobs (pure) |
//! | [`cache`] | contacts of other sites, and who was told of what (pure) |
//! | `upstream` | the attachment to the broker |
//! | `attach`, `enrolment`, `service` | what agents call, thin shells |
#![forbid(unsafe_code)]

mod attach;
pub mod cache;
pub mod config;
mod enrolment;
pub mod roster;
mod service;
mod sessions;
mod upstream;

pub use config::{GatewayConfig, Inbound};
pub use service::{GatewayError, run};
