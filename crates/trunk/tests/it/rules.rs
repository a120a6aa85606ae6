//! A peer that breaks a rule is refused with the right reason; one that repeats itself
//! is not.

use std::time::Duration;

use bytes::Bytes;
use isthmus_trunk::frame::MAX_OFFSET;
use isthmus_trunk::{
    CarrierState, Config, Direction, Ended, Event, Frame, Hello, Incarnation, MAX_UNDER_WAY, Read, Reason,
    Role, Scope, StreamId, TrunkId,
};
use proptest::prelude::*;

use crate::common::bytes_of;
use crate::common::played::{OWN, Played, THEIRS, data, end, hello, reset, small, stop};

#[test]
fn whoever_breaks_a_rule_ends_the_trunk_with_its_reason() {
    let far = |stream| Frame::Data { stream, offset: 0, end: false, payload: Bytes::from_static(b"x") };
    for (name, frames, reason) in [
        ("a second HELLO", vec![Frame::Hello(hello())], Reason::Hello),
        ("OPEN of a stream of this end", vec![Frame::Open { stream: OWN }], Reason::Stream),
        ("data of a stream never opened", vec![far(StreamId(3))], Reason::Stream),
        (
            "credit of a stream never opened",
            vec![Frame::Credit { stream: StreamId(3), limit: 1 }],
            Reason::Stream,
        ),
        ("stop of a stream never opened", vec![stop(StreamId(3))], Reason::Stream),
        ("one stream too many", vec![Frame::Open { stream: StreamId(8) }], Reason::Streams),
        ("one stream too many, by its data", vec![far(StreamId(8))], Reason::Streams),
        ("a byte beyond the credit", vec![data(50, 51)], Reason::Credit),
        ("an end beyond the credit", vec![end(101)], Reason::Credit),
        ("a reset beyond the credit", vec![reset(101)], Reason::Credit),
        ("data behind the end", vec![end(10), data(5, 6)], Reason::End),
        ("two ends", vec![end(10), end(11)], Reason::End),
        ("an end before data that has come", vec![data(20, 10), end(29)], Reason::End),
        ("a reset before data that has come", vec![data(20, 10), reset(29)], Reason::End),
        ("two resets", vec![reset(10), reset(11)], Reason::End),
        ("a reset after the end", vec![end(10), reset(10)], Reason::End),
        ("data behind a reset", vec![reset(10), data(5, 6)], Reason::End),
        ("one frame too many acknowledged", vec![Frame::Ack { carrier: 0, frames: 2 }], Reason::Ack),
        ("a carrier that never was", vec![Frame::Ack { carrier: 1, frames: 0 }], Reason::Ack),
        ("an offset too large", vec![data(MAX_OFFSET, 1)], Reason::Overflow),
        ("a sum too large", vec![data(MAX_OFFSET - 1, 1)], Reason::Overflow),
        ("a sum that overflows", vec![data(u64::MAX, 1)], Reason::Overflow),
        ("credit too large", vec![Frame::Credit { stream: OWN, limit: MAX_OFFSET }], Reason::Overflow),
        ("too many streams allowed", vec![Frame::Streams { limit: MAX_OFFSET }], Reason::Overflow),
        ("a reset too far", vec![reset(u64::MAX)], Reason::Overflow),
    ] {
        let mut played = Played::standing(small());
        let (last, before) = frames.split_last().unwrap();
        for frame in before {
            played.send(frame.clone());
        }
        assert!(!played.events().iter().any(|event| matches!(event, Event::Closed(_))), "{name}: too early");
        played.send(last.clone());
        let closed = played.events().into_iter().find_map(|event| match event {
            Event::Closed(Ended::Broke(error)) => Some(error.reason()),
            _ => None,
        });
        assert_eq!(closed, Some(reason), "{name}");
        let told = played.sent();
        let is_told = |frame: &Frame| matches!(frame, Frame::Close { scope: Scope::Trunk, reason: told, .. } if *told == reason);
        assert!(told.len() == 1 && is_told(&told[0]), "{name}: {told:?}");
        // It is over: nothing is taken in any more.
        played.send(Frame::Open { stream: THEIRS });
        assert_eq!((played.events(), played.sent()), (vec![], vec![]), "{name}");
    }
}

#[test]
fn bytes_that_are_no_frame_end_the_trunk() {
    for bytes in [&[0, 0, 0, 0][..], &[3, 0, 0xff, 0xff], &[2, 0x80, 0, 8], &[7, 0, 0, 7]] {
        let mut played = Played::standing(small());
        for byte in bytes {
            played.trunk.receive(played.carrier, Bytes::copy_from_slice(&[*byte]), played.now);
        }
        let told = played.sent();
        let malformed = |frame: &Frame| matches!(frame, Frame::Close { reason: Reason::Malformed, .. });
        assert!(told.len() == 1 && malformed(&told[0]), "{bytes:?}: {told:?}");
    }
}

#[test]
fn a_carrier_that_does_not_begin_right_ends_alone() {
    let frames = [
        ("no HELLO", Frame::Open { stream: THEIRS }, Reason::Hello),
        ("no common version", Frame::Hello(Hello { lowest: 2, ..hello() }), Reason::Version),
        ("another trunk", Frame::Hello(Hello { trunk: TrunkId([8; 16]), ..hello() }), Reason::Trunk),
        ("the same role", Frame::Hello(Hello { role: Role::Acceptor, ..hello() }), Reason::Hello),
        ("another credit", Frame::Hello(Hello { credit: 999, ..hello() }), Reason::Parameters),
        (
            "another start",
            Frame::Hello(Hello { incarnation: Some(Incarnation([1; 16])), ..hello() }),
            Reason::Parameters,
        ),
        ("other versions", Frame::Hello(Hello { highest: 1, ..hello() }), Reason::Parameters),
    ];
    for (name, frame, reason) in frames {
        let mut played = Played::standing(small());
        let first = played.carrier;
        played.carrier = played.trunk.carrier_joined(played.now).unwrap();
        played.sent();
        played.events();
        played.send(frame);
        let done = played.events();
        let right = |event: &Event| {
            matches!(event, Event::CarrierDone(id, Ended::Broke(error))
                if *id == played.carrier && error.reason() == reason)
        };
        assert!(done.len() == 1 && right(&done[0]), "{name}: {done:?}");
        let told = played.sent();
        let is_told = |frame: &Frame| matches!(frame, Frame::Close { scope: Scope::Carrier, reason: told, .. } if *told == reason);
        assert!(told.len() == 1 && is_told(&told[0]), "{name}: {told:?}");
        assert_eq!(played.trunk.carrier(first).unwrap().state, CarrierState::Live, "{name}");
    }
}

#[test]
fn a_refusal_may_stand_in_place_of_hello() {
    for (scope, closed) in [(Scope::Carrier, false), (Scope::Trunk, true)] {
        let mut played = Played::fresh(small());
        played.send(Frame::Close { scope, reason: Reason::Trunk, text: "lost".into() });
        let why = Ended::ByPeer { reason: Reason::Trunk, text: "lost".into() };
        let events = played.events();
        assert_eq!(events.contains(&Event::Closed(why.clone())), closed);
        assert!(events.contains(&Event::CarrierDone(played.carrier, why)));
    }
}

#[test]
fn more_holes_than_frames_can_be_under_way_are_refused() {
    let mut played = Played::standing(Config { initial_credit: 1 << 20, ..small() });
    for hole in 1..=MAX_UNDER_WAY as u64 {
        played.send(data(2 * hole, 1));
    }
    assert_eq!(played.trunk.status().holes, MAX_UNDER_WAY);
    played.send(data(2 * MAX_UNDER_WAY as u64 + 2, 1));
    let told = played.sent();
    assert!(matches!(told.last(), Some(Frame::Close { reason: Reason::Holes, .. })), "{told:?}");
}

#[test]
fn a_peer_that_acknowledges_nothing_is_not_remembered_without_bound() {
    const MOST: usize = 2 * MAX_UNDER_WAY;
    let mut played = Played::standing(Config { max_window: 100, ..small() });
    let mut counted = 0;
    for offset in 0..4 * MOST as u64 {
        played.send(data(50 * offset, 50));
        while let Ok(Read::Data(_)) = played.trunk.read(THEIRS, 1000, played.now) {}
        let frames = played.sent();
        counted += frames.iter().filter(|frame| frame.is_counted()).count();
        if frames.is_empty() && counted >= MOST {
            break;
        }
    }
    // OPEN was one of them.
    let sent = counted as u64 + 1;
    assert_eq!(sent, MOST as u64);
    // It goes on as soon as the peer does.
    played.send(Frame::Ack { carrier: played.carrier.0, frames: sent });
    assert!(played.sent().iter().any(|frame| matches!(frame, Frame::Credit { .. })));
}

/// A frame whose fields are near what is allowed.
fn any_frame() -> impl Strategy<Value = Frame> {
    let number = || prop_oneof![8 => 0..8_u64, 4 => 0..110_u64, 1 => any::<u64>()];
    let stream = || prop_oneof![(0..7_u64), number()].prop_map(StreamId);
    prop_oneof![
        1 => stream().prop_map(|stream| Frame::Open { stream }),
        8 => (stream(), number(), any::<bool>(), 1..40_usize).prop_map(|(stream, offset, end, length)| {
            Frame::Data { stream, offset, end: end && length > 35, payload: bytes_of(stream, 0, offset, length) }
        }),
        2 => (stream(), number()).prop_map(|(stream, limit)| Frame::Credit { stream, limit }),
        1 => number().prop_map(|limit| Frame::Streams { limit }),
        1 => (stream(), any::<bool>(), number())
            .prop_map(|(stream, stop, offset)| Frame::Reset { stream, stop, code: 1, offset }),
        2 => number().prop_map(|frames| Frame::Ack { carrier: 0, frames }),
        2 => (any::<bool>(), number(), any::<u8>())
            .prop_map(|(answer, nonce, carriers)| Frame::Ping { answer, nonce, carriers }),
    ]
}

proptest! {
    #[test]
    fn whatever_a_peer_sends_nothing_panics_and_bounds_hold(
        steps in prop::collection::vec((any_frame(), 0..30_u8, 0..7_u64), 1..200),
    ) {
        let mut played = Played::standing(small());
        for (frame, command, pick) in steps {
            let stream = StreamId(pick);
            played.send(frame);
            match command {
                0..10 => drop(played.trunk.read(stream, 50, played.now)),
                10..13 => drop(played.trunk.write(stream, &mut Bytes::from_static(&[1; 70]))),
                13 => drop(played.trunk.finish(stream)),
                14 => drop(played.trunk.reset(stream, Direction::FromPeer, 1)),
                15 => drop(played.trunk.reset(stream, Direction::ToPeer, 1)),
                16..20 => drop(played.sent()),
                _ => played.now += Duration::from_millis(pick * 300),
            }
            played.trunk.on_deadline(played.now);
            let (status, config) = (played.trunk.status(), small());
            let streams = status.streams as u64;
            prop_assert!(status.unread <= streams * u64::from(config.initial_credit) + config.receive_pool);
            prop_assert!(streams <= u64::from(config.max_streams) + 1 && status.holes <= MAX_UNDER_WAY);
        }
    }
}
