//! Carriers of different rate and length: all of them are used, and none to anybody's
//! harm.

use std::time::Duration;

use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{Purpose, StreamId};

use crate::common::links::{CarrierLink, Links};
use crate::common::{A, B};

const MS: Duration = Duration::from_millis(1);
/// The rate of the best link in bytes per second.
const FAST: f64 = 50e6;

fn link(part: f64, rtt: Duration) -> CarrierLink {
    CarrierLink { bytes_per_second: FAST * part, latency: rtt / 2, purpose: Purpose::Bulk }
}

/// A trunk that has carried something before.
fn warm(links: &[CarrierLink], reversed: bool, reports: bool) -> Links {
    let mut links = Links::new(links);
    (links.reversed, links.reports) = (reversed, reports);
    for _ in 0..2 {
        links.message(8 << 20);
        links.run(100 * MS);
    }
    links
}

#[test]
fn all_of_the_rate_is_used() {
    for (name, second, streams, reports, part) in [
        ("equal", link(1.0, 10 * MS), 4, false, 0.9),
        ("equal", link(1.0, 10 * MS), 4, true, 0.9),
        ("equal, one stream", link(1.0, 10 * MS), 1, false, 0.9),
        ("1:4", link(0.25, 10 * MS), 4, false, 0.85),
        ("1:4", link(0.25, 10 * MS), 4, true, 0.85),
        ("1:4, one stream", link(0.25, 10 * MS), 1, true, 0.85),
        // The far one is of use only because streams queue more than usual beside it.
        ("equal, one far", link(1.0, 50 * MS), 4, true, 0.85),
    ] {
        let both = [link(1.0, 10 * MS), second];
        let mut links = warm(&both, false, reports);
        let before = links.now;
        for _ in 0..streams {
            let stream = links.ends[A].open().unwrap();
            links.send(stream, (200 << 20) / streams);
        }
        while links.messages.iter().any(|message| message.took.is_none()) {
            links.step(links.now + MS);
        }
        let rate = f64::from(200 << 20) / (links.now - before).as_secs_f64();
        let sum: f64 = both.iter().map(|link| link.bytes_per_second).sum();
        println!("{name}, {streams} streams, reports {reports}: {:.3} of the sum", rate / sum);
        assert!(rate >= part * sum, "{name}, {streams} streams: {:.3}", rate / sum);
    }
}

#[test]
fn nothing_is_slower_than_over_the_best_carrier_alone() {
    let mut worst = 0.0_f64;
    for part in [1.0, 0.25, 0.1] {
        for rtt in [10 * MS, 50 * MS] {
            for (reversed, reports) in [(false, false), (true, false), (false, true), (true, true)] {
                let both = [link(1.0, 10 * MS), link(part, rtt)];
                let mut alone = warm(&both[..1], false, reports);
                let mut two = warm(&both, reversed, reports);
                for size in [64, 10_000, 1_000_000, 20_000_000] {
                    let (alone, two) = (alone.message(size), two.message(size));
                    // One frame may be cut elsewhere.
                    let frame = MAX_FRAME as f64 / FAST;
                    let ratio = (two.as_secs_f64() - frame) / alone.as_secs_f64();
                    println!(
                        "1:{part} {rtt:?} {size} bytes, reversed {reversed}, reports {reports}: {ratio:.3}"
                    );
                    worst = worst.max(ratio);
                }
            }
        }
    }
    assert!(worst <= 1.01, "{worst:.3}");
}

/// The times of small messages beside bulk: median and 99th percentile.
fn beside_bulk(rails: &[CarrierLink]) -> [Duration; 2] {
    let mut links = warm(rails, false, true);
    for _ in 0..4 {
        let stream = links.ends[A].open().unwrap();
        links.send(stream, 1 << 30);
    }
    links.run(500 * MS);
    let stream = links.ends[A].open().unwrap();
    let mut times = Vec::new();
    for round in 0..300 {
        links.send(stream, 64);
        let index = links.messages.len() - 1;
        while links.messages[index].took.is_none() {
            links.step(links.now + MS);
        }
        times.push(links.messages.pop().unwrap().took.unwrap());
        links.run((1 + round % 7) * MS / 3);
    }
    times.sort();
    [times[150], times[297]]
}

#[test]
fn small_messages_beside_bulk_go_over_the_carrier_for_small_frames() {
    let bulk = vec![link(0.2, 10 * MS); 4];
    let without = beside_bulk(&bulk);
    let small = CarrierLink { purpose: Purpose::Small, ..link(0.2, 10 * MS) };
    let with = beside_bulk(&[bulk, vec![small]].concat());
    println!("median and 99th percentile: {without:?} without, {with:?} with a carrier for small frames");
    assert!(with[1] <= 6 * MS && without[1] >= with[1] + MS, "{without:?}, {with:?}");
}

#[test]
fn small_messages_take_the_shorter_carrier() {
    for reversed in [false, true] {
        let mut links = warm(&[link(1.0, 50 * MS), link(0.1, 10 * MS)], reversed, false);
        for size in [64, 1000] {
            let time = links.message(size);
            assert!(time < 6 * MS, "{size} bytes, reversed {reversed}: {time:?}");
        }
    }
}

#[test]
fn bulk_never_goes_over_the_carrier_for_small_frames_while_another_is_live() {
    let small = CarrierLink { purpose: Purpose::Small, ..link(1.0, 10 * MS) };
    let mut links = warm(&[link(0.2, 10 * MS), small], true, false);
    let before = links.rails[1].bytes[A];
    links.message(20 << 20);
    let went = links.rails[1].bytes[A] - before;
    assert!(went < 100 << 10, "{went} bytes of 20 MiB");
    // Both ends know what it is for.
    for side in [A, B] {
        let id = links.rails[1].ids[side].unwrap();
        assert_eq!(links.ends[side].carrier(id).unwrap().purpose, Purpose::Small);
    }
    // It carries all once it is alone.
    for side in [A, B] {
        links.notice(side, 0);
    }
    let before = links.rails[1].bytes[A];
    links.message(1 << 20);
    assert!(links.rails[1].bytes[A] - before > 1 << 20);
    // And nothing but small frames when another has joined.
    links.join(link(0.2, 10 * MS));
    links.run(100 * MS);
    let before = links.rails[1].bytes[A];
    links.message(20 << 20);
    assert!(links.rails[1].bytes[A] - before < 100 << 10);
}

#[test]
fn when_the_fast_carrier_says_nothing_more_the_slow_one_takes_over() {
    for reports in [false, true] {
        let mut links = warm(&[link(1.0, 10 * MS), link(0.1, 50 * MS)], false, reports);
        links.silence(0);
        // It has nothing to do with what went into the fast one before.
        let time = links.message(64);
        println!("64 bytes after a cut: {time:?}");
        assert!(time < 2 * (isthmus_trunk::PING_BUSY + isthmus_trunk::SILENCE), "{time:?}");
        let time = links.message(1_000_000);
        let alone = Duration::from_secs_f64(1e6 / (FAST * 0.1)) + 4 * 50 * MS;
        // The other end has to find out for itself, with its first CREDIT.
        let alone = alone + isthmus_trunk::PING_BUSY + isthmus_trunk::SILENCE;
        assert!(time < alone, "{time:?}, alone {alone:?}");
    }
}

#[test]
fn a_frame_does_not_wait_for_a_carrier_that_is_never_asked() {
    let mut links = warm(&[link(1.0, 10 * MS), link(0.1, 50 * MS)], false, true);
    let stream: StreamId = links.ends[A].open().unwrap();
    links.run(100 * MS);
    let slow = links.rails[1].ids[A].unwrap();
    for size in [64, MAX_FRAME * 3] {
        links.ends[A].write(stream, &mut vec![1; size].into()).unwrap();
        let begun = links.now;
        // Only the slow one is asked, at the times that the trunk tells.
        while links.ends[A].poll_transmit(slow, MAX_FRAME, links.now).is_none() {
            let next = links.ends[A].next_deadline().unwrap();
            assert!(next <= begun + 250 * MS, "no time to ask again: {:?}", next - begun);
            links.now = next.max(links.now);
            links.ends[A].on_deadline(links.now);
        }
        assert!(links.now > begun, "it did not wait for the fast one at all");
        links.run(100 * MS);
    }
}
