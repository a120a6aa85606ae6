//! Measures isthmus against the tools people use today, in the same place and
//! in turns.

#![forbid(unsafe_code)]

mod account;
mod asker;
mod confine;
mod contest;
mod direct;
mod encrypted;
mod grid;
mod relay;
mod report;
mod shim;
mod start;
mod tickets;
mod traffic;
mod tunnel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure isthmus against the tools people use today.
///
/// Each benchmark writes bench/results/NAME.json and prints a table. The exit
/// status is 0 if every bar holds, 1 if one is missed, 2 if nothing could be
/// measured.
#[derive(Debug, Parser)]
#[command(name = "isthmus-bench", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Handed-over sockets against plain MPI on the same two nodes.
    Direct(direct::Options),
    /// Time to start a job against plain MPI over ssh.
    Start(start::Options),
    /// The relay against HAProxy (TCP mode, splicing) and socat; a connection
    /// that the agents encrypt against ssh -L and a pair of HAProxy with TLS.
    Relay(relay::Options),
    /// What the preloaded library costs a program, and whether it ever holds
    /// one up.
    Shim(shim::Options),
    #[command(hide = true, subcommand)]
    Traffic(traffic::Command),
    #[command(hide = true)]
    RelayUnderTest(relay::UnderTest),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().bench {
        Bench::Direct(options) => direct::run(&options),
        Bench::Start(options) => start::run(&options),
        Bench::Relay(options) => relay::run(&options),
        Bench::Shim(options) => shim::run(&options),
        Bench::Traffic(command) => traffic::run(command).map(|()| true),
        Bench::RelayUnderTest(options) => relay::run_under_test(&options).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("isthmus-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}
