//! The data plane over real sockets: spliced pairs, trunks.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail the test")]

mod better;
mod common;
mod keep;
mod released;
mod swallows;
mod trunk;
