//! Pools of workers: their messages, and a master and a member whose peers send whatever they like.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use isthmus_workers::message::{Message, Register, TaskId};
use isthmus_workers::{Action, Link, Master, Member, Settings};

/// Most tasks of an input: what it costs to look at all of them is bounded.
const MOST_TASKS: u64 = 200;

/// Messages: what is read means the same when written and read again.
pub fn workers_message(bytes: &[u8]) {
    let mut rest = BytesMut::from(bytes);
    while let Ok(Some(message)) = Message::read(&mut rest) {
        let mut again = BytesMut::new();
        message.clone().write(&mut again);
        assert_eq!(Message::read(&mut again), Ok(Some(message)));
    }
}

/// A master and a member. Each step is a byte for what happens, a byte for the link, and a frame's length
/// and bytes. Nothing panics, and no task has two results.
pub fn workers(bytes: &[u8]) {
    let settings =
        Settings { places: vec!["alpha".into()], attempts: 2, flat_below: 0, setup: Bytes::new(), slots: 1 };
    let register = Register { places: vec!["beta".into()], slots: 2, address: "h:1".into() };
    let mut master = Master::new(settings);
    let mut member = Member::new(Link(0), register);
    let (mut now, mut submitted, mut finished) = (Duration::ZERO, 0, 0);
    let mut rest = bytes;
    while let [what, link, length, after @ ..] = rest {
        let (frame, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        now += Duration::from_millis(u64::from(*what) * 4);
        let link = Link(u64::from(link % 6));
        let mut framed = BytesMut::new();
        framed.extend_from_slice(&u32::try_from(frame.len()).unwrap_or_default().to_be_bytes());
        framed.extend_from_slice(frame);
        let message = Message::read(&mut framed).ok().flatten();
        match (what % 8, message) {
            (0, _) => {
                master.closed(now, link);
                member.closed(now, link);
            }
            (1, _) if submitted < MOST_TASKS => {
                master.submit(Bytes::copy_from_slice(frame));
                submitted += 1;
            }
            (2, _) => {
                let id = TaskId(u64::from(*length));
                master.finished(id, false, Bytes::new());
                member.finished(now, id, true, Bytes::new());
            }
            (3, _) => {
                master.tick(now);
                member.tick(now);
                master.cancel(TaskId(u64::from(*length)));
            }
            (4, Some(message)) => member.receive(now, link, message),
            (_, Some(message)) => master.receive(now, link, message),
            _ => {}
        }
        while master.next_finished().is_some() {
            finished += 1;
        }
        assert!(finished <= submitted, "a task has two results");
        for action in member.actions() {
            if let Action::Connect { member: parent, .. } = action {
                member.connected(now, parent, Some(link));
            }
        }
        drop(master.actions());
    }
}
