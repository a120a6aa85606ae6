//! Programs that aren't made for wide areas, over an ocean: PyTorch's all-reduce by Gloo, started by
//! torchrun, and a stream of iperf3. In a job of isthmus they run over a trunk; the reference are the same programs
//! over plain routing, whose connections have CUBIC.

use std::fmt;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::conditions::congestion_control;
use crate::confine::Running;
use crate::grid::{Bench, Node, json, root, words};
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::tunnel::start;
use crate::verdict::Bar;

/// The grids, and what their trunks have.
const GRIDS: [(&str, &str); 2] = [("ocean", ""), ("ocean-without-bbr", ", trunk without BBR")];
/// The grids' round trip in seconds, and the rate of its link.
const RTT_SECONDS: f64 = 0.1;
const BITS_PER_SECOND: f64 = 200e6;
/// The bytes that a program sends.
const BYTES: f64 = 64e6;
/// The link is filled to 0.85.
const OF_IDEAL: Bar = Bar::AtMost(1.17);
/// Debian's Python, which has Debian's PyTorch.
const PYTHON: &str = "/usr/bin/python3";
/// `torchrun` of two nodes. Debian 12's is older than its Python, and needs the options for its output.
const TORCHRUN: &str = "-m torch.distributed.run -r 1 -t 1 --nnodes 2 --nproc_per_node 1 --master_port 7001";
/// What connections of programs that choose no congestion control have on nearly every system.
const CUBIC: &str = "cubic";
/// Slowest motion: with more, TCP would take the round trip for a loss.
const SLOWEST: u32 = 9;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    AllReduce,
    Iperf3,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::AllReduce => "torchrun's all-reduce (PyTorch, Gloo)",
            Self::Iperf3 => "a stream of iperf3",
        };
        write!(f, "{what}, 64 MB, 100 ms, 200 Mb/s, loss 0.01 %")
    }
}

impl Program {
    /// What `bench/programs/ocean.py` calls it.
    fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::Iperf3 => "iperf3",
        }
    }

    /// How long it may take by the time over connections with CUBIC.
    fn of_cubic(self) -> Bar {
        match self {
            Self::AllReduce => Bar::AtMost(1.0 / 3.0),
            Self::Iperf3 => Bar::AtMost(0.5),
        }
    }

    /// The node whose address both ends are told.
    fn head(self) -> usize {
        match self {
            Self::AllReduce => 0,
            Self::Iperf3 => 1,
        }
    }
}

/// The slow motion of the ocean: an eighth of that of short ways.
fn slow_motion(slow: Slow) -> Slow {
    slow.less(8).at_most(SLOWEST)
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written, or connections of this system have no CUBIC.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    // A route's `congctl` would give it to isthmus as well, which chooses before it connects.
    let found = congestion_control();
    ensure!(
        found == CUBIC,
        "this system's connections have {found}, and the reference is programs over {CUBIC}: \
         sysctl -w net.ipv4.tcp_congestion_control={CUBIC}"
    );
    let mut run = Run::begin("programs", &options.rounds, &[("iperf3".to_owned(), "--version")])?;
    let slow = slow_motion(options.rounds.slow);
    for (parts_left, (grid, trunk)) in (1..=2).rev().zip(GRIDS) {
        let cases = [Program::AllReduce, Program::Iperf3].map(|program| {
            let row =
                |against: &str, bar| Comparison::new(format!("{program}{trunk}"), "ms", against).bar(bar);
            Case::new(program, vec![row("ideal", OF_IDEAL), row("own CUBIC", program.of_cubic())])
                .slowed(slow)
        });
        run.part_in_slow_motion(parts_left, cases.into(), |slow| Ocean::up(grid, slow))?;
    }
    let holds = run.finish()?;
    options.rounds.refresh_papers()?;
    Ok(holds)
}

/// Both sides of the ocean.
struct Ocean {
    bench: Bench,
}

impl Ocean {
    fn up(grid: &str, slow: Slow) -> anyhow::Result<Self> {
        Ok(Self { bench: Bench::without_sshd(grid, slow)? })
    }

    fn nodes(&self) -> anyhow::Result<[&Node; 2]> {
        let [near, far] = self.bench.nodes() else { anyhow::bail!("an ocean must have two nodes") };
        Ok([near, far])
    }

    /// The words of a program at an end, which is told its rank and the address of the head.
    fn words(&self, program: Program, rank: &str, head: &str) -> String {
        let script = root().join("bench/programs/ocean.py");
        let script = format!("{} --slow {} {}", script.display(), self.bench.slow(), program.name());
        match program {
            Program::AllReduce => {
                format!("{PYTHON} {TORCHRUN} --node_rank {rank} --master_addr {head} {script}")
            }
            Program::Iperf3 => format!("{PYTHON} {script} {rank} {head}"),
        }
    }

    /// Milliseconds in a job of isthmus.
    fn ours(&self, program: Program) -> anyhow::Result<f64> {
        let nodes = self.nodes()?;
        let job = format!(
            "{} run --quiet --nodes {},{} --each --no-prefix -- sh -c",
            self.bench.isthmus().display(),
            nodes[0].name,
            nodes[1].name
        );
        let script =
            format!("exec {}", self.words(program, "$ISTHMUS_NODE_RANK", &nodes[program.head()].name));
        let words = [words(&job), vec![script]].concat();
        self.milliseconds(&self.bench.output(&nodes[0].name, &words)?)
    }

    /// Milliseconds over connections of the program's own.
    fn plain(&self, program: Program) -> anyhow::Result<f64> {
        let nodes = self.nodes()?;
        let at = |rank: usize| {
            // Otherwise Gloo takes the address by which the node's name is found: loopback's.
            let interface = "GLOO_SOCKET_IFNAME=eth0";
            let head = nodes[program.head()].address.to_string();
            words(&format!("env {interface} {}", self.words(program, &rank.to_string(), &head)))
        };
        let mut far = self.bench.command(&nodes[1].name, &at(1))?;
        far.stdout(Stdio::null());
        let _far: Running = start(far)?;
        self.milliseconds(&self.bench.output(&nodes[0].name, &at(0))?)
    }

    fn milliseconds(&self, output: &str) -> anyhow::Result<f64> {
        // torchrun begins lines with the rank's name.
        let lines = output.lines().filter_map(|line| line.get(line.find('{')?..));
        let found = json(&lines.collect::<Vec<_>>().join("\n"))?;
        let seconds = found["seconds"].as_f64().context("no time")?;
        Ok(self.bench.slow().as_described(seconds) * 1e3)
    }
}

impl Experiment for Ocean {
    type Case = Program;

    fn measure(&mut self, program: &Program, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let [ours, plain] = in_turns(round, |side| match side {
            0 => self.ours(*program),
            _ => self.plain(*program),
        })?;
        let ideal = (BYTES * 8.0 / BITS_PER_SECOND + RTT_SECONDS) * 1e3;
        Ok(vec![[ours, ideal], [ours, plain]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ocean_needs_little_slow_motion() {
        for (asked, want) in [(1, 1), (8, 1), (20, 3), (90, 9)] {
            assert_eq!(slow_motion(Slow::try_from(asked).unwrap()).factor(), want, "{asked}");
        }
    }
}
