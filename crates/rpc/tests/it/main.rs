//! Connections between services, over real sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod flood;
// The end-to-end tests share it.
#[path = "../frames/mod.rs"]
mod frames;
mod grpc;
mod members;
mod packets;
