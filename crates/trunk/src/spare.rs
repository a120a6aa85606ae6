//! Whether the carriers for bulk leave a part of their path unused, and how many would use it.
//!
//! A TCP connection may be slower than its path, whatever the program offers. Congestion control
//! that takes each loss for congestion keeps the window small on a long path that loses packets
//! (Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", CCR 27(3),
//! 1997). So do socket buffers that hold less than the path does. Several connections share out
//! such a bound, as GridFTP's do (Allcock et al., "The Globus Striped GridFTP Framework and
//! Server", SC 2005). They mustn't push other traffic aside: more are wanted only while no queue
//! grows, so while nobody else lacks what they take.

use std::time::{Duration, Instant};

use crate::need::{Last, MOST_CARRIERS};

/// A period is at least so many round trips, in which windows show what they can.
const PERIOD_ROUND_TRIPS: u32 = 4;
/// Least length of a period.
const LEAST_PERIOD: Duration = Duration::from_millis(100);
/// Least number of reports in a period.
const LEAST_REPORTS: u32 = 8;
/// The share of a period's reports that may say otherwise, as a divisor.
const OTHERWISE: u32 = 4;
/// The part of a round trip that may be a queue, as a divisor. CUBIC leaves 0.7 of its window after
/// a loss, so with fewer packets in the queue than that the path runs empty.
const QUEUE: u32 = 8;
/// A round trip that is longer than the least one by less than this shows no queue: processors take
/// as long.
const LEAST_QUEUE: Duration = Duration::from_millis(1);

/// What one report of a carrier shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whether data waits that the carrier could send.
    pub waits: bool,
    /// Whether the sender's windows hold the carrier back.
    pub held_back: bool,
    /// The carrier's smoothed round trip.
    pub rtt: Duration,
    /// The shortest round trip of all carriers for bulk: a new one may have seen no empty queue.
    pub least: Duration,
}

impl Report {
    /// Whether the carrier could send more, if only its window were larger, and the path has room
    /// for it.
    fn shows_spare(self) -> bool {
        self.waits && self.held_back && !self.shows_queue()
    }

    fn shows_queue(self) -> bool {
        self.rtt.saturating_sub(self.least) > (self.least / QUEUE).max(LEAST_QUEUE)
    }
}

/// The reports of a period, and what followed from earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// When the period began; `None` before its first report.
    since: Option<Instant>,
    reports: u32,
    /// How many of the reports showed no spare part.
    otherwise: u32,
    /// When so many carriers were last of use.
    last: Last,
}

impl Spare {
    /// Takes in what one of `carriers` carriers for bulk shows.
    pub(crate) fn take(&mut self, report: Report, carriers: usize, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.reports += 1;
        self.otherwise += u32::from(!report.shows_spare());
        if report.waits {
            // While there is a queue, there is one carrier less after each minute.
            let fewer = usize::from(report.shows_queue());
            self.last.note(carriers.saturating_sub(fewer), now);
        }
        let period = (report.least * PERIOD_ROUND_TRIPS).max(LEAST_PERIOD);
        if now < since + period || self.reports < LEAST_REPORTS {
            return;
        }
        if self.otherwise <= self.reports / OTHERWISE {
            self.last.note((carriers + (carriers / 2).max(1)).min(MOST_CARRIERS), now);
        }
        (self.since, self.reports, self.otherwise) = (None, 0, 0);
    }

    /// Takes in how many carriers for bulk the other end could use for what it sends.
    pub(crate) fn told(&mut self, carriers: usize, now: Instant) {
        self.last.note(carriers, now);
    }

    /// How many carriers for bulk would be of use; 0 if nothing is known.
    pub(crate) fn carriers(&self, now: Instant) -> usize {
        self.last.most(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Reports every 50 ms for so many seconds, of as many carriers as are wanted. Returns how many
    /// are wanted then.
    fn after(spare: &mut Spare, report: Report, (from, to): (u64, u64), begun: Instant) -> usize {
        for step in from * 20..to * 20 {
            let now = begun + 50 * MS * u32::try_from(step).unwrap();
            let carriers = spare.carriers(now).max(1);
            for _ in 0..carriers {
                spare.take(report, carriers, now);
            }
        }
        spare.carriers(begun + Duration::from_secs(to))
    }

    #[test]
    fn more_carriers_are_wanted_while_windows_alone_hold_them_back() {
        let lossy = Report { waits: true, held_back: true, rtt: 102 * MS, least: 100 * MS };
        // What is reported, and how many carriers are wanted after 10 s.
        for (name, report, want) in [
            ("small windows after losses", lossy, 16),
            ("a queue", Report { rtt: 113 * MS, ..lossy }, 0),
            (
                "a queue that isn't longer than the machine's own delays",
                Report { rtt: 113 * MS, least: 112 * MS, ..lossy },
                16,
            ),
            ("slow start", Report { held_back: false, ..lossy }, 1),
            ("nothing to send", Report { waits: false, ..lossy }, 0),
            ("near", Report { rtt: MS, least: MS / 5, ..lossy }, 16),
            ("near, with a queue", Report { rtt: 2 * MS, least: MS / 5, ..lossy }, 0),
        ] {
            assert_eq!(after(&mut Spare::default(), report, (0, 10), Instant::now()), want, "{name}");
        }
    }

    #[test]
    fn carriers_become_fewer_one_by_one_while_there_is_a_queue() {
        let (mut spare, begun) = (Spare::default(), Instant::now());
        let lossy = Report { waits: true, held_back: true, rtt: 100 * MS, least: 100 * MS };
        assert_eq!(after(&mut spare, lossy, (0, 10), begun), 16);
        let queue = Report { rtt: 200 * MS, ..lossy };
        assert_eq!(after(&mut spare, queue, (10, 60), begun), 16);
        let fewer = after(&mut spare, queue, (60, 200), begun);
        assert!((12..=14).contains(&fewer), "{fewer}");
        // Nothing is known of a trunk that was idle for a minute.
        assert_eq!(spare.carriers(begun + Duration::from_secs(261)), 0);
    }

    #[test]
    fn reports_that_say_otherwise_now_and_then_do_not_matter() {
        let (mut spare, begun) = (Spare::default(), Instant::now());
        let lossy = Report { waits: true, held_back: true, rtt: 100 * MS, least: 100 * MS };
        for step in 0..200_u32 {
            let report = Report { waits: step % 5 != 0, ..lossy };
            spare.take(report, spare.carriers(begun + 50 * MS * step).max(1), begun + 50 * MS * step);
        }
        assert_eq!(spare.carriers(begun + Duration::from_secs(10)), 16);
    }
}
