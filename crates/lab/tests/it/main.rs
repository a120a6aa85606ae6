//! Labs that are brought up, used, broken and ended.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod capture;
mod common;
mod faults;
mod isolation;
mod lifecycle;
mod links;
mod network;
mod punch;
mod rails;
mod rootless;
mod sites;
