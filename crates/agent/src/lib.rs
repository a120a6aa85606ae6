//! The agent: one per node. It makes and accepts connections for the node's
//! processes, hands them over as open sockets, and starts remote processes.
//! Connections are opened by [`isthmus_reach`].
//!
//! | module | what |
//! |---|---|
//! | [`upstream`] | what the gateway is asked |
//! | [`attachment`], [`gateways`] | the attachment to one of the site's gateways; which one |
//! | [`node`], [`job`] | the node, its jobs, and what they hold |
//! | [`shim_socket`] | what shims ask for |
//! | [`introduction`] | the initiator's side of a job's connection |
//! | [`incoming`], [`knock`] | the acceptor's side of a program's connection |
//! | [`measure`] | how fast the way to another node is |
//! | [`mod@pump`] | carrying an encrypted connection for a program |
//! | [`peers`], [`local`] | what other agents and the node's users ask for |
//! | [`tree`], [`hold`] | which node of a job holds which; holding them |
//! | [`exec`], [`supervise`], [`limits`] | starting processes and ending all of them |
//! | [`programs`], [`preloadable`] | whether a job's programs are there and can be carried |
//! | [`preflight`] | what else a job needs |
//! | [`heartbeat`] | noticing that another agent is frozen or cut off |
//! | [`links`] | what joins a job's processes past the agents |
//! | [`account`], [`names`], [`job_directory`], [`black_hole`] | what a job needs |

pub mod account;
pub mod attachment;
pub mod black_hole;
pub mod config;
pub mod exec;
pub mod gateways;
pub mod heartbeat;
pub mod hold;
pub mod incoming;
pub mod introduction;
pub mod job;
pub mod job_directory;
pub mod knock;
pub mod limits;
pub mod links;
pub mod local;
pub mod measure;
pub mod names;
pub mod node;
pub mod peers;
pub mod port_range;
pub mod preflight;
pub mod preloadable;
pub mod programs;
pub mod pump;
pub mod service;
pub mod shim_socket;
pub mod supervise;
pub mod tree;
pub mod upstream;

pub use config::AgentConfig;
pub use service::run;
