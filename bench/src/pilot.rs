//! Nodes that a batch scheduler gives: how long it takes until a command runs over agents on all of
//! them, against `srun hostname` on as many nodes of the same Slurm. Jobs over two such clusters. How long
//! it takes to choose nodes.

mod login;
mod matching;
mod two_sites;

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use isthmus_lab::grid::Slow;

use crate::grid::{Bench, words};
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, in_turns};
use crate::verdict::Bar;

const GRID: &str = "pilot";
const SITE: &str = "alpha";
/// Numbers of nodes.
const NODES: [u32; 4] = [1, 4, 16, 64];
/// How long an agent may take on top, to start and to attach.
const ALLOWED: Duration = Duration::from_secs(2);
/// Round trips to the broker that it may take on top: to become a member, and to attach. The grid's
/// takes 10 ms.
const ROUND_TRIPS: Duration = Duration::from_millis(2 * 10);
/// Longest wait until Slurm has cleaned up.
const CLEAN: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
}

/// So many nodes of one pilot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pilot(u32);

impl fmt::Display for Pilot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "from asking until a command runs over {} node{plural} of Slurm", self.0)
    }
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let mut run = Run::begin("pilot", &options.rounds, &[("sbatch".to_owned(), "--version")])?;
    let cases = NODES.map(|nodes| {
        let case = Pilot(nodes);
        let row = Comparison::new(case.to_string(), "s", "srun hostname, 2 s and 2 round trips");
        Case::new(case, vec![row.bar(Bar::AtMost(1.0))])
    });
    // Processors decide, and Slurm's own times, which slow motion doesn't change.
    run.part(3, matching::cases(), || Ok(matching::Grids))?;
    run.part(2, cases.into(), Cluster::up)?;
    run.part(1, two_sites::cases(), two_sites::Clusters::up)?;
    run.finish()
}

/// A cluster whose login node has an agent that submits batch jobs.
struct Cluster {
    bench: Bench,
}

impl Cluster {
    fn up() -> anyhow::Result<Self> {
        let bench = Bench::without_sshd(GRID, Slow::NONE)?;
        login::start(&bench, SITE, NODES.iter().max().copied().unwrap_or_default())?;
        Ok(Self { bench })
    }

    /// Waits until Slurm has no job, and all nodes can be had.
    fn clean(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let login = login::node(SITE);
        loop {
            let jobs = self.bench.output(&login, &words("squeue --noheader"))?;
            let busy = self.bench.output(&login, &words("sinfo --noheader --format=%T"))?;
            if jobs.trim().is_empty() && busy.split_whitespace().all(|state| state == "idle") {
                return Ok(());
            }
            if began.elapsed() > CLEAN {
                bail!("Slurm has not cleaned up: {jobs} {busy}");
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Seconds from asking for nodes until a command runs over them.
    fn ours(&self, nodes: u32) -> anyhow::Result<f64> {
        self.clean()?;
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map(|now| now.as_secs_f64());
        let asked = now()?;
        let alloc = format!("alloc --quiet --pilots {SITE}={nodes} -- date +%s.%N");
        let printed = login::isthmus(&self.bench, &login::node(SITE), &alloc)?;
        Ok(printed.trim().parse::<f64>().context("no time")? - asked)
    }

    /// Seconds that `srun hostname` takes.
    fn srun(&self, nodes: u32) -> anyhow::Result<f64> {
        self.clean()?;
        let began = Instant::now();
        let srun = format!("srun --nodes={nodes} --ntasks-per-node=1 hostname");
        self.bench.output(&login::node(SITE), &words(&srun))?;
        Ok(began.elapsed().as_secs_f64())
    }
}

impl Experiment for Cluster {
    type Case = Pilot;

    fn measure(&mut self, pilot: &Pilot, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let [ours, srun] = in_turns(round, |side| match side {
            0 => self.ours(pilot.0),
            _ => self.srun(pilot.0),
        })?;
        Ok(vec![[ours, srun + (ALLOWED + ROUND_TRIPS).as_secs_f64()]])
    }
}
