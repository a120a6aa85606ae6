//! The traffic patterns of Choi et al., *An NAT-Based Communication Relay Scheme
//! for Private-IP-Enabled MPI over Grid Environments* (ICCS 2004), section 3:
//! latency and rate between two private clusters, over the acceptor's gateway
//! alone and over two user-level relays in a row, which are HAProxy here.
//!
//! Like is compared with like: HAProxy forwards plain bytes, so the bars are for
//! a pair of sites that trust each other. What encryption from end to end adds is
//! a row of its own.

mod field;
mod references;

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use crate::papers;
use crate::report::{Bar, Conditions, Report, Row, median};
use field::{Field, Way};

pub use field::Traffic;

/// Senders and receivers, each on a node of its own; the i-th sender has the i-th
/// receiver, or all have the only one.
pub const PATTERNS: [(usize, usize); 4] = [(1, 1), (2, 1), (4, 1), (4, 4)];
/// Message sizes of ping-pongs in bytes: the smallest, and the paper's.
const PINGS: [u32; 2] = [1, 128];
/// How often they are measured in a round, in turns; their median counts.
const PINGS_PER_ROUND: usize = 3;

/// One relay adds this share of what two add to plain routing, at most. The paper
/// tells 1,923 and 2,756 µs with plain routing in both, which it doesn't tell.
const ADDED: Bar = Bar::AtMost(0.6);
/// The rate of two user-level relays, times this.
const RATE: Bar = Bar::AtLeast(1.2);

/// How to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each measures everything once.
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// How long each way is measured per figure and round.
    #[arg(long, default_value = "100ms")]
    duration: humantime::Duration,
    /// Message sizes in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 10, 8 << 10, 64 << 10, 1 << 20])]
    sizes: Vec<usize>,
    /// Where the results go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// One figure of each way, round by round.
type Figures = [Vec<f64>; Way::ALL.len()];

/// Measures, writes the results, and says whether every bar holds.
///
/// # Errors
/// If something can't be started or a measurement fails.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    ensure!(options.sizes.iter().all(|size| *size > 0), "a message has at least 1 byte");
    let mut field = Field::up()?;
    let mut pings = vec![Figures::default(); PINGS.len()];
    let mut cells = Vec::new();
    for traffic in Traffic::ALL {
        for pattern in PATTERNS {
            let of = |size: &usize| (traffic, pattern, *size, Figures::default());
            cells.extend(options.sizes.iter().map(of));
        }
    }
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        // Nobody always goes first.
        let turns = |turn| (round + turn) % Way::ALL.len();
        for (size, figures) in PINGS.into_iter().zip(&mut pings) {
            let mut found = Figures::default();
            for way in (0..Way::ALL.len() * PINGS_PER_ROUND).map(turns) {
                found[way].push(field.half_rtt(Way::ALL[way], size, options.duration)? * 1e6);
            }
            for (figures, found) in figures.iter_mut().zip(found) {
                figures.push(median(&found));
            }
        }
        for (traffic, pattern, size, figures) in &mut cells {
            for way in (0..Way::ALL.len()).map(turns) {
                let rate =
                    field.bytes_per_second(Way::ALL[way], *traffic, *pattern, *size, options.duration)?;
                figures[way].push(rate * 1e-6);
            }
        }
    }
    field.finish()?;
    let mut rows: Vec<Row> =
        PINGS.iter().zip(&pings).flat_map(|(size, of)| latency_rows(*size, of)).collect();
    for (traffic, (senders, receivers), size, figures) in &cells {
        let what = format!("{}, {senders}:{receivers}, messages of {size} B", traffic.name());
        rows.extend(rate_rows(&what, figures));
    }
    let conditions = Conditions::here(&[("haproxy", "-v")]);
    let report = Report { name: "patterns".into(), rows, conditions };
    report.publish(&options.results)?;
    papers::refresh(&options.results)?;
    Ok(report.holds())
}

/// Half round trips, and what each way adds to plain routing.
fn latency_rows(size: u32, figures: &Figures) -> Vec<Row> {
    let of = |way: Way| figures[way as usize].as_slice();
    let added = |way: Way| -> Vec<f64> {
        of(way).iter().zip(of(Way::Plain)).map(|(this, plain)| this - plain).collect()
    };
    let what = |what: &str| format!("{what}, {size} B");
    let proxies = added(Way::TwoProxies);
    let against = (Way::TwoProxies.name(), proxies.as_slice());
    let mut rows: Vec<_> = [Way::TwoProxies, Way::Gateway, Way::Sealed]
        .map(|way| {
            let what = what(&format!("half round trip, {}", way.name()));
            Row::compare(&what, "µs", of(way), (Way::Plain.name(), of(Way::Plain)), None)
        })
        .into();
    for (way, bar) in [(Way::Gateway, Some(ADDED)), (Way::Sealed, None)] {
        let what = what(&format!("added to plain routing, {}", way.name()));
        rows.push(Row::compare(&what, "µs", &added(way), against, bar));
    }
    rows
}

/// Rates of one pattern and message size.
fn rate_rows(what: &str, figures: &Figures) -> Vec<Row> {
    let of = |way: Way| figures[way as usize].as_slice();
    [
        (Way::Gateway, Way::TwoProxies, Some(RATE)),
        (Way::Sealed, Way::TwoProxies, None),
        (Way::Gateway, Way::Plain, None),
    ]
    .map(|(way, against, bar)| {
        let what = format!("{what}, {}", way.name());
        Row::compare(&what, "MB/s", of(way), (against.name(), of(against)), bar)
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_compared_round_by_round() {
        // Plain routing takes 20 and 40; the proxies add 50 and 100, the gateway
        // 25 and 70, the sealed one 75 and 100.
        let figures = [vec![20.0, 40.0], vec![70.0, 140.0], vec![45.0, 110.0], vec![95.0, 140.0]];
        let rows = latency_rows(1, &figures);
        let added: Vec<_> = rows.iter().filter(|row| row.what.starts_with("added")).collect();
        assert_eq!(added.len(), 2);
        assert_eq!(
            (added[0].ours, added[0].reference, added[0].ratio, added[0].holds),
            (47.5, 75.0, 0.6, Some(true)),
            "{added:?}"
        );
        assert_eq!((added[1].ratio, added[1].holds), (1.25, None), "{added:?}");
    }

    #[test]
    fn only_like_has_a_bar() {
        let rows = rate_rows("x", &[vec![100.0], vec![50.0], vec![60.0], vec![10.0]]);
        let found: Vec<_> = rows.iter().map(|row| (row.against.as_str(), row.ratio, row.holds)).collect();
        assert_eq!(
            found,
            [("two HAProxy", 1.2, Some(true)), ("two HAProxy", 0.2, None), ("plain routing", 0.6, None)]
        );
    }
}
