//! Figures of trunks, by the site at their other end.

use std::time::Duration;

use prometheus::{Counter, CounterVec, Gauge, GaugeVec, Opts, Registry};

use super::{COUNTERS, in_registry};

/// The figures of the trunks with a site at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// How many trunks stand.
    pub trunks: u64,
    /// How many trunks have no carrier that works.
    pub cut: u64,
    /// How many streams all trunks have together.
    pub streams: u64,
    /// Bytes taken from programs and not acknowledged.
    pub held_bytes: u64,
    /// How many carriers hear their other end.
    pub carriers: u64,
    /// The shortest smoothed round trip of the carriers that hear their other end; `None` if none
    /// was measured.
    pub round_trip: Option<Duration>,
    /// How many bytes the carriers may have under way together.
    pub congestion_window_bytes: u64,
    /// How many bytes per second the carriers delivered of late, together.
    pub bytes_per_second: u64,
    /// How many bytes are queued in the carriers' sockets.
    pub unsent_bytes: u64,
}

/// What has been added to the figures since the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Added {
    /// How many cuts of trunks began.
    pub pauses: u64,
    /// Time during which no carrier worked.
    pub paused: Duration,
    /// How many segments with data were sent, for the first time or again.
    pub data_segments: u64,
    /// How many segments were sent again.
    pub retransmitted_segments: u64,
    /// How many retransmission timeouts there were.
    pub timeouts: u64,
}

/// The metrics about trunks.
pub(super) struct Trunks {
    trunks: GaugeVec,
    cut: GaugeVec,
    streams: GaugeVec,
    held_bytes: GaugeVec,
    carriers: GaugeVec,
    round_trip: GaugeVec,
    congestion_window: GaugeVec,
    bytes_per_second: GaugeVec,
    unsent_bytes: GaugeVec,
    pauses: CounterVec,
    paused: CounterVec,
    data_segments: CounterVec,
    retransmitted_segments: CounterVec,
    timeouts: CounterVec,
}

impl Trunks {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauges = |name, help| in_registry(registry, GaugeVec::new(Opts::new(name, help), &["site"]));
        let counters = |name, help| in_registry(registry, CounterVec::new(Opts::new(name, help), &["site"]));
        Ok(Self {
            trunks: gauges("isthmus_trunks", "Trunks that stand")?,
            cut: gauges("isthmus_trunks_cut", "Trunks of which no carrier works")?,
            streams: gauges("isthmus_trunk_streams", "Connections over trunks")?,
            held_bytes: gauges("isthmus_trunk_held_bytes", "Bytes not acknowledged by the other end")?,
            carriers: gauges("isthmus_trunk_carriers", "Carriers that work")?,
            round_trip: gauges("isthmus_trunk_round_trip_seconds", "Least smoothed round trip of a carrier")?,
            congestion_window: gauges(
                "isthmus_trunk_congestion_window_bytes",
                "Congestion windows of all carriers",
            )?,
            bytes_per_second: gauges("isthmus_trunk_bytes_per_second", "Delivery rates of all carriers")?,
            unsent_bytes: gauges("isthmus_trunk_unsent_bytes", "Bytes queued in carriers' sockets")?,
            pauses: counters("isthmus_trunk_pauses_total", "Times that a trunk was cut")?,
            paused: counters("isthmus_trunk_paused_seconds_total", "Time that trunks were cut")?,
            data_segments: counters("isthmus_trunk_segments_total", "Segments with data sent, again or not")?,
            retransmitted_segments: counters(
                "isthmus_trunk_retransmitted_segments_total",
                "Segments sent again",
            )?,
            timeouts: counters("isthmus_trunk_timeouts_total", "Retransmission timeouts")?,
        })
    }

    fn set(&self, site: &str, now: &Now, added: &Added) {
        let gauge = |of: &GaugeVec| -> Gauge { of.with_label_values(&[site]) };
        gauge(&self.trunks).set(now.trunks as f64);
        gauge(&self.cut).set(now.cut as f64);
        gauge(&self.streams).set(now.streams as f64);
        gauge(&self.held_bytes).set(now.held_bytes as f64);
        gauge(&self.carriers).set(now.carriers as f64);
        match now.round_trip {
            Some(time) => gauge(&self.round_trip).set(time.as_secs_f64()),
            // The removal fails if the gauge has no value for the site.
            None => drop(self.round_trip.remove_label_values(&[site])),
        }
        gauge(&self.congestion_window).set(now.congestion_window_bytes as f64);
        gauge(&self.bytes_per_second).set(now.bytes_per_second as f64);
        gauge(&self.unsent_bytes).set(now.unsent_bytes as f64);
        let counter = |of: &CounterVec| -> Counter { of.with_label_values(&[site]) };
        counter(&self.pauses).inc_by(added.pauses as f64);
        counter(&self.paused).inc_by(added.paused.as_secs_f64());
        counter(&self.data_segments).inc_by(added.data_segments as f64);
        counter(&self.retransmitted_segments).inc_by(added.retransmitted_segments as f64);
        counter(&self.timeouts).inc_by(added.timeouts as f64);
    }
}

/// Sets the present figures of the trunks with a site, and adds what has been added.
pub fn trunks(site: &str, now: &Now, added: &Added) {
    if let Some(counters) = COUNTERS.get() {
        counters.trunks.set(site, now, added);
    }
}
