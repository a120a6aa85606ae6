//! Carriers that join, fall silent, leave and are cut.

use std::time::Duration;

use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{
    CarrierState, Config, Ended, Event, HELLO_TIMEOUT, JoinError, LEAVE_TIMEOUT, OpenError, PING_BUSY,
    PING_IDLE, Reason, Role, SILENCE, StreamId,
};

use crate::common::{A, B, Pair, SIDES, bytes_of, config};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_stream_opens_and_carries_data_after_one_way_on_a_standing_trunk() {
    let mut pair = Pair::standing();
    let stream = pair.ends[A].open().unwrap();
    pair.write(A, stream, &b"hello"[..]);
    pair.run(pair.latency + MS);
    assert!(pair.saw(B, &Event::Opened(stream)));
    assert_eq!(pair.read(B, stream), b"hello");
}

#[test]
fn before_the_first_hello_no_stream_opens() {
    let mut pair = Pair::new();
    assert_eq!(pair.ends[A].open(), Err(OpenError::NotEstablished));
    pair.join();
    pair.run(6 * MS);
    for side in SIDES {
        assert!(pair.saw(side, &Event::Established { version: 1 }));
        assert!(pair.ends[side].open().is_ok());
    }
}

#[test]
fn a_carrier_works_once_the_peer_has_answered_over_it() {
    let mut pair = Pair::new();
    pair.join();
    let id = pair.pipes[0].ids[A].unwrap();
    assert_eq!(pair.transmit(A, 0, MAX_FRAME, 9), 2, "HELLO and PING");
    pair.deliver(A, 0, usize::MAX);
    for (what, works) in [("HELLO", false), ("the answer", true)] {
        assert_eq!(pair.transmit(B, 0, MAX_FRAME, 1), 1);
        pair.deliver(B, 0, usize::MAX);
        pair.collect();
        assert_eq!(pair.ends[A].carrier(id).unwrap().state, CarrierState::Live, "{what}");
        assert_eq!(pair.saw(A, &Event::CarrierLive(id)), works, "{what}");
    }
}

#[test]
fn what_is_under_way_on_a_cut_carrier_goes_over_another_without_a_handshake() {
    let mut pair = Pair::standing();
    let second = pair.join();
    pair.run(50 * MS);
    let stream = pair.ends[A].open().unwrap();
    pair.write(A, stream, bytes_of(stream, A, 0, 10_000));
    pair.transmit(A, 0, MAX_FRAME, 9);
    pair.cut_noticed(0);
    assert_eq!(pair.transmit(A, second, MAX_FRAME, 9), 2, "OPEN and DATA again");
    pair.run(pair.latency + MS);
    assert_eq!(pair.read(B, stream), bytes_of(stream, A, 0, 10_000));
}

#[test]
fn after_a_cut_of_all_carriers_data_flows_with_the_first_bytes_of_a_new_one() {
    let mut pair = Pair::standing();
    let stream = pair.ends[A].open().unwrap();
    pair.run(50 * MS);
    pair.cut_noticed(0);
    pair.write(A, stream, &b"waiting"[..]);
    pair.run(Duration::from_secs(600));
    assert_eq!(pair.read(B, stream), b"");
    pair.join();
    pair.run(pair.latency + MS);
    assert_eq!(pair.read(B, stream), b"waiting");
}

#[test]
fn a_new_carrier_waits_for_hello_while_another_works() {
    let mut pair = Pair::standing();
    let second = pair.join();
    let stream = pair.ends[A].open().unwrap();
    pair.write(A, stream, &b"data"[..]);
    assert_eq!(pair.transmit(A, second, MAX_FRAME, 9), 2, "HELLO and PING");
    assert_eq!(pair.transmit(A, 0, MAX_FRAME, 9), 2, "OPEN and DATA");
}

/// How long it takes until an end finds that a pipe is silent.
fn found_after(busy: bool, swallowing: [bool; 2], side: usize) -> Duration {
    let mut pair = Pair::standing();
    pair.run(10_500 * MS);
    let stream = pair.ends[A].open().unwrap();
    pair.run(20 * MS);
    for from in SIDES {
        pair.pipes[0].halves[from].swallows = swallowing[from];
    }
    let cut = pair.now;
    if busy {
        pair.write(A, stream, &b"data"[..]);
    }
    while !pair.events[side].iter().any(|event| matches!(event, Event::CarrierSilent(_))) {
        pair.run(10 * MS);
        assert!(pair.now < cut + Duration::from_secs(60));
    }
    pair.now - cut
}

#[test]
fn silence_is_found_within_the_stated_time() {
    let rtts = 2 * 10 * MS;
    for (name, busy, swallowing, side, bound) in [
        ("busy", true, [true, true], A, PING_BUSY),
        ("idle", false, [true, true], A, PING_IDLE),
        ("the other end", true, [true, true], B, PING_IDLE),
        ("only the way there is cut", true, [true, false], A, PING_BUSY),
        ("only the way back is cut", true, [false, true], A, PING_BUSY),
        ("only the way to it is cut", false, [true, false], B, PING_IDLE),
    ] {
        let found = found_after(busy, swallowing, side);
        assert!(found <= bound + SILENCE + rtts + 30 * MS, "{name}: {found:?}");
        assert!(found >= SILENCE, "{name}: {found:?}");
    }
}

#[test]
fn a_silent_carrier_gets_no_frames_and_its_own_go_over_another() {
    let mut pair = Pair::standing();
    let second = pair.join();
    pair.run(50 * MS);
    for half in &mut pair.pipes[0].halves {
        half.swallows = true;
    }
    let stream = pair.ends[A].open().unwrap();
    pair.write(A, stream, &b"once"[..]);
    pair.transmit(A, 0, MAX_FRAME, 9);
    pair.run(PING_BUSY + SILENCE + 100 * MS);
    assert_eq!(pair.read(B, stream), b"once");
    let id = pair.pipes[0].ids[A].unwrap();
    assert_eq!(pair.ends[A].carrier(id).unwrap().state, CarrierState::Silent);
    pair.write(A, stream, &b"more"[..]);
    assert_eq!(pair.transmit(A, 0, MAX_FRAME, 9), 0);
    assert_eq!(pair.transmit(A, second, MAX_FRAME, 9), 1);
}

#[test]
fn a_carrier_that_stalled_and_comes_back_sends_nothing_twice() {
    let mut pair = Pair::standing();
    let stream = pair.ends[A].open().unwrap();
    pair.run(50 * MS);
    for half in &mut pair.pipes[0].halves {
        half.stalls = true;
    }
    pair.write(A, stream, bytes_of(stream, A, 0, 16_000));
    pair.run(Duration::from_secs(20));
    let id = pair.pipes[0].ids[A].unwrap();
    assert_eq!(pair.ends[A].carrier(id).unwrap().state, CarrierState::Silent);
    for half in &mut pair.pipes[0].halves {
        half.stalls = false;
    }
    pair.run(100 * MS);
    let carrier = pair.ends[A].carrier(id).unwrap();
    // OPEN and one DATA.
    assert_eq!((carrier.state, carrier.acknowledged, carrier.under_way), (CarrierState::Live, 2, 0));
    assert_eq!(pair.ends[A].status().held, 0);
    assert_eq!(pair.read(B, stream), bytes_of(stream, A, 0, 16_000));
}

#[test]
fn a_carrier_without_hello_ends() {
    let mut pair = Pair::new();
    pair.join();
    pair.pipes[0].halves[B].swallows = true;
    pair.run(HELLO_TIMEOUT + MS);
    let silent = Event::CarrierDone(isthmus_trunk::CarrierId(0), Ended::Here(Reason::Silent));
    assert!(pair.saw(A, &silent));
}

#[test]
fn a_carrier_leaves_when_its_frames_are_acknowledged() {
    let mut pair = Pair::standing();
    let stream = pair.ends[A].open().unwrap();
    pair.write(A, stream, &b"first"[..]);
    pair.transmit(A, 0, MAX_FRAME, 9);
    let id = pair.pipes[0].ids[A].unwrap();
    pair.ends[A].leave(id, pair.now);
    assert_eq!(pair.ends[A].carrier(id).unwrap().state, CarrierState::Leaving);
    pair.write(A, stream, &b"second"[..]);
    pair.run(100 * MS);
    assert_eq!(pair.read(B, stream), b"first");
    assert!(pair.saw(A, &Event::CarrierDone(id, Ended::Here(Reason::Done))));
    let text = Reason::Done.to_string();
    let told = Ended::ByPeer { reason: Reason::Done, text };
    assert!(pair.events[B].iter().any(|event| matches!(event, Event::CarrierDone(_, why) if *why == told)));
    pair.join();
    pair.run(100 * MS);
    assert_eq!(pair.read(B, stream), b"second");
}

#[test]
fn a_carrier_that_leaves_does_not_wait_for_ever() {
    let mut pair = Pair::standing();
    let stream = pair.ends[A].open().unwrap();
    pair.run(50 * MS);
    pair.write(A, stream, &b"data"[..]);
    pair.transmit(A, 0, MAX_FRAME, 9);
    pair.cut(0, [0, 0]);
    let id = pair.pipes[0].ids[A].unwrap();
    pair.ends[A].leave(id, pair.now);
    pair.run(LEAVE_TIMEOUT + MS);
    assert!(pair.saw(A, &Event::CarrierDone(id, Ended::Here(Reason::Done))));
}

#[test]
fn beyond_the_bound_a_carrier_replaces_a_silent_one_or_is_refused() {
    let two = |role| Config { max_carriers: 2, ..config(role) };
    let mut pair = Pair::with([two(Role::Initiator), two(Role::Acceptor)]);
    pair.join();
    pair.join();
    pair.run(100 * MS);
    assert_eq!(pair.ends[A].carrier_joined(pair.now), Err(JoinError::TooMany(2)));
    pair.cut(1, [0, 0]);
    pair.run(PING_IDLE + SILENCE + 100 * MS);
    pair.join();
    assert!(pair.ends[A].carrier(pair.pipes[0].ids[A].unwrap()).is_some());
    pair.collect();
    let replaced = pair.events[A].iter().filter(|event| matches!(event, Event::CarrierDone(..))).count();
    assert_eq!(replaced, 1);
}

#[test]
fn frames_overtake_one_another_on_carriers_of_different_length() {
    let mut pair = Pair::standing();
    let fast = pair.join();
    pair.run(50 * MS);
    let stream = pair.ends[A].open().unwrap();
    pair.write(A, stream, bytes_of(stream, A, 0, 1000));
    // OPEN and the first half on the slow one, the rest and the end on the fast one.
    pair.transmit(A, 0, 520, 2);
    pair.ends[A].finish(stream).unwrap();
    pair.transmit(A, fast, MAX_FRAME, 9);
    pair.deliver(A, fast, usize::MAX);
    pair.collect();
    assert!(pair.saw(B, &Event::Opened(stream)));
    assert_eq!((pair.read(B, stream).len(), pair.ends[B].status().holes), (0, 1));
    pair.deliver(A, 0, usize::MAX);
    assert_eq!(pair.read(B, stream), bytes_of(stream, A, 0, 1000));
}

#[test]
fn the_last_count_of_an_ended_carrier_travels_over_another() {
    let mut pair = Pair::standing();
    let second = pair.join();
    pair.run(50 * MS);
    let stream = pair.ends[A].open().unwrap();
    pair.write(A, stream, &b"data"[..]);
    pair.transmit(A, 0, MAX_FRAME, 9);
    pair.deliver(A, 0, usize::MAX);
    // B has the frames and ends the carrier; A doesn't know that.
    pair.notice(B, 0);
    pair.transmit(B, second, MAX_FRAME, 9);
    pair.deliver(B, second, usize::MAX);
    assert_eq!((pair.ends[A].status().held, pair.ends[A].status().under_way), (0, 0));
}

#[test]
fn the_round_trip_is_measured() {
    let pair = Pair::standing();
    let carrier = pair.ends[A].carrier(pair.pipes[0].ids[A].unwrap()).unwrap();
    assert_eq!(carrier.rtt, Some(10 * MS));
}

#[test]
fn small_frames_fill_one_record() {
    let mut pair = Pair::standing();
    let streams: Vec<StreamId> = (0..50).map(|_| pair.ends[A].open().unwrap()).collect();
    for stream in &streams {
        pair.write(A, *stream, &b"0123456789"[..]);
    }
    let id = pair.pipes[0].ids[A].unwrap();
    let mut record = Vec::new();
    let length = pair.ends[A].fill(id, &mut record, MAX_FRAME, pair.now);
    assert_eq!((length, record.len()), (50 * (12 + 30), 50 * (12 + 30)));
    assert_eq!(pair.ends[A].fill(id, &mut record, MAX_FRAME, pair.now), 0);
}

#[test]
fn a_closed_trunk_tells_the_peer_over_every_carrier() {
    let mut pair = Pair::standing();
    pair.join();
    let stream = pair.ends[A].open().unwrap();
    pair.run(50 * MS);
    pair.ends[A].close(Reason::Done, "bye");
    pair.run(50 * MS);
    assert_eq!(pair.closed(A), Some(&Ended::Here(Reason::Done)));
    assert_eq!(pair.closed(B), Some(&Ended::ByPeer { reason: Reason::Done, text: "bye".into() }));
    for side in SIDES {
        assert_eq!(pair.ends[side].open(), Err(OpenError::Ended));
        assert!(pair.ends[side].poll_room(stream).is_err());
        assert_eq!(pair.ends[side].carrier_joined(pair.now), Err(JoinError::Ended));
    }
}
