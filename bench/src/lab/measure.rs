//! What is measured, each with what is allowed.

use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use isthmus_lab::emulator::DeviceKind;

use super::figure::{Figure, Results};
use super::traffic::{self, Arrivals};
use super::{Bed, Outcome};
use crate::verdict::median;

type Measure = fn(&mut Results) -> anyhow::Result<()>;

/// All measurements, each with its name.
pub(super) const ALL: [(&str, Measure); 10] = [
    ("round trips", round_trips),
    ("rates", rates),
    ("devices", devices),
    ("random loss", random_loss),
    ("burst loss", burst_loss),
    ("queue", queue),
    ("jitter", jitter),
    ("asymmetric link", asymmetric),
    ("four links", four_links),
    ("highest rate", highest_rate),
];

/// Bytes of a packet of full size. `SEGMENT` is what TCP with timestamps carries in it.
const MTU: f64 = 1500.0;
const SEGMENT: f64 = 1448.0;

/// Time that TCP's slow start gets before a stream is measured.
const WARM_UP: Duration = Duration::from_millis(1500);

/// The allowed range of a delay: 3 % or 0.2 ms to both sides, whichever is more.
fn near_delay(milliseconds: f64) -> (f64, f64) {
    let off = (milliseconds * 0.03).max(0.2);
    (milliseconds - off, milliseconds + off)
}

fn within(value: f64, share: f64) -> (f64, f64) {
    (value * (1.0 - share), value * (1.0 + share))
}

/// The goodput in Mbit/s that headers leave of a rate.
fn goodput(megabits: f64) -> f64 {
    megabits * SEGMENT / MTU
}

/// The allowed range of the goodput at a rate: from 95 % to 100 %, and half a per cent more. The
/// receiver's clock is no more exact, as it is read after each read of up to 256 KiB.
fn rate_allowed(megabits: f64) -> (f64, f64) {
    (goodput(megabits) * 0.95, goodput(megabits) * 1.005)
}

fn round_trips(results: &mut Results) -> anyhow::Result<()> {
    for (rtt, count) in [(1.0, 500), (10.6, 200), (100.0, 30)] {
        let bed = Bed::pair(&format!("delay = '{} ms'", rtt / 2.0))?;
        let found = bed.measure(|bed| {
            traffic::round_trips(bed.machine("near")?, bed.machine("far")?, count, Duration::from_millis(3))
        })?;
        let tail = percentile(&found.value, 0.95);
        let figure = Figure::bar(
            format!("RTT, {rtt} ms"),
            "ms",
            rtt,
            near_delay(rtt),
            &found.with(median(&found.value)),
        );
        results.add(figure.note(format!("median of {count}; 95 % below {tail:.2} ms")));
    }
    Ok(())
}

fn rates(results: &mut Results) -> anyhow::Result<()> {
    for (rate, rtt) in [(10.0, 10.6), (100.0, 10.6), (1000.0, 10.6), (100.0, 100.0)] {
        let bed = Bed::pair(&format!("delay = '{} ms', rate = '{rate} Mbit/s'", rtt / 2.0))?;
        let found = bed.measure(|bed| {
            // What slow start lost has been sent again by then.
            let warm_up = WARM_UP + Duration::from_secs_f64(rtt / 1e3) * 30;
            traffic::stream(bed.machine("near")?, bed.machine("far")?, warm_up, Duration::from_millis(2500))
        })?;
        let megabits = found.with(found.value / 1e6);
        let what = format!("TCP goodput, {rate} Mbit/s, RTT {rtt} ms");
        let cost = found.processor_seconds_per_gigabit();
        results.add(Figure::bar(what, "Mbit/s", goodput(rate), rate_allowed(rate), &megabits).note(format!(
            "one flow; {:.1} % of what headers leave",
            megabits.value / goodput(rate) * 100.0
        )));
        if rate >= 100.0 && rtt < 50.0 {
            let what = format!("emulator's processor time, one link of {rate} Mbit/s");
            results.add(Figure::fact(what, "s/Gbit", &found.with(cost)));
        }
    }
    Ok(())
}

/// Measures the same links over both kinds of devices.
fn devices(results: &mut Results) -> anyhow::Result<()> {
    for (kind, name) in [(DeviceKind::Tun, "TUN"), (DeviceKind::PacketSocket, "packet sockets")] {
        let bed = Bed::pair_over(Some(kind), "delay = '5.3 ms'")?;
        let found = bed.measure(|bed| {
            traffic::round_trips(bed.machine("near")?, bed.machine("far")?, 200, Duration::from_millis(3))
        })?;
        let middle = found.with(median(&found.value));
        results.add(Figure::bar(format!("RTT, 10.6 ms, over {name}"), "ms", 10.6, near_delay(10.6), &middle));
        drop(bed);
        let bed = Bed::pair_over(Some(kind), "delay = '5.3 ms', rate = '1 Gbit/s'")?;
        let found = bed.measure(|bed| {
            traffic::stream(bed.machine("near")?, bed.machine("far")?, WARM_UP, Duration::from_secs(3))
        })?;
        let what = format!("TCP goodput, 1000 Mbit/s, over {name}");
        let (asked, allowed) = (goodput(1000.0), rate_allowed(1000.0));
        results.add(Figure::bar(what, "Mbit/s", asked, allowed, &found.with(found.value / 1e6)));
        let cost = found.with(found.processor_seconds_per_gigabit());
        results.add(Figure::fact(format!("emulator's processor time over {name}"), "s/Gbit", &cost));
    }
    Ok(())
}

/// Measures random loss. It sends so many packets that a tenth of the loss is three standard
/// errors, or as many as time allows.
fn random_loss(results: &mut Results) -> anyhow::Result<()> {
    for (percent, count, longest) in [(0.01, 9_000_000, 40), (0.1, 900_000, 20), (1.0, 90_000, 20)] {
        let bed = Bed::pair(&format!("up = {{ loss = '{percent} %' }}"))?;
        let found = bed.measure(|bed| {
            traffic::flood(bed.machine("near")?, bed.machine("far")?, count, Duration::from_secs(longest))
        })?;
        let flood = found.value;
        let sent = flood.sent as f64;
        let share = 1.0 - flood.received as f64 / sent;
        let probability = percent / 100.0;
        let error = (probability * (1.0 - probability) / sent).sqrt() * 100.0;
        let per_second = sent / flood.time.as_secs_f64();
        results.add(
            Figure::bar(
                format!("loss, {percent} %"),
                "%",
                percent,
                within(percent, 0.1),
                &found.with(share * 100.0),
            )
            .error(error)
            .note(format!("{} UDP packets, {:.0} a second", flood.sent, per_second)),
        );
        let counted = found.after.links[0].up.lost - found.before.links[0].up.lost;
        let unexplained = flood.sent - flood.received;
        results.add(
            Figure::bar(
                format!("packets lost of {}, {percent} %, by the ends' count", flood.sent),
                "packets",
                counted as f64,
                (counted as f64, counted as f64),
                &found.with(unexplained as f64),
            )
            .note("asked: the emulator's own count"),
        );
    }
    Ok(())
}

fn burst_loss(results: &mut Results) -> anyhow::Result<()> {
    const SHARE: f64 = 0.01;
    const BURST: f64 = 5.0;
    let bed = Bed::pair("up = { loss = '1 %', burst = 5 }")?;
    let found = bed.measure(|bed| {
        traffic::flood(bed.machine("near")?, bed.machine("far")?, 1_000_000, Duration::from_secs(25))
    })?;
    let flood = found.value;
    let (sent, lost) = (flood.sent as f64, (flood.sent - flood.received) as f64);
    let correlation = 1.0 - 1.0 / BURST - SHARE / (1.0 - SHARE) / BURST;
    let growth = (1.0 + correlation) / (1.0 - correlation);
    results.add(
        Figure::bar(
            "loss, 1 % in bursts of 5",
            "%",
            SHARE * 100.0,
            within(1.0, 0.1),
            &found.with(lost / sent * 100.0),
        )
        .error((SHARE * (1.0 - SHARE) / sent * growth).sqrt() * 100.0)
        .note(format!("{} UDP packets", flood.sent)),
    );
    let bursts = flood.bursts as f64;
    results.add(
        Figure::bar("mean burst", "packets", BURST, within(BURST, 0.1), &found.with(lost / bursts))
            .error((BURST * (BURST - 1.0) / bursts).sqrt())
            .note(format!("of {} bursts", flood.bursts)),
    );
    Ok(())
}

/// Measures a queue with a stream of twice the rate, which is longer than the queue.
fn queue(results: &mut Results) -> anyhow::Result<()> {
    const PACKETS: u64 = 500;
    const LENGTH: usize = 1000;
    const QUEUE: f64 = 100_000.0;
    const GAP: Duration = Duration::from_micros(400);
    const RATE: f64 = 10e6;
    const DELAY: f64 = 5.0;
    let bed = Bed::pair("delay = '5 ms', up = { rate = '10 Mbit/s', queue = '100 kB' }")?;
    let found =
        bed.measure(|bed| traffic::paced(bed.machine("near")?, bed.machine("far")?, PACKETS, LENGTH, GAP))?;
    let Arrivals { packets, sent_at } = found.value.clone();
    // What a drop-tail queue would have done with packets sent at these times.
    let (mut waiting, mut last, mut passed) = (0.0, 0.0, Vec::new());
    for (number, at) in sent_at.iter().enumerate() {
        waiting = f64::max(waiting - (at - last) * RATE / 8.0, 0.0);
        last = *at;
        if waiting + LENGTH as f64 <= QUEUE {
            waiting += LENGTH as f64;
            passed.push((number as u64, 0.0));
        }
    }
    let first_lost = |packets: &[(u64, f64)]| {
        packets.iter().enumerate().find(|(at, packet)| packet.0 != *at as u64).map(|(at, _)| at as f64)
    };
    let expected = first_lost(&passed).context("the sender was too slow to fill the queue")?;
    let reached = first_lost(&packets).context("no packet was dropped")?;
    let what = "packets before the first drop, 20 Mbit/s into 10, queue 100 kB";
    results.add(
        Figure::bar(what, "packets", expected, within(expected, 0.03), &found.with(reached))
            .note("asked: what a drop-tail queue does with packets sent at these times"),
    );
    let (asked, reached) = (passed.len() as f64, packets.len() as f64);
    results.add(Figure::bar(
        format!("packets of {PACKETS} that passed"),
        "packets",
        asked,
        within(asked, 0.03),
        &found.with(reached),
    ));
    let last: Vec<f64> = packets.iter().rev().take(100).map(|packet| packet.1 - DELAY).collect();
    let full = QUEUE * 8.0 / RATE * 1e3;
    results.add(Figure::bar(
        "wait in the full queue",
        "ms",
        full,
        near_delay(full),
        &found.with(median(&last)),
    ));
    let peak = found.after.links[0].up.queue_peak_bytes as f64;
    results.add(
        Figure::bar("most bytes in the queue", "B", QUEUE, (QUEUE - LENGTH as f64, QUEUE), &found.with(peak))
            .note("by the emulator's own count"),
    );
    Ok(())
}

fn jitter(results: &mut Results) -> anyhow::Result<()> {
    const DELAY: f64 = 10.0;
    const JITTER: f64 = 4.0;
    // Further apart than any two delays: no packet waits for the one before.
    const GAP: Duration = Duration::from_millis(9);
    const PACKETS: u64 = 600;
    let bed = Bed::pair("up = { delay = '10 ms', jitter = '4 ms' }")?;
    let found =
        bed.measure(|bed| traffic::paced(bed.machine("near")?, bed.machine("far")?, PACKETS, 64, GAP))?;
    let mut times: Vec<f64> = found.value.packets.iter().map(|packet| packet.1).collect();
    times.sort_by(f64::total_cmp);
    let n = times.len() as f64;
    let mean = times.iter().sum::<f64>() / n;
    let deviation = (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / n).sqrt();
    let expected = JITTER / 3f64.sqrt();
    let late = &found.after.links[0].up.lateness;
    results.add(
        Figure::bar("mean of 10 ms ± 4 ms", "ms", DELAY, near_delay(DELAY), &found.with(mean))
            .error(expected / n.sqrt())
            .note(format!(
                "packets left {:.2} ms late in the median, 90 % within {:.2}",
                late.p50_us / 1e3,
                late.p90_us / 1e3
            )),
    );
    results.add(
        Figure::bar("its standard deviation", "ms", expected, within(expected, 0.1), &found.with(deviation))
            // Of a uniform distribution's sample variance, by its kurtosis of 9/5.
            .error(expected * (0.8 / n).sqrt() / 2.0),
    );
    let distance = times
        .iter()
        .enumerate()
        .map(|(at, time)| {
            let uniform = ((time - DELAY + JITTER) / (2.0 * JITTER)).clamp(0.0, 1.0);
            (uniform - at as f64 / n).abs().max((uniform - (at as f64 + 1.0) / n).abs())
        })
        .fold(0.0, f64::max);
    results.add(
        Figure::bar(
            "its distance from uniform (Kolmogorov–Smirnov)",
            "",
            0.0,
            (0.0, 0.1),
            &found.with(distance),
        )
        .note(format!("{n} packets; chance alone gives {:.3}", 0.87 / n.sqrt())),
    );
    Ok(())
}

fn asymmetric(results: &mut Results) -> anyhow::Result<()> {
    let bed = Bed::pair(
        "up = { delay = '5 ms', rate = '20 Mbit/s' }, down = { delay = '40 ms', rate = '100 Mbit/s' }",
    )?;
    for (from, to, way, delay, rate) in
        [("near", "far", "up", 5.0, 20.0), ("far", "near", "down", 40.0, 100.0)]
    {
        let found = bed.measure(|bed| {
            traffic::paced(bed.machine(from)?, bed.machine(to)?, 100, 64, Duration::from_millis(5))
        })?;
        let times: Vec<f64> = found.value.packets.iter().map(|packet| packet.1).collect();
        let what = format!("asymmetric link, one way {way}");
        results.add(Figure::bar(what, "ms", delay, near_delay(delay), &found.with(median(&times))));
        let found = bed.measure(|bed| {
            traffic::stream(bed.machine(from)?, bed.machine(to)?, WARM_UP, Duration::from_secs(2))
        })?;
        let what = format!("asymmetric link, TCP goodput {way}");
        let megabits = found.with(found.value / 1e6);
        results.add(Figure::bar(what, "Mbit/s", goodput(rate), rate_allowed(rate), &megabits));
    }
    Ok(())
}

/// Measures four links of different length at once, all of them busy.
fn four_links(results: &mut Results) -> anyhow::Result<()> {
    const RATE: f64 = 100.0;
    const RTTS: [f64; 4] = [4.0, 10.6, 30.0, 60.0];
    /// Packets of a stream that leaves the queue empty, so that its round trips are the way's.
    const PACKETS: u64 = 12_000;
    const GAP: Duration = Duration::from_micros(200);
    let mut grid = String::new();
    for (link, rtt) in RTTS.iter().enumerate() {
        let delay = rtt / 2.0;
        grid += &format!(
            "[[host]]\nname = 'near{link}'\nlink = {{ delay = '{delay} ms', rate = '{RATE} Mbit/s' }}\n"
        );
        grid += &format!("[[host]]\nname = 'far{link}'\n");
    }
    let bed = Bed::up(None, &grid)?;
    let found = bed.measure(|bed| {
        at_once(RTTS.len(), &|link| {
            let (near, far) = (bed.machine(&format!("near{link}"))?, bed.machine(&format!("far{link}"))?);
            thread::scope(|scope| {
                let load = scope.spawn(move || traffic::paced(near, far, PACKETS, 1500, GAP));
                let count = (2000.0 / (RTTS[link] + 5.0)) as u64;
                let times = traffic::round_trips(near, far, count, Duration::from_millis(5))?;
                let arrivals = load.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
                anyhow::ensure!(arrivals.packets.len() as u64 == PACKETS, "a packet of the load is lost");
                Ok(median(&times))
            })
        })
    })?;
    for (rtt, reached) in RTTS.iter().zip(&found.value) {
        let what = format!("RTT, {rtt} ms, one of 4 links with 60 Mbit/s each");
        results.add(Figure::bar(what, "ms", *rtt, near_delay(*rtt), &found.with(*reached)));
    }
    let found = bed.measure(|bed| {
        at_once(RTTS.len(), &|link| {
            let (near, far) = (bed.machine(&format!("near{link}"))?, bed.machine(&format!("far{link}"))?);
            traffic::stream(near, far, WARM_UP, Duration::from_secs(3))
        })
    })?;
    for (rtt, reached) in RTTS.iter().zip(&found.value) {
        let what = format!("TCP goodput, {RATE} Mbit/s, RTT {rtt} ms, one of 4 links");
        let megabits = found.with(*reached / 1e6);
        results.add(Figure::bar(what, "Mbit/s", goodput(RATE), rate_allowed(RATE), &megabits));
    }
    let cost = found.processor_seconds_per_gigabit();
    results.add(Figure::fact(
        "emulator's processor time, 4 links of 100 Mbit/s",
        "s/Gbit",
        &found.with(cost),
    ));
    Ok(())
}

/// Raises the rate until a flow doesn't get it or the emulator isn't faithful.
fn highest_rate(results: &mut Results) -> anyhow::Result<()> {
    let mut highest: Option<Outcome<f64>> = None;
    let mut ending = "the highest tried".to_owned();
    for gigabits in [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0] {
        let megabits = gigabits * 1000.0;
        let bed = Bed::pair(&format!("delay = '2.5 ms', rate = '{gigabits} Gbit/s'"))?;
        let found = bed.measure(|bed| {
            traffic::stream(bed.machine("near")?, bed.machine("far")?, WARM_UP, Duration::from_secs(2))
        })?;
        let reached = found.value / 1e6 / goodput(megabits);
        let cost = found.processor_seconds_per_gigabit();
        let figure =
            Figure::fact(format!("TCP goodput, {gigabits} Gbit/s"), "Mbit/s", &found.with(found.value / 1e6));
        results.add(figure.note(format!("{:.1} % of what headers leave; {cost:.2} s/Gbit", reached * 100.0)));
        if !found.faithful || reached < 0.95 {
            let what =
                if found.faithful { "one flow doesn't get its 95 %" } else { "the emulator isn't faithful" };
            ending = format!("at {gigabits} Gbit/s {what}");
            break;
        }
        highest = Some(found.with(gigabits));
    }
    if let Some(highest) = highest {
        results.add(Figure::fact("highest faithful rate", "Gbit/s", &highest).note(ending));
    }
    Ok(())
}

/// Makes a measurement on several links at the same time, each in a thread.
fn at_once(
    links: usize,
    measure: &(dyn Fn(usize) -> anyhow::Result<f64> + Sync),
) -> anyhow::Result<Vec<f64>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..links).map(|link| scope.spawn(move || measure(link))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a measurement panicked"))?)
            .collect()
    })
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * (sorted.len() as f64 - 1.0)).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
