//! Asking a running emulator: one request and one reply per connection, each
//! one JSON message over a Unix seqpacket socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, connect, listen, recv,
    send, setsockopt, socket,
};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};

use super::statistics::Report;
use crate::grid::Link;

/// What an emulator can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Asks how much the links carried, and how late.
    Report,
    /// Has a link treat packets by `shapes` from now on.
    Set {
        /// Name of the link.
        link: String,
        /// What both directions of the link do, including what stays as it was.
        shapes: Link,
    },
}

/// What an emulator answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The answer to [`Request::Report`].
    Report(Box<Report>),
    /// The request was carried out.
    Done,
    /// The emulator has no link of the requested name.
    UnknownLink {
        /// Names of the emulator's links.
        known: Vec<String>,
    },
    /// The emulator can't read the request. The text says why.
    NotUnderstood(String),
}

/// Longest answer in bytes, enough for a report of several hundred links.
const LONGEST_MESSAGE: usize = 192 * 1024;

const LONGEST_REQUEST: usize = 16 * 1024;

/// An emulator that doesn't answer within this time hangs or is stopped.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why an emulator didn't do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The emulator isn't there or doesn't answer.
    #[error("the emulator at {path} doesn't answer: {cause}", path = .path.display())]
    Socket {
        /// Path of the emulator's socket.
        path: PathBuf,
        /// The kernel's error at using the socket.
        cause: nix::Error,
    },
    /// The emulator's answer isn't JSON of this protocol.
    #[error("the emulator's answer can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The emulator didn't understand the request, or gave the answer to another one.
    #[error("the emulator refuses: {0}")]
    Refused(String),
    /// The emulator has no link of the requested name.
    #[error("no link {link:?} is emulated; these are: {known}", known = .known.join(", "))]
    UnknownLink {
        /// The requested name, which no emulated link has.
        link: String,
        /// Names of the emulator's links.
        known: Vec<String>,
    },
}

/// Asks the emulator whose socket is at `path` for its report.
pub fn report(path: &Path) -> Result<Report, ControlError> {
    match exchange(path, &Request::Report)? {
        Reply::Report(report) => Ok(*report),
        other => Err(refused(&other)),
    }
}

/// Has the emulator whose socket is at `path` change both directions of a link, without losing what
/// is under way. Packets that have passed the queue arrive when they would have. No packet
/// overtakes another. A queue that became shorter keeps what it holds.
pub fn set(path: &Path, link: &str, shapes: &Link) -> Result<(), ControlError> {
    let request = Request::Set { link: link.to_owned(), shapes: *shapes };
    match exchange(path, &request)? {
        Reply::Done => Ok(()),
        Reply::UnknownLink { known } => Err(ControlError::UnknownLink { link: link.to_owned(), known }),
        other => Err(refused(&other)),
    }
}

fn refused(reply: &Reply) -> ControlError {
    match reply {
        Reply::NotUnderstood(message) => ControlError::Refused(message.clone()),
        other => ControlError::Refused(format!("unexpected answer: {other:?}")),
    }
}

fn exchange(path: &Path, request: &Request) -> Result<Reply, ControlError> {
    let reply = exchange_bytes(path, &serde_json::to_vec(request)?)
        .map_err(|cause| ControlError::Socket { path: path.to_owned(), cause })?;
    Ok(serde_json::from_slice(&reply)?)
}

fn exchange_bytes(path: &Path, request: &[u8]) -> nix::Result<Vec<u8>> {
    let socket = seqpacket(SockFlag::SOCK_CLOEXEC)?;
    let timeout = TimeVal::new(PATIENCE.as_secs() as i64, 0);
    setsockopt(&socket, ReceiveTimeout, &timeout)?;
    setsockopt(&socket, SendTimeout, &timeout)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    send(socket.as_raw_fd(), request, MsgFlags::MSG_NOSIGNAL)?;
    let mut reply = vec![0; LONGEST_MESSAGE];
    let length = recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty())?;
    reply.truncate(length);
    Ok(reply)
}

fn seqpacket(flags: SockFlag) -> nix::Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

/// The socket at which an emulator takes requests.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
}

impl Listener {
    /// Listens at `path`, which must not exist.
    pub fn bind(path: &Path) -> nix::Result<Self> {
        let socket = seqpacket(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
        bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        listen(&socket, Backlog::new(16)?)?;
        Ok(Self { socket })
    }

    /// Accepts the next connection. `None` if no client waits.
    pub fn accept(&self) -> Option<Conversation> {
        use std::os::fd::FromRawFd;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let raw = accept4(self.socket.as_raw_fd(), flags).ok()?;
        // SAFETY: accept4 just made this descriptor, and this is its only owner.
        Some(Conversation { socket: unsafe { OwnedFd::from_raw_fd(raw) } })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A connection of a client to the emulator.
#[derive(Debug)]
pub struct Conversation {
    socket: OwnedFd,
}

impl Conversation {
    /// Answers the client's request if it has come. Returns true when the conversation is over.
    pub fn answer(&self, handle: impl FnOnce(Request) -> Reply) -> bool {
        let mut request = [0; LONGEST_REQUEST];
        let length = match recv(self.socket.as_raw_fd(), &mut request, MsgFlags::empty()) {
            Ok(0) => return true,
            Ok(length) => length,
            Err(nix::Error::EAGAIN) => return false,
            Err(_) => return true,
        };
        let reply = match serde_json::from_slice(&request[..length]) {
            Ok(request) => handle(request),
            Err(error) => Reply::NotUnderstood(error.to_string()),
        };
        if let Ok(reply) = serde_json::to_vec(&reply) {
            // A client that has left gets no answer.
            let _ = send(self.socket.as_raw_fd(), &reply, MsgFlags::MSG_NOSIGNAL);
        }
        true
    }
}

impl AsFd for Conversation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<ControlError> for io::Error {
    fn from(error: ControlError) -> Self {
        Self::other(error)
    }
}
