//! Collectives over four sites: those that cross between sites once, against the MPI's own
//! in the same process, in turns (paper 2, section 4.2).

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::papers;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run};
use crate::verdict::Bar;

/// Bar of all other calls: the library must not be slower than the MPI's own.
const NEVER_SLOWER: Bar = Bar::AtMost(1.05);
/// Bar of broadcasts, reductions and gathers of small messages, in which one rank has something for
/// all or gets something from all.
const ROOTED: Bar = Bar::AtMost(0.5);
/// Bar of barriers, and of calls with small messages in which all ranks have something for all
/// others.
const ALL: Bar = Bar::AtMost(0.25);
/// Largest size in bytes of small messages.
const SMALL_BYTES: u64 = 4096;

const OPERATIONS: [&str; 7] = ["barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather"];
/// Sizes in bytes of what each rank contributes, with the number of calls in a round. A call of the
/// large ones takes a second or more.
const SIZES: [(&[u64], u32); 2] = [(&[8, 4 << 10, 32 << 10, 256 << 10], 7), (&[1 << 20, 4 << 20], 3)];
/// Number of calls in a round of slow motion, in which calls of all sizes take long and differ
/// little.
const SLOW_REPETITIONS: u32 = 3;
const RANKS: u32 = 8;

/// How ranks are placed on the sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// The ranks of a site follow each other, as launchers place them.
    Blocks,
    /// Each rank is at the next site, in turns.
    Turns,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocks => "",
            Self::Turns => ", sites in turns",
        })
    }
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

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// The MPIs whose collectives are measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mpi::Openmpi, Mpi::Mpich])]
    mpis: Vec<Mpi>,
}

/// The calls that a run of the program measures.
#[derive(Debug, Clone, Copy)]
struct Calls {
    operation: &'static str,
    sizes: &'static [u64],
    repetitions: u32,
    mpi: Mpi,
    layout: Layout,
}

impl Calls {
    fn bar(self, bytes: u64) -> Bar {
        match self.operation {
            _ if bytes > SMALL_BYTES => NEVER_SLOWER,
            "barrier" | "allgather" | "allreduce" => ALL,
            "bcast" | "reduce" | "gather" => ROOTED,
            _ => NEVER_SLOWER,
        }
    }

    fn row(self, bytes: u64) -> Comparison {
        let size = if self.operation == "barrier" { String::new() } else { format!(", {bytes} B") };
        Comparison::new(format!("{self}{size}{}", self.layout), "ms", "the MPI's own").bar(self.bar(bytes))
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.mpi.title(), self.operation)
    }
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let slow = options.rounds.slow;
    let tools: Vec<_> = options.mpis.iter().map(|mpi| (mpi.launcher(), "--version")).collect();
    let mut run = Run::begin("coll", &options.rounds, &tools)?;
    let mut cases = Vec::new();
    for (mpi, layout) in options.mpis.iter().flat_map(|mpi| Layout::ALL.map(|layout| (*mpi, layout))) {
        for operation in OPERATIONS {
            let groups = if operation == "barrier" { &SIZES[..1] } else { &SIZES[..] };
            for (sizes, repetitions) in groups {
                let sizes = if operation == "barrier" { &sizes[..1] } else { sizes };
                let repetitions = if slow.is_none() { *repetitions } else { SLOW_REPETITIONS };
                let calls = Calls { operation, sizes, repetitions, mpi, layout };
                let rows = sizes.iter().map(|bytes| calls.row(*bytes)).collect();
                cases.push(Case::new(calls, rows).slowed(slow));
            }
        }
    }
    run.part(1, cases, || Ok(Sites { bench: Bench::without_sshd("coll", slow)? }))?;
    let holds = run.finish()?;
    papers::refresh(&options.rounds.results)?;
    Ok(holds)
}

/// A grid of four sites with a node each.
struct Sites {
    bench: Bench,
}

impl Experiment for Sites {
    type Case = Calls;

    fn measure(&mut self, calls: &Calls, _round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let Calls { operation, sizes, repetitions, mpi, layout } = calls;
        let sizes: Vec<_> = sizes.iter().map(u64::to_string).collect();
        let options = format!("-n {RANKS} {} {}", layout.options(*mpi).join(" "), mpi.yielding().join(" "));
        let measured = milliseconds(
            &self.bench,
            *mpi,
            &options,
            &format!("{operation} {} {repetitions}", sizes.join(",")),
        )?;
        ensure!(measured.len() == calls.sizes.len(), "not a line for each size");
        Ok(measured)
    }

    fn polling(&self) -> &'static [&'static str] {
        PROGRAM
    }
}

/// The name of the program that times calls.
pub(crate) const PROGRAM: &[&str] = &["colltime"];

/// Milliseconds of a call by the library and by the MPI's own, for each size in `calls`, as they
/// would be without slow motion. `options` are the launcher's, and `calls` are arguments of the
/// program.
pub(crate) fn milliseconds(
    bench: &Bench,
    mpi: Mpi,
    options: &str,
    calls: &str,
) -> anyhow::Result<Vec<[f64; 2]>> {
    let (nodes, slow) = (bench.nodes(), bench.slow());
    let program = mpi.program("colltime")?;
    let words = words(&format!("{options} {program} {calls} {}", by_clock(slow)));
    let output = bench.output(&nodes[0].name, &bench.ours(mpi, &[], nodes, &words))?;
    output.lines().filter(|line| line.starts_with('{')).map(|line| figures(line, slow)).collect()
}

/// How long the program takes to tell all ranks when to begin: longer than the longest way.
const HEAD_START: Duration = Duration::from_millis(50);

/// The program's last argument, by which all ranks begin at the same moment.
pub(crate) fn by_clock(slow: Slow) -> String {
    format!("clock={}", slow.time(HEAD_START).as_secs_f64())
}

/// Milliseconds of a call by the library and by the MPI's own, from a line of the program.
fn figures(line: &str, slow: Slow) -> anyhow::Result<[f64; 2]> {
    let found = json(line)?;
    ensure!(found["interposed"] == true, "the library isn't in the program: {found}");
    let milliseconds = |name: &str| found[name].as_f64().with_context(|| format!("no {name}: {found}"));
    Ok([milliseconds("ours_us")?, milliseconds("native_us")?].map(|us| slow.as_described(us) / 1e3))
}
