//! What each long-running process of isthmus needs of its machine: ports, logs, counters,
//! secrets on disk, replacement in place.
//!
//! | module | what |
//! |---|---|
//! | [`mod@log`] | a log that waits for nobody who reads it |
//! | [`few_lines`] | logs that nobody can flood |
//! | [`counters`] | a service's counters, for Prometheus |
//! | [`files`], [`private`] | secrets on disk; paths at which no other user can put anything |
//! | [`mac`] | message authentication, random values |
//! | [`clock`], [`mod@lock`] | this machine's time; mutexes |
//! | [`deadline`] | one time limit for work that has several parts |
//! | [`kept`] | work in the background that is started again if it fails |
//! | [`allowance`] | how often each party may do something |
//! | [`silence`] | for how long another service has been silent |
//! | [`exhausted`] | what to do without descriptors |
//! | [`mod@listen`] | listening for bursts of connections, first bytes |
//! | [`unidentified`] | connections whose peers have not proved an identity yet |
//! | [`upgrade`] | replacing a service's program in place |
#![deny(unsafe_code)]

pub mod allowance;
pub mod clock;
pub mod counters;
pub mod deadline;
pub mod exhausted;
pub mod few_lines;
pub mod files;
pub mod kept;
pub mod listen;
pub mod lock;
pub mod log;
pub mod mac;
pub mod private;
pub mod silence;
pub mod unidentified;
pub mod upgrade;

pub use deadline::{Deadline, Late};
pub use listen::listen;
pub use lock::lock;
