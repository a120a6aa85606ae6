//! Time from a launcher's call to the last return from `MPI_Init`, on eight
//! nodes, against the same MPI over ssh on the same nodes; and where ours goes.

mod phases;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use clap::Args;
use isthmus_lab::grid::Slow;
use serde_json::Value;

use crate::conditions::cores;
use crate::grid::{Bench, json, words};
use crate::mpi::Mpi;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::verdict::Bar;
use phases::Phases;

/// Bar of a start, as a ratio to the reference's.
const BAR: Bar = Bar::AtMost(1.2);

/// Round trips between the sites that a start over a wide area may take on top. Before the launcher
/// starts, a node of the other site is asked to take part. That takes a look-up of its agent, a
/// dial, the handshake, and the question with its answer.
const ROUND_TRIPS: f64 = 8.0;

/// The grids with what rows call them, and the round-trip time between their sites in seconds.
const GRIDS: [(&str, &str, f64); 2] =
    [("lan", "one site", 0.0), ("two-open", "two sites 10 ms apart", 0.010)];

/// How long a run may take, and how much longer for each rank. Some MPIs sometimes hang at their
/// end, with isthmus and without. The figure that they printed before counts, and they are ended a
/// while later.
const DEADLINE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(1));

/// Most ranks per core of a row with a bar. With more, ranks slow each other by chance, with isthmus
/// and without, and means of two runs differ by factors. Of ranks that poll while they wait, a core
/// takes one.
const MOST_PER_CORE: usize = 8;
/// What has so many ranks run after all else, with isthmus and over ssh. Otherwise they take the cores
/// from what starts them, for longer than agents wait for a sign of life.
const LAST: &str = "nice -n 19";

const MPIS: [Mpi; 4] = [Mpi::Openmpi, Mpi::Openmpi5, Mpi::Mpich4, Mpi::Mpich];
const RANKS: [usize; 4] = [4, 16, 64, 128];

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// The MPIs whose jobs are started.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = MPIS)]
    mpis: Vec<Mpi>,
    /// Numbers of ranks. Rows with more than 8 per core have no bar; one round of them
    /// suffices. An MPI whose ranks can't but poll while they wait has one for each core.
    #[arg(long, value_delimiter = ',', default_values_t = RANKS)]
    ranks: Vec<usize>,
}

/// Measures, writes the results, and returns whether every bar holds.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    for mpi in &options.mpis {
        mpi.program("init")?;
    }
    let mut tools = vec![("ssh".to_owned(), "-V")];
    tools.extend(options.mpis.iter().map(|mpi| (mpi.launcher(), "--version")));
    let mut run = Run::begin("start", &options.rounds, &tools)?;
    run.leaves_out(&MPIS, &options.mpis);
    run.leaves_out(&RANKS, &options.ranks);
    let phases = Mutex::new(Phases::new(&options.rounds.results, run.goes_on()));
    for (parts_left, (grid, place, rtt_seconds)) in [2, 1].into_iter().zip(GRIDS) {
        // Within a site no link is emulated.
        let slow = if rtt_seconds > 0.0 { options.rounds.slow } else { Slow::NONE };
        let allowance = ROUND_TRIPS * rtt_seconds;
        let less = if allowance > 0.0 { format!(", less {ROUND_TRIPS} round trips") } else { String::new() };
        let mut cases = Vec::new();
        for mpi in options.mpis.iter().copied() {
            for ranks in numbers_of_ranks(mpi, &options.ranks, cores()) {
                let name = format!("{}, {ranks} ranks, {place}", mpi.title());
                let row = Comparison::new(format!("{name}{less}"), "s", "over ssh").bar(bar(ranks, cores()));
                let case = Case::new(Start { mpi, ranks, name }, vec![row]);
                let case = case.enough(1).slowed(slow);
                cases.push(if mpi.can_yield() { case } else { case.alone() });
            }
        }
        run.part_in_slow_motion(parts_left, cases, |slow| {
            Ok(RunningGrid { bench: Bench::up(grid, slow)?, allowance, phases: &phases })
        })?;
    }
    if !options.rounds.plan {
        phases.lock().unwrap_or_else(PoisonError::into_inner).print();
    }
    run.finish()
}

/// The bar of a start.
fn bar(ranks: usize, cores: usize) -> Option<Bar> {
    (ranks <= MOST_PER_CORE * cores).then_some(BAR)
}

/// The numbers of ranks with which an MPI is started, of those that are asked for. Ranks that can't
/// but poll share no core.
fn numbers_of_ranks(mpi: Mpi, asked: &[usize], cores: usize) -> Vec<usize> {
    if mpi.can_yield() {
        return asked.to_vec();
    }
    let mut fitting: Vec<usize> = asked.iter().map(|ranks| (*ranks).min(cores)).collect();
    fitting.sort_unstable();
    fitting.dedup();
    fitting
}

/// Whether ranks take the cores from what starts them.
fn crowds(ranks: usize, cores: usize) -> bool {
    ranks > MOST_PER_CORE * cores
}

/// A job that is started, with its name in the results.
struct Start {
    mpi: Mpi,
    ranks: usize,
    name: String,
}

/// A grid that is up.
struct RunningGrid<'a> {
    bench: Bench,
    /// Seconds that a start with isthmus may take on top.
    allowance: f64,
    phases: &'a Mutex<Phases>,
}

impl Experiment for RunningGrid<'_> {
    type Case = Start;

    fn polling(&self) -> &'static [&'static str] {
        &["init"]
    }

    fn measure(&mut self, case: &Start, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let account = self.bench.scratch().join("account.json");
        let report = account.display().to_string();
        let nodes = self.bench.nodes();
        let found = in_turns(round, |side| {
            let started = start(&self.bench, case.mpi, case.ranks, |arguments| match side {
                0 => self.bench.ours(case.mpi, &["--report", &report], nodes, arguments),
                _ => self.bench.plain(case.mpi, nodes, 16, arguments),
            })?;
            let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = phases.of(&case.name);
            seen.seconds[side].extend(started.seconds);
            if started.hung {
                seen.hung[side] += 1;
            } else if side == 0 {
                let text = std::fs::read_to_string(&account).context("no report of the job")?;
                seen.add_phases(&serde_json::from_str::<Value>(&text)?["timing"]["phases"]);
            }
            phases.write()?;
            Ok(started)
        })?;
        let [ours, plain] = found.map(|started| started.seconds.ok_or(started.errors));
        // A ratio needs both.
        let ours = ours.map_err(|errors| anyhow!("no figure with isthmus: {errors}"))?;
        let plain = plain.map_err(|errors| anyhow!("no figure over ssh: {errors}"))?;
        let [ours, plain] = [ours, plain].map(|seconds| self.bench.slow().as_described(seconds));
        Ok(vec![[ours - self.allowance, plain]])
    }
}

/// What became of a start.
pub(crate) struct Started {
    /// Seconds to the last return from `MPI_Init`. `None` if the program didn't print them.
    pub seconds: Option<f64>,
    /// Whether the job failed or didn't end by itself.
    pub hung: bool,
    /// Last line of the job's standard error.
    pub errors: String,
}

/// Starts ranks once. `command` makes the command from the launcher's arguments.
pub(crate) fn start(
    bench: &Bench,
    mpi: Mpi,
    ranks: usize,
    command: impl FnOnce(&[String]) -> Vec<String>,
) -> anyhow::Result<Started> {
    let deadline = bench.slow().time(DEADLINE.0 + DEADLINE.1 * u32::try_from(ranks)?);
    let mut arguments = words(&format!("-n {ranks}"));
    arguments.extend(mpi.on_shared_cores());
    arguments.extend(mpi.yielding());
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    if crowds(ranks, cores()) {
        arguments.extend(words(LAST));
    }
    arguments.extend([mpi.program("init")?, format!("{now:.6}")]);
    let output = bench.attempt(&bench.nodes()[0].name, &command(&arguments), deadline)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let seconds = json(&printed).ok().and_then(|found| found["last_init_s"].as_f64());
    let errors = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    let hung = !output.status.success();
    if hung {
        let figure = if seconds.is_some() { "after its figure" } else { "no figure" };
        eprintln!("  {}, {ranks} ranks, did not end by itself ({figure}): {errors}", mpi.title());
    }
    Ok(Started { seconds, hung, errors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_by_ranks_per_core() {
        for (ranks, cores, has_bar) in
            [(4, 2, true), (16, 2, true), (17, 2, false), (64, 4, false), (64, 8, true)]
        {
            assert_eq!(bar(ranks, cores).is_some(), has_bar, "{ranks} ranks on {cores} cores");
            assert!(!has_bar || !crowds(ranks, cores), "{ranks} ranks on {cores} cores");
        }
    }

    #[test]
    fn ranks_that_poll_share_no_core() {
        let asked = [4, 16, 64, 128];
        for (mpi, cores, want) in [
            (Mpi::Openmpi, 2, &asked[..]),
            (Mpi::Mpich4, 2, &[2]),
            (Mpi::Mpich4, 16, &[4, 16]),
            (Mpi::Mpich4, 256, &asked),
        ] {
            assert_eq!(numbers_of_ranks(mpi, &asked, cores), want, "{mpi:?} on {cores} cores");
        }
    }
}
