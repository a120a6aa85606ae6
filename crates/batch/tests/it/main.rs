//! Schedulers that are really there, each in namespaces of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod cluster;
mod grid_engine;
mod hosts;
mod slurm;
