//! When the emulated network wasn't the one described: what a measurement
//! made in such a moment says is void.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::grid::Slow;

/// The emulator's loop wakes at least this often, so that it notices when it had no processor.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(10);

/// The loop may wake this much later than asked for, without slow motion. So an emulator that had no processor for
/// longer than this and [`HEARTBEAT`] is always found out.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// Lateness that every link may have without slow motion: over [`WINDOW`], 99 of 100 frames must not leave later. A
/// link with a long delay may have more, see [`LATEST_OF_DELAY`].
pub(crate) const LATEST: Duration = Duration::from_millis(1);

/// The part of a link's delay that its frames may be late, where that is more than [`LATEST`].
pub(crate) const LATEST_OF_DELAY: f64 = 0.03;

/// How often the emulator looks at its links' lateness and lost packets.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Fewest frames of which the lateness is judged. Fewer say nothing about the 99th of a hundred, so
/// a window lasts until so many have left.
pub(crate) const FEWEST_FRAMES: u64 = 100;

/// How many lapses are remembered. All are counted.
const REMEMBERED: usize = 32;

/// Least time between two messages about lapses in the log.
const BETWEEN_MESSAGES: Duration = Duration::from_secs(10);

/// A moment in which the emulator wasn't faithful.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lapse {
    /// When the lapse was noticed, in seconds since the emulator started.
    pub running_seconds: f64,
    /// What wasn't faithful, and by how much.
    #[serde(flatten)]
    pub what: What,
}

/// What wasn't faithful in a lapse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum What {
    /// The emulator wanted to run, and didn't for more than [`LONGEST_PAUSE`].
    Paused {
        /// How long the emulator didn't run, in milliseconds.
        pause_ms: f64,
    },
    /// More than 1 % of a link's frames left too late.
    Late {
        /// Name of the link.
        link: String,
        /// The late direction of the link.
        direction: LinkDirection,
        /// 99th percentile of the frames' lateness, in microseconds.
        p99_us: f64,
        /// The lateness that the link may have, in microseconds.
        bound_us: f64,
    },
    /// The kernel dropped packets because the emulator didn't read them in time.
    Unread {
        /// Name of the link.
        link: String,
        /// The direction of the link that lost the packets.
        direction: LinkDirection,
        /// How many packets were dropped. A super-packet of many segments counts as one.
        packets: u64,
    },
    /// The kernel didn't take frames from the emulator.
    Refused {
        /// Name of the link.
        link: String,
        /// The direction of the link that lost the frames.
        direction: LinkDirection,
        /// How many packets were refused. A super-packet of many segments counts as one.
        packets: u64,
        /// The kernel's error for the last refused frame.
        error: String,
    },
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkDirection {
    /// The direction from the host or site to the internet.
    Up,
    /// The direction from the internet to the host or site.
    Down,
}

impl fmt::Display for LinkDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

impl fmt::Display for Lapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s after its start ", self.running_seconds)?;
        match &self.what {
            What::Paused { pause_ms } => {
                write!(f, "the emulator had no processor for {pause_ms:.0} ms")
            }
            What::Late { link, direction, p99_us, bound_us } => write!(
                f,
                "link {link} {direction}: 1 % of the packets were more than {:.1} ms late, allowed are {:.1} ms",
                p99_us / 1e3,
                bound_us / 1e3
            ),
            What::Unread { link, direction, packets } => write!(
                f,
                "link {link} {direction}: the kernel dropped {packets} packets that the emulator didn't read in time"
            ),
            What::Refused { link, direction, packets, error } => write!(
                f,
                "link {link} {direction}: the kernel didn't take {packets} packets from the emulator: {error}"
            ),
        }
    }
}

/// The lateness that frames of a link with this delay may have, in a network that is `slow`.
pub fn latest(delay: Duration, slow: Slow) -> Duration {
    slow.time(LATEST).max(delay.mul_f64(LATEST_OF_DELAY))
}

/// Records lapses, and decides which of them the log gets.
#[derive(Debug, Default)]
pub struct Lapses {
    total: u64,
    recent: VecDeque<Lapse>,
    told: Option<Instant>,
    untold: u64,
}

impl Lapses {
    /// Records a lapse. Returns a line for the log, unless it got a line less than ten seconds ago.
    pub fn note(&mut self, lapse: Lapse, now: Instant) -> Option<String> {
        self.total += 1;
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        let message = if self.told.is_none_or(|told| now - told >= BETWEEN_MESSAGES) {
            let more = match self.untold {
                0 => String::new(),
                more => format!(" ({more} more since the last such message)"),
            };
            (self.told, self.untold) = (Some(now), 0);
            Some(format!("WARNING: the emulation isn't faithful: {lapse}{more}"))
        } else {
            self.untold += 1;
            None
        };
        self.recent.push_back(lapse);
        message
    }

    /// How many lapses there were since the start.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The most recent lapses, oldest first.
    pub fn recent(&self) -> Vec<Lapse> {
        self.recent.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lapse(running_seconds: f64) -> Lapse {
        Lapse { running_seconds, what: What::Paused { pause_ms: 60.0 } }
    }

    #[test]
    fn all_are_counted_the_last_remembered_and_few_told() {
        let mut lapses = Lapses::default();
        let start = Instant::now();
        let told: Vec<String> = (0..100)
            .filter_map(|n| lapses.note(lapse(n.into()), start + Duration::from_millis(300) * n))
            .collect();
        assert_eq!((lapses.total(), lapses.recent().len()), (100, REMEMBERED));
        assert_eq!(lapses.recent()[REMEMBERED - 1], lapse(99.0));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[0].ends_with("0.0 s after its start the emulator had no processor for 60 ms"),
            "{told:?}"
        );
        assert!(told[1].ends_with("(33 more since the last such message)"), "{told:?}");
    }

    #[test]
    fn long_links_may_be_later() {
        assert_eq!(latest(Duration::ZERO, Slow::NONE), Duration::from_millis(1));
        assert_eq!(latest(Duration::from_millis(100), Slow::NONE), Duration::from_millis(3));
        let slow = Slow::try_from(10).unwrap();
        assert_eq!(latest(Duration::from_millis(100), slow), Duration::from_millis(10));
    }

    #[test]
    fn lapses_read_back() {
        let lapses = [
            lapse(1.5),
            Lapse {
                running_seconds: 2.0,
                what: What::Late {
                    link: "a".into(),
                    direction: LinkDirection::Down,
                    p99_us: 2e3,
                    bound_us: 1e3,
                },
            },
        ];
        let text = serde_json::to_string(&lapses).unwrap();
        assert!(text.contains(r#""what":"late","link":"a","direction":"down""#), "{text}");
        assert_eq!(serde_json::from_str::<Vec<Lapse>>(&text).unwrap(), lapses);
    }
}
