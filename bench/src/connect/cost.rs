//! What connections take of processors: one that is made, on each way, of the agents, the gateways,
//! the broker and the relay, and the programs at both ends; and a message over one that stands.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{BAR, MeasuredWay, WAYS, is_kernels_own, nodes, until_known};
use crate::grid::{Bench, Node};
use crate::line_client::LineClient;
use crate::report::{Comparison, Pair};
use crate::rounds::{Case, Experiment, in_turns};
use crate::traffic::{Connecting, Latency};
use crate::tunnel::{self, JOB_PORT};

/// How many connections are made one after the other, so that their processor time can be told.
const CONNECTIONS: u32 = 1000;
/// How many precede them. The first ones open a trunk, or make ways known.
const WARM_UP: u32 = 20;
/// Longest time of all connections together.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long messages go to and fro.
const MESSAGES: Duration = Duration::from_secs(1);
/// The reference of a message's processor time.
const ALONE: &str = "the programs alone";

/// What is measured of a way.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cost {
    Connection(MeasuredWay),
    Message(MeasuredWay),
}

/// Connections on each way but the first, which the others are compared with, and messages on each
/// way whose ends hold kernel sockets of their own.
pub(super) fn cases(place: &str) -> Vec<Case<Cost>> {
    let [(reference, _), others @ ..] = &WAYS;
    let connection = |way: &MeasuredWay| {
        let what = format!("{}, next connection, processor time, {place}", way.0);
        Case::new(Cost::Connection(*way), vec![Comparison::new(what, "ms", reference)])
    };
    let message = |way: &MeasuredWay| {
        let what = format!("{}, message of 64 B, processor time, {place}", way.0);
        Case::new(Cost::Message(*way), vec![of_message(what)])
    };
    let own = WAYS.iter().filter(|(way, _)| is_kernels_own(way));
    others.iter().map(connection).chain(own.map(message)).collect()
}

/// The row of the processor time of a message, of the programs and of isthmus's services: over a
/// socket of the kernel's own, nothing of isthmus runs.
pub(crate) fn of_message(what: String) -> Comparison {
    Comparison::new(what, "µs", ALONE).bar(BAR)
}

/// The figures of [`of_message`]: microseconds of processors per message between programs on two
/// nodes, with isthmus's services and without.
///
/// # Errors
/// The programs can't be run.
pub(crate) fn message(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<Pair> {
    let (mut client, target) = job(bench, near, far)?;
    let spent = || {
        let [services, all] = bench.services_alone(at_sites_of([&near.name, &far.name]))?;
        anyhow::Ok([all, all.saturating_sub(services)])
    };
    let ping = format!("ping {target}");
    // The first connection is made meanwhile.
    let _: Latency = client.ask(&ping, MESSAGES / 10)?;
    let before = spent()?;
    let found: Latency = client.ask(&ping, MESSAGES)?;
    let after = spent()?;
    client.finish(&format!("stop {target}"))?;
    let [all, alone] = [0, 1].map(|at| after[at].saturating_sub(before[at]).as_secs_f64());
    ensure!(alone > 0.0 && found.messages > 0, "{} messages in {alone} s", found.messages);
    Ok([all, alone].map(|seconds| seconds * 1e6 / found.messages as f64))
}

/// A job's client, and the address at which its server is reached.
fn job(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<(LineClient, String)> {
    Ok((tunnel::job(bench, near, far, "")?, format!("{}:{JOB_PORT}", far.name)))
}

/// Whether a machine is at the site of one of these nodes, or a public host.
fn at_sites_of<'a>(ends: [&'a str; 2]) -> impl Fn(&str) -> bool + 'a {
    let site = |name: &str| name.split_once('.').map(|(_, site)| site.to_owned());
    let sites = ends.map(site);
    move |machine| site(machine).is_none_or(|site| sites.contains(&Some(site)))
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
    fn connection(&self, way: MeasuredWay) -> anyhow::Result<f64> {
        let [near, far] = self.ends(way)?;
        let (mut client, target) = job(&self.bench, &near, &far)?;
        let mut connect = |count: u32| -> anyhow::Result<Connecting> {
            client.ask(&format!("connect {target} --count {count}"), PATIENCE)
        };
        connect(WARM_UP)?;
        let spent = || self.bench.services_cpu_time(at_sites_of([&near.name, &far.name]));
        let before = spent()?;
        let made = connect(CONNECTIONS)?;
        let spent = spent()?.saturating_sub(before).as_secs_f64();
        ensure!(spent > 0.0 && made.connections > 0, "{} connections in {spent} s", made.connections);
        client.finish(&format!("stop {target}"))?;
        Ok(spent * 1e3 / f64::from(made.connections))
    }

    /// The two ends of a way, once it is known.
    fn ends(&self, (way, ends): MeasuredWay) -> anyhow::Result<[Node; 2]> {
        until_known(&self.bench, way, ends)?;
        nodes(&self.bench, ends)?.try_into().ok().context("a way has two ends")
    }
}

impl Experiment for Costs {
    type Case = Cost;

    fn measure(&mut self, cost: &Cost, round: usize) -> anyhow::Result<Vec<Pair>> {
        Ok(vec![match *cost {
            Cost::Connection(way) => {
                let reference = *WAYS.first().context("no ways")?;
                in_turns(round, |side| self.connection([way, reference][side]))?
            }
            Cost::Message(way) => {
                let [near, far] = self.ends(way)?;
                message(&self.bench, &near, &far)?
            }
        }])
    }

    /// Whether others make a measurement void. They hardly change processor time.
    fn needs_quiet(&self) -> bool {
        false
    }
}
