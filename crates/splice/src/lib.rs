//! Splices two connections that show the two tickets of one connection id. Relays do
//! so for the whole grid, gateways for the nodes of their site. The bytes don't enter
//! user space.
//!
//! | module | does |
//! |---|---|
//! | [`matcher`] | decides: tickets in, pairs out, no I/O |
//! | [`admission`] | takes connections and their tickets |
//! | [`claims`] | reach tests that clients have named |
//! | [`reach_tests`] | expected reach tests of the port outside |
//! | [`plane`] | the data plane: worker threads that carry the bytes |
//! | [`address`] | the address that a service announces |

#![forbid(unsafe_code)]

pub mod address;
pub mod admission;
mod claims;
mod flow;
pub mod matcher;
mod pipe;
pub mod plane;
mod reach_tests;
mod worker;

pub use claims::Claims;
pub use reach_tests::ReachTests;
