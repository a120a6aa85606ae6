//! What the members of a pool say to each other, and its layout: protobuf, in frames of a length and
//! a message.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message as _;

/// Longest frame of a link, in bytes. Larger arguments and results go from end to end, in pieces.
pub const MAX_FRAME: usize = 1 << 20;
/// Longest arguments or result that travel with their task, through bosses, in bytes.
pub const MAX_INLINE: usize = 64 << 10;
/// Most tasks or results of a message.
const MOST_OF_A_MESSAGE: usize = 4096;
/// Bytes of a frame's length, big-endian.
const LENGTH: usize = 4;
/// Most tasks per second of a member and all below it.
pub(crate) const MOST_RATE: f64 = 1e12;
/// Most levels of places, and bytes of a place's name.
pub const MOST_PLACES: [usize; 2] = [16, 255];

/// Number of a task: unique in its pool, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// Number of a member: unique in its pool, never used again. The master is [`MASTER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// The process that has all tasks at first.
pub const MASTER: MemberId = MemberId(0);

/// A task on its way to a worker.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Task {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its arguments. Empty if they are longer than [`MAX_INLINE`]: the worker asks the master for them.
    #[prost(bytes = "bytes", tag = "2")]
    pub arguments: Bytes,
    /// Bytes of the arguments.
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// A process has ended that may have run this task. Who runs it next says so before it begins.
    #[prost(bool, tag = "4")]
    pub suspect: bool,
}

/// What came of a task.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Outcome {
    /// The task's number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What the task returned, or its error. Empty if it is longer than [`MAX_INLINE`]: the master
    /// has it already.
    #[prost(bytes = "bytes", tag = "2")]
    pub result: Bytes,
    /// The result is an error.
    #[prost(bool, tag = "3")]
    pub failed: bool,
    /// The master has the result already.
    #[prost(bool, tag = "4")]
    pub delivered: bool,
}

/// member → master, its first message: it wants to take part.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Register {
    /// Where it runs, from the outermost level to its node.
    #[prost(string, repeated, tag = "1")]
    pub places: Vec<String>,
    /// How many tasks it runs at once.
    #[prost(uint32, tag = "2")]
    pub slots: u32,
    /// Where other members reach it: `host:port`.
    #[prost(string, tag = "3")]
    pub address: String,
}

/// master → member: it takes part.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Welcome {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub member: u32,
    /// What each worker runs once before its first task.
    #[prost(bytes = "bytes", tag = "2")]
    pub setup: Bytes,
}

/// master → member: from whom it gets tasks from now on.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Parent {
    /// The parent's number.
    #[prost(uint32, tag = "1")]
    pub member: u32,
    /// Empty if it is the master.
    #[prost(string, tag = "2")]
    pub address: String,
    /// The former parent, if it is gone, or 0.
    #[prost(uint32, tag = "3")]
    pub gone: u32,
}

/// child → parent, its first message on a link that isn't the one to the master.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Attach {
    /// The child's number.
    #[prost(uint32, tag = "1")]
    pub member: u32,
    /// How many tasks it runs at once.
    #[prost(uint32, tag = "2")]
    pub slots: u32,
}

/// child → parent: how many tasks it takes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Want {
    /// All tasks that it has taken from this parent and takes now, together.
    #[prost(uint64, tag = "1")]
    pub total: u64,
    /// Tasks per second that it and all below it get done.
    #[prost(double, tag = "2")]
    pub rate: f64,
    /// Tasks that it and all below it run at once.
    #[prost(uint64, tag = "3")]
    pub slots: u64,
}

/// Tasks in one message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Tasks {
    /// The tasks, in the order in which they are to run.
    #[prost(message, repeated, tag = "1")]
    pub tasks: Vec<Task>,
}

/// Results in one message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Outcomes {
    /// The results.
    #[prost(message, repeated, tag = "1")]
    pub outcomes: Vec<Outcome>,
}

/// child → parent, up to the master: a member's link has ended, and with it these tasks are lost,
/// unless the member or one below it comes back with them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Lost {
    /// The member's number.
    #[prost(uint32, tag = "1")]
    pub member: u32,
    /// The tasks.
    #[prost(uint64, repeated, tag = "2")]
    pub tasks: Vec<u64>,
}

/// child → parent, up to the master: a member whose former parent is gone still has these tasks.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Held {
    /// The member's number.
    #[prost(uint32, tag = "1")]
    pub member: u32,
    /// The tasks that it, or a member below it, has.
    #[prost(uint64, repeated, tag = "2")]
    pub tasks: Vec<u64>,
    /// More of the same member's tasks follow.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// One number.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Number {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// Some numbers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Numbers {
    /// The numbers.
    #[prost(uint64, repeated, tag = "1")]
    pub numbers: Vec<u64>,
}

/// A part of large arguments or of a large result.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Piece {
    /// The task's number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What comes next.
    #[prost(bytes = "bytes", tag = "2")]
    pub bytes: Bytes,
    /// The last piece.
    #[prost(bool, tag = "3")]
    pub last: bool,
    /// Of results: the task failed.
    #[prost(bool, tag = "4")]
    pub failed: bool,
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Nothing {}

/// A message.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Message {
    /// member → master: it wants to take part.
    #[prost(message, tag = "1")]
    Register(Register),
    /// master → member: it takes part.
    #[prost(message, tag = "2")]
    Welcome(Welcome),
    /// master → member: from whom it gets tasks.
    #[prost(message, tag = "3")]
    Parent(Parent),
    /// child → parent: whose child it is.
    #[prost(message, tag = "4")]
    Attach(Attach),
    /// child → parent: how many tasks it takes.
    #[prost(message, tag = "5")]
    Want(Want),
    /// parent → child.
    #[prost(message, tag = "6")]
    Tasks(Tasks),
    /// child → parent.
    #[prost(message, tag = "7")]
    Outcomes(Outcomes),
    /// child → parent: tasks were lost with a member.
    #[prost(message, tag = "8")]
    Lost(Lost),
    /// child → parent: tasks of a lost member that are still there.
    #[prost(message, tag = "9")]
    Held(Held),
    /// child → parent: it takes no further tasks from this parent.
    #[prost(message, tag = "10")]
    Leave(Nothing),
    /// member → master: the link to its parent, the member of this number, has ended or can't be made.
    #[prost(message, tag = "11")]
    ParentLost(Number),
    /// member → master: it is about to run a suspect task.
    #[prost(message, tag = "12")]
    Running(Number),
    /// master → member: the pool has ended.
    #[prost(message, tag = "13")]
    End(Nothing),
    /// child → parent, which answers with `Pong` and the same number.
    #[prost(message, tag = "14")]
    Ping(Number),
    /// parent → child: what it asked with.
    #[prost(message, tag = "15")]
    Pong(Number),
    /// member → master: it needs a task's arguments, which follow in pieces.
    #[prost(message, tag = "16")]
    Fetch(Number),
    /// Between master and member: the next part of what is too large for bosses.
    #[prost(message, tag = "17")]
    Piece(Piece),
    /// master → member: it has a task's result.
    #[prost(message, tag = "18")]
    Delivered(Number),
    /// parent → child: no further tasks follow, as it asked for.
    #[prost(message, tag = "19")]
    Left(Nothing),
    /// child → parent, up to the master: tasks that nobody has begun, and that are of no use there.
    #[prost(message, tag = "20")]
    Back(Numbers),
}

/// A message in its frame.
#[derive(Clone, PartialEq, prost::Message)]
struct Frame {
    #[prost(
        oneof = "Message",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20"
    )]
    message: Option<Message>,
}

/// Why bytes aren't a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The frame is longer than [`MAX_FRAME`]: its length.
    #[error("a frame has {0} bytes; at most {MAX_FRAME} are allowed")]
    TooLong(usize),
    /// The frame isn't a message: why.
    #[error("a frame is no message: {0}")]
    NoMessage(String),
    /// The message is of a kind that isn't known here.
    #[error("a message of an unknown kind: the other end has another release of isthmus")]
    UnknownKind,
    /// Something in the message is out of bounds: what.
    #[error("{0} are out of bounds")]
    OutOfBounds(&'static str),
}

impl Message {
    /// Appends the message with its frame.
    pub fn write(self, into: &mut BytesMut) {
        let frame = Frame { message: Some(self) };
        let length = frame.encoded_len();
        into.reserve(LENGTH + length);
        into.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        // Fails only without room, and there is room.
        let _ = frame.encode(into);
    }

    /// Takes the first message off bytes that have come in. `None` if it isn't complete yet.
    ///
    /// # Errors
    /// The bytes are no message, or one that is out of bounds. The link is of no use then.
    pub fn read(from: &mut BytesMut) -> Result<Option<Self>, Malformed> {
        let Some(length) = from.first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(Malformed::TooLong(length));
        }
        if from.len() < LENGTH + length {
            return Ok(None);
        }
        from.advance(LENGTH);
        // A copy: what is kept of a message mustn't keep all that has come with it.
        let bytes = Bytes::copy_from_slice(&from[..length]);
        from.advance(length);
        let frame = Frame::decode(bytes).map_err(|error| Malformed::NoMessage(error.to_string()))?;
        let message = frame.message.ok_or(Malformed::UnknownKind)?;
        message.check()?;
        Ok(Some(message))
    }

    fn check(&self) -> Result<(), Malformed> {
        let within = |what, holds: bool| if holds { Ok(()) } else { Err(Malformed::OutOfBounds(what)) };
        match self {
            Self::Register(register) => {
                let [levels, name] = MOST_PLACES;
                let places = &register.places;
                within("places", places.len() <= levels && places.iter().all(|place| place.len() <= name))?;
                within("slots", (1..=MOST_SLOTS).contains(&register.slots))
            }
            Self::Attach(attach) => within("slots", (1..=MOST_SLOTS).contains(&attach.slots)),
            Self::Want(want) => within("rates", (0.0..=MOST_RATE).contains(&want.rate)),
            Self::Tasks(tasks) => within("tasks", tasks.tasks.len() <= MOST_OF_A_MESSAGE),
            Self::Outcomes(outcomes) => within("results", outcomes.outcomes.len() <= MOST_OF_A_MESSAGE),
            _ => Ok(()),
        }
    }
}

/// Numbers of tasks in messages of so many each.
pub(crate) fn in_lists(tasks: &[TaskId]) -> impl Iterator<Item = Vec<u64>> {
    tasks.chunks(MOST_OF_A_MESSAGE).map(|part| part.iter().map(|task| task.0).collect())
}

/// Most tasks that a member runs at once.
pub const MOST_SLOTS: u32 = 4096;

/// Tasks in messages none of which is longer than a frame.
fn in_messages<T>(
    items: Vec<T>,
    bytes: impl Fn(&T) -> usize,
    message: impl Fn(Vec<T>) -> Message,
) -> impl Iterator<Item = Message> {
    /// Bytes that an item takes besides what it carries, at most.
    const BESIDES: usize = 64;
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for item in items {
        let size = bytes(&item) + BESIDES;
        match parts.last_mut() {
            Some(part) if size <= room && part.len() < MOST_OF_A_MESSAGE => {
                room -= size;
                part.push(item);
            }
            _ => {
                room = (MAX_FRAME / 2).saturating_sub(size);
                parts.push(vec![item]);
            }
        }
    }
    parts.into_iter().map(message)
}

/// Messages with these tasks.
pub(crate) fn of_tasks(tasks: Vec<Task>) -> impl Iterator<Item = Message> {
    in_messages(tasks, |task| task.arguments.len(), |tasks| Message::Tasks(Tasks { tasks }))
}

/// Messages with these results.
pub(crate) fn of_outcomes(outcomes: Vec<Outcome>) -> impl Iterator<Item = Message> {
    in_messages(outcomes, |outcome| outcome.result.len(), |outcomes| Message::Outcomes(Outcomes { outcomes }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task(id: u64, bytes: usize) -> Task {
        Task { id, arguments: vec![7; bytes].into(), size: bytes as u64, suspect: id % 2 == 1 }
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let messages = [
            Message::Tasks(Tasks { tasks: vec![task(1, 0), task(2, 300)] }),
            Message::Want(Want { total: 7, rate: 2.5, slots: 3 }),
            Message::End(Nothing {}),
        ];
        let mut bytes = BytesMut::new();
        for message in &messages {
            message.clone().write(&mut bytes);
        }
        let all = bytes.clone();
        for message in messages {
            assert_eq!(Message::read(&mut bytes), Ok(Some(message)));
        }
        assert_eq!(Message::read(&mut bytes), Ok(None));
        for end in 0..all.len() {
            let mut part = BytesMut::from(&all[..end]);
            while let Ok(Some(_)) = Message::read(&mut part) {}
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let register = |slots, places: &[&str]| {
            let places = places.iter().map(|place| (*place).to_owned()).collect();
            Message::Register(Register { places, slots, address: "h:1".into() })
        };
        for (message, fine) in [
            (register(1, &["a", "b"]), true),
            (register(0, &["a"]), false),
            (register(MOST_SLOTS + 1, &["a"]), false),
            (register(1, &["x"; 17]), false),
            (register(1, &["x".repeat(256).as_str()]), false),
            (Message::Want(Want { total: 1, rate: f64::NAN, slots: 1 }), false),
            (Message::Want(Want { total: 1, rate: -1.0, slots: 1 }), false),
        ] {
            let mut bytes = BytesMut::new();
            message.clone().write(&mut bytes);
            assert_eq!(Message::read(&mut bytes).is_ok(), fine, "{message:?}");
        }
        let mut long = BytesMut::from(&[0, 0x10, 0, 1][..]);
        assert_eq!(Message::read(&mut long), Err(Malformed::TooLong(MAX_FRAME + 1)));
        let mut unknown = BytesMut::from(&[0, 0, 0, 0][..]);
        assert_eq!(Message::read(&mut unknown), Err(Malformed::UnknownKind));
    }

    #[test]
    fn many_tasks_take_several_messages() {
        let tasks: Vec<_> = (0..100).map(|id| task(id, MAX_INLINE)).collect();
        let messages: Vec<_> = of_tasks(tasks).collect();
        let mut ids = Vec::new();
        for message in messages {
            let mut bytes = BytesMut::new();
            message.write(&mut bytes);
            assert!(bytes.len() <= MAX_FRAME);
            let Ok(Some(Message::Tasks(tasks))) = Message::read(&mut bytes) else { panic!("no tasks") };
            ids.extend(tasks.tasks.iter().map(|task| task.id));
        }
        assert_eq!(ids, (0..100).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = BytesMut::new();
            framed.put_u32(u32::try_from(bytes.len()).unwrap());
            framed.put_slice(&bytes);
            for mut bytes in [framed, BytesMut::from(&bytes[..])] {
                while let Ok(Some(_)) = Message::read(&mut bytes) {}
            }
        }
    }
}
