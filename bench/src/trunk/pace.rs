//! What trunks send again in their first second, and once they stand, over a slow link with as many
//! packets in its queue as a fast one. Prints a line for each turn, and writes no results.
//!
//! A slow link takes little processor time, so a busy machine can measure it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use isthmus_lab::grid::Slow;

use super::bed::Bed;
use super::gather::Connected;
use super::{GatherWay, LOSSES, MeasuredLink, Queue};
use crate::confine;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds, in each of which each way has a turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Rate of the link in bits per second.
    #[arg(long, default_value_t = 50_000_000)]
    rate: u64,
    /// Round-trip time of the link.
    #[arg(long, default_value = "53ms")]
    rtt: humantime::Duration,
    /// Bytes that each sender sends in a gather.
    #[arg(long, default_value_t = 250_000)]
    size: u64,
    /// How many senders there are.
    #[arg(long, default_value_t = 10)]
    senders: usize,
    /// Queues in packets of 1500 bytes; 0 is the bandwidth-delay product.
    #[arg(long, value_delimiter = ',', default_value = "0,64")]
    queues: Vec<u64>,
    /// Losses in percent.
    #[arg(long, value_delimiter = ',', default_value = "0,0.1,1")]
    losses: Vec<String>,
    /// How long a trunk that stands is measured.
    #[arg(long, default_value = "8s")]
    duration: humantime::Duration,
    /// Ways: cubic, trunk-bbr, trunk-plain, bbr.
    #[arg(long, value_delimiter = ',', default_value = "cubic,trunk-bbr,trunk-plain")]
    ways: Vec<String>,
    /// Whether a stream of plain CUBIC runs beside.
    #[arg(long)]
    neighbour: bool,
}

fn way(name: &str) -> anyhow::Result<GatherWay> {
    Ok(match name {
        "cubic" => GatherWay::Cubic,
        "bbr" => GatherWay::Bbr,
        "trunk-bbr" => GatherWay::TrunkBbr,
        "trunk-plain" => GatherWay::TrunkPlain,
        _ => anyhow::bail!("no way is named {name}"),
    })
}

/// Measures and prints.
///
/// # Errors
/// The lab can't be made, or a connection breaks.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    confine::enter()?;
    let mut bed = Bed::up_over(1000.0, Slow::default(), *options.rtt, options.rate)?;
    let product = (options.rate as f64 / 8.0 * options.rtt.as_secs_f64()) as u64;
    for queue in &options.queues {
        for loss in &options.losses {
            let bytes = if *queue == 0 { product } else { queue * 1500 };
            let found = LOSSES.into_iter().find(|one| one.0 == format!("{loss} %"));
            let loss = found.with_context(|| format!("no loss is {loss} %"))?;
            let link = MeasuredLink { queue: Queue(bytes, ""), loss };
            for round in 0..options.rounds {
                for turn in 0..options.ways.len() {
                    let name = &options.ways[(turn + round) % options.ways.len()];
                    bed.forget()?;
                    let line = measure(&mut bed, link, way(name)?, options)?;
                    println!("queue {bytes} B, loss {}, round {round} {name:11} {line}", loss.0);
                }
            }
        }
    }
    Ok(())
}

fn measure(bed: &mut Bed, link: MeasuredLink, way: GatherWay, options: &Options) -> anyhow::Result<String> {
    bed.link(link)?;
    let before = bed.tcp()?;
    let only = match way {
        GatherWay::TrunkBbr => "trunk-bbr",
        GatherWay::TrunkPlain => "trunk-plain",
        _ => "none",
    };
    bed.start_only(link, only)?;
    let begun = Instant::now();
    let connected = bed.connect(way, options.senders)?;
    let mut buffer = vec![0; 256 << 10];
    let mut first = Vec::new();
    while begun.elapsed() < Duration::from_secs(1) {
        first.push(connected.gather(options.size, &mut buffer)?);
    }
    let took = begun.elapsed().as_secs_f64();
    let early = bed.tcp()?;
    while begun.elapsed() < Duration::from_secs(4) {
        connected.gather(options.size, &mut buffer)?;
    }
    let beside = if options.neighbour { Some(Beside::start(bed)?) } else { None };
    if options.neighbour {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(3) {
            connected.gather(options.size, &mut buffer)?;
        }
    }
    let (stands, since) = (bed.tcp()?, Instant::now());
    let carried = beside.as_ref().map_or(0, |beside| beside.bytes.load(Relaxed));
    let mut times = Vec::new();
    while since.elapsed() < *options.duration {
        times.push(connected.gather(options.size, &mut buffer)?.as_secs_f64());
    }
    let seconds = since.elapsed().as_secs_f64();
    let after = bed.tcp()?;
    let each = options.senders as f64 * options.size as f64;
    let mut line = format!(
        "first: {:4} again, {} gathers in {took:.2} s; stands: {:5} again ({} timeouts) of {:.0}, {:.4} s each, {:.2} MB/s",
        early.retransmitted - before.retransmitted,
        first.len(),
        after.retransmitted - stands.retransmitted,
        after.timeouts - stands.timeouts,
        times.len() as f64 * each / 1448.0,
        times.iter().sum::<f64>() / times.len() as f64,
        times.len() as f64 * each / seconds / 1e6,
    );
    if let Some(beside) = beside {
        let rate = (beside.bytes.load(Relaxed) - carried) as f64 / seconds;
        line += &format!(", neighbour {:.2} MB/s", rate / 1e6);
        beside.stop.store(true, Relaxed);
    }
    drop(connected);
    Ok(line)
}

/// A stream of plain CUBIC.
struct Beside {
    bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Beside {
    fn start(bed: &Bed) -> anyhow::Result<Self> {
        let connected: Connected = bed.connect(GatherWay::Cubic, 1)?;
        let (bytes, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (bytes.clone(), stop.clone());
        std::thread::Builder::new()
            .spawn(move || connected.stream(&counted, &stopped))
            .context("no thread")?;
        Ok(Self { bytes, stop })
    }
}
