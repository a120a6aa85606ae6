//! The gateway: the hop between a site's agents and the broker. It serves the
//! broker's services inside the site. It answers lookups from its own records and
//! its cache, and passes other calls on over one outgoing connection. It splices
//! connections for nodes that can't dial out or be dialed.
//!
//! | module | what |
//! |---|---|
//! | `config` | the `[gateway]` section |
//! | `run` | the process: its listeners and tasks |
//! | `gateway`, `error` | what the services share; why the gateway ends |
//! | `registry`, `enrolment` | the services that agents call |
//! | `lookup`, `lookups`, `cache` | lookups of nodes, those under way; contacts of other sites (pure) |
//! | `alone`, `told` | answers without the broker; what it told of other sites (pure) |
//! | `attach` | attachments of agents |
//! | `heads` | whether agents at the heads of jobs are frozen (pure) |
//! | `roster` | the site's agents, their addresses and jobs (pure) |
//! | `upstream` | the attachment to the broker, and calls to it |
//! | `directory` | relays and other sites' gateways, for agents (pure) |
//! | `site_trunks` | trunks with gateways of other sites |
//! | `streams`, `inside` | streams between the site's nodes and the outside |
//! | `far_agents` | whether a node's agent is at the address that the node names |
//! | `expected` | which node may connect for which stream (pure) |
//! | `outside` | whether other sites reach the port outside |
//! | `way_out` | whether the site's nodes can dial out |
#![forbid(unsafe_code)]

mod alone;
mod attach;
mod cache;
mod config;
mod directory;
mod enrolment;
mod error;
mod expected;
mod far_agents;
mod gateway;
mod heads;
mod inside;
mod lookup;
mod lookups;
mod outside;
mod own;
mod registry;
mod relaying;
mod roster;
mod run;
mod site_trunks;
mod streams;
mod told;
mod upstream;
mod way_out;

pub use config::{DEFAULT_PORT, GatewayConfig, Inbound, Measure};
pub use error::GatewayError;
pub use run::run;
