//! Frames that come again, late, or behind an end.

use std::time::Duration;

use bytes::Bytes;
use isthmus_trunk::{CarrierState, Direction, Event, Frame, Hello, ONE_WAY, PING_IDLE, Read};

use crate::common::bytes_of;
use crate::common::played::{OWN, Played, THEIRS, data, end, hello, reset, small, stop};

#[test]
fn every_counted_frame_may_come_again_over_another_carrier() {
    let mut played = Played::standing(small());
    let stop_own = stop(OWN);
    let frames = [
        Frame::Open { stream: THEIRS },
        data(0, 10),
        data(10, 20),
        Frame::Credit { stream: THEIRS, limit: 2000 },
        Frame::Credit { stream: THEIRS, limit: 1500 },
        Frame::Streams { limit: 12 },
        end(30),
        stop_own,
    ];
    for frame in &frames {
        played.send(frame.clone());
    }
    played.carrier = played.trunk.carrier_joined(played.now).unwrap();
    played.send(Frame::Hello(Hello { carrier: 6, standing: true, ..hello() }));
    for frame in frames.iter().rev().chain(&frames) {
        played.send(frame.clone());
    }
    let read = |played: &mut Played| played.trunk.read(THEIRS, 100, played.now);
    assert_eq!(read(&mut played), Ok(Read::Data(bytes_of(THEIRS, 0, 0, 30))));
    assert_eq!(read(&mut played), Ok(Read::End));
    let events = played.events();
    assert!(!events.iter().any(|event| matches!(event, Event::Closed(_))), "{events:?}");
    for once in [Event::Opened(THEIRS), Event::Readable(THEIRS), Event::Stopped(OWN, 2)] {
        assert_eq!(events.iter().filter(|event| **event == once).count(), 1, "{once:?}");
    }
    // 2,000 by the highest credit.
    let mut bytes = Bytes::from(vec![0; 5000]);
    assert_eq!(played.trunk.write(THEIRS, &mut bytes), Ok(2000));
}

#[test]
fn frames_of_closed_streams_are_duplicates() {
    let mut played = Played::standing(small());
    played.send(Frame::Open { stream: THEIRS });
    played.send(end(0));
    assert_eq!(played.trunk.read(THEIRS, 1, played.now), Ok(Read::End));
    played.trunk.finish(THEIRS).unwrap();
    // OPEN of its own stream, and the end of theirs.
    assert_eq!(played.sent().iter().filter(|frame| frame.is_counted()).count(), 1);
    played.send(Frame::Ack { carrier: 0, frames: 2 });
    assert_eq!(played.trunk.status().streams, 1);
    played.events();
    for frame in
        [Frame::Open { stream: THEIRS }, data(0, 1), Frame::Credit { stream: THEIRS, limit: 9 }, reset(0)]
    {
        played.send(frame);
    }
    assert_eq!((played.events(), played.trunk.status().streams), (vec![], 1));
}

#[test]
fn what_was_sent_before_a_reset_is_read_before_it() {
    let mut played = Played::standing(small());
    played.send(reset(20));
    played.send(data(0, 10));
    let mut got = Vec::new();
    for expected in [Read::Data(bytes_of(THEIRS, 0, 0, 10)), Read::Blocked] {
        got.push(played.trunk.read(THEIRS, 100, played.now) == Ok(expected));
    }
    assert_eq!(got, [true, true]);
    assert!(played.events().contains(&Event::Reset(THEIRS, 1)));
    played.send(data(10, 10));
    assert_eq!(played.trunk.read(THEIRS, 100, played.now), Ok(Read::Data(bytes_of(THEIRS, 0, 10, 10))));
    assert_eq!(played.trunk.read(THEIRS, 100, played.now), Ok(Read::Reset(1)));
}

#[test]
fn what_is_sent_before_a_reset_goes_out_and_no_more() {
    let mut played = Played::standing(small());
    played.trunk.write(OWN, &mut Bytes::from_static(b"sent")).unwrap();
    played.sent();
    played.trunk.write(OWN, &mut Bytes::from_static(b"dropped")).unwrap();
    played.trunk.reset(OWN, Direction::ToPeer, 9).unwrap();
    assert_eq!(played.sent(), [Frame::Reset { stream: OWN, stop: false, code: 9, offset: 4 }]);
    assert_eq!(played.trunk.status().held, 4);
    // The carrier is cut: both frames again.
    played.trunk.carrier_ended(played.carrier);
    played.carrier = played.trunk.carrier_joined(played.now).unwrap();
    let again = played.sent();
    let offset = 0;
    let payload = Bytes::from_static(b"sent");
    assert!(again.contains(&Frame::Data { stream: OWN, offset, end: false, payload }), "{again:?}");
    assert!(again.contains(&Frame::Reset { stream: OWN, stop: false, code: 9, offset: 4 }), "{again:?}");
}

#[test]
fn a_stopped_stream_is_not_sent_again() {
    let mut played = Played::standing(small());
    played.trunk.write(OWN, &mut Bytes::from_static(b"data")).unwrap();
    played.sent();
    played.send(stop(OWN));
    played.trunk.carrier_ended(played.carrier);
    played.carrier = played.trunk.carrier_joined(played.now).unwrap();
    let again = played.sent();
    assert!(!again.iter().any(|frame| matches!(frame, Frame::Data { .. })), "{again:?}");
    assert_eq!((played.trunk.status().held, played.trunk.status().under_way), (0, 0));
}

#[test]
fn a_ping_is_answered_behind_the_count_of_what_came_before_it() {
    let mut played = Played::standing(small());
    played.send(data(0, 1));
    played.send(Frame::Ping { answer: false, nonce: 77, carriers: 0 });
    let sent = played.sent();
    assert_eq!(
        sent,
        [Frame::Ack { carrier: 5, frames: 1 }, Frame::Ping { answer: true, nonce: 77, carriers: 0 }]
    );
}

#[test]
fn a_peer_that_talks_but_never_answers_is_silent() {
    let mut played = Played::standing(small());
    let begin = played.now;
    while played.trunk.carrier(played.carrier).unwrap().state == CarrierState::Live {
        played.now += Duration::from_millis(100);
        played.send(Frame::Ping { answer: false, nonce: 1, carriers: 0 });
        played.trunk.on_deadline(played.now);
        played.sent();
        assert!(played.now < begin + ONE_WAY + PING_IDLE, "never silent");
    }
    assert!(played.now >= begin + ONE_WAY);
}

#[test]
fn a_silent_carrier_is_live_again_by_an_answer_or_an_acknowledgement_alone() {
    let ping = Frame::Ping { answer: false, nonce: 5, carriers: 0 };
    let ack = Frame::Ack { carrier: 0, frames: 1 };
    for (name, frame, state) in [
        ("a PING", ping, CarrierState::Silent),
        ("an old answer", Frame::Ping { answer: true, nonce: 99, carriers: 0 }, CarrierState::Silent),
        ("the answer", Frame::Ping { answer: true, nonce: 1, carriers: 0 }, CarrierState::Live),
        ("an ACK", ack, CarrierState::Live),
    ] {
        let mut played = Played::standing(small());
        for _ in 0..2 {
            played.now += Duration::from_secs(4);
            played.trunk.on_deadline(played.now);
        }
        assert_eq!(played.trunk.carrier(played.carrier).unwrap().state, CarrierState::Silent, "{name}");
        played.send(frame);
        assert_eq!(played.trunk.carrier(played.carrier).unwrap().state, state, "{name}");
    }
}
