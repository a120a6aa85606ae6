//! Many small tasks over two sites: by a pool of isthmus, by mpi4py.futures, and by Dask, all as jobs of
//! isthmus on the same nodes.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::grid::{Bench, json, root, target, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run};
use crate::verdict::Bar;

/// Grids, and the round trips between their sites in milliseconds.
const GRIDS: [(&str, u32); 2] = [("workers-near", 10), ("workers-far", 100)];
/// Milliseconds that tasks take, and how many there are of each kind.
const TASKS: [(u32, u32); 3] = [(1, 800), (10, 240), (100, 80)];
/// Bytes of a task's argument, and of its result. Of large ones there are fewer.
const BYTES: [(u32, &str); 2] = [(1_000, "1 KB"), (1_000_000, "1 MB")];
const MOST_LARGE: u32 = 80;
/// A worker on each node. The MPI's first process, which is none, shares a node with one.
const WORKERS: u32 = 8;
/// As fast as each of them, or faster.
const BAR: Bar = Bar::AtMost(1.0);
/// For how long mpi4py.futures sleeps at most before it looks for messages again.
const BACKOFF: Duration = Duration::from_millis(1);
/// Debian's Python, which has Debian's Dask.
const PYTHON: &str = "/usr/bin/python3";

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
}

#[derive(Debug, Clone, Copy)]
struct Tasks {
    rtt_ms: u32,
    each_ms: u32,
    count: u32,
    bytes: u32,
    size: &'static str,
}

impl fmt::Display for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rtt_ms, each_ms, count, size, .. } = self;
        write!(
            f,
            "{count} tasks of {each_ms} ms, {size} each way, {WORKERS} workers, sites {rtt_ms} ms apart"
        )
    }
}

/// Whose workers run the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Pool,
    Futures,
    Dask,
}

const ALL: [By; 3] = [By::Pool, By::Futures, By::Dask];

fn cases(rtt_ms: u32) -> impl Iterator<Item = Tasks> {
    BYTES.into_iter().flat_map(move |(bytes, size)| {
        TASKS.map(|(each_ms, count)| {
            let count = if bytes > 1_000 { count.min(MOST_LARGE) } else { count };
            Tasks { rtt_ms, each_ms, count, bytes, size }
        })
    })
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let mut run = Run::begin("workers", &options.rounds, &[(Mpi::Mpich.launcher(), "--version")])?;
    let slow = options.rounds.slow;
    for (parts_left, (grid, rtt_ms)) in (1..=2).rev().zip(GRIDS) {
        let cases = cases(rtt_ms).map(|tasks| {
            let row = |against: &str| Comparison::new(tasks.to_string(), "ms", against);
            let rows = vec![row("mpi4py.futures").bar(BAR), row("Dask").bar(BAR), row("ideal")];
            Case::new(tasks, rows).slowed(slow)
        });
        run.part_in_slow_motion(parts_left, cases.collect(), |slow| {
            Ok(Sites { bench: Bench::without_sshd(grid, slow)? })
        })?;
    }
    run.finish()
}

struct Sites {
    bench: Bench,
}

impl Sites {
    /// Milliseconds, as described.
    fn milliseconds(&self, by: By, tasks: &Tasks) -> anyhow::Result<f64> {
        let slow = self.bench.slow();
        let script = root().join("bench/programs/tasks.py").display().to_string();
        let seconds = slow.time(Duration::from_millis(tasks.each_ms.into())).as_secs_f64();
        let numbers = format!("{} {seconds} {} {WORKERS}", tasks.count, tasks.bytes);
        let nodes = self.bench.nodes();
        let head = &nodes.first().context("no nodes")?.name;
        let python = target().join("mpich/bin/python").display().to_string();
        let ranks = format!("-n {} -ppn 1 {}", WORKERS + 1, Mpi::Mpich.yielding().join(" "));
        let command = match by {
            By::Pool => {
                let library = self.bench.isthmus().with_file_name("libisthmus_pool.so");
                let library = format!("env ISTHMUS_POOL_LIBRARY={}", library.display());
                let program = format!("{ranks} {library} {python} {script} pool {numbers}");
                self.bench.ours(Mpi::Mpich, &[], nodes, &words(&program))
            }
            By::Futures => {
                // How long it sleeps before it looks for messages again: as much slower as all else.
                let pause = format!("env MPI4PY_FUTURES_BACKOFF={}", slow.time(BACKOFF).as_secs_f64());
                let program =
                    format!("{ranks} {pause} {python} -m mpi4py.futures {script} futures {numbers}");
                self.bench.ours(Mpi::Mpich, &[], nodes, &words(&program))
            }
            By::Dask => {
                let names = nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(",");
                let isthmus = self.bench.isthmus().display();
                words(&format!(
                    "{isthmus} run --quiet --nodes {names} --each --no-prefix -- {PYTHON} {script} dask {numbers}"
                ))
            }
        };
        let found = json(&self.bench.output(head, &command)?)?;
        Ok(slow.as_described(found["seconds"].as_f64().context("no time")?) * 1e3)
    }
}

impl Experiment for Sites {
    type Case = Tasks;

    fn measure(&mut self, tasks: &Tasks, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let mut times = [0.0; ALL.len()];
        // Another one is the first in each round.
        for turn in 0..ALL.len() {
            let at = (round + turn) % ALL.len();
            times[at] = self.milliseconds(ALL[at], tasks)?;
        }
        let [pool, futures, dask] = times;
        let ideal = f64::from(tasks.each_ms) * f64::from(tasks.count) / f64::from(WORKERS);
        Ok(vec![[pool, futures], [pool, dask], [pool, ideal]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tasks_are_few() {
        let counts: Vec<_> = cases(10).map(|tasks| (tasks.size, tasks.each_ms, tasks.count)).collect();
        let want = [(1, 800), (10, 240), (100, 80)].map(|(each, count)| ("1 KB", each, count));
        let large = [1, 10, 100].map(|each| ("1 MB", each, 80));
        assert_eq!(counts, [want, large].concat());
    }
}
