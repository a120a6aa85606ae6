//! Gateways with a real broker, over TLS on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

mod captured;
mod control_plane;
mod grid;
mod members;
#[path = "../../../../tests/src/promised.rs"]
mod promised;
mod revocation;
mod scale;
mod site_trunk;
mod streams;
mod upstream;
mod without_broker;
