//! Measures isthmus against the tools people use today, in the same place and
//! in turns.

#![forbid(unsafe_code)]

mod account;
mod before;
mod coll;
mod conditions;
mod confine;
mod connect;
mod contest;
mod direct;
mod encrypted;
mod files;
mod grid;
mod lab;
mod line_client;
mod load;
mod mpi;
mod nas;
mod nebula;
mod papers;
mod patterns;
mod pilot;
mod programs;
mod rails;
mod ray2mesh;
mod relay;
mod report;
mod rounds;
mod served;
mod shim;
mod simulate;
mod site_trunk;
mod slow;
mod sources;
mod start;
mod tcp;
mod tickets;
mod traffic;
mod trunk;
mod tunnel;
mod verdict;
mod wireguard;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure isthmus against the tools people use today.
///
/// Each benchmark writes bench/results/NAME.json after every round and prints a table
/// at its end. Rounds go on until each row is decided or the budget ends. The exit
/// status is 0 if every row was measured and every bar holds, 1 if not, 2 if the
/// benchmark could not run.
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
    /// Every way between sites against plain MPI on an open network.
    Connect(connect::Options),
    /// The traffic patterns between two private clusters of Choi et al. (ICCS
    /// 2004): over one gateway, and over two HAProxy in a row.
    Patterns(patterns::Options),
    /// Time to start a job against plain MPI over ssh.
    Start(start::Options),
    /// The relay against HAProxy (TCP mode, splicing) and socat; a connection
    /// that the agents encrypt against ssh -L, pairs of HAProxy and of stunnel
    /// with TLS, and WireGuard in user space.
    Relay(contest::Options),
    /// Gathers over a long link with loss and short queues: connections of their own
    /// against trunks (Alter and Glück, 2009).
    Trunk(trunk::Options),
    /// The trunk of two gateways: what they and the nodes take for it, against plain
    /// connections of the nodes.
    SiteTrunk(site_trunk::Options),
    /// Collectives over four sites, against the MPI's own.
    Coll(coll::Options),
    /// Collectives of up to 2,000 ranks on ten sites, simulated, against the MPI's own. What
    /// doesn't agree with the lab isn't published.
    Simulate(simulate::Options),
    /// The messages of NAS BT, SP and LU over three sites, against plain MPI.
    Nas(nas::Options),
    /// Slow motion itself: what a network decides at several factors.
    Slow(slow::Options),
    /// Programs that aren't made for wide areas, over an ocean: PyTorch's all-reduce and iperf3 over a
    /// trunk, and over connections of their own.
    Programs(programs::Options),
    /// Nodes that a batch scheduler gives, until a command runs over them, against srun.
    Pilot(pilot::Options),
    /// Many small tasks over two sites: a pool of isthmus against mpi4py.futures and Dask.
    Workers(workers::Options),
    /// Ray2mesh of up to 504 ranks, simulated: with the library's collectives, and with bosses at each
    /// site, against neither.
    Ray2mesh(ray2mesh::Options),
    /// A site with two links: a trunk over both against each alone.
    Rails(rails::Options),
    /// The emulated links themselves: what was asked for against what programs at
    /// their ends see.
    #[command(args_conflicts_with_subcommands = true)]
    Lab(lab::Options),
    /// What the preloaded library costs a program, and whether it ever holds
    /// one up.
    Shim(shim::Options),
    /// Write docs/papers.md anew: the papers' figures beside those in bench/results.
    Papers(papers::Options),
    /// List results that are missing, or older than what they measure.
    Check(sources::Options),
    /// Another isthmus command against the one of this tree: connections, starts and data.
    Before(before::Options),
    #[command(hide = true, subcommand)]
    Traffic(traffic::Command),
    #[command(hide = true)]
    RelayUnderTest(relay::UnderTest),
    #[command(hide = true, subcommand)]
    TrunkEnd(trunk::UnderTest),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().bench {
        Bench::Direct(options) => direct::run(&options).map(held),
        Bench::Connect(options) => connect::run(&options).map(held),
        Bench::Patterns(options) => patterns::run(&options).map(held),
        Bench::Start(options) => start::run(&options).map(held),
        Bench::Relay(options) => relay::run(&options).map(held),
        Bench::Coll(options) => coll::run(&options).map(held),
        Bench::Simulate(options) => simulate::run(&options).map(held),
        Bench::Nas(options) => nas::run(&options).map(held),
        Bench::Slow(options) => slow::run(&options).map(held),
        Bench::Programs(options) => programs::run(&options).map(held),
        Bench::Pilot(options) => pilot::run(&options).map(held),
        Bench::Workers(options) => workers::run(&options).map(held),
        Bench::Ray2mesh(options) => ray2mesh::run(&options).map(held),
        Bench::Rails(options) => rails::run(&options).map(held),
        Bench::SiteTrunk(options) => site_trunk::run(&options).map(held),
        Bench::Trunk(options) => trunk::run(&options).map(held),
        Bench::Shim(options) => shim::run(&options).map(held),
        Bench::Lab(options) => lab::run(options),
        Bench::Papers(options) => papers::run(&options).map(|()| ExitCode::SUCCESS),
        Bench::Check(options) => sources::check(&options),
        Bench::Before(options) => before::run(&options).map(held),
        Bench::Traffic(command) => traffic::run(command).map(|()| ExitCode::SUCCESS),
        Bench::TrunkEnd(end) => trunk::run_under_test(end).map(|()| ExitCode::SUCCESS),
        Bench::RelayUnderTest(options) => relay::run_under_test(&options).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("isthmus-bench: {error:#}");
        ExitCode::from(2)
    })
}

/// The exit status of a benchmark, given whether every bar holds.
fn held(bars: bool) -> ExitCode {
    if bars { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
