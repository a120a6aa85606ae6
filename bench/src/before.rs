//! Another isthmus command, such as one of before a change, against the one of this
//! tree: connections, starts and data, each in a grid of its own, in turns.

mod data;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use isthmus_lab::grid::Slow;

use crate::connect::{self, GRIDS, MeasuredWay, WAYS, until_known};
use crate::grid::{Bench, target};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::start;
use crate::verdict::Bar;
use data::Data;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What is measured under both commands.
    what: What,
    /// The other isthmus command; its library and its lab, isthmus-lab, lie beside it.
    #[arg(long)]
    binary: PathBuf,
    /// Upper limit of the ratios, this tree's to the other command's.
    #[arg(long, default_value_t = 1.1)]
    bar: f64,
    /// Whether the sites of connections are 10 ms apart.
    #[arg(long)]
    far: bool,
    /// The MPIs of starts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mpi::Openmpi, Mpi::Mpich])]
    mpis: Vec<Mpi>,
    /// Numbers of ranks of starts.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 16])]
    ranks: Vec<usize>,
    /// How long data is measured per figure and round.
    #[arg(long, default_value = "2s")]
    duration: humantime::Duration,
    #[command(flatten)]
    rounds: rounds::RoundOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A job's first connection and the next ones, by each way.
    Connect,
    /// Starts of a job on one site.
    Start,
    /// Messages and streams through two agents that encrypt them.
    Data,
}

/// A figure that both commands' grids give.
enum Figure {
    Connect(MeasuredWay),
    Start(Mpi, usize),
}

/// The grids of both commands, that of this tree first.
struct Both([Bench; 2]);

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The other command isn't there, or the results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let binary = options.binary.canonicalize();
    let binary = binary.with_context(|| format!("cannot find {}", options.binary.display()))?;
    let row = |what: String, unit: &str| Comparison::new(what, unit, "before").bar(Bar::AtMost(options.bar));
    let (grid, place) = GRIDS[usize::from(options.far)];
    let slow = options.rounds.slow;
    ensure!(
        slow.is_none() || (options.what == What::Connect && options.far),
        "--slow needs emulated links: those of connect --far"
    );
    let (grid, name, cases): (_, _, Vec<_>) = match options.what {
        What::Data => {
            // Its sources are those of the relay benchmark, which has encrypted connections, too.
            let mut run = Run::begin("before-relay", &options.rounds, &[])?;
            run.part(1, Data::cases(options.bar), || data::Both::up(&binary, *options.duration))?;
            return run.finish();
        }
        What::Connect => {
            let rows = |way: MeasuredWay| {
                ["first", "next"].map(|which| row(format!("{}, {which} connection, {place}", way.0), "ms"))
            };
            (grid, "before-connect", WAYS.map(|way| Case::new(Figure::Connect(way), rows(way).into())).into())
        }
        What::Start => {
            let of = |mpi: Mpi, ranks: usize| {
                let what = format!("{}, {ranks} ranks, one site", mpi.title());
                Case::new(Figure::Start(mpi, ranks), vec![row(what, "s")])
            };
            let ranks = options.ranks.iter().copied();
            let cases = ranks.flat_map(|ranks| options.mpis.iter().map(move |mpi| of(*mpi, ranks)));
            ("lan", "before-start", cases.collect())
        }
    };
    let tools: Vec<_> = options.mpis.iter().map(|mpi| (mpi.launcher(), "--version")).collect();
    let mut run = Run::begin(name, &options.rounds, &tools)?;
    let cases = Vec::from_iter(cases.into_iter().map(|case| case.slowed(slow)));
    run.part(1, cases, || Both::up(grid, slow, &binary))?;
    run.finish()
}

impl Both {
    fn up(grid: &str, slow: Slow, binary: &Path) -> anyhow::Result<Self> {
        let both = [target().join("release/isthmus"), binary.to_owned()];
        let [ours, before] = both.map(|isthmus| Bench::with(grid, slow, isthmus));
        let both = [ours?, before?];
        if grid == GRIDS[0].0 || grid == GRIDS[1].0 {
            for bench in &both {
                for (way, ends) in WAYS {
                    until_known(bench, way, ends)?;
                }
            }
        }
        Ok(Self(both))
    }
}

impl Experiment for Both {
    type Case = Figure;

    fn polling(&self) -> &'static [&'static str] {
        &["init"]
    }

    fn measure(&mut self, figure: &Figure, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let [ours, before] = in_turns(round, |side| match figure {
            Figure::Connect((_, ends)) => Ok(connect::connect(&self.0[side], *ends)?.to_vec()),
            Figure::Start(mpi, ranks) => {
                let bench = &self.0[side];
                let started = start::start(bench, *mpi, *ranks, |arguments| {
                    bench.ours(*mpi, &[], bench.nodes(), arguments)
                })?;
                ensure!(started.seconds.is_some(), "no figure: {}", started.errors);
                Ok(Vec::from_iter(started.seconds))
            }
        })?;
        Ok(rounds::pair_up(&ours, &before))
    }
}
