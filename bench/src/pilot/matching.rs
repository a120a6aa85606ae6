//! How long it takes to find places for 20 groups on 1,000 sites with 100,000 nodes.

use std::process::Command;

use anyhow::Context as _;

use crate::grid::{json, target};
use crate::report::Comparison;
use crate::rounds::{Case, Experiment};
use crate::verdict::Bar;

/// Kinds of jobs, as the example `scale` of crates/matching names them.
const JOBS: [&str; 8] = [
    "all at one site",
    "several groups a site",
    "a site for each two groups",
    "as many ranks as there are",
    "neighbours near each other",
    "all near one group",
    "groups that may be split",
    "nowhere near enough",
];
/// Seconds that it may take.
const PROMISE: f64 = 2.0;
/// Seconds after which `isthmus run` takes the best that was found.
const LIMIT: u32 = 5;

pub(super) fn cases() -> Vec<Case<&'static str>> {
    let case = |job: &'static str| {
        let text = format!("20 groups on 1,000 sites with 100,000 nodes: {job}");
        let row = Comparison::new(text, "s of a processor", "2 s");
        Case::new(job, vec![row.bar(Bar::AtMost(1.0))])
    };
    JOBS.map(case).into()
}

/// Random grids and jobs, another one in each round.
pub(super) struct Grids;

impl Experiment for Grids {
    type Case = &'static str;

    fn measure(&mut self, job: &&'static str, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let program = target().join("release/examples/scale");
        let output = Command::new(&program)
            .args([LIMIT.to_string(), round.to_string(), (*job).to_owned()])
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let printed = json(&String::from_utf8_lossy(&output.stdout))?;
        Ok(vec![[printed["processor_seconds"].as_f64().context("no time")?, PROMISE]])
    }
}
