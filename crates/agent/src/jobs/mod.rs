//! The node and its jobs.
//!
//! | module | what |
//! |---|---|
//! | [`node`] | the node |
//! | [`job`] | one job, of [`members`], [`sockets`], [`holding`] and [`news`] |
//! | [`begin`] | how it begins here |
//! | [`calls`] | how an agent calls the others of a job |
//! | [`job_directory`] | its files |
//! | [`tree`] | which node of a job holds which |
//! | [`hold`] | holding them |
//! | [`peers`] | what other agents ask for |
//! | [`local`] | what the node's users ask for |

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
