//! The traffic patterns of Choi et al., *An NAT-Based Communication Relay Scheme
//! for Private-IP-Enabled MPI over Grid Environments* (ICCS 2004), section 3:
//! latency and rate between two private clusters, over the acceptor's gateway
//! alone and over two user-level relays in a row, which are HAProxy here.
//!
//! Like is compared with like: HAProxy forwards plain bytes, so the bars are for
//! a pair of sites that trust each other. What encryption from end to end adds is
//! a row of its own, beside two HAProxy with TLS between them. No link limits these ways: processors decide. So the bars are
//! for the processor time of what forwards, which doesn't depend on what else runs.
//! Times and rates are told beside it.

mod clusters;
mod references;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run};
use crate::verdict::{Bar, median};
use clusters::{Clusters, Forwarding, Measured};

pub(crate) use clusters::Traffic;

/// Numbers of senders and receivers, each on a node of its own. The i-th sender sends to the i-th
/// receiver, or all senders to the only receiver.
pub(crate) const PATTERNS: [(usize, usize); 4] = [(1, 1), (2, 1), (4, 1), (4, 4)];
/// Sizes of ping-pongs' messages in bytes: the smallest, and the paper's.
const PINGS: [u32; 2] = [1, 128];
/// How often ping-pongs over all ways are measured in a round, in turns. Their median counts.
const PINGS_PER_ROUND: usize = 3;

/// One process receives and sends a message where two proxies do, which are two.
const PROCESSES: f64 = 1.0 / 2.0;
/// How much more processor time than one proxy the gateway may take for a message. A chosen margin, as
/// that of bytes below.
const OF_A_PROXY: f64 = 1.2;
/// Bar of what the gateway adds to plain routing: the processor time of a message, as a share of what
/// two proxies take. Kernel routing costs neither. The paper has times of 1,923 and 2,756 µs, 0.70,
/// which include plain routing and its wide area, and so say less.
const ADDED: Bar = Bar::AtMost(PROCESSES * OF_A_PROXY);
/// How many times the bytes of two proxies the gateway must carry with the same processor time.
const TIMES_THE_BYTES: f64 = 1.2;
/// Bar of the gateway's processor time per byte, as a ratio to that of two proxies.
const COST: Bar = Bar::AtMost(1.0 / TIMES_THE_BYTES);

const SIZES: [usize; 4] = [1 << 10, 8 << 10, 64 << 10, 1 << 20];

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// How long each way is measured per figure and round.
    #[arg(long, default_value = "100ms")]
    duration: humantime::Duration,
    /// Message sizes in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = SIZES)]
    sizes: Vec<usize>,
}

/// A figure that is measured.
#[derive(Debug, Clone, Copy)]
enum Figure {
    /// Half round trips of messages of so many bytes.
    Latency(u32),
    /// The rate of a pattern of senders and receivers, with messages of so many bytes.
    Rate(Traffic, (usize, usize), usize),
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    ensure!(options.sizes.iter().all(|size| *size > 0), "a message has at least 1 byte");
    let mut run = Run::begin("patterns", &options.rounds, &[("haproxy".to_owned(), "-v")])?;
    run.leaves_out(&SIZES, &options.sizes);
    let mut cases: Vec<_> = PINGS.map(|size| Case::new(Figure::Latency(size), latency_rows(size))).into();
    for traffic in Traffic::ALL {
        for pattern @ (senders, receivers) in PATTERNS {
            cases.extend(options.sizes.iter().map(|size| {
                let what = format!("{}, {senders}:{receivers}, messages of {size} B", traffic.name());
                Case::new(Figure::Rate(traffic, pattern, *size), rate_rows(&what))
            }));
        }
    }
    let duration = *options.duration;
    run.part(1, cases, || Ok(Patterns { clusters: Clusters::up()?, duration }))?;
    let holds = run.finish()?;
    options.rounds.refresh_papers()?;
    Ok(holds)
}

/// The clusters, which are measured in rounds.
struct Patterns {
    clusters: Clusters,
    duration: Duration,
}

impl Experiment for Patterns {
    type Case = Figure;

    fn measure(&mut self, figure: &Figure, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        // No way always goes first.
        let turns = |turn| (round + turn) % Forwarding::ALL.len();
        match *figure {
            Figure::Latency(size) => {
                let mut found: [Vec<Measured>; Forwarding::ALL.len()] = Default::default();
                for way in (0..Forwarding::ALL.len() * PINGS_PER_ROUND).map(turns) {
                    found[way].push(self.clusters.half_rtt(Forwarding::ALL[way], size, self.duration)?);
                }
                let middle = |figures: Vec<f64>| median(&figures) * 1e6;
                let costs = of_relays(found.each_ref().map(|all| {
                    let costs: Option<Vec<f64>> = all.iter().map(|one| one.cost).collect();
                    costs.map(middle)
                }))?;
                let times = found.map(|all| middle(all.iter().map(|one| one.figure).collect()));
                Ok(latencies(times).into_iter().chain([costs]).collect())
            }
            Figure::Rate(traffic, pattern, size) => {
                let mut found = [Measured::default(); Forwarding::ALL.len()];
                for way in (0..Forwarding::ALL.len()).map(turns) {
                    found[way] = self.clusters.bytes_per_second(
                        Forwarding::ALL[way],
                        traffic,
                        pattern,
                        size,
                        self.duration,
                    )?;
                }
                let rate = |way: Forwarding| found[way as usize].figure * 1e-6;
                let costs = of_relays(found.map(|one| one.cost.map(|seconds| seconds * 1e9)))?;
                Ok(RATES
                    .map(|(way, against)| [rate(way), rate(against)])
                    .into_iter()
                    .chain([costs])
                    .collect())
            }
        }
    }

    /// Whether the clusters are used further after a failure. They aren't, as a client that failed
    /// may still answer the last line.
    fn survives_failure(&self) -> bool {
        false
    }

    fn finish(self) -> anyhow::Result<()> {
        self.clusters.finish()
    }
}

/// The ways whose half round trips are compared with plain routing.
const RELAYED: [Forwarding; 4] =
    [Forwarding::TwoProxies, Forwarding::Gateway, Forwarding::Sealed, Forwarding::TwoSealedProxies];
/// The ways whose addition to plain routing is compared with that of two proxies, each with these.
const ADDING: [(Forwarding, Forwarding); 3] = [
    (Forwarding::Gateway, Forwarding::TwoProxies),
    (Forwarding::Sealed, Forwarding::TwoProxies),
    (Forwarding::Sealed, Forwarding::TwoSealedProxies),
];
/// The ways whose rates are compared, each with its reference.
const RATES: [(Forwarding, Forwarding); 4] = [
    (Forwarding::Gateway, Forwarding::TwoProxies),
    (Forwarding::Sealed, Forwarding::TwoProxies),
    (Forwarding::Sealed, Forwarding::TwoSealedProxies),
    (Forwarding::Gateway, Forwarding::Plain),
];

/// The costs of the gateway and of two proxies, from those of all ways.
///
/// # Errors
/// One of them took no processor time, or wasn't measured.
fn of_relays(costs: [Option<f64>; Forwarding::ALL.len()]) -> anyhow::Result<[f64; 2]> {
    let of = |way: Forwarding| {
        let cost = costs[way as usize].filter(|cost| *cost > 0.0);
        cost.with_context(|| format!("{} carried messages in no processor time at all", way.name()))
    };
    Ok([of(Forwarding::Gateway)?, of(Forwarding::TwoProxies)?])
}

/// The row of the processor time that the gateway takes.
fn cost_row(what: &str, unit: &str, bar: Bar) -> Comparison {
    let what = format!("{what}, {}, processor time", Forwarding::Gateway.name());
    Comparison::new(what, unit, Forwarding::TwoProxies.name()).bar(bar)
}

/// Rows of a message size: half round trips, and what each way adds to plain routing.
fn latency_rows(size: u32) -> Vec<Comparison> {
    let half = RELAYED.map(|way| {
        let what = format!("half round trip, {}, {size} B", way.name());
        Comparison::new(what, "µs", Forwarding::Plain.name())
    });
    let added = ADDING.map(|(way, against)| {
        let what = format!("added to plain routing, {}, {size} B", way.name());
        Comparison::new(what, "µs", against.name())
    });
    let cost = cost_row(&format!("message of {size} B"), "µs", ADDED);
    half.into_iter().chain(added).chain([cost]).collect()
}

/// The times of [`latency_rows`], from the half round trips of each way.
fn latencies(found: [f64; Forwarding::ALL.len()]) -> Vec<[f64; 2]> {
    let plain = found[Forwarding::Plain as usize];
    let added = |way: Forwarding| found[way as usize] - plain;
    let half = RELAYED.map(|way| [found[way as usize], plain]);
    half.into_iter().chain(ADDING.map(|(way, against)| [added(way), added(against)])).collect()
}

/// Rows of the rates of a pattern and a message size, which `what` names.
fn rate_rows(what: &str) -> Vec<Comparison> {
    let rates = RATES
        .map(|(way, against)| Comparison::new(format!("{what}, {}", way.name()), "MB/s", against.name()));
    rates.into_iter().chain([cost_row(what, "s/GB", COST)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_compared() {
        // Plain routing takes 20; the proxies add 50, the gateway 25, the encrypted way 75, the proxies
        // that encrypt 100.
        let found = latencies([20.0, 70.0, 45.0, 95.0, 120.0]);
        let half = [[70.0, 20.0], [45.0, 20.0], [95.0, 20.0], [120.0, 20.0]];
        assert_eq!(found, [&half[..], &[[25.0, 50.0], [75.0, 50.0], [75.0, 100.0]]].concat());
        assert_eq!(latency_rows(1).len(), found.len() + 1);
        assert_eq!(of_relays([None, Some(4.0), Some(2.0), None, Some(9.0)]).unwrap(), [2.0, 4.0]);
        assert!(of_relays([None, Some(4.0), Some(0.0), None, Some(9.0)]).is_err());
    }

    #[test]
    fn only_like_has_a_bar() {
        let bars = |rows: Vec<Comparison>| rows.iter().map(|row| row.bar).collect::<Vec<_>>();
        assert_eq!(bars(rate_rows("x")), [None, None, None, None, Some(COST)]);
        assert_eq!(bars(latency_rows(1)), [None, None, None, None, None, None, None, Some(ADDED)]);
    }
}
