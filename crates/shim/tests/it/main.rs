//! Tests of the built library in real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail the test")]

mod common;
mod exports;
mod one_node;
mod other_user;
mod valgrind;
