//! The node and its jobs.
//!
//! | module | what |
//! |---|---|
//! | [`node`] | the node |
//! | [`job`] | one job, of [`members`], [`sockets`], [`holding`] and [`news`] |
//! | [`begin`] | begins a job |
//! | [`calls`] | calls to the other agents of a job |
//! | [`job_directory`] | a job's files |
//! | [`tree`] | which node of a job holds which |
//! | [`hold`] | holding them |
//! | [`peers`] | the service for other agents |
//! | [`local`] | the service for the node's users |

pub mod begin;
pub mod calls;
pub mod hold;
pub mod holding;
pub mod job;
pub mod job_directory;
pub mod local;
pub mod members;
pub mod news;
pub mod node;
pub mod peers;
pub mod sockets;
pub mod tree;
