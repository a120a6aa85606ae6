//! Whether the carriers for bulk leave a part of their path unused, and how many would use it.
//!
//! A TCP connection may be slower than its path, whatever the program offers. Congestion control
//! that takes each loss for congestion keeps the window small on a long path that loses packets
//! (Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", CCR 27(3),
//! 1997). So do socket buffers that hold less than the path does. Several connections share out
//! such a bound, as GridFTP's do (Allcock et al., "The Globus Striped GridFTP Framework and
//! Server", SC 2005).
//!
//! They mustn't push other traffic aside. So more are wanted only while no queue grows, and only as
//! long as they carry more: over a link with a short queue, or behind a policer, they don't.

use std::time::{Duration, Instant};

use crate::need::Last;

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
/// Over a shorter round trip a window grows back at once, and processors decide.
const LEAST_RTT: Duration = Duration::from_millis(5);
/// By which factor the rate must grow with the carriers. If it doesn't, they are of no use.
const GAIN: f64 = 1.1;
/// For so long no more are tried then.
const REST: Duration = Duration::from_secs(300);

/// What one report of a carrier shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whether the carrier has data that the network doesn't have yet.
    pub waits: bool,
    /// Whether the sender's windows hold the carrier back.
    pub held_back: bool,
    /// The carrier's smoothed round trip.
    pub rtt: Duration,
    /// The shortest round trip of all carriers for bulk: a new one may have seen no empty queue.
    pub least: Duration,
    /// How many carriers for bulk there are.
    pub carriers: usize,
    /// Bytes that the trunk has carried since it began.
    pub carried: u64,
}

impl Report {
    fn shows_queue(self) -> bool {
        self.rtt.saturating_sub(self.least) > self.least / QUEUE
    }
}

/// A period that isn't over.
#[derive(Debug)]
struct Period {
    since: Instant,
    /// What the trunk had carried then.
    carried: u64,
    reports: u32,
    /// In how many reports the carrier could send more, if only its window were larger, and the
    /// path has room for it.
    spare: u32,
    /// In how many reports data waits, and a queue shows.
    queue: u32,
}

/// What followed from reports.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    period: Option<Period>,
    /// When so many carriers were last of use for what this end sends.
    own: Last,
    /// When so many were last of use for what the other end sends, as it told.
    peers: Last,
    /// How many carriers there were, and their bytes per second, when more were last wanted.
    before: Option<(usize, f64)>,
    /// Until when no more are wanted, since more carried no more.
    rests: Option<Instant>,
}

impl Spare {
    /// Takes in what a carrier for bulk shows.
    pub(crate) fn take(&mut self, report: Report, now: Instant) {
        if report.least < LEAST_RTT {
            self.period = None;
            return;
        }
        let Report { carried, .. } = report;
        let new = || Period { since: now, carried, reports: 0, spare: 0, queue: 0 };
        let period = self.period.get_or_insert_with(new);
        let queue = report.shows_queue();
        period.reports += 1;
        period.spare += u32::from(report.waits && report.held_back && !queue);
        period.queue += u32::from(report.waits && queue);
        let took = now.saturating_duration_since(period.since);
        let least = (report.least * PERIOD_ROUND_TRIPS).max(LEAST_PERIOD);
        if took >= least && period.reports >= LEAST_REPORTS {
            let most = period.reports - period.reports / OTHERWISE;
            let (spare, queue) = (period.spare >= most, period.queue >= most);
            let rate = carried.saturating_sub(period.carried) as f64 / took.as_secs_f64();
            self.period = None;
            if spare {
                self.has_spare(report.carriers, rate, now);
            } else if queue {
                // Others may want the link, too: there is one carrier less after each minute.
                self.own.note(self.own.most(now).saturating_sub(1), now);
            }
        }
    }

    /// Takes in that so many carriers leave a part of the path unused, and what they carry.
    fn has_spare(&mut self, carriers: usize, rate: f64, now: Instant) {
        if self.rests.is_some_and(|until| now < until) {
            return;
        }
        match self.before {
            Some((fewer, slower)) if fewer < carriers && rate < slower * GAIN => {
                self.own.note(fewer, now);
                self.before = None;
                self.rests = Some(now + REST);
            }
            _ => {
                self.own.note(carriers + (carriers / 2).max(1), now);
                self.before = Some((carriers, rate));
            }
        }
    }

    /// Takes in how many carriers for bulk the other end could use for what it sends.
    pub(crate) fn told(&mut self, carriers: usize, now: Instant) {
        self.peers.note(carriers, now);
    }

    /// How many carriers for bulk would be of use for what this end sends; 0 if nothing is known.
    /// Up to 16.
    pub(crate) fn own(&self, now: Instant) -> u8 {
        self.own.most(now) as u8
    }

    /// How many carriers for bulk would be of use for either direction; 0 if nothing is known.
    pub(crate) fn carriers(&self, now: Instant) -> usize {
        self.own.most(now).max(self.peers.most(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need::NEED_TIME;

    const MS: Duration = Duration::from_millis(1);
    const LOSSY: Report = Report {
        waits: true,
        held_back: true,
        rtt: Duration::from_millis(102),
        least: Duration::from_millis(100),
        carriers: 1,
        carried: 0,
    };

    /// A trunk with as many carriers as are wanted.
    struct Model {
        spare: Spare,
        now: Instant,
        carried: f64,
    }

    impl Model {
        fn new() -> Self {
            Self { spare: Spare::default(), now: Instant::now(), carried: 0.0 }
        }

        /// Reports every 50 ms for so many seconds. `rate` gives bytes per second by the number of
        /// carriers. Returns how many carriers are wanted then.
        fn run(&mut self, seconds: u32, report: Report, rate: impl Fn(usize) -> f64) -> usize {
            for _ in 0..seconds * 20 {
                self.now += 50 * MS;
                let carriers = self.spare.carriers(self.now).max(1);
                self.carried += rate(carriers) * 0.05;
                for _ in 0..carriers {
                    self.spare.take(Report { carriers, carried: self.carried as u64, ..report }, self.now);
                }
            }
            self.spare.carriers(self.now)
        }
    }

    fn each_adds(carriers: usize) -> f64 {
        carriers as f64 * 1e6
    }

    #[test]
    fn more_carriers_are_wanted_while_windows_alone_hold_them_back() {
        // What is reported, and how many carriers are wanted after 10 s.
        for (name, report, want) in [
            ("small windows after losses", LOSSY, 16),
            ("a queue", Report { rtt: 113 * MS, ..LOSSY }, 0),
            ("slow start", Report { held_back: false, ..LOSSY }, 0),
            ("nothing to send", Report { waits: false, ..LOSSY }, 0),
            ("near", Report { rtt: 4 * MS, least: 4 * MS, ..LOSSY }, 0),
        ] {
            assert_eq!(Model::new().run(10, report, each_adds), want, "{name}");
        }
    }

    #[test]
    fn carriers_that_carry_no_more_leave() {
        let mut model = Model::new();
        // A policer, or a link whose queue is too short to show.
        let policed = |_| 1e6;
        assert_eq!(model.run(10, LOSSY, policed), 2);
        assert!(model.run(54, LOSSY, policed) <= 1);
        // It is tried anew after a while.
        let mut most = 0;
        for _ in 0..60 {
            most = most.max(model.run(10, LOSSY, policed));
        }
        assert_eq!(most, 2);
    }

    #[test]
    fn carriers_become_fewer_one_by_one_while_there_is_a_queue() {
        let mut model = Model::new();
        assert_eq!(model.run(10, LOSSY, each_adds), 16);
        let queue = Report { rtt: 200 * MS, ..LOSSY };
        assert_eq!(model.run(50, queue, each_adds), 16);
        let fewer = model.run(140, queue, each_adds);
        assert!((12..=14).contains(&fewer), "{fewer}");
        // Nothing is known of a trunk that was idle for a minute.
        assert_eq!(model.spare.carriers(model.now + NEED_TIME), 0);
    }

    #[test]
    fn reports_that_say_otherwise_now_and_then_do_not_matter() {
        let mut model = Model::new();
        for step in 0..400 {
            model.run(1, Report { waits: step % 5 != 0, ..LOSSY }, each_adds);
        }
        assert_eq!(model.spare.carriers(model.now), 16);
    }

    #[test]
    fn what_the_other_end_told_is_not_told_back() {
        let (mut spare, now) = (Spare::default(), Instant::now());
        spare.told(255, now);
        assert_eq!((spare.own(now), spare.carriers(now)), (0, 16));
        assert_eq!(spare.carriers(now + NEED_TIME), 0);
    }
}
