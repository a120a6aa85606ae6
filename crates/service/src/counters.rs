//! All counters of a service, for Prometheus. Counting begins with [`start`].
//! [`keep_written`] writes a file for the textfile collector of node_exporter. No
//! label names a job, a user or an address.
//!
//! | name | labels | unit | counted by |
//! |---|---|---|---|
//! | `isthmus_attempts_total` | way, outcome | steps of a plan | agent |
//! | `isthmus_setup_seconds` | way | seconds, histogram | agent |
//! | `isthmus_bytes_total` | way, direction | bytes that it encrypted (sent) or decrypted (received) for programs that connected | agent |
//! | `isthmus_spliced_bytes_total` | – | bytes, both directions | relay, gateway |
//! | `isthmus_spliced_connections_total` | – | connections | relay, gateway |
//! | `isthmus_spliced_connections` | – | connections now | relay, gateway |
//! | `isthmus_refused_total` | reason | connections | all services |
//! | `isthmus_waiting` | queue | entries now | relay, gateway |
//! | `isthmus_attached` | – | parties attached now | broker, gateway |
//! | `isthmus_trunk…` | site | see [`trunks`] | agent, gateway |
//!
//! `way` is dial and route, such as `relay end-to-end`.

pub mod trunks;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::files;

/// How often the file is written.
pub const INTERVAL: Duration = Duration::from_secs(15);
/// Bounds of the histogram, in seconds. A connection within a site takes less than a millisecond; a
/// plan that fails takes up to half a minute.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

static COUNTERS: OnceLock<Counters> = OnceLock::new();

struct Counters {
    registry: Registry,
    attempts: IntCounterVec,
    setup: HistogramVec,
    bytes: IntCounterVec,
    spliced_bytes: IntCounter,
    spliced_total: IntCounter,
    spliced: IntGauge,
    refused: IntCounterVec,
    waiting: IntGaugeVec,
    attached: IntGauge,
    trunks: trunks::Trunks,
}

impl Counters {
    fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counters = |name, help, labels: &[&str]| {
            in_registry(&registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let counter = |name, help| in_registry(&registry, IntCounter::new(name, help));
        let gauges = |name, help, labels: &[&str]| {
            in_registry(&registry, IntGaugeVec::new(Opts::new(name, help), labels))
        };
        let gauge = |name, help| in_registry(&registry, IntGauge::new(name, help));
        let seconds = HistogramOpts::new("isthmus_setup_seconds", "Time from request to connection")
            .buckets(SECONDS.to_vec());
        Ok(Self {
            attempts: counters("isthmus_attempts_total", "Steps of plans tried", &["way", "outcome"])?,
            setup: in_registry(&registry, HistogramVec::new(seconds, &["way"]))?,
            bytes: counters("isthmus_bytes_total", "Bytes carried for programs", &["way", "direction"])?,
            spliced_bytes: counter("isthmus_spliced_bytes_total", "Bytes passed on")?,
            spliced_total: counter("isthmus_spliced_connections_total", "Connections spliced")?,
            spliced: gauge("isthmus_spliced_connections", "Connections spliced now")?,
            refused: counters("isthmus_refused_total", "Connections refused", &["reason"])?,
            waiting: gauges("isthmus_waiting", "Entries of a queue", &["queue"])?,
            attached: gauge("isthmus_attached", "Parties attached")?,
            trunks: trunks::Trunks::register(&registry)?,
            registry,
        })
    }

    fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// Adds a metric to the registry, if it could be made.
fn in_registry<M: Collector + Clone + 'static>(
    registry: &Registry,
    metric: prometheus::Result<M>,
) -> prometheus::Result<M> {
    let metric = metric?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Begins to count, for the rest of the process's life.
///
/// # Errors
/// If two metrics have the same name, which is a mistake in this file.
pub fn start() -> Result<(), prometheus::Error> {
    let _ = COUNTERS.set(Counters::new()?);
    Ok(())
}

/// Whether this process counts.
pub fn are_started() -> bool {
    COUNTERS.get().is_some()
}

/// Everything counted so far, in the text format; empty before [`start`].
pub fn text() -> String {
    COUNTERS.get().and_then(|counters| counters.text().ok()).unwrap_or_default()
}

/// Writes `SERVICE-NAME.prom` into a directory now and every [`INTERVAL`], for as long as the
/// future is polled. Each file takes the place of the former one.
pub async fn keep_written(directory: PathBuf, service: &str, name: &str) {
    let path = directory.join(format!("isthmus-{service}-{name}.prom"));
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let file = path.clone();
        let written = tokio::task::spawn_blocking(move || write(&file)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "cannot write the counters");
        }
    }
}

fn write(path: &Path) -> Result<(), files::FileError> {
    // node_exporter may run as another user.
    files::write(path, text().as_bytes(), 0o644)
}

/// Counts a step of a plan that was tried: `ok`, `failed`, `refused` by the acceptor, or `given-up`
/// by the program.
pub fn attempt(way: &str, outcome: &str) {
    if let Some(counters) = COUNTERS.get() {
        counters.attempts.with_label_values(&[way, outcome]).inc();
    }
}

/// Counts a connection that was set up within this time, failed steps included.
pub fn set_up(way: &str, took: Duration) {
    if let Some(counters) = COUNTERS.get() {
        counters.setup.with_label_values(&[way]).observe(took.as_secs_f64());
    }
}

/// The byte counters of a way.
#[derive(Debug, Clone)]
pub struct Carried {
    sent: IntCounter,
    received: IntCounter,
}

impl Carried {
    /// The counters of a way; `None` before [`start`].
    pub fn by(way: &str) -> Option<Self> {
        let bytes = &COUNTERS.get()?.bytes;
        Some(Self {
            sent: bytes.with_label_values(&[way, "sent"]),
            received: bytes.with_label_values(&[way, "received"]),
        })
    }

    /// Counts bytes from the initiator's program.
    pub fn sent(&self, bytes: u64) {
        self.sent.inc_by(bytes);
    }

    /// Counts bytes for the initiator's program.
    pub fn received(&self, bytes: u64) {
        self.received.inc_by(bytes);
    }
}

/// Sets the totals of the process's data plane since its start.
pub fn spliced(connections: u64, running: u64, bytes: u64) {
    if let Some(counters) = COUNTERS.get() {
        counters.spliced_total.inc_by(connections.saturating_sub(counters.spliced_total.get()));
        counters.spliced_bytes.inc_by(bytes.saturating_sub(counters.spliced_bytes.get()));
        counters.spliced.set(gauge(running));
    }
}

/// Counts a connection that was refused.
pub fn refused(reason: &str) {
    if let Some(counters) = COUNTERS.get() {
        counters.refused.with_label_values(&[reason]).inc();
    }
}

/// Sets how many entries a queue has now.
pub fn waiting(queue: &str, entries: usize) {
    if let Some(counters) = COUNTERS.get() {
        counters.waiting.with_label_values(&[queue]).set(gauge(entries as u64));
    }
}

/// Sets how many parties are attached to this service now.
pub fn attached(parties: usize) {
    if let Some(counters) = COUNTERS.get() {
        counters.attached.set(gauge(parties as u64));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn counters_are_written_to_the_file() {
        attempt("direct end-to-end", "ok");
        assert_eq!(text(), "", "nothing is counted before the start");
        start().unwrap();
        attempt("direct end-to-end", "ok");
        set_up("direct end-to-end", Duration::from_millis(3));
        Carried::by("relay end-to-end").unwrap().sent(7);
        spliced(2, 1, 100);
        spliced(3, 1, 150);
        refused("wrong-key");
        waiting("other side", 4);
        attached(5);
        let now =
            trunks::Now { trunks: 2, round_trip: Some(Duration::from_millis(10)), ..Default::default() };
        let added = trunks::Added { paused: Duration::from_millis(1500), ..Default::default() };
        trunks::trunks("beta", &now, &added);
        trunks::trunks("beta", &trunks::Now { trunks: 1, ..now }, &added);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("isthmus-agent-n1.alpha.prom");
        write(&path).unwrap();
        let written = std::fs::read_to_string(path).unwrap();
        for line in [
            "isthmus_attempts_total{outcome=\"ok\",way=\"direct end-to-end\"} 1",
            "isthmus_setup_seconds_bucket{way=\"direct end-to-end\",le=\"0.005\"} 1",
            "isthmus_bytes_total{direction=\"sent\",way=\"relay end-to-end\"} 7",
            "isthmus_spliced_bytes_total 150",
            "isthmus_spliced_connections_total 3",
            "isthmus_refused_total{reason=\"wrong-key\"} 1",
            "isthmus_waiting{queue=\"other side\"} 4",
            "isthmus_attached 5",
            "isthmus_trunks{site=\"beta\"} 1",
            "isthmus_trunk_round_trip_seconds{site=\"beta\"} 0.01",
            "isthmus_trunk_paused_seconds_total{site=\"beta\"} 3",
        ] {
            assert!(written.lines().any(|found| found == line), "{line} in:\n{written}");
        }
    }
}
