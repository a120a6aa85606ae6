//! How a new carrier with BBR is kept from overfilling its path.
//!
//! BBR's start-up sends at 2.9 times what it has seen, and notes three round trips later that no more
//! arrives (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016). A
//! queue that is shorter than two round trips overflows meanwhile. So the carrier is bounded once its
//! own queue is seen, until the start-up is over. In doubt nothing bounds it. The bound is gone after
//! some round trips in any case: BBR's start-up doesn't end as long as the program sends little, and
//! carriers that have begun together have seen only their shares of the path.

use std::time::{Duration, Instant};

/// The part of a round trip, as a divisor, by which a queue makes it longer at least. HyStart looks
/// for about the same (RFC 9406 section 4.3).
const QUEUE: u32 = 8;
/// A smaller part is no queue.
const NO_QUEUE: u32 = 16;
/// A queue makes round trips longer by so many times what they deviated before there was one, as in
/// the retransmission timeout (RFC 6298 section 2).
const DEVIATIONS: u32 = 4;
/// The part of the most that has arrived which is sent while there is a queue, and without one. The
/// path stays full meanwhile. If there was no queue in truth, the rate can grow.
const DRAIN: f64 = 0.75;
const GROW: f64 = 1.25;
/// While the carrier's own queue drains, more arrives than is sent, by this factor at least.
const OWN: f64 = 1.05;
/// Whether the queue is the carrier's own is judged so many half round trips later: what was sent
/// before the bound has arrived after two.
const JUDGED: u32 = 3;
/// BBR notes after three round trips that no more arrives. After so many something else is wrong.
const MOST_ROUNDS: u32 = 8;
/// So many round trips after its queue was first seen nothing bounds the carrier any more, whether or
/// not data has waited.
const BOUNDED_ROUNDS: u32 = 32;
/// Data has waited for so long: this is no start-up. The peer may be frozen.
const LONGEST: Duration = Duration::from_secs(10);
/// Bytes that must arrive in a round trip before its length tells of a queue: 32 segments.
const DENSE: f64 = 46_720.0;
/// Processors decide how long shorter round trips are.
const LEAST_RTT: Duration = Duration::from_millis(2);

/// What the kernel knows of a carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// The smoothed round trip (`tcpi_rtt`).
    pub rtt: Duration,
    /// By how much round trips deviate from it (`tcpi_rttvar`).
    pub deviation: Duration,
    /// The shortest round trip (`tcpi_min_rtt`).
    pub min_rtt: Duration,
    /// Bytes per second that arrived of late (`tcpi_delivery_rate`).
    pub delivered: u64,
    /// Whether a segment was sent again (`tcpi_total_retrans`).
    pub has_lost: bool,
    /// Whether data waits (`tcpi_notsent_bytes`).
    pub waits: bool,
    /// The most that arrived in a round trip, for BBR; bytes per second.
    pub most: u64,
    /// Whether BBR's start-up goes on.
    pub is_starting: bool,
}

/// Round trips without a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Calm {
    /// The least that was smoothed. Where delays vary, the shortest is far below it.
    rtt: Duration,
    /// By how much they deviated at most.
    deviation: Duration,
}

impl Calm {
    fn is_queue_gone(&self, seen: &Observed) -> bool {
        seen.rtt <= self.rtt + self.rtt / NO_QUEUE
    }

    fn is_queue_seen(&self, seen: &Observed) -> bool {
        seen.rtt > self.rtt + (self.rtt / QUEUE).max(DEVIATIONS * self.deviation)
    }

    /// Takes in a look at which no queue is seen.
    fn and(self, seen: &Observed) -> Self {
        let rtt = self.rtt.min(seen.rtt);
        let is_gone = self.is_queue_gone(seen);
        Self { rtt, deviation: if is_gone { self.deviation.max(seen.deviation) } else { self.deviation } }
    }
}

impl Observed {
    /// Whether a bound doesn't make less arrive, since the carrier's own queue drains.
    fn is_own(&self) -> bool {
        self.delivered as f64 >= OWN * DRAIN * self.most as f64
    }

    /// Whether so much arrives that round trips tell of queues.
    fn is_dense(&self) -> bool {
        self.min_rtt >= LEAST_RTT && self.most as f64 * self.min_rtt.as_secs_f64() >= DENSE
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing bounds the carrier. Nothing is known of its round trips before much arrives.
    Free(Option<Calm>),
    /// A queue was seen.
    Bounded(Bounded),
    /// Nothing bounds the carrier any more.
    Over,
}

/// A carrier whose queue was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounded {
    calm: Calm,
    /// For how long data had waited then.
    busy: Duration,
    /// Until when the carrier is bounded at most.
    until: Instant,
    /// Whether the queue is the carrier's own beyond doubt.
    is_own: bool,
}

/// The start-up of a carrier that has BBR.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    phase: Phase,
    /// When it was last looked at, and whether data waited then.
    looked: (Instant, bool),
    /// For how long data has waited.
    busy: Duration,
    /// When data last waited.
    waited: Instant,
    /// When data began to wait after a rest of more than a round trip; `None` if there was no rest.
    rested: Option<Instant>,
}

impl Launch {
    /// The launch of a carrier that has sent nothing.
    pub fn new(now: Instant) -> Self {
        let looked = (now, false);
        Self { phase: Phase::Free(None), looked, busy: Duration::ZERO, waited: now, rested: None }
    }

    /// Whether nothing bounds the carrier any more.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// When the carrier must be looked at though no data waits: its bound is over then.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Bounded(Bounded { until, .. }) => Some(until),
            Phase::Free(_) | Phase::Over => None,
        }
    }

    /// Takes in what the kernel knows by now. Returns how many bytes per second the carrier may send;
    /// `None` if nothing but BBR bounds it.
    pub fn look(&mut self, seen: &Observed, now: Instant) -> Option<u64> {
        let (looked, waited) = std::mem::replace(&mut self.looked, (now, seen.waits));
        if waited && seen.waits {
            self.busy += now.saturating_duration_since(looked);
        }
        let rests = now.saturating_duration_since(self.waited) > seen.rtt;
        if seen.waits {
            self.waited = now;
            self.rested = if rests { Some(now) } else { self.rested };
        }
        // A queue is gone after a rest, and round trips are those of what little was sent meanwhile, whose
        // acknowledgements may have been delayed.
        let is_told = match self.rested {
            Some(began) => now >= began + seen.min_rtt * 5 / 4 && (seen.waits || !rests),
            None => !rests,
        };
        self.phase = self.next(seen, is_told, now);
        let Phase::Bounded(Bounded { calm, .. }) = self.phase else { return None };
        let part = if is_told && !calm.is_queue_gone(seen) { DRAIN } else { GROW };
        Some((part * seen.most as f64) as u64)
    }

    /// `is_told`: round trips tell of a queue.
    fn next(&self, seen: &Observed, is_told: bool, now: Instant) -> Phase {
        match self.phase {
            _ if !seen.is_starting || self.busy > LONGEST => Phase::Over,
            // The path loses segments, or its queue is too short to be seen.
            Phase::Free(_) if seen.has_lost => Phase::Over,
            Phase::Free(_) if !seen.is_dense() => self.phase,
            Phase::Free(None) => Phase::Free(Some(Calm { rtt: seen.rtt, deviation: seen.deviation })),
            Phase::Free(Some(calm)) if is_told && calm.is_queue_seen(seen) => {
                let until = now + BOUNDED_ROUNDS * seen.rtt;
                Phase::Bounded(Bounded { calm, busy: self.busy, until, is_own: false })
            }
            Phase::Free(Some(calm)) => Phase::Free(Some(calm.and(seen))),
            Phase::Bounded(bounded) => {
                let busy = self.busy.saturating_sub(bounded.busy);
                let is_judged = busy >= JUDGED * seen.rtt / 2;
                let is_doubtful = is_judged && !bounded.is_own && !seen.is_own();
                if busy > MOST_ROUNDS * seen.rtt || is_doubtful || now >= bounded.until {
                    Phase::Over
                } else {
                    Phase::Bounded(Bounded { is_own: bounded.is_own || is_judged, ..bounded })
                }
            }
            Phase::Over => self.phase,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// 8 MB/s and 50 ms: 400 KB are under way without a queue.
    const CALM: Observed = Observed {
        rtt: Duration::from_millis(51),
        deviation: Duration::from_micros(300),
        min_rtt: Duration::from_millis(50),
        delivered: 4_000_000,
        has_lost: false,
        waits: true,
        most: 4_000_000,
        is_starting: true,
    };
    const QUEUED: Observed =
        Observed { rtt: Duration::from_millis(60), delivered: 8_000_000, most: 8_000_000, ..CALM };

    /// What the looks lead to, which are so many milliseconds apart.
    fn bounds(looks: &[(u64, Observed)]) -> (Vec<Option<u64>>, bool) {
        let mut now = Instant::now();
        let mut launch = Launch::new(now);
        let mut look = |(after, seen): &(u64, Observed)| {
            now += *after as u32 * MS;
            launch.look(seen, now)
        };
        let bounds = looks.iter().map(&mut look).collect();
        (bounds, launch.is_over())
    }

    #[test]
    fn a_carrier_is_bounded_once_its_queue_is_seen() {
        let drain = Some(6_000_000);
        let grow = Some(10_000_000);
        let gone = Observed { rtt: 52 * MS, ..QUEUED };
        let started = Observed { is_starting: false, ..gone };
        let looks =
            [(3, CALM), (3, QUEUED), (3, QUEUED), (50, QUEUED), (40, QUEUED), (3, gone), (3, started)];
        assert_eq!(bounds(&looks), (vec![None, drain, drain, drain, drain, grow, None], true));
    }

    #[test]
    fn a_queue_needs_signs() {
        for (name, looks, is_over) in [
            ("round trips are hardly longer", [CALM, Observed { rtt: 56 * MS, ..QUEUED }], false),
            ("there was no time without a queue", [QUEUED, QUEUED], false),
            ("delays varied", [Observed { deviation: 4 * MS, ..CALM }, QUEUED], false),
            ("single round trips were shorter", [Observed { rtt: 58 * MS, ..CALM }, QUEUED], false),
            ("little arrives", [CALM, Observed { most: 500_000, ..QUEUED }], false),
            ("a segment was lost before", [CALM, Observed { has_lost: true, ..QUEUED }], true),
            ("the start-up is over", [CALM, Observed { is_starting: false, ..QUEUED }], true),
            (
                "the way is short",
                [CALM, QUEUED].map(|seen| Observed {
                    rtt: seen.rtt / 50,
                    min_rtt: MS,
                    most: 800_000_000,
                    ..seen
                }),
                false,
            ),
        ] {
            assert_eq!(bounds(&looks.map(|seen| (3, seen))), (vec![None, None], is_over), "{name}");
        }
    }

    #[test]
    fn in_doubt_the_bound_is_lifted() {
        let less = Observed { delivered: 6_000_000, ..QUEUED };
        let idle = Observed { waits: false, ..QUEUED };
        for (name, seen, looks, is_over) in [
            ("less arrives", less, 9, true),
            ("it is too early to say", less, 8, false),
            ("its own queue drains", QUEUED, 40, false),
            ("the start-up doesn't end", QUEUED, 50, true),
            ("the program sends nothing", idle, 190, false),
            ("the program sends nothing for long", idle, 200, true),
        ] {
            let mut all = vec![(3, CALM), (3, QUEUED)];
            all.extend([(10, seen)].repeat(looks));
            let (bounds, found) = bounds(&all);
            assert_eq!(found, is_over, "{name}");
            assert_eq!(bounds.last().unwrap().is_none(), is_over, "{name}");
        }
    }

    #[test]
    fn a_rest_is_no_start_up() {
        let idle = Observed { waits: false, ..QUEUED };
        let looks = [(3, CALM), (3, QUEUED), (3, idle), (1700, QUEUED), (3, QUEUED), (60, QUEUED)];
        let (drain, grow) = (Some(6_000_000), Some(10_000_000));
        assert_eq!(bounds(&looks), (vec![None, drain, drain, grow, grow, drain], false));
    }

    #[test]
    fn sparse_messages_tell_of_no_queue() {
        let sparse = Observed { waits: false, rtt: 90 * MS, ..QUEUED };
        let (drain, grow) = (Some(6_000_000), Some(10_000_000));
        let looks =
            [(3, CALM), (3, QUEUED), (100, sparse), (10, sparse), (10, Observed { rtt: 90 * MS, ..QUEUED })];
        assert_eq!(bounds(&looks), (vec![None, drain, grow, grow, grow], false));
        // Nor is one seen first by them.
        let again = Observed { rtt: 90 * MS, ..QUEUED };
        let looks = [(3, CALM), (100, sparse), (10, again), (50, QUEUED), (50, QUEUED)];
        assert_eq!(bounds(&looks), (vec![None, None, None, None, drain], false));
    }

    #[test]
    fn a_bound_is_over_when_its_time_is() {
        let now = Instant::now();
        let mut launch = Launch::new(now);
        assert_eq!((launch.look(&CALM, now), launch.deadline()), (None, None));
        assert!(launch.look(&QUEUED, now + MS).is_some());
        let until = launch.deadline().unwrap();
        assert_eq!(until, now + MS + BOUNDED_ROUNDS * QUEUED.rtt);
        let idle = Observed { waits: false, ..QUEUED };
        assert!(launch.look(&idle, until - MS).is_some());
        assert_eq!((launch.look(&idle, until), launch.deadline(), launch.is_over()), (None, None, true));
    }

    #[test]
    fn a_peer_that_takes_nothing_is_not_looked_at_for_ever() {
        let stuck = Observed { most: 1000, ..CALM };
        let over = |seconds: usize| bounds(&[(10, stuck)].repeat(100 * seconds)).1;
        assert_eq!([over(9), over(11)], [false, true]);
    }
}
