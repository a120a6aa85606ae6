//! Jobs over two clusters: on nodes that two Slurms give, against nodes whose agents stand; and
//! LAMMPS, against plain Open MPI in one cluster with as many ranks.

use std::fmt;

use anyhow::Context as _;
use isthmus_lab::grid::Slow;

use super::login;
use crate::grid::{Bench, Node, json, root, words};
use crate::mpi::Mpi;
use crate::nas::loop_seconds;
use crate::report::Comparison;
use crate::rounds::{Case, Experiment, in_turns};
use crate::verdict::Bar;

const GRID: &str = "pilot-two";
const SITES: [&str; 2] = ["alpha", "beta"];
/// Steps of each pattern and round.
const STEPS: u32 = 20;
/// LAMMPS's cells in each direction: 6,912,000 atoms, of which a rank's share takes about a second.
const CELLS: u32 = 120;
/// Its steps: each takes long.
const LAMMPS_STEPS: u32 = 5;
/// A job on pilots is nowhere slower than on agents that stand.
const ON_PILOTS: Bar = Bar::AtMost(1.02);
/// Two clusters are 0.9 times as fast as one.
const OVER_TWO_SITES: Bar = Bar::AtMost(1.0 / 0.9);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// The messages of LU, four ranks.
    OnPilots,
    /// LAMMPS, two ranks.
    Lammps,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnPilots => "LU, 4 ranks on pilots of two Slurms, a step",
            Self::Lammps => "LAMMPS, 6,912,000 atoms, 2 ranks at two sites 10 ms apart, a step",
        })
    }
}

pub(super) fn cases() -> Vec<Case<Job>> {
    let case = |job: Job, against: &str, bar| {
        Case::new(job, vec![Comparison::new(job.to_string(), "ms", against).bar(bar)])
    };
    vec![
        case(Job::OnPilots, "agents that stand", ON_PILOTS),
        case(Job::Lammps, "plain Open MPI in one cluster", OVER_TWO_SITES),
    ]
}

/// Two clusters whose login nodes have agents that submit batch jobs.
pub(super) struct Clusters {
    bench: Bench,
}

impl Clusters {
    pub(super) fn up() -> anyhow::Result<Self> {
        let bench = Bench::up(GRID, Slow::NONE)?;
        SITES.iter().try_for_each(|site| login::start(&bench, site, 2))?;
        Ok(Self { bench })
    }

    /// The nodes with agents that stand, of these names.
    fn standing(&self, names: &[&str]) -> Vec<Node> {
        let nodes = self.bench.nodes().iter();
        nodes.filter(|node| names.contains(&node.name.as_str())).cloned().collect()
    }

    /// Milliseconds of a step of LU.
    fn messages(&self, on_pilots: bool) -> anyhow::Result<f64> {
        let options = Mpi::Openmpi.on_shared_cores().join(" ");
        let program = format!("{} lu {STEPS}", Mpi::Openmpi.program("nas")?);
        let (node, nodes) = match on_pilots {
            true => (login::node(SITES[0]), "--pilots alpha=2,beta=2"),
            false => ("n4.alpha".to_owned(), "--nodes n4.alpha,n5.alpha,n4.beta,n5.beta"),
        };
        let run = format!("run --quiet {nodes} -- {} -n 4 {options} {program}", Mpi::Openmpi.launcher());
        let output = login::isthmus(&self.bench, &node, &run)?;
        let seconds = json(&output)?["seconds"].as_f64().context("no time")?;
        Ok(seconds * 1e3 / f64::from(STEPS))
    }

    /// Milliseconds of a step of LAMMPS.
    fn lammps(&self, over_two_sites: bool) -> anyhow::Result<f64> {
        let input = root().join("bench/programs/melt.in");
        let options = Mpi::Openmpi.on_shared_cores().join(" ");
        let arguments = words(&format!(
            "-n 2 {options} lmp -log none -in {} -var cells {CELLS} -var steps {LAMMPS_STEPS}",
            input.display()
        ));
        let command = if over_two_sites {
            self.bench.ours(Mpi::Openmpi, &[], &self.standing(&["n4.alpha", "n4.beta"]), &arguments)
        } else {
            self.bench.plain(Mpi::Openmpi, &self.standing(&["n4.alpha", "n5.alpha"]), 1, &arguments)
        };
        let output = self.bench.output("n4.alpha", &command)?;
        let seconds = loop_seconds(&output).context("no time")?;
        Ok(seconds * 1e3 / f64::from(LAMMPS_STEPS))
    }
}

impl Experiment for Clusters {
    type Case = Job;

    fn polling(&self) -> &'static [&'static str] {
        &["nas", "lmp"]
    }

    fn measure(&mut self, job: &Job, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let pair = in_turns(round, |side| match job {
            Job::OnPilots => self.messages(side == 0),
            Job::Lammps => self.lammps(side == 0),
        })?;
        Ok(vec![pair])
    }
}
