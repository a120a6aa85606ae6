//! The broker: the rendezvous service that every gateway can reach. It holds
//! the certificate authority and the registry, plans how sites reach one
//! another, and arranges rendezvous. It carries no data.
//!
//! | module | purpose |
//! |---|---|
//! | [`state`] | the state directory, `isthmus grid init` |
//! | [`config`] | the `[broker]` section |
//! | `places` | where sites are at the levels that the configuration names (pure) |
//! | `addresses` | which node has which virtual address (pure) |
//! | `registry` | the grid's gateways, relays, nodes and jobs (pure) |
//! | `store` | records that brokers share: read, watch, transactions |
//! | `records` | their keys and values |
//! | `members` | joins, renewals and revocations |
//! | `announced` | what a gateway says of a node, against what the node's agent has signed |
//! | `fold` | feeds the registry with the records |
//! | `broker` | the process: shared state, server, periodic tasks |
//! | `enrolment`, `administration`, `attach`, `service` | the gRPC services, thin shells |
#![forbid(unsafe_code)]

mod addresses;
mod administration;
mod announced;
mod attach;
mod broker;
pub mod config;
mod enrolment;
mod fold;
mod members;
mod places;
mod probes;
mod records;
mod registry;
mod rendezvous;
mod service;
mod sessions;
pub mod state;
mod store;
mod waiting;

pub use broker::{BrokerError, run};
pub use config::{BrokerConfig, PairConfig};
pub use members::enrol_without_tokens;
