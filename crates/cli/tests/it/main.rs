//! The real `isthmus` binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod lab;
mod playground;
mod profile;
mod services;
mod supervise;
mod up;
mod upgrade;
