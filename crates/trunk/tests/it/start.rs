//! How fast a stream starts, beside a TCP connection of its own.

use std::time::Duration;

use bytes::Bytes;
use isthmus_trunk::{Config, Role, StreamId};

use crate::common::{A, B, Pair, config};

const MS: Duration = Duration::from_millis(1);
/// How many bytes TCP sends in its first flight: ten segments, as RFC 6928 has it.
const TCP_FIRST: usize = 10 * 1460;

/// When so many bytes have arrived in slow start without loss, over a link of unlimited rate. Each
/// flight is twice the one before.
fn tcp(bytes: usize, rtt: Duration) -> Duration {
    let (mut flight, mut sent, mut time) = (TCP_FIRST, TCP_FIRST, rtt / 2);
    while sent < bytes {
        flight *= 2;
        sent += flight;
        time += rtt;
    }
    time
}

/// How long it takes until so many bytes of a stream have been read.
fn send(pair: &mut Pair, stream: StreamId, bytes: usize) -> Duration {
    let (mut data, mut read, begun) = (Bytes::from(vec![1; bytes]), 0, pair.now);
    while read < bytes {
        while !data.is_empty() && pair.ends[A].write(stream, &mut data).unwrap() > 0 {}
        while pair.step() {
            read += pair.read(B, stream).len();
            while !data.is_empty() && pair.ends[A].write(stream, &mut data).unwrap() > 0 {}
        }
        if read < bytes {
            pair.now = pair.next().unwrap();
        }
    }
    pair.now - begun
}

#[test]
fn a_new_stream_is_no_slower_than_a_new_tcp_connection() {
    for rtt in [2 * MS, 10 * MS, 100 * MS] {
        for bytes in [1000, 14_600, 40_000, 100_000, 300_000, 1_000_000, 4_000_000] {
            let mut pair = Pair::new();
            pair.latency = rtt / 2;
            pair.join();
            pair.run(10 * rtt);
            let new = pair.ends[A].open().unwrap();
            let time = send(&mut pair, new, bytes);
            let bound = tcp(bytes, rtt);
            println!("{bytes} bytes at {rtt:?}: {time:?}, TCP {bound:?}");
            assert!(time <= bound, "{bytes} bytes at {rtt:?}: {time:?}, TCP {bound:?}");
        }
    }
}

#[test]
fn a_stream_that_was_idle_starts_like_a_new_one() {
    let rtt = 10 * MS;
    let mut pair = Pair::standing();
    let streams: Vec<StreamId> = (0..2).map(|_| pair.ends[A].open().unwrap()).collect();
    // One shows that the carrier is quick.
    send(&mut pair, streams[0], 100_000);
    pair.run(Duration::from_secs(10));
    let time = send(&mut pair, streams[1], 1_000_000);
    assert!(time <= tcp(1_000_000, rtt), "{time:?}");
}

#[test]
fn idle_streams_that_were_fast_leave_half_of_the_pool() {
    let small = |role| Config { receive_pool: 8 << 20, ..config(role) };
    let mut pair = Pair::with([small(Role::Initiator), small(Role::Acceptor)]);
    pair.join();
    pair.run(100 * MS);
    for _ in 0..500 {
        let new = pair.ends[A].open().unwrap();
        send(&mut pair, new, 16_000);
    }
    let promised = pair.ends[B].status().promised;
    assert!(promised > 3 << 20, "{promised}: none took the first step");
    assert!(promised <= (4 << 20) + (256 << 10), "{promised}");
}
