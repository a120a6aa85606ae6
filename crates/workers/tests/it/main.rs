//! Pools in a simulated network: members come, go and are cut off at any moment.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail the test")]

mod losses;
mod speed;
mod world;
