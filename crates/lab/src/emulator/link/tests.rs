use proptest::prelude::*;

use super::super::packet::{HEADER, tests::sample};
use super::*;
use crate::grid::{ByteSize, Delay, Loss};

fn direction(delay: &str, rate: Option<&str>, queue: u64) -> Direction {
    let delay: Delay = delay.parse().unwrap();
    let rate = rate.map(|rate| rate.parse().unwrap());
    Direction::new(
        &LinkShape {
            delay,
            jitter: Delay(0),
            rate,
            queue: ByteSize(queue),
            loss: Loss::NONE,
            black_hole: None,
        },
        Slow::NONE,
        1,
    )
}

fn shape(text: &str) -> LinkShape {
    let grid =
        format!("[[host]]\nname = 'hub'\nlink = {{ {text} }}\n[[host]]\nname = 'peer'\nlink = {{ {text} }}");
    crate::grid::Grid::parse(&grid, "test", "test").unwrap().hosts[0].link.up
}

/// A frame with a packet of `length` bytes, which carries the number `mark`.
fn frame(length: usize, mark: u32) -> Vec<u8> {
    let mut frame = vec![0; HEADER + length];
    frame[HEADER + 4..HEADER + 8].copy_from_slice(&mark.to_be_bytes());
    frame
}

/// All frames that leave the link, in order, each with its time since `start`.
fn drain(direction: &mut Direction, start: Instant) -> Vec<(Duration, Vec<u8>)> {
    let mut out = Vec::new();
    while let Some(due) = direction.next_due() {
        assert_eq!(direction.poll_transmit(due - Duration::from_nanos(1)), None, "before its time");
        let transmit = direction.poll_transmit(due).unwrap();
        out.push((transmit.due - start, transmit.frame));
    }
    out
}

#[test]
fn delay_alone_moves_packets_in_time() {
    let start = Instant::now();
    let mut link = direction("5 ms", None, 0);
    for n in 0..3 {
        link.handle_frame(&frame(1500, n), start + Duration::from_millis(n.into()));
    }
    let times: Vec<_> = drain(&mut link, start).into_iter().map(|(time, _)| time.as_millis()).collect();
    assert_eq!(times, [5, 6, 7]);
    assert_eq!(link.next_due(), None);
}

#[test]
fn a_black_hole_swallows_what_is_longer() {
    let start = Instant::now();
    let mut link = Direction::new(&shape("delay = '1 ms', black-hole = 1300"), Slow::NONE, 1);
    for (mark, length) in [(1, 1300), (2, 1301), (3, 60), (4, 1500)] {
        link.handle_frame(&frame(length, mark), start);
    }
    let marks: Vec<_> = drain(&mut link, start).into_iter().map(|(_, frame)| frame[HEADER + 7]).collect();
    assert_eq!(marks, [1, 3]);
    assert_eq!(link.counters().lost, 2);
}

#[test]
fn a_rate_spreads_a_burst() {
    let start = Instant::now();
    let mut link = direction("1 ms", Some("100 Mbit/s"), 100_000);
    for n in 0..10 {
        link.handle_frame(&frame(1250, n), start);
    }
    // 1250 bytes take 1 µs at the card and 100 µs at the bottleneck.
    let times: Vec<_> = drain(&mut link, start).into_iter().map(|(time, _)| time.as_micros()).collect();
    assert_eq!(times, (1..=10).map(|n| 1001 + n * 100).collect::<Vec<_>>());
}

#[test]
fn a_full_queue_drops_the_tail() {
    let start = Instant::now();
    let mut link = direction("0 ms", Some("8 Mbit/s"), 5_000);
    for n in 0..10 {
        link.handle_frame(&frame(1000, n), start);
    }
    let marks: Vec<_> = drain(&mut link, start).into_iter().map(|(_, frame)| frame[HEADER + 7]).collect();
    assert_eq!(marks, [0, 1, 2, 3, 4], "five packets fit");
    // Four bytes had left by the time the card had sent the fifth packet.
    assert_eq!(
        link.counters(),
        Counters { segments: 10, bytes: 10_000, dropped: 5, lost: 0, queue_peak: 4_996 }
    );
    // A millisecond later one packet has left, and there is room again.
    link.handle_frame(&frame(1000, 9), start + Duration::from_millis(6));
    assert_eq!(link.counters().dropped, 5);
}

#[test]
fn segments_of_a_super_packet_are_judged_one_by_one() {
    let start = Instant::now();
    let mut link = direction("1 ms", Some("100 Mbit/s"), 10_000);
    let burst = sample(false, 14_480, 1448, 7, 7);
    link.handle_frame(&burst.frame, start);
    let counters = link.counters();
    assert_eq!(
        (counters.segments, counters.dropped),
        (10, 4),
        "six of 1500 bytes fit, with what has left meanwhile"
    );
    let out = drain(&mut link, start);
    let carried: usize = out.iter().map(|(_, frame)| frame.len() - HEADER - 52).sum();
    assert_eq!(carried, 6 * 1448);
    assert!(out.len() > 1, "one group would arrive 720 µs after its first segment");
    for pair in out.windows(2) {
        assert!(pair[1].0 - pair[0].0 <= QUANTUM + Duration::from_micros(121), "{:?}", pair[1].0 - pair[0].0);
    }
}

#[test]
fn without_a_rate_super_packets_pass_whole() {
    let start = Instant::now();
    let mut link = direction("1 ms", None, 0);
    let burst = sample(true, 60_000, 1428, 7, 7);
    link.handle_frame(&burst.frame, start);
    assert_eq!(drain(&mut link, start), [(Duration::from_millis(1), burst.frame)]);
}

proptest! {
    /// A link keeps its packets in order. None leaves faster than the rate or waits longer than the
    /// queue is long, and every loss is counted.
    #[test]
    fn a_link_keeps_its_promises(
        packets in proptest::collection::vec((0u64..2_000, 40usize..1500), 1..200),
        kilobits in 1_000u64..1_000_000,
        queue in 1_500u64..100_000,
    ) {
        let start = Instant::now();
        let rate = BitRate(kilobits * 1000);
        let shape = LinkShape { delay: Delay(3_000_000), jitter: Delay(0), rate: Some(rate), queue: ByteSize(queue), loss: Loss::NONE, black_hole: None };
        let mut link = Direction::new(&shape, Slow::NONE, 1);
        let mut now = start;
        let mut sent = Vec::new();
        for (mark, (gap, length)) in packets.iter().enumerate() {
            now += Duration::from_micros(*gap);
            sent.push(now);
            link.handle_frame(&frame(*length, mark as u32), now);
        }
        let out = drain(&mut link, start);
        prop_assert_eq!(out.len() as u64 + link.counters().dropped, packets.len() as u64);
        let longest = rate.time_for(queue) + shape.delay.duration() + Duration::from_millis(1);
        let mut previous: Option<(u32, Duration)> = None;
        for (time, frame) in &out {
            let mark = u32::from_be_bytes(frame[HEADER + 4..HEADER + 8].try_into().unwrap());
            let length = (frame.len() - HEADER) as u64;
            let way = start + *time - sent[mark as usize];
            prop_assert!(way >= shape.delay.duration() + rate.time_for(length));
            prop_assert!(way <= longest);
            if let Some((earlier, at)) = previous {
                prop_assert!(mark > earlier);
                prop_assert!(*time - at >= rate.time_for(length));
            }
            previous = Some((mark, *time));
        }
    }
}

#[test]
fn losses_take_place_and_time_and_are_told_from_drops() {
    let start = Instant::now();
    let mut link = Direction::new(&shape("rate = '8 Mbit/s', queue = '5 kB', loss = '100 %'"), Slow::NONE, 1);
    for n in 0..10 {
        link.handle_frame(&frame(1000, n), start);
    }
    assert_eq!(drain(&mut link, start), []);
    assert_eq!((link.counters().dropped, link.counters().lost), (5, 5));
}

#[test]
fn segments_of_a_super_packet_are_lost_one_by_one() {
    let start = Instant::now();
    let mut link = Direction::new(&shape("delay = '1 ms', loss = '20 %'"), Slow::NONE, 7);
    for n in 0..100 {
        link.handle_frame(&sample(false, 14_480, 1448, n, 7).frame, start);
    }
    let out = drain(&mut link, start);
    let carried: usize = out.iter().map(|(_, frame)| (frame.len() - HEADER - 52) / 1448).sum();
    let payload: usize = out.iter().map(|(_, frame)| frame.len() - HEADER - 52).sum();
    assert_eq!(carried as u64 + link.counters().lost, 1000);
    assert_eq!(payload, carried * 1448, "whole segments");
    assert!(out.len() > 100, "super-packets have holes: {} frames", out.len());
    // Five standard errors.
    assert!((137..=263).contains(&link.counters().lost), "{}", link.counters().lost);
}

#[test]
fn jitter_is_uniform_about_the_delay() {
    const PACKETS: u32 = 20_000;
    let start = Instant::now();
    let mut link = Direction::new(&shape("delay = '10 ms', jitter = '2 ms'"), Slow::NONE, 3);
    let mut found = Vec::new();
    for n in 0..PACKETS {
        // The packets are too far apart to catch up with one another.
        let sent = start + Duration::from_millis(5) * n;
        link.handle_frame(&frame(100, n), sent);
        found.extend(drain(&mut link, sent).into_iter().map(|(time, _)| time.as_secs_f64() * 1e3));
    }
    found.sort_by(f64::total_cmp);
    assert!(found[0] >= 8.0 && found[found.len() - 1] <= 12.0);
    // Kolmogorov and Smirnov's distance; beyond 2/√n once in 3,000 samples.
    let n = found.len() as f64;
    let distance = found
        .iter()
        .enumerate()
        .map(|(i, value)| ((value - 8.0) / 4.0 - (i as f64 + 0.5) / n).abs())
        .fold(0.0, f64::max);
    assert!(distance < 2.0 / n.sqrt(), "{distance}");
}

#[test]
fn the_same_seed_repeats_a_run() {
    let run = |seed| {
        let start = Instant::now();
        let mut link = Direction::new(
            &shape("delay = '5 ms', jitter = '2 ms', loss = '10 %', burst = 3"),
            Slow::NONE,
            seed,
        );
        for n in 0..500 {
            link.handle_frame(&frame(100, n), start + Duration::from_millis(n.into()));
        }
        drain(&mut link, start)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_change_keeps_what_is_under_way() {
    let start = Instant::now();
    // A packet of 1000 bytes takes a millisecond, then two, then none.
    let mut link =
        Direction::new(&shape("delay = '50 ms', rate = '8 Mbit/s', queue = '5 kB'"), Slow::NONE, 1);
    for n in 0..4 {
        link.handle_frame(&frame(1000, n), start);
    }
    link.set_shape(&shape("delay = '60 ms', rate = '4 Mbit/s', queue = '3 kB'"));
    link.handle_frame(&frame(1000, 4), start);
    assert_eq!(link.counters().dropped, 1, "the shorter queue is over-full with what it holds");
    let later = start + Duration::from_millis(2);
    link.handle_frame(&frame(900, 5), later);
    link.set_shape(&shape("delay = '1 ms'"));
    link.handle_frame(&frame(1000, 6), later);
    let out = drain(&mut link, start);
    let marks: Vec<_> = out.iter().map(|(_, frame)| frame[HEADER + 7]).collect();
    assert_eq!(marks, [0, 1, 2, 3, 5, 6]);
    let times: Vec<_> = out.iter().map(|(time, _)| time.as_micros()).collect();
    // What waited is served at the old rate, and the next packet after it at the new rate. The last
    // packet doesn't overtake, though its way is shorter.
    assert_eq!(times, [51_000, 52_000, 53_000, 54_000, 65_800, 65_800]);
}

proptest! {
    /// However a link is changed in between, its packets stay in order, and each is delivered or
    /// counted.
    #[test]
    fn changes_keep_order_and_count(
        steps in proptest::collection::vec((0u64..2_000, 40usize..1500, 0usize..24), 1..300),
        seed: u64,
    ) {
        let shapes = [
            shape("delay = '3 ms', jitter = '3 ms'"),
            shape("delay = '20 ms', rate = '1 Mbit/s', queue = '20 kB', loss = '30 %', burst = 4"),
            shape("rate = '50 Mbit/s', queue = '1500 B'"),
            shape("delay = '1 ms', loss = '50 %'"),
        ];
        let start = Instant::now();
        let mut link = Direction::new(&shapes[0], Slow::NONE, seed);
        let mut now = start;
        let mut out = Vec::new();
        for (mark, (gap, length, change)) in steps.iter().enumerate() {
            now += Duration::from_micros(*gap);
            if let Some(shape) = shapes.get(*change) {
                link.set_shape(shape);
            }
            while let Some(transmit) = link.poll_transmit(now) {
                out.push((transmit.due, transmit.frame));
            }
            link.handle_frame(&frame(*length, mark as u32), now);
        }
        while let Some(due) = link.next_due() {
            let transmit = link.poll_transmit(due).unwrap();
            out.push((transmit.due, transmit.frame));
        }
        let counters = link.counters();
        prop_assert_eq!(out.len() as u64 + counters.dropped + counters.lost, steps.len() as u64);
        for pair in out.windows(2) {
            let mark = |frame: &[u8]| u32::from_be_bytes(frame[HEADER + 4..HEADER + 8].try_into().unwrap());
            prop_assert!(pair[0].0 <= pair[1].0);
            prop_assert!(mark(&pair[0].1) < mark(&pair[1].1));
        }
    }
}
