//! Raw packets for the dial `traverse` (Traversing TCP; "Grid Services for MPI",
//! section 4), which carries a connection's SYN past a firewall. The binary of
//! this crate, `isthmus-raw`, is the one process of isthmus with a right that
//! ordinary users lack (`CAP_NET_RAW`). So it does nothing else.
//!
//! | module | what |
//! |---|---|
//! | [`syn`] | the SYN: read, checked, translated, written |
//! | [`permit`] | which SYNs may be injected into this host's IP stack |
//! | [`rate`] | how many requests an agent may make |
//! | [`message`] | messages between agent and helper |
#![forbid(unsafe_code)]

pub mod message;
pub mod permit;
pub mod rate;
pub mod syn;

pub use syn::Syn;

/// File name of the helper's program.
pub const HELPER: &str = "isthmus-raw";
