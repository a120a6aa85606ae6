//! A link so slow that a carrier's buffer takes seconds to drain.

use std::time::Duration;

use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{Event, StreamId};

use crate::common::{A, B, Pair, SIDES, bytes_of};

const MS: Duration = Duration::from_millis(1);
/// How many bytes of a carrier the kernel holds.
const BUFFER: usize = 64 << 10;

/// Writes as far as the kernel's buffer has room, and delivers `rate` bytes per 100 ms.
fn tick(pair: &mut Pair, rate: usize) -> usize {
    pair.now += 100 * MS;
    let mut delivered = 0;
    for side in SIDES {
        pair.ends[side].on_deadline(pair.now);
        while pair.pipes[0].halves[side].len() + MAX_FRAME <= BUFFER
            && pair.transmit(side, 0, MAX_FRAME, 1) > 0
        {}
        delivered += pair.deliver(side, 0, rate);
    }
    pair.collect();
    delivered
}

/// Sends bytes over a link of 8 kB/s. Returns how many bytes went over it, and how often the
/// carrier seemed silent.
fn over_slow_link(total: u64, both: bool) -> (usize, usize) {
    let mut pair = Pair::standing();
    let stream = pair.ends[A].open().unwrap();
    pair.run(100 * MS);
    let (mut written, mut read, mut delivered) = ([0; 2], [0; 2], 0);
    for _ in 0..10_000 {
        for side in SIDES {
            if side == A || both {
                let length = (total - written[side]).min(MAX_FRAME as u64) as usize;
                let mut data = bytes_of(stream, side, written[side], length);
                written[side] += pair.ends[side].write(stream, &mut data).unwrap() as u64;
            }
        }
        delivered += tick(&mut pair, 800);
        for side in SIDES {
            let got = pair.read(side, stream);
            assert_eq!(got, bytes_of(stream, 1 - side, read[side], got.len()));
            read[side] += got.len() as u64;
        }
        if read[B] == total && (!both || read[A] == total) {
            break;
        }
    }
    assert_eq!((read[B], read[A]), (total, if both { total } else { 0 }));
    let silent =
        |side: usize| pair.events[side].iter().filter(|event| matches!(event, Event::CarrierSilent(_)));
    (delivered, silent(A).count() + silent(B).count())
}

#[test]
fn false_alarms_on_a_slow_link_send_nothing_twice() {
    for both in [false, true] {
        let total = 400_000;
        let (delivered, silent) = over_slow_link(total, both);
        let useful = total as usize * if both { 2 } else { 1 };
        println!("{delivered} bytes for {useful}, silent {silent} times");
        assert!(delivered < useful * 11 / 10, "{delivered} bytes for {useful}");
    }
}

#[test]
fn streams_share_a_slow_link() {
    let mut pair = Pair::standing();
    let streams: Vec<StreamId> = (0..4).map(|_| pair.ends[A].open().unwrap()).collect();
    pair.run(100 * MS);
    let mut read = [0; 4];
    for _ in 0..1200 {
        for stream in &streams {
            pair.ends[A].write(*stream, &mut vec![1; MAX_FRAME].into()).unwrap();
        }
        tick(&mut pair, 800);
        for (stream, read) in streams.iter().zip(&mut read) {
            *read += pair.read(B, *stream).len();
        }
    }
    let (most, least) = (read.iter().max().unwrap(), read.iter().min().unwrap());
    assert!(read.iter().sum::<usize>() > 800_000 && most - least < 40_000, "{read:?}");
}
