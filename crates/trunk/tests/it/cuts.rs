//! One exchange, with its carrier cut after every single byte.

use std::time::Duration;

use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{Direction, Event, Read, StreamId};

use crate::common::{A, B, Pair, SIDES, bytes_of};

const MS: Duration = Duration::from_millis(1);

/// Streams in both directions, one of which is reset; all their frames are under way.
fn exchange() -> (Pair, [StreamId; 3]) {
    let mut pair = Pair::standing();
    let theirs = pair.ends[B].open().unwrap();
    let own = pair.ends[A].open().unwrap();
    let broken = pair.ends[A].open().unwrap();
    for (side, stream) in [(A, own), (B, theirs), (A, broken)] {
        for part in 0..3 {
            pair.write(side, stream, bytes_of(stream, side, part * 20, 20));
            pair.transmit(side, 0, MAX_FRAME, 9);
        }
    }
    pair.ends[A].finish(own).unwrap();
    pair.ends[B].finish(theirs).unwrap();
    pair.ends[A].reset(broken, Direction::ToPeer, 3).unwrap();
    for side in SIDES {
        pair.transmit(side, 0, MAX_FRAME, 9);
    }
    (pair, [own, theirs, broken])
}

/// Checks what arrives in the end, after one more carrier has joined.
fn check(pair: &mut Pair, [own, theirs, broken]: [StreamId; 3], case: &str) {
    pair.join();
    pair.run(Duration::from_secs(8));
    for (reader, stream, last) in [(B, own, Read::End), (A, theirs, Read::End), (B, broken, Read::Reset(3))] {
        let mut got = Vec::new();
        let end = loop {
            match pair.ends[reader].read(stream, 50, pair.now) {
                Ok(Read::Data(bytes)) => got.extend_from_slice(&bytes),
                other => break other,
            }
        };
        assert_eq!((got, end), (bytes_of(stream, 1 - reader, 0, 60).into(), Ok(last)), "{case}: {stream}");
    }
    // The other directions, so that all is over.
    for (side, stream) in [(B, own), (A, theirs), (B, broken)] {
        pair.ends[side].finish(stream).unwrap();
    }
    pair.run(100 * MS);
    for (side, stream) in [(A, own), (B, theirs), (A, broken)] {
        assert_eq!(pair.ends[side].read(stream, 1, pair.now), Ok(Read::End), "{case}: {stream}");
    }
    pair.run(100 * MS);
    for side in SIDES {
        let status = pair.ends[side].status();
        assert_eq!(
            (status.streams, status.held, status.under_way, status.holes),
            (0, 0, 0, 0),
            "{case}: {side}"
        );
        assert!(!pair.events[side].iter().any(|event| matches!(event, Event::Closed(_))), "{case}");
    }
}

#[test]
fn a_cut_after_any_byte_loses_and_doubles_nothing() {
    let (pair, _) = exchange();
    let lengths = [pair.pipes[0].halves[A].len(), pair.pipes[0].halves[B].len()];
    assert!(lengths[A] > 200 && lengths[B] > 100, "{lengths:?}");
    for noticed in [[true, true], [true, false], [false, true], [false, false]] {
        for kept in 0..=lengths[A].max(lengths[B]) {
            for kept in [[kept, 0], [0, kept], [kept, kept], [kept, usize::MAX], [usize::MAX, kept]] {
                let (mut pair, streams) = exchange();
                pair.cut(0, kept);
                for side in SIDES {
                    if noticed[side] {
                        pair.notice(side, 0);
                    }
                }
                check(&mut pair, streams, &format!("{kept:?} bytes arrive, noticed {noticed:?}"));
            }
        }
    }
}

#[test]
fn a_second_cut_while_frames_are_sent_again_loses_nothing() {
    let (pair, _) = exchange();
    let length = pair.pipes[0].halves[A].len();
    for first in (0..=length).step_by(7) {
        for second in (0..=length).step_by(5) {
            let (mut pair, streams) = exchange();
            pair.cut(0, [first, 0]);
            pair.notice(A, 0);
            let again = pair.join();
            for side in SIDES {
                pair.transmit(side, again, MAX_FRAME, 99);
            }
            pair.cut(again, [second, second]);
            pair.notice(B, again);
            check(&mut pair, streams, &format!("{first}, then {second} bytes arrive"));
        }
    }
}

#[test]
fn a_tail_that_is_lost_in_one_direction_alone_is_sent_again() {
    for side in SIDES {
        let (mut pair, streams) = exchange();
        let half = &mut pair.pipes[0].halves[side];
        half.queue.clear();
        half.swallows = true;
        check(&mut pair, streams, &format!("the tail of {side}"));
    }
}

#[test]
fn a_trunk_may_go_to_another_thread() {
    fn check<T: Send>(_: &T) {}
    check(&exchange().0.ends[A]);
}
