//! Labs that are brought up, used, broken and ended.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

/// Tests that measure, which run one at a time.
mod alone {
    mod links;
}
mod capture;
mod common;
mod faults;
mod grid_engine;
mod isolation;
mod lifecycle;
mod network;
mod punch;
mod rails;
mod rootless;
mod sites;
mod slurm;
