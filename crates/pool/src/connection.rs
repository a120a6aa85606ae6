//! One connection with another member: bytes in and out, without waiting.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use isthmus_workers::MemberId;
use isthmus_workers::message::{Message, Piece, TaskId};
use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

use crate::greeting::{Greeting, GreetingError};

/// Bytes of a piece of large arguments or results.
const PIECE: usize = 128 << 10;
/// Bytes that are read from one connection before others have their turn.
const TURN: usize = 1 << 20;
/// Bytes that are read while both ends greet each other: strangers get no more room.
const GREETING_ROOM: usize = 256;
/// A machine that vanishes is noticed after a minute, where sockets reach it. There is no bound on how long
/// data may wait for an answer: the other end may not read for a while, and a cut may be outlived.
const KEEPALIVE: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(15)];
const UNANSWERED: u32 = 3;
/// Both ends greet each other within this time.
const GREET_WITHIN: Duration = Duration::from_secs(30);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Somebody else made it.
    Accepted,
    /// It was made to the master.
    Master,
    /// It was made to the member that is to be the parent.
    Parent(MemberId),
}

/// Large arguments or a large result, as far as they aren't sent.
#[derive(Debug)]
struct Large {
    id: TaskId,
    bytes: Bytes,
    failed: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub stream: TcpStream,
    pub purpose: Purpose,
    /// `None` once both ends know each other.
    greeting: Option<(Greeting, Instant)>,
    input: BytesMut,
    output: BytesMut,
    large: VecDeque<Large>,
    /// There may be more to read. Cleared when there isn't.
    pub readable: bool,
    writable: bool,
    /// It ends once what is to be sent has left.
    pub closing: bool,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the other end has closed it")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    #[error(transparent)]
    Malformed(#[from] isthmus_workers::message::Malformed),
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        purpose: Purpose,
        (greeting, first): (Greeting, Vec<u8>),
        now: Instant,
    ) -> Self {
        let socket = SockRef::from(&stream);
        let [idle, interval] = KEEPALIVE;
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(UNANSWERED);
        // Without them it works as well, and a machine that vanishes is noticed later.
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_tcp_keepalive(&keepalive);
        Self {
            stream,
            purpose,
            greeting: Some((greeting, now + GREET_WITHIN)),
            input: BytesMut::new(),
            output: BytesMut::from(&first[..]),
            large: VecDeque::new(),
            readable: true,
            writable: true,
            closing: false,
        }
    }

    /// Whether both ends know each other.
    pub(crate) fn is_open(&self) -> bool {
        self.greeting.is_none()
    }

    /// Whether its messages wait while too many others do.
    pub(crate) fn waits(&self) -> bool {
        self.is_open() && self.purpose == Purpose::Accepted
    }

    /// When it ends unless the greeting is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.greeting.as_ref().map(|(_, deadline)| *deadline)
    }

    pub(crate) fn may_write(&mut self) {
        self.writable = true;
    }

    pub(crate) fn send(&mut self, message: Message) {
        message.write(&mut self.output);
    }

    pub(crate) fn send_large(&mut self, id: TaskId, bytes: Bytes, failed: bool) {
        self.large.push_back(Large { id, bytes, failed });
    }

    /// Whether all has been sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.output.is_empty() && self.large.is_empty()
    }

    /// Bytes of messages that wait to be sent, without large arguments and results.
    pub(crate) fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Writes as much as the connection takes.
    pub(crate) fn flush(&mut self) -> Result<(), Ended> {
        while self.writable {
            if self.output.is_empty() {
                self.next_piece();
            }
            if self.output.is_empty() {
                break;
            }
            match self.stream.write(&self.output) {
                Ok(0) => return Err(Ended::Closed),
                Ok(count) => self.output.advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn next_piece(&mut self) {
        if self.greeting.is_some() {
            return;
        }
        let Some(large) = self.large.front_mut() else { return };
        let bytes = large.bytes.split_to(large.bytes.len().min(PIECE));
        let last = large.bytes.is_empty();
        let piece = Piece { id: large.id.0, bytes, last, failed: large.failed };
        if last {
            self.large.pop_front();
        }
        self.send(Message::Piece(piece));
    }

    /// Reads what there is, up to a bound. Returns the messages, and whether the greeting has just ended. What
    /// came before the end is returned before the end is.
    pub(crate) fn read(&mut self) -> Result<(Vec<Message>, bool), Ended> {
        let end = self.fill().err();
        let has_greeted = self.greet()?;
        let mut messages = Vec::new();
        if self.is_open() {
            while let Some(message) = Message::read(&mut self.input)? {
                messages.push(message);
            }
        }
        match end {
            Some(end) if messages.is_empty() && !has_greeted => Err(end),
            _ => Ok((messages, has_greeted)),
        }
    }

    /// Reads bytes. After the end it fails, each time.
    fn fill(&mut self) -> Result<(), Ended> {
        let (mut budget, room) =
            if self.is_open() { (TURN, 64 << 10) } else { (GREETING_ROOM, GREETING_ROOM) };
        while self.readable && budget > 0 {
            self.input.reserve(room);
            let old = self.input.len();
            let room = self.input.spare_capacity_mut().len().min(budget);
            self.input.resize(old + room, 0);
            let found = self.stream.read(&mut self.input[old..]);
            self.input.truncate(old + found.as_ref().copied().unwrap_or(0));
            match found {
                Ok(0) => return Err(Ended::Closed),
                Ok(count) => budget -= count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Goes on with the greeting. Tells whether it has just ended.
    fn greet(&mut self) -> Result<bool, Ended> {
        let Some((greeting, _)) = &mut self.greeting else { return Ok(false) };
        loop {
            let before = self.input.len();
            let (send, is_over) = greeting.take(&mut self.input)?;
            self.output.extend_from_slice(&send);
            if is_over {
                self.greeting = None;
                return Ok(true);
            }
            if self.input.len() == before {
                return Ok(false);
            }
        }
    }

    /// Sends what is left, and takes what comes without looking at it. Tells whether to go on with that.
    pub(crate) fn leave(&mut self) -> bool {
        if self.flush().is_err() {
            return false;
        }
        if self.is_idle() {
            // It fails where the other end has closed already.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        let mut ignored = [0; 4096];
        loop {
            match self.stream.read(&mut ignored) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}
