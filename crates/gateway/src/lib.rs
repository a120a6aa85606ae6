//! The gateway: the hop between a site's agents and the broker. It serves the
//! broker's own services inside the site, answers what it knows itself, and
//! passes the rest on over one outgoing connection. Where nodes can't dial out or
//! be dialed themselves, it joins their streams with the outside.
//!
//! | module | what |
//! |---|---|
//! | `config` | the `[gateway]` section |
//! | `roster` | the site's agents, their addresses and jobs (pure) |
//! | `cache` | contacts of other sites, and who was told of what (pure) |
//! | `expected` | which of the site's nodes may come for which stream (pure) |
//! | `streams`, `inside` | streams between the site's nodes and the outside |
//! | `directory` | whom agents ask how they are seen from outside (pure) |
//! | `outside` | whether other sites reach the port outside |
//! | `way_out` | whether the site's nodes reach the outside themselves |
//! | `upstream` | the attachment to the broker |
//! | `attach`, `enrolment`, `service` | what agents call, thin shells |
#![forbid(unsafe_code)]

mod attach;
mod cache;
mod config;
mod directory;
mod enrolment;
mod expected;
mod inside;
mod outside;
mod roster;
mod service;
mod streams;
mod upstream;
mod way_out;

pub use config::{GatewayConfig, Inbound, Measure};
pub use service::{GatewayError, run};
