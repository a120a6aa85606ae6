//! What an end knows of what it has sent: whether it arrives, whether large frames pass, and
//! which carrier has carried it.

use std::time::Duration;

use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{CarrierId, Config, Event, LARGE, PING_BUSY, Purpose, Role, SILENCE, StreamId};

use crate::common::{A, B, Pair, SIDES, bytes_of, config};

const MS: Duration = Duration::from_millis(1);

/// Has large frames vanish in a pipe.
fn swallows(pair: &mut Pair, pipe: usize) {
    for half in &mut pair.pipes[pipe].halves {
        half.passes = Some(2000);
    }
}

fn stream(pair: &mut Pair) -> StreamId {
    let stream = pair.ends[A].open().unwrap();
    pair.run(50 * MS);
    stream
}

/// Lets the last pipe fall silent, and another one take its place, over which both ends say HELLO.
fn replace(pair: &mut Pair, last: usize) {
    pair.run(PING_BUSY + SILENCE + 100 * MS);
    for side in SIDES {
        pair.notice(side, last);
    }
    assert_eq!(pair.join(), last + 1);
}

#[test]
fn data_that_vanishes_waits_however_often_a_carrier_works() {
    let mut pair = Pair::standing();
    let stream = stream(&mut pair);
    swallows(&mut pair, 0);
    let sent = pair.now;
    pair.write(A, stream, bytes_of(stream, A, 0, 10_000));
    for pipe in 1..6 {
        replace(&mut pair, pipe - 1);
        swallows(&mut pair, pipe);
        pair.run(100 * MS);
        assert_eq!(pair.ends[A].waits_since(), Some(sent), "{pipe} carriers later");
    }
    replace(&mut pair, 5);
    pair.run(100 * MS);
    assert_eq!(pair.read(B, stream), bytes_of(stream, A, 0, 10_000));
    assert_eq!(pair.ends[A].waits_since(), None);
}

#[test]
fn small_frames_that_arrive_do_not_hide_a_large_one_that_does_not() {
    let mut pair = Pair::standing();
    let (bulk, small) = (stream(&mut pair), stream(&mut pair));
    pair.join_for(Purpose::Small);
    pair.run(50 * MS);
    swallows(&mut pair, 0);
    let sent = pair.now;
    pair.write(A, bulk, bytes_of(bulk, A, 0, 40_000));
    for _ in 0..10 {
        pair.write(A, small, &b"small"[..]);
        pair.run(100 * MS);
    }
    assert_eq!(pair.read(B, small).len(), 50);
    assert_eq!(pair.ends[A].waits_since(), Some(sent));
    assert!(pair.now - sent < pair.ends[A].patience());
}

#[test]
fn data_waits_no_more_once_it_is_in_the_memory_of_the_peer() {
    let mut pair = Pair::standing();
    let stream = stream(&mut pair);
    let sent = pair.now;
    pair.write(A, stream, bytes_of(stream, A, 0, 10_000));
    pair.run(MS);
    assert_eq!(pair.ends[A].waits_since(), Some(sent));
    pair.run(100 * MS);
    // The program there has read nothing.
    assert_eq!(pair.ends[A].waits_since(), None);
    // What the peer takes no more of doesn't wait either.
    pair.write(A, stream, bytes_of(stream, A, 10_000, 5_000));
    pair.transmit(A, 0, MAX_FRAME, 9);
    pair.cut_noticed(0);
    pair.ends[B].reset(stream, isthmus_trunk::Direction::FromPeer, 1).unwrap();
    pair.join();
    pair.run(100 * MS);
    assert_eq!(pair.ends[A].waits_since(), None);
}

/// Whether an end knows that large frames pass over the first carrier.
fn large_pass(pair: &Pair, side: usize) -> bool {
    let carrier = pair.pipes[0].ids[side].unwrap();
    pair.events[side].contains(&Event::CarrierLarge { carrier, both: true })
}

#[test]
fn whether_large_frames_pass_is_known_once_they_have_in_both_directions() {
    for primed in [false, true] {
        let mut pair = Pair::standing();
        let stream = stream(&mut pair);
        for side in SIDES {
            let known = SIDES.map(|side| large_pass(&pair, side));
            assert_eq!(known, [false; 2], "{primed}: before {side} has sent any");
            if primed {
                let id = pair.pipes[0].ids[side].unwrap();
                pair.ends[side].prime(id);
            } else {
                pair.write(side, stream, bytes_of(stream, side, 0, LARGE));
            }
            pair.run(100 * MS);
        }
        for side in SIDES {
            assert!(large_pass(&pair, side), "{primed}: {side}");
        }
    }
}

/// How many bytes each carrier of an end has carried of a stream since this was last called: sent
/// and received.
fn moved(pair: &mut Pair, side: usize, of: StreamId) -> Vec<(CarrierId, i64, u64)> {
    let mut sums: Vec<(CarrierId, i64, u64)> = Vec::new();
    for moved in pair.ends[side].take_moved().into_iter().filter(|moved| moved.stream == of) {
        match sums.iter_mut().find(|(carrier, ..)| *carrier == moved.carrier) {
            Some((_, sent, received)) => {
                *sent += moved.sent;
                *received += moved.received;
            }
            None => sums.push((moved.carrier, moved.sent, moved.received)),
        }
    }
    sums.retain(|(_, sent, received)| (*sent, *received) != (0, 0));
    sums
}

#[test]
fn each_byte_counts_for_the_carrier_that_has_brought_it() {
    let noting = |role| Config { notes_moved: true, ..config(role) };
    let mut pair = Pair::with([noting(Role::Initiator), noting(Role::Acceptor)]);
    pair.join();
    pair.run(100 * MS);
    let stream = stream(&mut pair);
    pair.write(A, stream, bytes_of(stream, A, 0, 3_000));
    pair.run(100 * MS);
    let [here, there] = SIDES.map(|side| pair.pipes[0].ids[side].unwrap());
    assert_eq!(moved(&mut pair, A, stream), [(here, 3_000, 0)]);
    assert_eq!(moved(&mut pair, B, stream), [(there, 0, 3_000)]);
    // The first carrier takes 10,000 bytes and loses them; the second one brings them.
    pair.write(A, stream, bytes_of(stream, A, 3_000, 10_000));
    pair.transmit(A, 0, MAX_FRAME, 9);
    pair.cut_noticed(0);
    pair.join();
    pair.run(100 * MS);
    let [here, there] = SIDES.map(|side| pair.pipes[1].ids[side].unwrap());
    assert_eq!(moved(&mut pair, A, stream), [(here, 10_000, 0)]);
    assert_eq!(moved(&mut pair, B, stream), [(there, 0, 10_000)]);
    // Without the wish nothing is noted.
    let mut pair = Pair::standing();
    let stream = self::stream(&mut pair);
    pair.write(A, stream, &b"it"[..]);
    pair.run(100 * MS);
    assert_eq!(pair.ends[A].take_moved(), []);
}
