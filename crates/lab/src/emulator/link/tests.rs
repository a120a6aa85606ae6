use proptest::prelude::*;

use super::super::packet::{HEADER, tests::sample};
use super::*;
use crate::grid::{ByteSize, Delay, Loss};

fn direction(delay: &str, rate: Option<&str>, queue: u64) -> Direction {
    let delay: Delay = delay.parse().unwrap();
    let rate = rate.map(|rate| rate.parse().unwrap());
    Direction::new(&LinkShape { delay, jitter: Delay(0), rate, queue: ByteSize(queue), loss: Loss::NONE })
}

/// A frame with one packet of `length` bytes, marked with a number.
fn frame(length: usize, mark: u32) -> Vec<u8> {
    let mut frame = vec![0; HEADER + length];
    frame[HEADER + 4..HEADER + 8].copy_from_slice(&mark.to_be_bytes());
    frame
}

/// Everything that comes out, in order, with the time it took since `start`.
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
    assert_eq!(link.counters(), Counters { segments: 10, bytes: 10_000, dropped: 5, queue_peak: 4_996 });
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
    /// Order is kept, nothing leaves faster than the rate, nothing waits
    /// longer than the queue is long, and nothing is lost uncounted.
    #[test]
    fn a_link_keeps_its_promises(
        packets in proptest::collection::vec((0u64..2_000, 40usize..1500), 1..200),
        kilobits in 1_000u64..1_000_000,
        queue in 1_500u64..100_000,
    ) {
        let start = Instant::now();
        let rate = BitRate(kilobits * 1000);
        let shape = LinkShape { delay: Delay(3_000_000), jitter: Delay(0), rate: Some(rate), queue: ByteSize(queue), loss: Loss::NONE };
        let mut link = Direction::new(&shape);
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
