//! Credit and memory: no slow receiver stops others, and all is bounded.

use std::time::Duration;

use bytes::Bytes;
use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{Config, Direction, Event, Role, StreamId};

use crate::common::{A, B, Pair, bytes_of, config};

const MS: Duration = Duration::from_millis(1);

fn pair_with(change: impl Fn(Config) -> Config) -> Pair {
    let mut pair = Pair::with([Role::Initiator, Role::Acceptor].map(|role| change(config(role))));
    pair.join();
    pair.run(100 * MS);
    pair
}

fn open(pair: &mut Pair, count: usize) -> Vec<StreamId> {
    (0..count).map(|_| pair.ends[A].open().unwrap()).collect()
}

/// Writes as much as there is room for.
fn flood(pair: &mut Pair, stream: StreamId) {
    let mut data = Bytes::from(vec![1; 1 << 20]);
    while pair.ends[A].write(stream, &mut data).unwrap() > 0 {}
}

/// Lets streams send and be read for some time; returns how many bytes each has moved.
fn pump(pair: &mut Pair, streams: &[StreamId], steps: usize) -> Vec<usize> {
    let mut read = vec![0; streams.len()];
    for _ in 0..steps {
        for (stream, read) in streams.iter().zip(&mut read) {
            flood(pair, *stream);
            *read += pair.read(B, *stream).len();
        }
        pair.run(MS);
    }
    read
}

#[test]
fn nobody_sends_beyond_the_credit_of_a_stream_that_is_not_read() {
    let mut pair = pair_with(|config| config);
    let stream = open(&mut pair, 1)[0];
    for _ in 0..50 {
        flood(&mut pair, stream);
        pair.run(10 * MS);
    }
    let initial = u64::from(config(Role::Acceptor).initial_credit);
    assert_eq!(pair.ends[B].status().unread, initial);
    assert_eq!(pair.ends[A].status().held, 0);
    assert_eq!(pair.read(B, stream).len() as u64, initial);
    pair.run(20 * MS);
    assert!(pair.saw(A, &Event::Writable(stream)));
}

#[test]
fn a_slow_receiver_does_not_stop_others() {
    let mut pair = pair_with(|config| Config { receive_pool: 1 << 20, send_memory: 1 << 20, ..config });
    let streams = open(&mut pair, 8);
    let (slow, fast) = streams.split_at(6);
    // At first all are read, so that all have credit beyond the initial one.
    pump(&mut pair, &streams, 200);
    for _ in 0..100 {
        for stream in slow {
            flood(&mut pair, *stream);
        }
        pair.run(MS);
    }
    let read = pump(&mut pair, fast, 200);
    for bytes in &read {
        assert!(*bytes > 1 << 20, "{read:?}");
    }
    assert!(pair.ends[B].status().promised <= 1 << 20);
}

#[test]
fn credit_grows_with_rate_and_round_trip() {
    for latency in [1, 10, 50] {
        let mut pair = Pair::new();
        pair.latency = latency * MS;
        pair.join();
        pair.run(10 * latency * MS);
        let stream = open(&mut pair, 1)[0];
        let until = pair.now + 40 * latency * MS;
        let mut read = 0;
        while pair.now < until {
            flood(&mut pair, stream);
            read += pair.read(B, stream).len();
            pair.run(latency * MS / 5);
        }
        // From 16 KiB: twenty round trips, in which the window doubles at least six times.
        assert!(read > 8 << 20, "{read} at {latency} ms");
    }
}

#[test]
fn memory_of_the_sender_is_bounded_and_small_messages_still_go() {
    let mut pair = pair_with(|config| Config { send_memory: 256 << 10, ..config });
    let streams = open(&mut pair, 100);
    pair.run(50 * MS);
    pair.cut_noticed(0);
    for stream in &streams {
        flood(&mut pair, *stream);
    }
    let held = pair.ends[A].status().held;
    assert!((256 << 10..=(256 << 10) + 100 * (4 << 10)).contains(&held), "{held}");
    let small = open(&mut pair, 1)[0];
    assert_eq!(pair.write(A, small, vec![0; 4096]), 4096);
    assert_eq!(pair.write(A, small, vec![0; 1]), 0);
    // Those that wait are told once there is memory, and all of it arrives.
    pair.join();
    pair.run(100 * MS);
    for stream in &streams[16..] {
        assert!(pair.events[A].contains(&Event::Writable(*stream)), "{stream}");
    }
    assert_eq!(pair.ends[A].status().held, 0);
}

#[test]
fn all_writers_that_wait_are_told_even_if_none_of_them_writes() {
    let mut pair = pair_with(|config| Config { send_memory: 8000, send_reserve: 0, ..config });
    let streams = open(&mut pair, 20);
    assert_eq!(pair.write(A, streams[0], vec![0; 8000]), 8000);
    for stream in &streams[1..] {
        assert_eq!(pair.ends[A].poll_room(*stream), Ok(0));
    }
    pair.run(100 * MS);
    for stream in &streams[1..] {
        assert!(pair.events[A].contains(&Event::Writable(*stream)), "{stream}");
    }
}

#[test]
fn too_many_frames_under_way_wait_for_acknowledgements() {
    let mut pair = pair_with(|config| Config { initial_credit: 1 << 20, ..config });
    let streams = open(&mut pair, 2);
    pair.run(50 * MS);
    // Frames of one byte each, none of which is acknowledged.
    let id = pair.pipes[0].ids[A].unwrap();
    let mut frames = 0;
    for number in 0..isthmus_trunk::MAX_UNDER_WAY + 5 {
        pair.write(A, streams[number % 2], vec![0]);
        frames += usize::from(pair.ends[A].poll_transmit(id, MAX_FRAME, pair.now).is_some());
    }
    assert_eq!(frames, isthmus_trunk::MAX_UNDER_WAY);
    // After a cut they go again, and then the rest.
    pair.cut_noticed(0);
    pair.join();
    pair.burst = 1000;
    pair.run(100 * MS);
    let read: usize = streams.iter().map(|stream| pair.read(B, *stream).len()).sum();
    assert_eq!(read, isthmus_trunk::MAX_UNDER_WAY + 5);
    assert_eq!(pair.ends[A].status().under_way, 0);
}

#[test]
fn a_stream_may_be_opened_again_when_others_are_over() {
    let mut pair = pair_with(|config| Config { max_streams: 4, ..config });
    let streams = open(&mut pair, 4);
    assert!(pair.ends[A].open().is_err());
    for stream in &streams {
        pair.ends[A].finish(*stream).unwrap();
    }
    pair.run(50 * MS);
    for stream in &streams {
        pair.ends[B].finish(*stream).unwrap();
        for side in [A, B] {
            pair.ends[side].read(*stream, 1, pair.now).unwrap();
        }
    }
    pair.run(100 * MS);
    for stream in &streams {
        let _ = pair.ends[A].read(*stream, 1, pair.now);
    }
    pair.run(100 * MS);
    assert!(pair.saw(A, &Event::CanOpen));
    open(&mut pair, 4);
    assert!(pair.ends[A].open().is_err());
}

#[test]
fn a_stream_that_is_over_gives_its_credit_back() {
    for stopped in [true, false] {
        let mut pair = pair_with(|config| config);
        let streams = open(&mut pair, 2);
        pump(&mut pair, &streams, 300);
        let before = pair.ends[B].status().promised;
        assert!(before > 200_000, "{before}");
        match stopped {
            true => pair.ends[B].reset(streams[0], Direction::FromPeer, 1).unwrap(),
            false => pair.ends[A].finish(streams[0]).unwrap(),
        }
        pair.run(200 * MS);
        let after = pair.ends[B].status().promised;
        assert!(after < before * 3 / 4, "{before}, then {after}");
    }
}

#[test]
fn bytes_are_peeked_at_and_consumed() {
    let mut pair = Pair::standing();
    let stream = open(&mut pair, 1)[0];
    pair.write(A, stream, bytes_of(stream, A, 0, 12_000));
    pair.run(20 * MS);
    let peeked: Vec<u8> = pair.ends[B].peek(stream).flatten().copied().collect();
    assert_eq!(peeked, bytes_of(stream, A, 0, 12_000));
    pair.ends[B].consume(stream, 11_000, pair.now).unwrap();
    assert_eq!(pair.read(B, stream), bytes_of(stream, A, 11_000, 1000));
    // What was consumed counts for credit.
    pair.run(20 * MS);
    assert!(pair.ends[A].poll_room(stream).unwrap() >= 12_000);
}
