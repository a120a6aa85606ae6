//! Splices two connections that show the two tickets of one connection id. Relays do
//! so for the whole grid, gateways for the nodes of their site. The data plane
//! (`isthmus-carry`) carries the bytes.
//!
//! | module | does |
//! |---|---|
//! | [`matcher`] | decides: tickets in, pairs out, no I/O |
//! | [`admission`] | takes connections and their tickets |
//! | `intake` | where they arrive |
//! | [`claims`] | reach tests that clients have named |
//! | `expected` | expected reach tests of the port outside |
//! | [`succession`] | another program takes this one's place, and carries on |
//! | `ticket_key` | the key of tickets, and the clock by which they expire |
//! | [`address`] | the address that a service announces |

#![forbid(unsafe_code)]

pub mod address;
pub mod admission;
mod claims;
mod expected;
mod gate;
mod intake;
pub mod matcher;
pub mod succession;
mod ticket_key;

pub use claims::Claims;
pub use expected::ReachTests;
pub use ticket_key::TicketKey;
