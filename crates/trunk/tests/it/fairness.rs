//! Whose frames go first.

use std::collections::BTreeMap;
use std::time::Duration;

use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{Config, Frame, Role, StreamId};

use crate::common::{A, Pair, config};

const MS: Duration = Duration::from_millis(1);

/// Two ends with so much credit that nothing but the order of frames matters.
fn rich() -> Pair {
    let rich = |role| Config {
        initial_credit: 64 << 20,
        send_memory: 1 << 30,
        stream_queue: 64 << 20,
        ..config(role)
    };
    let mut pair = Pair::with([rich(Role::Initiator), rich(Role::Acceptor)]);
    pair.join();
    pair.run(100 * MS);
    pair
}

fn bulk(pair: &mut Pair, count: usize, bytes: usize) -> Vec<StreamId> {
    let streams: Vec<StreamId> = (0..count).map(|_| pair.ends[A].open().unwrap()).collect();
    pair.run(50 * MS);
    for stream in &streams {
        assert_eq!(pair.write(A, *stream, vec![1; bytes]), bytes);
    }
    streams
}

/// The next DATA frame's stream, and the length of its payload.
fn next_data(pair: &mut Pair) -> Option<(StreamId, usize)> {
    let id = pair.pipes.last().unwrap().ids[A].unwrap();
    loop {
        let frame = pair.ends[A].poll_transmit(id, MAX_FRAME, pair.now)?;
        if let Frame::Data { stream, payload, .. } =
            Frame::decode(&mut frame.to_vec().into()).unwrap().unwrap()
        {
            return Some((stream, payload.len()));
        }
    }
}

#[test]
fn bulk_streams_get_equal_shares() {
    let mut pair = rich();
    let streams = bulk(&mut pair, 10, 4 << 20);
    let mut sent: BTreeMap<StreamId, usize> = streams.iter().map(|stream| (*stream, 0)).collect();
    for frames in 1..1000 {
        let (stream, length) = next_data(&mut pair).unwrap();
        *sent.get_mut(&stream).unwrap() += length;
        if frames > 20 {
            let (most, least) = (sent.values().max().unwrap(), sent.values().min().unwrap());
            assert!(most - least <= 2 * MAX_FRAME, "after {frames} frames: {sent:?}");
        }
    }
}

#[test]
fn streams_of_small_and_of_large_frames_get_equal_shares() {
    let mut pair = rich();
    let large = bulk(&mut pair, 1, 8 << 20)[0];
    let small = pair.ends[A].open().unwrap();
    let mut sent = BTreeMap::from([(large, 0), (small, 0)]);
    for _ in 0..2000 {
        // One frame each time: it is sent before there is more.
        pair.write(A, small, vec![2; 3000]);
        let (stream, length) = next_data(&mut pair).unwrap();
        *sent.get_mut(&stream).unwrap() += length;
    }
    let ratio = sent[&small] as f64 / sent[&large] as f64;
    assert!((0.8..1.25).contains(&ratio), "{sent:?}");
}

#[test]
fn a_sparse_stream_goes_before_bulk_each_time() {
    let mut pair = rich();
    bulk(&mut pair, 200, 1 << 20);
    let sparse = pair.ends[A].open().unwrap();
    for _ in 0..300 {
        next_data(&mut pair).unwrap();
    }
    for round in 0..100 {
        pair.write(A, sparse, vec![0; 64]);
        assert_eq!(next_data(&mut pair), Some((sparse, 64)), "round {round}");
        next_data(&mut pair).unwrap();
    }
}

#[test]
fn a_sparse_stream_goes_before_what_is_sent_again_after_a_cut() {
    let mut pair = rich();
    let streams = bulk(&mut pair, 10, 1 << 20);
    for _ in 0..500 {
        next_data(&mut pair).unwrap();
    }
    pair.cut_noticed(0);
    pair.join();
    let sparse = pair.ends[A].open().unwrap();
    pair.write(A, sparse, vec![0; 64]);
    // No more than one frame of each stream that was sparse until the cut.
    let position = (0..).find(|_| next_data(&mut pair) == Some((sparse, 64))).unwrap();
    assert!(position <= streams.len(), "after {position} frames");
}

#[test]
fn control_frames_go_before_data() {
    let mut pair = rich();
    bulk(&mut pair, 5, 1 << 20);
    next_data(&mut pair).unwrap();
    let opened = pair.ends[A].open().unwrap();
    let id = pair.pipes[0].ids[A].unwrap();
    let frame = pair.ends[A].poll_transmit(id, MAX_FRAME, pair.now).unwrap();
    assert_eq!(frame.to_vec(), Frame::Open { stream: opened }.encode().to_vec());
}
