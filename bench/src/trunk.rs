//! Gathers over a long link, as Alter and Glück measured them (RR-6986, 2009): many
//! senders, one root, connections of their own against a trunk.
//!
//! The ideal is the time that the bytes need at the link's rate, and a round trip.

mod bed;
mod cells;
mod counts;
mod ends;
mod gather;
mod pace;

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Args;

use crate::report::Comparison;
use crate::rounds::{self, Case, Experiment, Run, Void};
use crate::verdict::Bar;
use bed::Bed;
use cells::Extent;
use counts::{Counts, Turn};

pub(crate) use ends::{UnderTest, run as run_under_test};

/// The way of the packets: its round trip without queues, and its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Path {
    rtt: Duration,
    bits_per_second: u64,
}

/// The paper's way.
const NEAR: Path = Path { rtt: Duration::from_micros(10_600), bits_per_second: 1_000_000_000 };
/// A way over an ocean, on which a single stream of an unmodified program is measured.
const FAR: Path = Path { rtt: Duration::from_millis(100), bits_per_second: 200_000_000 };

impl Path {
    /// The bytes that are under way while the path is full.
    const fn bytes(self) -> u64 {
        (self.bits_per_second / 8) * (self.rtt.as_micros() as u64) / 1_000_000
    }
}

/// Numbers of senders; the paper has 2 to 19. In all lists of the benchmark, what comes first is
/// measured even if there is little time.
const SENDERS: [u64; 3] = [19, 10, 2];
/// Bytes that each sender sends in a gather.
const SIZES: [u64; 5] = [1_000_000, 100_000, 10_000, 1_000, 10_000_000];
/// Largest size in bytes at which a set-up or a packet counts for more than the rate.
const SMALL: u64 = 10_000;

/// The queue before the bottleneck: its bytes and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Queue(u64, &'static str);
const QUEUES: [Queue; 3] = [BDP, SHORT, Queue(256 << 10, "256 KiB")];
const BDP: Queue = Queue(NEAR.bytes(), "BDP");
const SHORT: Queue = Queue(64 << 10, "64 KiB");
/// Shares of packets that are lost, in each direction.
const LOSSES: [Loss; 4] = [Loss("0.1 %"), Loss("0 %"), Loss("1 %"), Loss("0.01 %")];

/// A share of packets, as a grid file writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loss(&'static str);

impl Loss {
    const NONE: Self = Self("0 %");
}

/// Bytes of the stream over [`FAR`]: what PyTorch's Gloo moves for an all-reduce of 64 MB. Its link
/// loses few packets, as a wide area does.
const FAR_SIZE: u64 = 64_000_000;
const FAR_LINK: MeasuredLink =
    MeasuredLink { path: FAR, queue: Queue(FAR.bytes(), "BDP"), loss: Loss("0.01 %") };
/// The stream fills 0.85 of the link.
const FAR_OF_IDEAL: Bar = Bar::AtMost(1.17);
/// The stream is twice as fast as one connection with CUBIC.
const FAR_OF_CUBIC: Bar = Bar::AtMost(0.5);

/// Most turns of a way in a round, of which one counts. The emulator was late for the others.
const TRIES: u32 = 5;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: rounds::RoundOptions,
    /// How long each way is measured per figure and round. The default is 1s where packets are lost,
    /// and 300ms elsewhere, where gathers differ little.
    #[arg(long)]
    duration: Option<humantime::Duration>,
    /// Every size and number of senders, over each queue without loss, and with each loss over a
    /// queue of the bandwidth-delay product. By default what lies between others is left out.
    #[arg(long)]
    all: bool,
    /// The same over every queue with every loss.
    #[arg(long)]
    every: bool,
    /// How late the emulator may be, in milliseconds and in slow motion more: 1 % of the
    /// packets of a second may be later. Where it was later, the turn is repeated, at most five times.
    #[arg(long, default_value_t = 1.0)]
    late_ms: f64,
}

/// The way that the bytes of a gather take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GatherWay {
    Cubic,
    Reno,
    Bbr,
    TrunkBbr,
    TrunkPlain,
    /// A TLS connection for each connection of a program.
    Sealed,
}

impl GatherWay {
    const ALL: [Self; 6] =
        [Self::Cubic, Self::TrunkBbr, Self::Reno, Self::TrunkPlain, Self::Bbr, Self::Sealed];

    fn name(self) -> &'static str {
        match self {
            Self::Cubic => "own CUBIC",
            Self::Reno => "own Reno",
            Self::Bbr => "own BBR",
            Self::TrunkBbr => "trunk with BBR",
            Self::TrunkPlain => "trunk without BBR",
            Self::Sealed => "TLS per connection",
        }
    }
}

/// The link that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MeasuredLink {
    path: Path,
    queue: Queue,
    loss: Loss,
}

/// A gather that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gather {
    link: MeasuredLink,
    senders: u64,
    size: u64,
    /// Whether round trips beside the gathers are measured, instead of the gathers.
    pings: bool,
}

impl fmt::Display for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link: MeasuredLink { path, queue, loss }, senders, size, pings } = self;
        let kind = if *pings { "ping of 64 B beside " } else { "" };
        let size = size_name(*size);
        if *path == FAR {
            let (rtt, megabits) = (path.rtt.as_millis(), path.bits_per_second / 1_000_000);
            return write!(f, "a stream of {size}, {rtt} ms, {megabits} Mb/s, loss {}", loss.0);
        }
        write!(f, "{kind}gather {senders} × {size}, queue {}, loss {}", queue.1, loss.0)
    }
}

fn size_name(size: u64) -> String {
    if size >= 1_000_000 { format!("{} MB", size / 1_000_000) } else { format!("{} KB", size / 1_000) }
}

impl Gather {
    fn bytes(&self) -> u64 {
        self.senders * self.size
    }

    /// Least seconds that a gather can take: its bytes at the link's rate, and a round trip.
    fn ideal_seconds(&self) -> f64 {
        let Path { rtt, bits_per_second } = self.link.path;
        self.bytes() as f64 * 8.0 / bits_per_second as f64 + rtt.as_secs_f64()
    }

    fn comparisons(&self) -> Vec<Comparison> {
        let row =
            |way: GatherWay, against: &str| Comparison::new(format!("{self}, {}", way.name()), "ms", against);
        if self.pings {
            let best = "best own";
            return vec![
                row(GatherWay::TrunkBbr, "own CUBIC").bar(Bar::AtMost(1.0)),
                row(GatherWay::TrunkPlain, "own CUBIC").bar(Bar::AtMost(1.0)),
                row(GatherWay::TrunkBbr, best),
            ];
        }
        if self.link.path == FAR {
            return [GatherWay::TrunkBbr, GatherWay::TrunkPlain]
                .into_iter()
                .flat_map(|way| {
                    [row(way, "ideal").bar(FAR_OF_IDEAL), row(way, "own CUBIC").bar(FAR_OF_CUBIC)]
                })
                .collect();
        }
        let of_ideal = if self.link.queue == SHORT { 1.25 } else { 1.2 };
        let of_ideal = (self.size == 1_000_000).then_some(Bar::AtMost(of_ideal));
        let of_cubic = match self.link.loss.0 {
            "0.1 %" if self.size >= 100_000 => Some(Bar::AtMost(0.6)),
            "1 %" if self.size >= 100_000 => Some(Bar::AtMost(0.3)),
            _ => None,
        };
        let best = if self.size <= SMALL {
            row(GatherWay::TrunkBbr, "best own × 1.02 + 0.2 ms").bar(Bar::AtMost(1.0))
        } else {
            row(GatherWay::TrunkBbr, "best own").bar(Bar::AtMost(1.05))
        };
        let mut rows = vec![
            row(GatherWay::TrunkBbr, "ideal").bar(of_ideal),
            row(GatherWay::TrunkBbr, "own CUBIC").bar(of_cubic),
            best,
            row(GatherWay::TrunkPlain, "own CUBIC").bar(Bar::AtMost(1.0)),
            row(GatherWay::Cubic, "ideal"),
            row(GatherWay::Reno, "own CUBIC"),
            row(GatherWay::Bbr, "own CUBIC"),
            row(GatherWay::Sealed, "own CUBIC"),
        ];
        if self.has_cost() {
            let what = format!("{self}, processor time of both ends, {}", GatherWay::TrunkBbr.name());
            rows.push(Comparison::new(what, "s/GB", GatherWay::Sealed.name()).bar(Bar::AtMost(1.0)));
        }
        rows
    }

    /// Whether a figure needs this way.
    fn takes(&self, way: GatherWay) -> bool {
        match way {
            GatherWay::Cubic | GatherWay::TrunkBbr | GatherWay::TrunkPlain => true,
            GatherWay::Reno | GatherWay::Bbr => self.link.path != FAR,
            GatherWay::Sealed => self.link.path != FAR && !self.pings,
        }
    }

    /// How long a way is measured in a round. Gathers that lose packets by chance differ.
    fn duration(&self) -> Duration {
        Duration::from_millis(if self.link.loss == Loss::NONE && !self.pings { 300 } else { 1000 })
    }

    /// Whether the gather carries so much that its processor time can be told.
    fn has_cost(&self) -> bool {
        self.bytes() >= 10_000_000
    }

    /// The figures of [`comparisons`](Self::comparisons), from the time and the cost of each way.
    fn figures(&self, took: impl Fn(GatherWay) -> f64, cost: impl Fn(GatherWay) -> f64) -> Vec<[f64; 2]> {
        let ms = |way| took(way) * 1e3;
        let best = [GatherWay::Cubic, GatherWay::Reno, GatherWay::Bbr]
            .map(ms)
            .into_iter()
            .fold(f64::INFINITY, least);
        if self.pings {
            return vec![
                [ms(GatherWay::TrunkBbr), ms(GatherWay::Cubic)],
                [ms(GatherWay::TrunkPlain), ms(GatherWay::Cubic)],
                [ms(GatherWay::TrunkBbr), best],
            ];
        }
        let ideal = self.ideal_seconds() * 1e3;
        if self.link.path == FAR {
            return [GatherWay::TrunkBbr, GatherWay::TrunkPlain]
                .into_iter()
                .flat_map(|way| [[ms(way), ideal], [ms(way), ms(GatherWay::Cubic)]])
                .collect();
        }
        let best = if self.size <= SMALL { best * 1.02 + 0.2 } else { best };
        let mut figures = vec![
            [ms(GatherWay::TrunkBbr), ideal],
            [ms(GatherWay::TrunkBbr), ms(GatherWay::Cubic)],
            [ms(GatherWay::TrunkBbr), best],
            [ms(GatherWay::TrunkPlain), ms(GatherWay::Cubic)],
            [ms(GatherWay::Cubic), ideal],
            [ms(GatherWay::Reno), ms(GatherWay::Cubic)],
            [ms(GatherWay::Bbr), ms(GatherWay::Cubic)],
            [ms(GatherWay::Sealed), ms(GatherWay::Cubic)],
        ];
        if self.has_cost() {
            figures.push([cost(GatherWay::TrunkBbr), cost(GatherWay::Sealed)]);
        }
        figures
    }
}

/// The less of two figures. Not a number if one is none, so that no way is left out unseen.
fn least(one: f64, other: f64) -> f64 {
    if one < other || one.is_nan() { one } else { other }
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// The results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let mut run = Run::begin("trunk", &options.rounds, &[])?;
    run.remark(format!(
        "a turn of a way is repeated if 1 % of the packets of a second left the emulator more than {} ms late, in slow motion as many times more",
        options.late_ms
    ));
    let slow = options.rounds.slow;
    let counts = Mutex::new(Counts::new(&options.rounds.results, run.goes_on()));
    let extent = if options.every {
        Extent::Every
    } else if options.all {
        Extent::All
    } else {
        Extent::Needed
    };
    let parts = cells::parts(extent);
    for (index, part) in parts.iter().enumerate() {
        let case = |gather: &Gather| {
            Case::new(*gather, gather.comparisons()).slowed(cells::slow_motion(gather, slow))
        };
        let cases = part.iter().map(case).collect();
        let left = (parts.len() + 1 - index) as u32;
        run.part_in_slow_motion(left, cases, |slow| {
            let bed = Bed::up(options.late_ms, slow)?;
            Ok(Gathers { bed, counts: &counts, duration: options.duration.map(|duration| *duration) })
        })?;
    }
    run.part_in_slow_motion(1, pace::cases(slow), |slow| pace::Paces::up(options.late_ms, slow))?;
    let holds = run.finish()?;
    options.rounds.refresh_papers()?;
    Ok(holds)
}

/// The link and its programs, which are measured in rounds.
struct Gathers<'a> {
    bed: Bed,
    counts: &'a Mutex<Counts>,
    duration: Option<Duration>,
}

impl Gathers<'_> {
    /// Measures a way's turn, and again while the emulator was late for it.
    fn faithful_turn(&self, way: GatherWay, gather: &Gather) -> anyhow::Result<Turn> {
        let duration = self.duration.unwrap_or_else(|| gather.duration());
        let mut tries = 1;
        loop {
            let before = self.bed.emulation()?;
            let turn = self.bed.turn(way, gather, duration)?;
            match self.bed.check_since(&before) {
                Err(error) if tries < TRIES && error.is::<Void>() => tries += 1,
                checked => return checked.map(|()| turn),
            }
        }
    }
}

impl Experiment for Gathers<'_> {
    type Case = Gather;

    fn measure(&mut self, gather: &Gather, round: usize) -> anyhow::Result<Vec<[f64; 2]>> {
        self.bed.shape(gather.link)?;
        let mut turns: [Turn; GatherWay::ALL.len()] = Default::default();
        for turn in 0..GatherWay::ALL.len() {
            // No way always goes first.
            let at = (round + turn) % GatherWay::ALL.len();
            if gather.takes(GatherWay::ALL[at]) {
                turns[at] = self.faithful_turn(GatherWay::ALL[at], gather)?;
            }
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = GatherWay::ALL.iter().zip(&turns).filter(|(way, _)| gather.takes(**way));
        for (way, turn) in taken {
            counts.add(&gather.to_string(), way.name(), gather.bytes(), turn);
        }
        counts.write()?;
        let of =
            |way: GatherWay| &turns[GatherWay::ALL.iter().position(|one| *one == way).unwrap_or_default()];
        let cost = |way: GatherWay| {
            let Turn { gathers, ends_seconds, .. } = of(way);
            ends_seconds.iter().sum::<f64>() / ((gathers * gather.bytes()) as f64 * 1e-9)
        };
        Ok(gather.figures(|way| of(way).seconds, cost))
    }

    /// Whether the link is used further after a failure. It isn't, as a trunk may have ended.
    fn survives_failure(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATHER: Gather = Gather {
        link: MeasuredLink { path: NEAR, queue: BDP, loss: Loss::NONE },
        senders: 19,
        size: 1_000_000,
        pings: false,
    };

    #[test]
    fn the_ideal_is_a_round_trip_and_the_bytes() {
        for (size, milliseconds) in [(1_000_000, 162.6), (100_000, 25.8), (1_000, 10.752)] {
            let found = Gather { size, ..GATHER }.ideal_seconds() * 1e3;
            assert!((found - milliseconds).abs() < 1e-6, "{size}: {found}");
        }
        assert_eq!(BDP.0, 1_325_000);
        assert_eq!(GATHER.to_string(), "gather 19 × 1 MB, queue BDP, loss 0 %");
        let far = Gather { link: FAR_LINK, senders: 1, size: FAR_SIZE, pings: false };
        assert!((far.ideal_seconds() - 2.66).abs() < 1e-9);
        assert_eq!(far.to_string(), "a stream of 64 MB, 100 ms, 200 Mb/s, loss 0.01 %");
    }

    #[test]
    fn bars() {
        let bars = |gather: Gather| -> Vec<Option<Bar>> {
            gather.comparisons().iter().take(4).map(|row| row.bar).collect()
        };
        let most = |limit| Some(Bar::AtMost(limit));
        let lossy = |loss| MeasuredLink { path: NEAR, queue: BDP, loss: Loss(loss) };
        for (gather, want) in [
            (GATHER, [most(1.2), None, most(1.05), most(1.0)]),
            (
                Gather { link: MeasuredLink { path: NEAR, queue: SHORT, loss: Loss::NONE }, ..GATHER },
                [most(1.25), None, most(1.05), most(1.0)],
            ),
            (
                Gather { link: lossy("0.1 %"), size: 100_000, ..GATHER },
                [None, most(0.6), most(1.05), most(1.0)],
            ),
            (Gather { link: lossy("1 %"), ..GATHER }, [most(1.2), most(0.3), most(1.05), most(1.0)]),
            (Gather { link: lossy("1 %"), size: 10_000, ..GATHER }, [None, None, most(1.0), most(1.0)]),
        ] {
            assert_eq!(bars(gather), want, "{gather}");
        }
    }

    #[test]
    fn a_way_without_a_figure_leaves_no_best() {
        for (one, other, want) in
            [(1.0, 2.0, Some(1.0)), (2.0, 1.0, Some(1.0)), (1.0, f64::NAN, None), (f64::NAN, 1.0, None)]
        {
            assert_eq!(Some(least(one, other)).filter(|found| !found.is_nan()), want, "{one} {other}");
        }
        for lacks in [GatherWay::Cubic, GatherWay::Reno, GatherWay::Bbr] {
            let took = |way| if way == lacks { f64::NAN } else { 1.0 };
            assert!(GATHER.figures(took, |_| 1.0)[2][1].is_nan(), "{lacks:?}");
        }
    }

    #[test]
    fn each_row_has_its_figures() {
        for part in cells::parts(Extent::Every) {
            for gather in part {
                let taken = |way| if gather.takes(way) { 1.0 } else { f64::NAN };
                let figures = gather.figures(taken, taken);
                assert_eq!(figures.len(), gather.comparisons().len(), "{gather}");
                assert!(figures.iter().flatten().all(|figure| figure.is_finite()), "{gather}: {figures:?}");
            }
        }
        // 10 KB or less may take 2 % and 0.2 ms longer than the best.
        let took = |way| if way == GatherWay::Bbr { 0.010 } else { 0.020 };
        let small = Gather { size: 10_000, ..GATHER }.figures(took, |_| 1.0);
        assert!((small[2][1] - 10.4).abs() < 1e-9, "{small:?}");
        assert_eq!(GATHER.figures(took, |_| 1.0)[2], [20.0, 10.0]);
    }
}
