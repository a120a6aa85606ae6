//! A site with two links: what a trunk brings over both, against what it brings over each
//! alone.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_lab::grid::{BitRate, Slow};

use crate::grid::Bench;
use crate::line_client::LineClient;
use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run};
use crate::traffic::Throughput;
use crate::tunnel::{self, Tunnel};
use crate::verdict::Bar;

/// The site's links, by their names in the lab.
const LINKS: [&str; 2] = ["alpha", "alpha/far"];
/// Rate of the first link.
const MEGABITS_PER_SECOND: u32 = 200;
/// How many times slower the second link is, with the bar: the share of the sum of both links'
/// rates.
const RATIOS: [(u32, f64); 2] = [(1, 0.9), (4, 0.85)];
const STREAMS: usize = 4;
/// Slowest motion: with more, what waits for the slower link alone takes longer than the programs at its ends
/// wait.
const SLOWEST: u32 = 5;
/// Longest wait until a trunk has carriers on all links that aren't cut.
const SETTLED: Duration = Duration::from_secs(120);
/// Length of a stream that shows which links are used.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// How long each way is measured per figure and round.
    #[arg(long, default_value = "3s")]
    duration: humantime::Duration,
}

/// How many times slower the second link is than the first.
#[derive(Debug, Clone, Copy)]
struct Ratio(u32);

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ratio) = self;
        write!(f, "{STREAMS} streams over links of {MEGABITS_PER_SECOND} Mb/s, {ratio}:1")
    }
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let slow = options.rounds.slow.at_most(SLOWEST);
    let mut run = Run::begin("rails", &options.rounds, &[])?;
    let cases = RATIOS.map(|(ratio, share)| {
        let row = |against: &str, bar: f64| {
            Comparison::new(Ratio(ratio).to_string(), "Mb/s", against).bar(Bar::AtLeast(bar))
        };
        let rows = vec![row("sum of each alone", share), row("better one alone", 1.0)];
        Case::new(Ratio(ratio), rows).slowed(slow)
    });
    run.part_in_slow_motion(1, cases.into(), |slow| Links::up(*options.duration, slow))?;
    run.finish()
}

/// The running job, and the grid with its links.
struct Links {
    client: LineClient,
    target: String,
    duration: Duration,
    bench: Bench,
}

impl Links {
    fn up(duration: Duration, slow: Slow) -> anyhow::Result<Self> {
        let bench = Bench::up("rails", slow)?;
        let [near, far] = bench.nodes() else { anyhow::bail!("rails must have two nodes") };
        let target = Tunnel::isthmus(&bench, near, far)?.target;
        let client = tunnel::job(&bench, near, far, "")?;
        Ok(Self { client, target, duration, bench })
    }

    /// Megabits per second of streams that last for `duration`, or in slow motion for longer.
    fn streams(&mut self, duration: Duration) -> anyhow::Result<f64> {
        let slow = self.bench.slow();
        let line = format!("stream {} --streams {STREAMS}", self.target);
        let Throughput { bytes, seconds } = self.client.ask(&line, slow.time(duration))?;
        Ok(bytes as f64 * 8e-6 / slow.as_described(seconds))
    }

    /// Bytes that have left the site by each link so far.
    fn carried(&self) -> anyhow::Result<[u64; 2]> {
        let report = self.bench.lab().emulation()?.context("no link is emulated")?;
        let of = |name: &str| {
            let link = report.link(name).with_context(|| format!("no link {name}"))?;
            anyhow::Ok(link.up.bytes)
        };
        Ok([of(LINKS[0])?, of(LINKS[1])?])
    }

    /// Megabits per second of streams while the link `cut` is cut, once all other links are used.
    /// With `None`, no link is cut.
    fn without(&mut self, cut: Option<usize>) -> anyhow::Result<f64> {
        if let Some(cut) = cut {
            // The link that stays has its carriers, even if it was cut before.
            self.settled(None)?;
            self.bench.lab().cut(LINKS[cut])?;
        }
        let found = self.settled(cut).and_then(|()| self.streams(self.duration));
        if let Some(cut) = cut {
            self.bench.lab().heal(LINKS[cut])?;
        }
        found
    }

    fn settled(&mut self, cut: Option<usize>) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.bench.slow().time(SETTLED);
        loop {
            let before = self.carried()?;
            self.streams(LOOK)?;
            let after = self.carried()?;
            let used = |link: usize| after[link] - before[link] > 500_000;
            if (0..LINKS.len()).all(|link| Some(link) == cut || used(link)) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "not all links are used after {SETTLED:?}");
        }
    }
}

impl Experiment for Links {
    type Case = Ratio;

    fn measure(&mut self, Ratio(ratio): &Ratio, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        for (link, rate) in LINKS.iter().zip([MEGABITS_PER_SECOND, MEGABITS_PER_SECOND / ratio]) {
            let rate = self.bench.slow().rate(BitRate(u64::from(rate) * 1_000_000));
            self.bench.lab().set_link(link, &[format!("rate={} bit/s", rate.0)])?;
        }
        // Without which link; no way always goes first.
        const WAYS: [Option<usize>; 3] = [None, Some(1), Some(0)];
        let mut found = [0.0; WAYS.len()];
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            found[way] = self.without(WAYS[way])?;
        }
        let [both, first, second] = found;
        Ok(vec![[both, first + second], [both, first.max(second)]])
    }

    fn finish(self) -> anyhow::Result<()> {
        self.client.finish(&format!("stop {}", self.target))
    }
}
