//! Trunks in memory, with a clock that the tests move.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]
#![allow(clippy::disallowed_methods, reason = "tests have a clock")]

mod carriers;
mod common;
mod credit;
mod cuts;
mod fairness;
mod model;
mod priming;
mod progress;
mod rails;
mod repeats;
mod rules;
mod slow;
mod soak;
mod start;
