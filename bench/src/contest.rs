//! Tools that carry the same traffic, measured in turns: latency, bandwidth and
//! what it costs.

use clap::Args;

use crate::report::{Bar, Row};

/// Streams at once.
const STREAMS: [usize; 2] = [1, 8];

/// How to measure.
#[derive(Debug, Clone, Copy, Args)]
pub struct Options {
    /// Rounds; each measures every tool once.
    #[arg(long, default_value_t = 7)]
    pub rounds: usize,
    /// How long each tool is measured per figure and round.
    #[arg(long, default_value = "2s")]
    pub duration: humantime::Duration,
}

/// What one tool took for streams.
#[derive(Debug, Clone, Copy)]
pub struct Streaming {
    /// All streams together.
    pub gigabits_per_second: f64,
    /// Processor seconds of the tool's processes, user and system, per 10⁹ bytes.
    pub cpu_seconds_per_gigabyte: f64,
}

impl Streaming {
    /// Of this many bytes in these seconds, with these processor seconds.
    pub fn new(bytes: u64, seconds: f64, cpu_seconds: f64) -> Self {
        let bytes = bytes as f64;
        Self {
            gigabits_per_second: bytes * 8e-9 / seconds,
            cpu_seconds_per_gigabyte: cpu_seconds / (bytes * 1e-9),
        }
    }
}

/// Tools that stand ready; the first is ours.
pub trait Contest {
    /// What the rows call each.
    fn names(&self) -> [&'static str; 3];
    /// Half a round trip of 64 bytes through one of them, seconds.
    fn latency(&mut self, tool: usize, duration: humantime::Duration) -> anyhow::Result<f64>;
    /// Streams through one of them.
    fn streaming(
        &mut self,
        tool: usize,
        streams: usize,
        duration: humantime::Duration,
    ) -> anyhow::Result<Streaming>;
}

/// Measures all of them in turns; `prefix` begins what each row measures.
///
/// # Errors
/// If a measurement fails.
pub fn measure(contest: &mut impl Contest, prefix: &str, options: Options) -> anyhow::Result<Vec<Row>> {
    let Options { rounds, duration } = options;
    let names = contest.names();
    let mut latency = Figures::default();
    let mut bandwidth = [Figures::default(), Figures::default()];
    let mut cost = [Figures::default(), Figures::default()];
    for round in 0..rounds {
        eprintln!("{prefix}round {} of {rounds}", round + 1);
        for turn in 0..names.len() {
            // Nobody always goes first.
            let tool = (round + turn) % names.len();
            latency.0[tool].push(contest.latency(tool, duration)? * 1e6);
            for (figure, streams) in STREAMS.into_iter().enumerate() {
                let found = contest.streaming(tool, streams, duration)?;
                bandwidth[figure].0[tool].push(found.gigabits_per_second);
                cost[figure].0[tool].push(found.cpu_seconds_per_gigabyte);
            }
        }
    }
    let mut rows = latency.rows(&format!("{prefix}half round trip, 64 B"), "µs", names, Bar::AtMost(1.0));
    for (figure, streams) in STREAMS.into_iter().enumerate() {
        let streams = if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") };
        let what = format!("{prefix}bandwidth, {streams}");
        rows.extend(bandwidth[figure].rows(&what, "Gb/s", names, Bar::AtLeast(1.0)));
        let what = format!("{prefix}processor time, {streams}");
        rows.extend(cost[figure].rows(&what, "s/GB", names, Bar::AtMost(1.0)));
    }
    Ok(rows)
}

/// One figure of every tool, round by round.
#[derive(Debug, Default)]
struct Figures([Vec<f64>; 3]);

impl Figures {
    fn rows(&self, what: &str, unit: &str, names: [&str; 3], bar: Bar) -> Vec<Row> {
        let [ours, first, second] = &self.0;
        let references = [(names[1], &first[..]), (names[2], &second[..])];
        Row::compare_with_best(what, unit, ours, &references, bar)
    }
}
