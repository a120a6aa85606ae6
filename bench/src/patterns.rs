//! The traffic patterns of Choi et al., *An NAT-Based Communication Relay Scheme
//! for Private-IP-Enabled MPI over Grid Environments* (ICCS 2004), section 3:
//! latency and rate between two private clusters, over the acceptor's gateway
//! alone and over two user-level relays in a row, which are HAProxy here.
//!
//! Like is compared with like: HAProxy forwards plain bytes, so the bars are for
//! a pair of sites that trust each other. What encryption from end to end adds is
//! a row of its own.

mod clusters;
mod references;

use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::papers;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run};
use crate::verdict::{Bar, median};
use clusters::{Clusters, Forwarding};

pub(crate) use clusters::Traffic;

/// Numbers of senders and receivers, each on a node of its own. The i-th sender sends to the i-th
/// receiver, or all senders to the only receiver.
pub(crate) const PATTERNS: [(usize, usize); 4] = [(1, 1), (2, 1), (4, 1), (4, 4)];
/// Sizes of ping-pongs' messages in bytes: the smallest, and the paper's.
const PINGS: [u32; 2] = [1, 128];
/// How often ping-pongs over all ways are measured in a round, in turns. Their median counts.
const PINGS_PER_ROUND: usize = 3;

/// Bar of what the gateway adds to plain routing, as a share of what two proxies add. The paper has
/// 1,923 and 2,756 µs, which include plain routing.
const ADDED: Bar = Bar::AtMost(0.6);
/// Bar of the gateway's rate, as a ratio to that of two proxies.
const RATE: Bar = Bar::AtLeast(1.2);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// How long each way is measured per figure and round.
    #[arg(long, default_value = "100ms")]
    duration: humantime::Duration,
    /// Message sizes in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 10, 8 << 10, 64 << 10, 1 << 20])]
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
    papers::refresh(&options.rounds.results)?;
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
                let mut found: [Vec<f64>; Forwarding::ALL.len()] = Default::default();
                for way in (0..Forwarding::ALL.len() * PINGS_PER_ROUND).map(turns) {
                    found[way].push(self.clusters.half_rtt(Forwarding::ALL[way], size, self.duration)? * 1e6);
                }
                Ok(latencies(found.map(|times| median(&times))))
            }
            Figure::Rate(traffic, pattern, size) => {
                let mut found = [0.0; Forwarding::ALL.len()];
                for way in (0..Forwarding::ALL.len()).map(turns) {
                    let rate = self.clusters.bytes_per_second(
                        Forwarding::ALL[way],
                        traffic,
                        pattern,
                        size,
                        self.duration,
                    )?;
                    found[way] = rate * 1e-6;
                }
                Ok(RATES.map(|(way, against, _)| [found[way as usize], found[against as usize]]).into())
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
const RELAYED: [Forwarding; 3] = [Forwarding::TwoProxies, Forwarding::Gateway, Forwarding::Sealed];
/// The ways whose addition to plain routing is compared with that of two proxies, each with its
/// bar.
const ADDING: [(Forwarding, Option<Bar>); 2] =
    [(Forwarding::Gateway, Some(ADDED)), (Forwarding::Sealed, None)];
/// The ways whose rates are compared, each with its reference and bar.
const RATES: [(Forwarding, Forwarding, Option<Bar>); 3] = [
    (Forwarding::Gateway, Forwarding::TwoProxies, Some(RATE)),
    (Forwarding::Sealed, Forwarding::TwoProxies, None),
    (Forwarding::Gateway, Forwarding::Plain, None),
];

/// Rows of a message size: half round trips, and what each way adds to plain routing.
fn latency_rows(size: u32) -> Vec<Comparison> {
    let half = RELAYED.map(|way| {
        let what = format!("half round trip, {}, {size} B", way.name());
        Comparison::new(what, "µs", Forwarding::Plain.name())
    });
    let added = ADDING.map(|(way, bar)| {
        let what = format!("added to plain routing, {}, {size} B", way.name());
        Comparison::new(what, "µs", Forwarding::TwoProxies.name()).bar(bar)
    });
    half.into_iter().chain(added).collect()
}

/// The figures of [`latency_rows`], from the half round trips of each way.
fn latencies(found: [f64; Forwarding::ALL.len()]) -> Vec<[f64; 2]> {
    let plain = found[Forwarding::Plain as usize];
    let added = |way: Forwarding| found[way as usize] - plain;
    let half = RELAYED.map(|way| [found[way as usize], plain]);
    half.into_iter().chain(ADDING.map(|(way, _)| [added(way), added(Forwarding::TwoProxies)])).collect()
}

/// Rows of the rates of a pattern and a message size, which `what` names.
fn rate_rows(what: &str) -> Vec<Comparison> {
    RATES
        .map(|(way, against, bar)| {
            Comparison::new(format!("{what}, {}", way.name()), "MB/s", against.name()).bar(bar)
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_compared() {
        // Plain routing takes 20; the proxies add 50, the gateway 25, the encrypted way 75.
        let found = latencies([20.0, 70.0, 45.0, 95.0]);
        assert_eq!(found, [[70.0, 20.0], [45.0, 20.0], [95.0, 20.0], [25.0, 50.0], [75.0, 50.0]]);
        assert_eq!(latency_rows(1).len(), found.len());
    }

    #[test]
    fn only_like_has_a_bar() {
        let bars = |rows: Vec<Comparison>| rows.iter().map(|row| row.bar).collect::<Vec<_>>();
        assert_eq!(bars(rate_rows("x")), [Some(RATE), None, None]);
        assert_eq!(bars(latency_rows(1)), [None, None, None, Some(ADDED), None]);
    }
}
