//! What the dial `traverse` needs of raw packets (Traversing TCP; "Grid Services
//! for MPI", section 4): the segment that begins a connection, carried past a
//! firewall by other means. The binary of this crate, `isthmus-raw`, is the one
//! process of isthmus with a right that ordinary users don't have
//! (`CAP_NET_RAW`), so there is nothing else in it.
//!
//! | module | what |
//! |---|---|
//! | [`syn`] | the segment: read, checked, translated, written |
//! | [`permit`] | which segments may be injected into this host's IP stack |
//! | [`message`] | messages between agent and helper |
#![forbid(unsafe_code)]

pub mod message;
pub mod permit;
pub mod syn;

pub use syn::Syn;

/// File name of the helper.
pub const HELPER: &str = "isthmus-raw";
