//! What a trunk sends again in its first second, and once it stands, and what it leaves to others,
//! over a slow link with as many packets in its queue as a fast one. A slow link takes little
//! processor time, so a busy machine can measure it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use isthmus_lab::grid::Slow;

use super::bed::Bed;
use super::ends::Carrying;
use super::gather::Connected;
use super::{GatherWay, Loss, MeasuredLink, Path, Queue};
use crate::report::Comparison;
use crate::rounds::{Case, Experiment};
use crate::verdict::Bar;

/// The link.
const SLOW_PATH: Path = Path { rtt: Duration::from_millis(53), bits_per_second: 50_000_000 };
const QUEUES: [Queue; 2] = [Queue(331_250, "BDP"), Queue(64 * 1500, "64 packets")];
const LOSSES: [(Loss, f64); 3] = [(Loss::NONE, 0.0), (Loss("0.1 %"), 0.001), (Loss("1 %"), 0.01)];
const SENDERS: usize = 10;
/// Bytes that each sender sends in a gather.
const SIZE: u64 = 250_000;
/// Payload of a segment, about.
const SEGMENT: f64 = 1448.0;
/// For so long a trunk is new.
const FIRST: Duration = Duration::from_secs(1);
/// After so long it stands, and others beside it have found their share.
const STANDS: Duration = Duration::from_secs(4);
/// For so long it is measured then, alone and beside another stream.
const MEASURED: Duration = Duration::from_secs(8);
const WAYS: [GatherWay; 2] = [GatherWay::Cubic, GatherWay::TrunkBbr];

/// A link that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paced {
    queue: Queue,
    loss: (Loss, f64),
}

impl fmt::Display for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, loss } = self;
        write!(f, "50 Mb/s, 53 ms, queue {}, loss {}", queue.1, loss.0.0)
    }
}

/// What a way did.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    /// Segments sent again in the first second.
    first: f64,
    /// The share of segments that was sent again later.
    share: f64,
    /// Seconds of a gather then.
    seconds: f64,
    /// Bytes per second of another stream beside the gathers.
    beside: f64,
}

impl Paced {
    fn is_lossy(self) -> bool {
        self.loss.1 > 0.0
    }

    fn comparisons(self) -> Vec<Comparison> {
        let row = |what: &str, unit: &str, against: &str| {
            Comparison::new(format!("{self}, {what}, trunk with BBR"), unit, against)
        };
        let cubic = GatherWay::Cubic.name();
        let mut rows = vec![row("gather of 10 × 250 KB once it stands", "ms", cubic).bar(Bar::AtMost(1.0))];
        if self.is_lossy() {
            rows.push(row("sent again once it stands", "per thousand", "loss").bar(Bar::AtMost(1.2)));
            return rows;
        }
        rows.extend([
            row("sent again in the first second", "segments", cubic).bar(Bar::AtMost(1.0)),
            row("sent again once it stands", "per thousand", cubic).bar(Bar::AtMost(0.1)),
            row("CUBIC stream beside it", "Mb/s", "half the link").bar(Bar::AtLeast(0.8)),
            Comparison::new(format!("{self}, CUBIC stream beside it, {cubic}"), "Mb/s", "half the link"),
        ]);
        rows
    }

    /// The figures of [`comparisons`](Self::comparisons).
    fn figures(self, [cubic, trunk]: [Done; 2]) -> Vec<[f64; 2]> {
        let mut figures = vec![[trunk.seconds * 1e3, cubic.seconds * 1e3]];
        if self.is_lossy() {
            figures.push([trunk.share * 1e3, self.loss.1 * 1e3]);
            return figures;
        }
        let half = SLOW_PATH.bits_per_second as f64 / 2e6;
        figures.extend([
            [trunk.first, cubic.first],
            [trunk.share * 1e3, cubic.share * 1e3],
            [trunk.beside * 8e-6, half],
            [cubic.beside * 8e-6, half],
        ]);
        figures
    }
}

/// The cases, measured in slow motion.
pub(super) fn cases(slow: Slow) -> Vec<Case<Paced>> {
    let slow = slow_motion(slow);
    let all = LOSSES.into_iter().flat_map(|loss| QUEUES.map(|queue| Paced { queue, loss }));
    all.map(|paced| Case::new(paced, paced.comparisons()).slowed(slow)).collect()
}

/// The slow motion of this link, which has a 20th of the rate of the others: a 20th of theirs, and two
/// at least, as only then the machine's own use is looked at.
fn slow_motion(slow: Slow) -> Slow {
    slow.less(20).max(slow.at_most(2))
}

/// The lab with the slow link.
pub(super) struct Paces {
    bed: Bed,
    slow: Slow,
}

impl Paces {
    pub(super) fn up(late_ms: f64, slow: Slow) -> anyhow::Result<Self> {
        Ok(Self { bed: Bed::up(late_ms, slow)?, slow })
    }

    /// Gathers until `duration` after `since`, in slow motion for longer. Returns how many gathers
    /// there were, and how long they took.
    fn gather(
        &self,
        connected: &Connected,
        since: Instant,
        duration: Duration,
    ) -> anyhow::Result<(f64, f64)> {
        let mut buffer = vec![0; 256 << 10];
        let begun = Instant::now();
        let mut count = 0.0;
        while count == 0.0 || since.elapsed() < self.slow.time(duration) {
            connected.gather(SIZE, &mut buffer)?;
            count += 1.0;
        }
        Ok((count, begun.elapsed().as_secs_f64()))
    }

    fn turn(&mut self, link: MeasuredLink, way: GatherWay, is_alone: bool) -> anyhow::Result<Done> {
        // Each trunk is new, and so are the services at its ends: no rate is remembered.
        self.bed.forget()?;
        self.bed.link(link)?;
        let lateness = self.bed.emulation()?;
        let new = self.bed.tcp()?;
        if way == GatherWay::TrunkBbr {
            self.bed.start_only(link, Carrying::TrunkBbr)?;
        }
        let begun = Instant::now();
        let connected = self.bed.connect(way, SENDERS)?;
        self.gather(&connected, begun, FIRST)?;
        let first = self.bed.tcp()?;
        self.gather(&connected, begun, STANDS)?;
        let stands = self.bed.tcp()?;
        let (count, took) = self.gather(&connected, Instant::now(), MEASURED)?;
        let segments = count * SENDERS as f64 * SIZE as f64 / SEGMENT;
        let again = self.bed.tcp()?.since(stands).retransmitted as f64;
        let beside = if is_alone { 0.0 } else { self.beside(&connected)? };
        drop(connected);
        self.bed.check_since(&lateness)?;
        Ok(Done {
            first: first.since(new).retransmitted as f64,
            share: again / segments,
            seconds: self.slow.as_described(took / count),
            beside,
        })
    }

    /// Bytes per second of a stream of plain CUBIC beside gathers, without slow motion.
    fn beside(&self, connected: &Connected) -> anyhow::Result<f64> {
        let stream = Beside::start(self.bed.connect(GatherWay::Cubic, 1)?)?;
        self.gather(connected, Instant::now(), STANDS)?;
        let (before, since) = (stream.bytes.load(Relaxed), Instant::now());
        self.gather(connected, since, MEASURED)?;
        let carried = stream.bytes.load(Relaxed) - before;
        Ok(carried as f64 / self.slow.as_described(since.elapsed().as_secs_f64()))
    }
}

impl Experiment for Paces {
    type Case = Paced;

    fn measure(&mut self, paced: &Paced, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        let link = MeasuredLink { path: SLOW_PATH, queue: paced.queue, loss: paced.loss.0 };
        let mut done = [Done::default(); WAYS.len()];
        for turn in 0..WAYS.len() {
            // No way always goes first.
            let at = (round + turn) % WAYS.len();
            done[at] = self.turn(link, WAYS[at], paced.is_lossy()).context(WAYS[at].name())?;
        }
        Ok(paced.figures(done))
    }

    /// Whether the link is used further after a failure. It isn't, as a trunk may have ended.
    fn survives_failure(&self) -> bool {
        false
    }
}

/// A stream of plain CUBIC, until it is dropped.
struct Beside {
    bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    fn start(connected: Connected) -> anyhow::Result<Self> {
        let (bytes, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (bytes.clone(), stop.clone());
        let stream = move || connected.stream(&counted, &stopped);
        let thread = std::thread::Builder::new().spawn(stream).context("no thread")?;
        Ok(Self { bytes, stop, thread: Some(thread) })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_needs_little_slow_motion() {
        for (asked, want) in [(1, 1), (2, 2), (20, 2), (50, 3)] {
            assert_eq!(slow_motion(Slow::try_from(asked).unwrap()).factor(), want, "{asked}");
        }
    }

    #[test]
    fn each_row_has_its_figures() {
        for loss in LOSSES {
            let paced = Paced { queue: QUEUES[0], loss };
            let done = Done { first: 1.0, share: 0.01, seconds: 0.5, beside: 2.5e6 };
            assert_eq!(paced.figures([done; 2]).len(), paced.comparisons().len(), "{paced}");
        }
        let paced = Paced { queue: QUEUES[0], loss: LOSSES[0] };
        let cubic = Done { first: 100.0, share: 0.03, seconds: 0.7, beside: 1e6 };
        let trunk = Done { first: 5.0, share: 0.0003, seconds: 0.5, beside: 2.5e6 };
        let want = [[500.0, 700.0], [5.0, 100.0], [0.3, 30.0], [20.0, 25.0], [8.0, 25.0]];
        for (found, want) in paced.figures([cubic, trunk]).iter().zip(want) {
            assert!((found[0] - want[0]).abs() < 1e-9 && (found[1] - want[1]).abs() < 1e-9, "{found:?}");
        }
    }
}
