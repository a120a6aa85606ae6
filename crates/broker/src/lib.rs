//! The broker: the rendezvous service that every gateway can reach. It holds
//! the certificate authority and the grid's records, answers lookups, and arranges
//! rendezvous. It carries no data. [`isthmus_registry`] decides what it answers and
//! orders; the broker feeds it with the records.
//!
//! | module | purpose |
//! |---|---|
//! | [`state`] | the state directory, `isthmus grid init` |
//! | [`config`] | the `[broker]` section |
//! | `store` | records that brokers share: read, watch, transactions |
//! | `members` | joins, renewals and revocations |
//! | `announced` | what a gateway says of a node, against what the node's agent has signed |
//! | `fold` | feeds the registry with the records |
//! | `broker` | the state that the services share |
//! | `enrolment`, `administration`, `attach`, `service` | the gRPC services, thin shells |
//! | `run` | the process: server, periodic tasks |
#![forbid(unsafe_code)]

mod administration;
mod announced;
mod attach;
mod broker;
pub mod config;
mod enrolment;
mod fold;
mod members;
mod probes;
mod rendezvous;
mod run;
mod service;
mod sessions;
pub mod state;
mod store;
mod waiting;

pub use config::{BrokerConfig, PairConfig};
pub use members::enrol_without_tokens;
pub use run::{BrokerError, run};
