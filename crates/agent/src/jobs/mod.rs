//! The node and its jobs.
//!
//! | module | what |
//! |---|---|
//! | [`node`] | the node |
//! | [`job`] | one job |
//! | [`job_directory`] | its files |
//! | [`tree`] | which node of a job holds which |
//! | [`hold`] | holding them |
//! | [`peers`] | what other agents ask for |
//! | [`local`] | what the node's users ask for |

pub mod hold;
pub mod job;
pub mod job_directory;
pub mod local;
pub mod node;
pub mod peers;
pub mod tree;
