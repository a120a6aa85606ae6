//! What a connection and a message take of processors, on each way. Of a connection: the agents, the
//! gateways, the broker and the relay, and the programs at both ends. Of a message, where both ends
//! hold a kernel socket of their own: the programs, and beside them the services at their nodes.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{BAR, MeasuredWay, PLAIN, WAYS, WITHOUT_NAT, is_kernels_own, nodes, until_known};
use crate::grid::Bench;
use crate::report::{Comparison, Pair};
use crate::rounds::{Case, Experiment, in_turns};
use crate::served;
use crate::traffic::Connecting;
use crate::tunnel::{self, JOB_PORT};

/// How many connections are made one after the other, so that their processor time can be told.
const CONNECTIONS: u32 = 1000;
/// How many precede them. The first ones open a trunk, or make ways known.
const WARM_UP: u32 = 20;
/// Longest time of all connections together.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is measured of a way.
pub(super) enum Cost {
    Connection(MeasuredWay),
    /// Messages of so many bytes.
    Message(MeasuredWay, u32),
}

/// A connection of each way but the first, which the others are compared with, and messages of each
/// way that is the kernel's own, which are compared with plain TCP.
pub(super) fn cases(place: &str) -> Vec<Case<Cost>> {
    let [(reference, _), others @ ..] = &WAYS;
    let connection = |way: &MeasuredWay| {
        let what = format!("{}, next connection, processor time, {place}", way.0);
        Case::new(Cost::Connection(*way), vec![Comparison::new(what, "ms", reference)])
    };
    let messages = WAYS.into_iter().filter(|way| is_kernels_own(way.0)).flat_map(|way| {
        served::SIZES.map(|size| {
            let rows = served::rows(
                &format!("{}, message of {size} B, {place}", way.0),
                size,
                (way.0 == WITHOUT_NAT).then_some(BAR),
            );
            Case::new(Cost::Message(way, size), rows)
        })
    });
    others.iter().map(connection).chain(messages).collect()
}

/// The grid in which connections are made.
pub(super) struct Costs {
    bench: Bench,
}

impl Costs {
    pub(super) fn up(bench: Bench) -> Self {
        Self { bench }
    }

    /// What a message costs, over a way and over plain TCP.
    fn message(&self, (way, ends): MeasuredWay, size: u32, round: usize) -> anyhow::Result<Vec<Pair>> {
        until_known(&self.bench, way, ends)?;
        let [ends, plain] = [nodes(&self.bench, ends)?, nodes(&self.bench, PLAIN)?];
        let ([near, far], [from, to]) = (ends.as_slice(), plain.as_slice()) else {
            anyhow::bail!("a way has two ends")
        };
        Ok(served::figures(served::costs(&self.bench, [near, far], [from, to], size, round)?))
    }

    /// Milliseconds of processor time of a connection.
    fn connection(&self, (way, ends): MeasuredWay) -> anyhow::Result<f64> {
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
    type Case = Cost;

    fn measure(&mut self, cost: &Cost, round: usize) -> anyhow::Result<Vec<Pair>> {
        match cost {
            Cost::Connection(way) => {
                let reference = WAYS.first().context("no ways")?;
                Ok(vec![in_turns(round, |side| self.connection([*way, *reference][side]))?])
            }
            Cost::Message(way, size) => self.message(*way, *size, round),
        }
    }

    /// Whether others make a measurement void. They hardly change processor time.
    fn needs_quiet(&self) -> bool {
        false
    }
}
