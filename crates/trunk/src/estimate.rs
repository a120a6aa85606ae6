//! What is known of a carrier's rate, delay and queue: from the embedding's reports, or
//! else from the trunk's own acknowledgements and PINGs.

use std::time::{Duration, Instant};

use crate::Purpose;
use crate::rails::Path;
use crate::rtt::{ACK_DELAY, Rtt, UNKNOWN, shows_queue};

/// How many bytes a carrier of unknown rate is taken to deliver in each round trip. It is what TCP
/// sends in its first: ten segments (RFC 6928).
const FIRST_FLIGHT: f64 = 14_600.0;
/// How many of the last measured rates count.
const RATES: usize = 8;
/// A rate is measured over at least this time, so that acknowledgements in bursts don't matter. See
/// [`SHORT_TIME`].
const LEAST_TIME: Duration = Duration::from_millis(10);
/// What was reported holds for so long, or for a round trip.
const REPORTED: Duration = Duration::from_millis(100);
/// If all is acknowledged before [`LEAST_TIME`], a rate is measured over at least this time and
/// [`SHORT_BYTES`].
const SHORT_TIME: Duration = Duration::from_millis(2);
/// Least bytes over which a rate is measured in less than [`LEAST_TIME`].
const SHORT_BYTES: u64 = 32 << 10;

/// What an embedding has measured of a carrier, for example by `TCP_INFO`. Where it leaves a figure
/// out, what the trunk measures itself counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// The smoothed round trip (`tcpi_rtt`).
    pub rtt: Option<Duration>,
    /// The shortest round trip (`tcpi_min_rtt`).
    pub min_rtt: Option<Duration>,
    /// The rate at which data was delivered of late (`tcpi_delivery_rate`).
    pub bytes_per_second: Option<u64>,
    /// Whether there was no more data to deliver (`tcpi_delivery_rate_app_limited`).
    pub app_limited: bool,
    /// Bytes in the socket that the network doesn't have yet (`tcpi_notsent_bytes`).
    pub unsent: Option<u64>,
    /// Whether the sender's windows hold the carrier back: the congestion window grows slowly after
    /// a loss, or buffers hold less than the path does.
    pub held_back: bool,
}

/// The last rates, of which the best counts, as in BBR (Cardwell et al., "BBR: Congestion-Based
/// Congestion Control", ACM Queue 14(5), 2016). A rate at which the carrier was offered no more is
/// kept only if it is better than the others.
#[derive(Debug, Default)]
struct Rates {
    last: [u64; RATES],
    next: usize,
}

impl Rates {
    fn add(&mut self, bytes_per_second: u64, limited: bool) {
        if !limited || self.best().is_none_or(|best| bytes_per_second > best) {
            self.last[self.next % RATES] = bytes_per_second.max(1);
            self.next = (self.next + 1) % RATES;
        }
    }

    fn best(&self) -> Option<u64> {
        self.last.iter().copied().max().filter(|best| *best > 0)
    }
}

/// A rate that is being measured, from one acknowledgement to another.
#[derive(Debug)]
struct Sample {
    since: Instant,
    bytes: u64,
    /// Whether the carrier was offered no more meanwhile.
    limited: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Estimate {
    rates: Rates,
    /// Whether the embedding reports rates: then those that are measured here don't count.
    reported: bool,
    /// The reported round trip, the shortest one, and when they were reported.
    rtt: Option<(Duration, Duration, Instant)>,
    sample: Option<Sample>,
    /// How many bytes waited at this end for the link, and at which time.
    backlog: Option<(f64, Instant)>,
    /// Bytes of counted frames that are under way.
    under_way: u64,
    /// When an acknowledgement last came, or the first frame went out; `None` while no frames are
    /// under way.
    progress: Option<Instant>,
}

impl Estimate {
    /// Takes in what the embedding has measured.
    pub(crate) fn report(&mut self, measured: Measured, now: Instant) {
        if let Some(rtt) = measured.rtt {
            let least = measured.min_rtt.or(self.rtt.map(|(_, least, _)| least)).unwrap_or(rtt).min(rtt);
            self.rtt = Some((rtt, least, now));
        }
        if let Some(bytes_per_second) = measured.bytes_per_second {
            self.reported = true;
            self.rates.add(bytes_per_second, measured.app_limited);
        }
        if let Some(unsent) = measured.unsent {
            self.backlog = Some((unsent as f64, now));
        }
    }

    /// Notes that bytes go into the carrier.
    pub(crate) fn sent(&mut self, bytes: usize, rtt: &Rtt, now: Instant) {
        self.backlog = Some((self.queued(rtt, now) + bytes as f64, now));
        self.under_way += bytes as u64;
        self.progress.get_or_insert(now);
    }

    /// Notes that the carrier had room, and was given nothing.
    pub(crate) fn has_room(&mut self) {
        if let Some(sample) = &mut self.sample {
            sample.limited = true;
        }
    }

    /// Notes that bytes are acknowledged.
    pub(crate) fn acknowledged(&mut self, bytes: u64, rtt: &Rtt, now: Instant) {
        self.under_way = self.under_way.saturating_sub(bytes);
        let empty = self.under_way == 0;
        self.progress = Some(now).filter(|_| !empty);
        let least = self.least(rtt).unwrap_or_default().max(LEAST_TIME);
        let Some(sample) = &mut self.sample else {
            self.sample = Some(Sample { since: now, bytes: 0, limited: false }).filter(|_| !empty);
            return;
        };
        sample.bytes += bytes;
        sample.limited |= empty;
        let took = now.saturating_duration_since(sample.since);
        let enough = took >= least || (empty && took >= SHORT_TIME && sample.bytes >= SHORT_BYTES);
        if enough && !self.reported {
            self.rates.add((sample.bytes as f64 / took.as_secs_f64()) as u64, sample.limited);
        }
        if empty {
            self.sample = None;
        } else if enough {
            self.sample = Some(Sample { since: now, bytes: 0, limited: false });
        }
    }

    /// Notes that so many bytes of padding were answered, and in which time.
    pub(crate) fn primed(&mut self, bytes: usize, took: Duration) {
        if !self.reported {
            self.rates.add((bytes as f64 / took.as_secs_f64().max(1e-4)) as u64, true);
        }
    }

    /// Notes that all frames under way are sent again over other carriers.
    pub(crate) fn given_up(&mut self) {
        (self.under_way, self.progress, self.sample, self.backlog) = (0, None, None, None);
    }

    /// Whether a round trip shows a queue that is there now. It does if it is twice the least one. A
    /// quarter longer is enough if the round trip that was reported of late is, too: that of single frames
    /// is longer where TCP's window is shorter than they are, and the reported one where
    /// acknowledgements are delayed.
    pub(crate) fn shows_queue(&self, took: Duration, rtt: &Rtt, now: Instant) -> bool {
        let Some(least) = rtt.least().or(self.least(rtt)) else { return false };
        let is_longer = |rtt, least| shows_queue(rtt, least, least / 4);
        let is_reported = self.rtt.is_some_and(|(rtt, least, at)| {
            now.saturating_duration_since(at) <= rtt.max(REPORTED) && is_longer(rtt, least)
        });
        shows_queue(took, least, least) || (is_reported && is_longer(took, least))
    }

    /// The carrier's rate in bytes per second, if known.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rates.best()
    }

    /// The round trip without queues, as far as it is known.
    pub(crate) fn least(&self, rtt: &Rtt) -> Option<Duration> {
        self.rtt.map(|(_, least, _)| least).or(rtt.least())
    }

    fn rate_or_first(&self, rtt: &Rtt) -> f64 {
        let first = || FIRST_FLIGHT / self.least(rtt).unwrap_or(UNKNOWN).as_secs_f64().max(1e-4);
        self.rate().map_or_else(first, |rate| rate as f64)
    }

    /// How many bytes still wait for the link, at most those under way.
    fn queued(&self, rtt: &Rtt, now: Instant) -> f64 {
        let left = self.backlog.map_or(0.0, |(bytes, at)| {
            bytes - now.saturating_duration_since(at).as_secs_f64() * self.rate_or_first(rtt)
        });
        left.clamp(0.0, self.under_way as f64)
    }

    /// By how many seconds acknowledgements are overdue: then the carrier is slower than it was.
    fn lateness(&self, rtt: &Rtt, now: Instant) -> f64 {
        let Some(progress) = self.progress else { return 0.0 };
        let waited = now.saturating_duration_since(progress).as_secs_f64();
        let round_trip = self.least(rtt).unwrap_or(UNKNOWN) + 2 * ACK_DELAY;
        (waited - round_trip.as_secs_f64() - self.under_way as f64 / self.rate_or_first(rtt)).max(0.0)
    }

    /// What the choice of a carrier for the next frame needs to know of this one.
    pub(crate) fn path(&self, purpose: Purpose, rtt: &Rtt, now: Instant) -> Path {
        // A queue in the network drains if nothing follows.
        let queue = self.rtt.map_or(Duration::ZERO, |(rtt, least, at)| {
            (rtt - least).saturating_sub(now.saturating_duration_since(at))
        });
        let way = self.least(rtt).unwrap_or(UNKNOWN) / 2 + queue;
        Path {
            latency: way.as_secs_f64() + self.lateness(rtt, now),
            bytes_per_second: self.rate_or_first(rtt),
            backlog: self.queued(rtt, now),
            purpose,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_rate_at_which_no_more_was_offered_counts_only_if_it_is_better() {
        let mut rates = Rates::default();
        for (bytes_per_second, limited, best) in
            [(10, true, 10), (5, true, 10), (20, true, 20), (8, false, 20), (7, true, 20)]
        {
            rates.add(bytes_per_second, limited);
            assert_eq!(rates.best(), Some(best), "after {bytes_per_second}, limited {limited}");
        }
        // The earlier rates are forgotten after eight that count.
        for _ in 0..7 {
            rates.add(6, false);
        }
        assert_eq!(rates.best(), Some(8));
        rates.add(6, false);
        assert_eq!(rates.best(), Some(6));
    }

    #[test]
    fn a_carrier_whose_acknowledgements_are_overdue_is_later_by_as_much() {
        let (rtt, begun) = (Rtt::default(), Instant::now());
        let mut estimate = Estimate::default();
        let measured =
            Measured { rtt: Some(10 * MS), bytes_per_second: Some(1_000_000), ..Measured::default() };
        estimate.report(measured, begun);
        estimate.sent(10_000, &rtt, begun);
        // A round trip, twice the delay of an ACK, and 10 ms for the bytes.
        for (after, latency) in [(0, 5), (60, 5), (61, 6), (160, 105)] {
            let path = estimate.path(Purpose::Bulk, &rtt, begun + after * MS);
            assert!((path.latency - f64::from(latency) / 1e3).abs() < 1e-6, "after {after} ms: {path:?}");
        }
        estimate.acknowledged(10_000, &rtt, begun + 160 * MS);
        let path = estimate.path(Purpose::Bulk, &rtt, begun + 300 * MS);
        assert!((path.latency - 0.005).abs() < 1e-6, "{path:?}");
    }

    #[test]
    fn a_round_trip_shows_a_queue_if_what_was_reported_does() {
        let now = Instant::now();
        // What a frame took, what was reported, and how long ago; milliseconds.
        for (name, took, reported, ago, want) in [
            ("nothing was reported", 15, None, 0, false),
            ("twice as long, and nothing was reported", 21, None, 0, true),
            ("both are longer", 15, Some(14), 5, true),
            ("TCP's window is shorter than the frame", 15, Some(11), 5, false),
            ("acknowledgements are delayed", 11, Some(40), 5, false),
            ("a report of earlier", 15, Some(14), 200, false),
        ] {
            let (mut estimate, mut rtt) = (Estimate::default(), Rtt::default());
            rtt.add(10 * MS, now);
            if let Some(reported) = reported {
                let measured =
                    Measured { rtt: Some(reported * MS), min_rtt: Some(10 * MS), ..Measured::default() };
                estimate.report(measured, now);
            }
            assert_eq!(estimate.shows_queue(took * MS, &rtt, now + ago * MS), want, "{name}");
        }
        let estimate = Estimate::default();
        assert!(!estimate.shows_queue(500 * MS, &Rtt::default(), now), "no round trip is known");
    }
}
