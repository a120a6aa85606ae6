//! The relay with a real broker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

mod attach;
mod grid;
mod one_port;
