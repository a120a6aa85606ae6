//! The broker: the rendezvous service that every gateway can reach. It holds
//! the certificate authority and the registry, plans how sites reach one
//! another, and arranges rendezvous at relays. It carries no data.
//!
//! | module | what |
//! |---|---|
//! | [`state`] | the state directory, `isthmus grid init` |
//! | [`config`] | the `[broker]` section |
//! | `addresses` | which node has which virtual address (pure) |
//! | `registry` | who is attached, and what is asked of them (pure) |
//! | `store` | records that brokers share: read, watch, transactions |
//! | `records` | their keys and values |
//! | `fold` | keeps the registry to the records |
//! | `enrolment`, `attach`, `service` | the gRPC services, thin shells |
#![forbid(unsafe_code)]

mod addresses;
mod attach;
pub mod config;
mod enrolment;
mod fold;
mod probes;
mod records;
mod registry;
mod rendezvous;
mod service;
mod sessions;
pub mod state;
mod store;
mod waiting;

pub use config::BrokerConfig;
pub use service::{BrokerError, run};
