//! Padding for a carrier that is to be primed.

use std::time::Duration;

use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{CarrierState, Event, Frame, MAX_PRIMING, PING_IDLE, Purpose, SILENCE};

use crate::common::links::{CarrierLink, Links};
use crate::common::{A, B, Pair};

const MS: Duration = Duration::from_millis(1);

fn over(bytes_per_second: f64) -> Links {
    let link = CarrierLink { bytes_per_second, latency: 5 * MS, purpose: Purpose::Bulk };
    let mut links = Links::new(&[link]);
    links.run(Duration::from_secs(10));
    links
}

/// Bytes that go into a carrier of A's in ten seconds in which nothing is to be sent.
fn padding(links: &mut Links, primed: bool) -> usize {
    let before = links.rails[0].bytes[A];
    let id = links.rails[0].ids[A].unwrap();
    if primed {
        links.ends[A].prime(id);
    }
    links.run(Duration::from_secs(10));
    links.rails[0].bytes[A] - before
}

#[test]
fn a_carrier_is_primed_up_to_the_bound_or_until_its_pipe_is_full() {
    for (name, rate, least, most) in [
        ("fast", 100e6, MAX_PRIMING, MAX_PRIMING + 500),
        // 10 ms hold 2.4 frames. The flights that find that out: 1, 2, 4 and twice 8 at most.
        ("slower", 4e6, 15 * MAX_FRAME, 23 * MAX_FRAME),
    ] {
        let mut links = over(rate);
        assert!(padding(&mut links, false) < 500, "{name}: unasked");
        let bytes = padding(&mut links, true);
        assert!((least..=most).contains(&bytes), "{name}: {bytes} bytes");
        for side in [A, B] {
            let silent = links.events[side].iter().any(|event| matches!(event, Event::CarrierSilent(_)));
            assert!(!silent, "{name}");
        }
        // It knows a rate now.
        let id = links.rails[0].ids[A].unwrap();
        let known = links.ends[A].carrier(id).unwrap().bytes_per_second.unwrap() as f64;
        assert!(known > rate / 10.0 && known < rate * 1.2, "{name}: {known}");
    }
}

#[test]
fn padding_goes_out_only_while_nothing_waits() {
    let mut pair = Pair::standing();
    let id = pair.pipes[0].ids[A].unwrap();
    let stream = pair.ends[A].open().unwrap();
    pair.run(100 * MS);
    pair.write(A, stream, vec![1; 15_000]);
    pair.ends[A].prime(id);
    let mut next = || {
        let frame = pair.ends[A].poll_transmit(id, MAX_FRAME, pair.now)?;
        Frame::decode(&mut frame.to_vec().into()).unwrap()
    };
    assert!(matches!(next(), Some(Frame::Data { .. })));
    assert!(matches!(next(), Some(Frame::Ping { answer: false, .. })));
    assert_eq!(next(), None);
}

#[test]
fn no_padding_beside_data_that_another_carrier_is_to_take() {
    let mut pair = Pair::standing();
    let small = pair.join_for(Purpose::Small);
    pair.run(100 * MS);
    let stream = pair.ends[A].open().unwrap();
    pair.run(100 * MS);
    pair.write(A, stream, vec![1; 16_384]);
    let id = pair.pipes[small].ids[A].unwrap();
    pair.ends[A].prime(id);
    assert_eq!(pair.transmit(A, small, MAX_FRAME, 9), 0);
    pair.transmit(A, 0, MAX_FRAME, 9);
    assert_eq!(pair.transmit(A, small, MAX_FRAME, 9), 1);
}

#[test]
fn no_padding_beside_much_that_is_under_way() {
    let mut pair = Pair::standing();
    let id = pair.pipes[0].ids[A].unwrap();
    let streams: Vec<_> = (0..4).map(|_| pair.ends[A].open().unwrap()).collect();
    pair.run(100 * MS);
    for stream in streams {
        pair.write(A, stream, vec![1; 15_000]);
    }
    assert_eq!(pair.transmit(A, 0, MAX_FRAME, 99), 4);
    pair.ends[A].prime(id);
    assert_eq!(pair.transmit(A, 0, MAX_FRAME, 99), 0, "nothing waits, but it has not arrived");
    // The peer acknowledges that.
    pair.deliver(A, 0, usize::MAX);
    pair.transmit(B, 0, MAX_FRAME, 99);
    pair.now += 100 * MS;
    pair.ends[B].on_deadline(pair.now);
    pair.transmit(B, 0, MAX_FRAME, 99);
    pair.deliver(B, 0, usize::MAX);
    assert_eq!(pair.transmit(A, 0, MAX_FRAME, 99), 1, "the first padding");
}

#[test]
fn an_answer_stands_for_all_pings_before_it() {
    let mut pair = Pair::standing();
    let id = pair.pipes[0].ids[A].unwrap();
    pair.now += PING_IDLE;
    pair.ends[A].on_deadline(pair.now);
    pair.ends[A].prime(id);
    assert_eq!(pair.transmit(A, 0, MAX_FRAME, 9), 2, "PING, and one with padding");
    // Both come at once, and the last is answered.
    pair.deliver(A, 0, usize::MAX);
    pair.run(SILENCE + 100 * MS);
    assert_eq!(pair.ends[A].carrier(id).unwrap().state, CarrierState::Live);
}
