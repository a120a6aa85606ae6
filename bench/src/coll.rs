//! Collectives over four sites: those that cross between sites once, against the MPI's own
//! in the same process, in turns (paper 2, section 4.2).

use std::fmt;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::papers;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run};
use crate::verdict::Bar;

/// Nowhere slower than the MPI's own.
const NEVER_SLOWER: Bar = Bar::AtMost(1.05);
/// Small messages, where one rank has something for all others or all for it.
const ROOTED: Bar = Bar::AtMost(0.5);
/// The same where all have something for all.
const ALL: Bar = Bar::AtMost(0.25);
/// Messages below are small.
const SMALL_BYTES: u64 = 4096;

const OPERATIONS: [&str; 7] = ["barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather"];
const SIZES: [u64; 6] = [8, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20];
const RANKS: u32 = 8;
/// Calls of a message of this size or more are few: each takes a second or more.
const LARGE_BYTES: u64 = 1 << 20;
const LARGE_REPETITIONS: u32 = 3;

/// Which rank is where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A site's ranks follow one another, as launchers place them.
    Blocks,
    /// The sites take turns.
    Turns,
}

impl Layout {
    const ALL: [Self; 2] = [Self::Blocks, Self::Turns];

    fn options(self, mpi: Mpi) -> Vec<String> {
        match self {
            Self::Blocks => mpi.in_blocks(),
            Self::Turns => mpi.on_shared_cores(),
        }
    }
}

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// Calls of each kind in a round.
    #[arg(long, default_value_t = 11)]
    repetitions: u32,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    operation: &'static str,
    bytes: u64,
    mpi: Mpi,
    layout: Layout,
}

impl Call {
    fn bar(self) -> Bar {
        match self.operation {
            _ if self.bytes > SMALL_BYTES => NEVER_SLOWER,
            "barrier" | "allgather" | "allreduce" => ALL,
            "bcast" | "reduce" | "gather" => ROOTED,
            _ => NEVER_SLOWER,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.mpi.title(), self.operation)?;
        if self.operation != "barrier" {
            write!(f, ", {} B", self.bytes)?;
        }
        match self.layout {
            Layout::Blocks => Ok(()),
            Layout::Turns => write!(f, ", sites in turns"),
        }
    }
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// If the results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let mpis = [Mpi::Openmpi, Mpi::Mpich];
    let tools = mpis.map(|mpi| (mpi.launcher(), "--version"));
    let mut run = Run::begin("coll", &options.rounds, &tools)?;
    let mut cases = Vec::new();
    for (mpi, layout) in mpis.into_iter().flat_map(|mpi| Layout::ALL.map(|layout| (mpi, layout))) {
        for operation in OPERATIONS {
            let sizes = if operation == "barrier" { &SIZES[..1] } else { &SIZES[..] };
            let calls = sizes.iter().map(|bytes| Call { operation, bytes: *bytes, mpi, layout });
            cases.extend(calls.map(|call| {
                let row = Comparison::new(call.to_string(), "ms", "the MPI's own").bar(call.bar());
                Case::new(call, vec![row])
            }));
        }
    }
    let repetitions = options.repetitions;
    run.part(1, cases, || Ok(Sites { bench: Bench::without_sshd("coll")?, repetitions }))?;
    let holds = run.finish()?;
    papers::refresh(&options.rounds.results)?;
    Ok(holds)
}

/// Four sites with a node each.
struct Sites {
    bench: Bench,
    repetitions: u32,
}

impl Experiment for Sites {
    type Case = Call;

    fn measure(&mut self, call: &Call, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let nodes = self.bench.nodes();
        let program = call.mpi.program("colltime")?;
        let Call { operation, bytes, mpi, layout } = call;
        let repetitions = match *bytes {
            LARGE_BYTES.. => self.repetitions.min(LARGE_REPETITIONS),
            _ => self.repetitions,
        };
        let options = layout.options(*mpi).join(" ");
        let arguments =
            words(&format!("-n {RANKS} {options} {program} {operation} {bytes} {repetitions}"));
        let command = self.bench.ours(*mpi, &[], nodes, &arguments);
        let found = json(&self.bench.output(&nodes[0].name, &command)?)?;
        ensure!(found["interposed"] == true, "the library isn't in the program: {found}");
        let milliseconds = |name: &str| Some(found[name].as_f64()? / 1e3);
        let pair = [milliseconds("ours_us"), milliseconds("native_us")].map(|time| time.context("no time"));
        let [ours, native] = pair;
        Ok(vec![[ours?, native?]])
    }
}
