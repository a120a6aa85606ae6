//! Which carrier takes the next frame: each that has room, but none by which it would
//! come later than by others that are busy now.
//!
//! For bulk that is ECF (Lim et al., "ECF: An MPTCP Path Scheduler to Manage
//! Heterogeneous Paths", CoNEXT 2017): a slow carrier takes a frame if the faster ones
//! can't deliver all that is queued by the time at which the frame would come over it.

use std::time::Duration;

use crate::{Purpose, SILENCE};

/// The two kinds of frames, which are treated differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Control frames, and data of streams that have little of it.
    Small,
    /// Data of all other streams.
    Bulk,
}

/// The part of the time by which a carrier must be faster to be waited for. Once it is waited for,
/// it need only be faster. So estimates that differ by little don't matter.
const MARGIN: f64 = 0.1;

/// A tiny frame waits for the carrier for small frames, unless another carrier would deliver it in
/// this part of that one's latency. Estimates of busy carriers are too good now and then.
const SMALL_FIRST: f64 = 0.5;
/// Length in bytes of the longest tiny frame. Longer frames go over the carrier for small frames
/// only if it is faster than the others by the factor of [`SMALL_FIRST`]. Many of them at once
/// would fill it, and be slower than over all others together.
const TINY: usize = 2 << 10;

/// What is known of the way of one carrier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Path {
    /// Seconds from the end of the carrier's queue at this end to the peer.
    pub(crate) latency: f64,
    pub(crate) bytes_per_second: f64,
    /// Bytes that are queued at this end.
    pub(crate) backlog: f64,
    pub(crate) purpose: Purpose,
}

impl Path {
    /// In how many seconds the carrier would begin to deliver more than its backlog.
    fn start(&self) -> f64 {
        self.latency + self.drained()
    }

    /// In how many seconds the carrier's backlog is gone.
    pub(crate) fn drained(&self) -> f64 {
        self.backlog / self.bytes_per_second
    }

    /// In how many seconds the carrier would have delivered a frame.
    pub(crate) fn delivers(&self, frame: usize) -> f64 {
        self.start() + frame as f64 / self.bytes_per_second
    }

    /// How long a frame waits at most for another carrier rather than take this one.
    pub(crate) fn patience(&self, frame: usize) -> Duration {
        seconds(self.delivers(frame)).min(SILENCE)
    }
}

/// What is to be sent next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Next {
    pub(crate) lane: Lane,
    /// Length of the frame in bytes.
    pub(crate) frame: usize,
    /// How many bytes of all streams wait for frames, this stream's among them.
    pub(crate) queued: u64,
    /// Whether a carrier was refused a frame of this lane before, since one went out last.
    pub(crate) waits: bool,
}

/// Seconds as a duration; the longest if they are too many.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Whether a carrier takes the next frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    Takes,
    /// The carrier leaves the frame to the carriers for bulk.
    Reserved,
    /// Other carriers deliver the frame sooner. If more than so many bytes were queued, this one
    /// would take it.
    Waits(f64),
}

/// Decides whether a carrier takes the next frame, beside the others that might take it.
pub(crate) fn judge(own: &Path, others: &[Path], next: Next) -> Verdict {
    let margin = if next.waits { 1.0 } else { 1.0 - MARGIN };
    match next.lane {
        Lane::Small => {
            let weight = |path: &Path| match path.purpose {
                Purpose::Bulk => 1.0,
                Purpose::Small if next.frame <= TINY => SMALL_FIRST,
                Purpose::Small => 1.0 / SMALL_FIRST,
            };
            // What is queued takes its time on any of the carriers.
            let time = |path: &Path| path.delivers(next.frame) + path.latency * (weight(path) - 1.0);
            match others.iter().all(|other| time(other) >= margin * time(own)) {
                true => Verdict::Takes,
                false => Verdict::Waits(f64::INFINITY),
            }
        }
        Lane::Bulk
            if own.purpose == Purpose::Small && others.iter().any(|other| other.purpose == Purpose::Bulk) =>
        {
            Verdict::Reserved
        }
        Lane::Bulk => {
            let until = margin * own.delivers(next.frame);
            let faster = others.iter().filter(|other| {
                (other.purpose == Purpose::Bulk || own.purpose == Purpose::Small)
                    && other.delivers(next.frame) < until
            });
            let by_then: f64 = faster.map(|other| other.bytes_per_second * (until - other.start())).sum();
            if by_then < next.queued.max(1) as f64 { Verdict::Takes } else { Verdict::Waits(by_then) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 16_000;

    fn takes(own: &Path, others: &[Path], next: Next) -> bool {
        judge(own, others, next) == Verdict::Takes
    }

    fn path(latency_ms: u32, kilobytes_per_ms: u32, backlog: u32) -> Path {
        Path {
            latency: f64::from(latency_ms) / 1e3,
            bytes_per_second: f64::from(kilobytes_per_ms) * 1e6,
            backlog: backlog.into(),
            purpose: Purpose::Bulk,
        }
    }

    fn small(path: Path) -> Path {
        Path { purpose: Purpose::Small, ..path }
    }

    fn bulk(queued: u64) -> Next {
        Next { lane: Lane::Bulk, frame: FRAME, queued, waits: false }
    }

    #[test]
    fn who_takes_bulk() {
        // 100 MB/s; a frame takes 0.16 ms. A tenth of that; a frame takes 1.6 ms.
        let (fast, slow, busy) = (path(5, 100, 0), path(5, 10, 0), path(5, 100, 64_000));
        let far = path(25, 100, 0);
        let waits = Next { waits: true, ..bulk(95_000) };
        for (name, own, others, next, expected) in [
            ("alone", slow, vec![], bulk(16_000), true),
            ("equal", fast, vec![fast; 15], bulk(16_000), true),
            ("equal, one busy, the other idle", busy, vec![path(5, 100, 48_000)], bulk(16_000), true),
            ("the fast one", fast, vec![slow, far], bulk(16_000), true),
            ("slow, beside one that has done all before", slow, vec![fast], bulk(90_000), false),
            ("slow, beside one that has not", slow, vec![fast], bulk(95_000), true),
            ("the same, while it waits", slow, vec![fast], waits, false),
            ("slow, beside two", slow, vec![fast, fast], bulk(180_000), false),
            ("slow, beside two that have not done all", slow, vec![fast, fast], bulk(190_000), true),
            ("slow, beside a busy one", slow, vec![busy], bulk(31_000), true),
            ("slow, beside a busy one that is soon done", slow, vec![busy], bulk(29_000), false),
            ("far, little queued", far, vec![fast], bulk(128_000), false),
            ("far, much queued", far, vec![fast], bulk(3_000_000), true),
            ("not much farther", path(6, 100, 0), vec![path(6, 110, 0)], bulk(16_000), true),
            ("for small frames", small(fast), vec![slow], bulk(1 << 40), false),
            ("for small frames, alone", small(fast), vec![], bulk(1), true),
            ("for small frames, beside such", small(fast), vec![small(slow)], bulk(1), true),
            ("bulk doesn't wait for one for small frames", slow, vec![small(fast)], bulk(1), true),
        ] {
            assert_eq!(takes(&own, &others, next), expected, "{name}");
        }
    }

    #[test]
    fn who_takes_small_frames() {
        let next = Next { lane: Lane::Small, frame: 64, queued: 1 << 30, waits: false };
        let waits = Next { waits: true, ..next };
        let large = Next { frame: 10_000, ..next };
        let (near, far, slightly) = (path(5, 10, 0), path(25, 100, 0), path(95, 100, 0));
        let busy = path(5, 10, 128_000);
        for (name, own, others, next, expected) in [
            ("alone", far, vec![], next, true),
            ("near", near, vec![far], next, true),
            ("far", far, vec![near], next, false),
            ("far, beside a busy one", far, vec![busy], next, false),
            ("far, beside a very busy one", far, vec![path(5, 10, 250_000)], next, true),
            ("slightly farther", path(100, 100, 0), vec![slightly], next, true),
            ("slightly farther, while it waits", path(100, 100, 0), vec![slightly], waits, false),
            ("beside one for small frames", near, vec![small(near)], next, false),
            ("for small frames", small(near), vec![near], next, true),
            ("for small frames, farther", small(path(8, 10, 0)), vec![near], next, true),
            ("near, that one farther", near, vec![small(path(8, 10, 0))], next, false),
            ("for small frames, much farther", small(path(12, 10, 0)), vec![near], next, false),
            ("near, that one much farther", near, vec![small(path(12, 10, 0))], next, true),
            ("near, that one with a queue", near, vec![small(path(5, 10, 26_000))], next, true),
            ("near, that one with less", near, vec![small(path(5, 10, 19_000))], next, false),
            ("no tiny frame, for such alone", small(near), vec![near], large, false),
            ("no tiny frame", near, vec![small(near)], large, true),
            ("no tiny frame, near, with a queue", path(5, 10, 80_000), vec![small(near)], large, false),
        ] {
            assert_eq!(takes(&own, &others, next), expected, "{name}");
        }
    }

    #[test]
    fn one_takes_it_whatever_is_known() {
        let values = [(0, 1, 0), (5, 10, 0), (5, 10, 64_000), (5, 100, 1_000_000), (500, 1, 0), (25, 100, 9)];
        let all: Vec<Path> = values.iter().map(|(l, r, b)| path(*l, *r, *b)).collect();
        let all: Vec<Path> = all.iter().copied().chain(all.iter().map(|path| small(*path))).collect();
        for picks in 0..all.len().pow(3) {
            let n = all.len();
            let set = [all[picks % n], all[picks / n % n], all[picks / n / n]];
            for lane in [Lane::Small, Lane::Bulk] {
                for (queued, waits) in [(1, false), (1 << 40, false), (1, true), (1 << 40, true)] {
                    let next = Next { lane, frame: FRAME, queued, waits };
                    let some = (0..3).any(|own| {
                        let others: Vec<Path> =
                            (0..3).filter(|other| *other != own).map(|other| set[other]).collect();
                        takes(&set[own], &others, next)
                    });
                    assert!(some, "{set:?} {next:?}");
                }
            }
        }
    }
}
