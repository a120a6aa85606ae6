//! What 10,000 streams hold, counted at the allocator. docs/trunk.md states the figures.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]
#![allow(clippy::disallowed_methods, reason = "tests have a clock")]

// A binary of its own: the allocator is the whole process's.
#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use common::{A, B, Pair, SIDES, bytes_of, config};
use isthmus_trunk::frame::{DATA_HEAD, MAX_FRAME};
use isthmus_trunk::{Config, Frame, Hello, MAX_UNDER_WAY, Purpose, Role, StreamId, Trunk, TrunkId};

const STREAMS: usize = 10_000;
const MS: Duration = Duration::from_millis(1);

thread_local! {
    /// How many bytes this thread has allocated and not freed: tests run side by side.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`; `alloc` is the system's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends frees after its counter is gone.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

fn held() -> usize {
    HELD.get().max(0) as usize
}

#[test]
fn an_idle_stream_holds_little() {
    let mut pair = Pair::standing();
    let before = held();
    let streams: Vec<StreamId> = (0..STREAMS).map(|_| pair.ends[A].open().unwrap()).collect();
    // Each has been used, in both directions.
    for side in SIDES {
        for stream in &streams {
            pair.write(side, *stream, bytes_of(*stream, side, 0, 2000));
        }
        pair.run(200 * MS);
        for stream in &streams {
            assert_eq!(pair.read(1 - side, *stream).len(), 2000);
        }
        pair.events[1 - side].clear();
    }
    pair.run(200 * MS);
    pair.events = Default::default();
    for end in &pair.ends {
        assert_eq!((end.status().streams, end.status().held, end.status().unread), (STREAMS, 0, 0));
    }
    let each = (held() - before) / STREAMS / 2;
    println!("{each} bytes per idle stream and end");
    assert!(each < 550, "{each} bytes");
    // And nothing once they are over.
    for side in SIDES {
        for stream in &streams {
            pair.ends[side].finish(*stream).unwrap();
        }
    }
    pair.run(200 * MS);
    for side in SIDES {
        for stream in &streams {
            pair.ends[side].read(*stream, 1, pair.now).unwrap();
        }
    }
    pair.run(200 * MS);
    pair.events = Default::default();
    assert_eq!(pair.ends[A].status().streams, 0);
    drop(streams);
    for half in pair.pipes.iter_mut().flat_map(|pipe| &mut pipe.halves) {
        half.queue.shrink_to_fit();
    }
    let left = held().saturating_sub(before);
    // Tables keep their size.
    println!("{left} bytes after all are over");
    assert!(left < STREAMS * 150, "{left} bytes");
}

/// A trunk whose peer the test plays.
fn receiver(credit: u32) -> (Trunk, isthmus_trunk::CarrierId, std::time::Instant) {
    let own = Config { initial_credit: credit, ..config(Role::Acceptor) };
    let (mut trunk, now) = (Trunk::new(own), std::time::Instant::now());
    let carrier = trunk.carrier_joined(now).unwrap();
    let trunk_id = TrunkId([7; 16]);
    let role = Role::Initiator;
    let hello = Hello {
        role,
        standing: false,
        lowest: 1,
        highest: 1,
        trunk: trunk_id,
        carrier: 0,
        purpose: Purpose::Bulk,
        congestion: isthmus_trunk::Congestion::Other,
        credit: 1,
        streams: 1,
        incarnation: None,
        addresses: isthmus_trunk::Addresses::default(),
    };
    trunk.receive(carrier, Frame::Hello(hello).encode().to_vec().into(), now);
    (trunk, carrier, now)
}

/// Gives data to each stream, cut as a peer likes it, in records of 16 KiB of which each frame is a
/// part. Nothing is read. Returns memory per byte of credit.
fn memory_per_byte(name: &str, streams: u64, credit: u32, offsets: impl Fn(u64) -> Vec<(u64, usize)>) -> f64 {
    let (mut trunk, carrier, now) = receiver(credit);
    let before = held();
    for stream in 0..streams {
        let stream = StreamId(stream * 2);
        for (offset, length) in offsets(credit.into()) {
            let payload = Bytes::from(vec![1; length]);
            let mut record = Frame::Data { stream, offset, end: false, payload }.encode().to_vec();
            // The payload may hold all of its record's buffer.
            record.reserve_exact(MAX_FRAME - record.len());
            trunk.receive(carrier, record.into(), now);
            while trunk.poll_event().is_some() {}
        }
    }
    assert_eq!(trunk.status().streams as u64, streams, "{name}");
    let ratio = (held() - before) as f64 / (streams * u64::from(credit)) as f64;
    println!("{name}: {ratio:.2} bytes per byte of credit");
    ratio
}

#[test]
fn what_a_peer_can_make_an_end_hold_is_bounded_however_it_cuts_its_data() {
    let pieces = |size: usize| {
        move |credit: u64| {
            (0..credit).step_by(size).map(|at| (at, size.min((credit - at) as usize))).collect()
        }
    };
    let reversed = move |size: usize| {
        move |credit: u64| -> Vec<(u64, usize)> {
            let mut all: Vec<(u64, usize)> = pieces(size)(credit);
            all.reverse();
            all
        }
    };
    let (credit, whole) = (16 << 10, MAX_FRAME - DATA_HEAD);
    for (name, ratio) in [
        ("whole records", memory_per_byte("whole records", 500, credit, pieces(whole))),
        ("half records", memory_per_byte("half records", 500, credit, pieces(8 << 10))),
        ("bytes", memory_per_byte("bytes", 20, credit, pieces(1))),
        ("bytes from behind", memory_per_byte("bytes from behind", 10, credit, reversed(1))),
        ("hundreds from behind", memory_per_byte("hundreds from behind", 200, credit, reversed(100))),
    ] {
        assert!(ratio < 2.3, "{name}: {ratio}");
    }
}

#[test]
fn a_hole_costs_little() {
    let (mut trunk, carrier, now) = receiver(1 << 20);
    let before = held();
    for hole in 1..=MAX_UNDER_WAY as u64 {
        let payload = Bytes::from_static(b"x");
        let data = Frame::Data { stream: StreamId(0), offset: 2 * hole, end: false, payload };
        trunk.receive(carrier, data.encode().to_vec().into(), now);
    }
    let each = (held() - before) / MAX_UNDER_WAY;
    println!("{each} bytes per hole");
    assert!(trunk.status().holes == MAX_UNDER_WAY && each < 400, "{each} bytes");
}

#[test]
fn ten_thousand_streams_whose_readers_are_slow_hold_their_initial_credit() {
    let mut pair = Pair::standing();
    let before = held();
    let streams: Vec<StreamId> = (0..STREAMS).map(|_| pair.ends[A].open().unwrap()).collect();
    let chunk = Bytes::from(vec![1; 16 << 10]);
    for stream in &streams {
        pair.write(A, *stream, chunk.clone());
        if stream.index() % 1000 == 999 {
            pair.run(20 * MS);
        }
    }
    pair.run(200 * MS);
    pair.events = Default::default();
    assert_eq!(pair.ends[B].status().unread, (STREAMS as u64) << 14);
    let mib = (held() - before) >> 20;
    println!("{mib} MiB at both ends together");
    assert!((156..200).contains(&mib), "{mib} MiB");
}
