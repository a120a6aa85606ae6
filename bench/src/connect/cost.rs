//! What a connection takes of processors, on each way: the agents, the gateways, the broker and
//! the relay, and the programs at both ends.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{MeasuredWay, WAYS, nodes, until_known};
use crate::grid::Bench;
use crate::report::{Comparison, Pair};
use crate::rounds::{Case, Experiment, in_turns};
use crate::traffic::Connecting;
use crate::tunnel::{self, JOB_PORT};

/// How many connections are made one after the other, so that their processor time can be told.
const CONNECTIONS: u32 = 1000;
/// How many precede them. The first ones open a trunk, or make ways known.
const WARM_UP: u32 = 20;
/// Longest time of all connections together.
const PATIENCE: Duration = Duration::from_secs(120);

/// A case for each way but the first, which the others are compared with.
pub(super) fn cases(place: &str) -> Vec<Case<MeasuredWay>> {
    let [(reference, _), others @ ..] = &WAYS;
    let case = |way: &MeasuredWay| {
        let what = format!("{}, next connection, processor time, {place}", way.0);
        Case::new(*way, vec![Comparison::new(what, "ms", reference)])
    };
    others.iter().map(case).collect()
}

/// The grid in which connections are made.
pub(super) struct Costs {
    bench: Bench,
}

impl Costs {
    pub(super) fn up(bench: Bench) -> Self {
        Self { bench }
    }

    /// Milliseconds of processor time of a connection.
    fn of(&self, (way, ends): MeasuredWay) -> anyhow::Result<f64> {
        until_known(&self.bench, way, ends)?;
        let found = nodes(&self.bench, ends)?;
        let [near, far] = found.as_slice() else { anyhow::bail!("a way has two ends") };
        let mut client = tunnel::job(&self.bench, near, far, "")?;
        let target = format!("{}:{JOB_PORT}", far.name);
        let mut connect = |count: u32| -> anyhow::Result<Connecting> {
            client.ask(&format!("connect {target} --count {count}"), PATIENCE)
        };
        connect(WARM_UP)?;
        let before = self.spent(ends)?;
        let made = connect(CONNECTIONS)?;
        let spent = self.spent(ends)?.saturating_sub(before).as_secs_f64();
        ensure!(spent > 0.0 && made.connections > 0, "{} connections in {spent} s", made.connections);
        client.finish(&format!("stop {target}"))?;
        Ok(spent * 1e3 / f64::from(made.connections))
    }

    /// Processor time so far of the services on the way, with the programs that agents have started.
    fn spent(&self, ends: [&str; 2]) -> anyhow::Result<Duration> {
        let sites = ends.map(|node| node.split_once('.').map(|(_, site)| site));
        let [Some(near), Some(far)] = sites else { anyhow::bail!("a node has a site") };
        self.bench.services_cpu_time(|machine| {
            let site = machine.split_once('.').map(|(_, site)| site);
            site.is_none_or(|site| [near, far].contains(&site))
        })
    }
}

impl Experiment for Costs {
    type Case = MeasuredWay;

    fn measure(&mut self, way: &MeasuredWay, round: usize) -> anyhow::Result<Vec<Pair>> {
        let reference = WAYS.first().context("no ways")?;
        Ok(vec![in_turns(round, |side| self.of([*way, *reference][side]))?])
    }

    /// Whether others make a measurement void. They hardly change processor time.
    fn needs_quiet(&self) -> bool {
        false
    }
}
