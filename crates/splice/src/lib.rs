//! Joining two connections by their tickets, as relays do for the whole grid
//! and gateways for the nodes of their site: whoever shows the two tickets of
//! one connection id is joined, and bytes flow without coming to user space.
//!
//! | module | does |
//! |---|---|
//! | [`matcher`] | decides: tickets in, pairs out, no I/O |
//! | [`admission`] | takes connections and their tickets |
//! | [`recent_clients`] | who has asked how they are seen |
//! | [`reach_tests`] | who is to show that the port outside is reached |
//! | [`plane`] | the data plane: worker threads that carry the bytes |
//! | [`address`] | where others reach a port if nobody says |

#![forbid(unsafe_code)]

pub mod address;
pub mod admission;
mod flow;
pub mod matcher;
mod pipe;
pub mod plane;
mod reach_tests;
mod recent_clients;
mod worker;

pub use reach_tests::ReachTests;
pub use recent_clients::RecentClients;
