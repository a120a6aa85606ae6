//! A stream before it has a program's socket: two agents introduce it to each other.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::{Arc, Weak};
use std::time::Duration;

use isthmus_trunk::{Read, StreamId};
use socket2::SockRef;
use tokio::sync::mpsc;

use super::handle::{Attach, Command, Inbox};
use crate::traffic::Traffic;

/// Most bytes of a stream that are handed out before it has a program's socket.
pub(super) const INTRODUCTION: usize = 4 << 10;

/// What came on a stream that has no program's socket yet.
#[derive(Debug)]
pub(crate) enum Note {
    Data(Vec<u8>),
    /// The direction's end: [`Read::End`] or [`Read::Reset`].
    End(Read),
}

/// A stream without a program's socket. Dropping this ends it in order towards the peer, and takes
/// no more.
#[derive(Debug)]
pub struct Stream {
    /// The way of commands to the worker; `None` once the stream is attached.
    inbox: Option<Arc<Inbox>>,
    id: StreamId,
    notes: mpsc::UnboundedReceiver<Note>,
    unread: Vec<u8>,
}

impl Stream {
    pub(super) fn new(inbox: Arc<Inbox>, id: StreamId, notes: mpsc::UnboundedReceiver<Note>) -> Self {
        Self { inbox: Some(inbox), id, notes, unread: Vec::new() }
    }

    /// Sends a small message.
    pub fn send(&self, message: &[u8]) {
        if let Some(inbox) = &self.inbox {
            inbox.send(Command::Send(self.id, message.to_vec()));
        }
    }

    /// Receives a small message whole, and nothing beyond it. May be cancelled.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream or the trunk ends before.
    pub async fn receive<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        const { assert!(N <= INTRODUCTION) };
        loop {
            if let Some(message) = self.unread.first_chunk() {
                let message = *message;
                self.unread.drain(..N);
                return Ok(message);
            }
            match self.notes.recv().await {
                Some(Note::Data(data)) => self.unread.extend_from_slice(&data),
                Some(Note::End(_)) | None => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Gives the stream a program's socket. From here on the bytes of each go to the other, and
    /// `traffic` counts them.
    ///
    /// # Errors
    /// If the socket's options can't be set.
    pub fn attach(mut self, socket: TcpStream, traffic: Arc<dyn Traffic>) -> io::Result<Running> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        // If the trunk ends before its worker has the socket, that is no orderly end.
        SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
        let alive = Arc::new(());
        let running = Running {
            inbox: self.inbox.as_ref().map(Arc::downgrade).unwrap_or_default(),
            id: self.id,
            alive: Arc::downgrade(&alive),
        };
        if let Some(inbox) = self.inbox.take() {
            let notes = std::mem::replace(&mut self.notes, mpsc::unbounded_channel().1);
            let unread = std::mem::take(&mut self.unread);
            inbox.send(Command::Attach(self.id, Attach { socket, unread, notes, traffic, alive }));
        }
        Ok(running)
    }
}

/// A stream that has a program's socket. The stream goes on when this is dropped.
#[derive(Debug)]
pub struct Running {
    inbox: Weak<Inbox>,
    id: StreamId,
    alive: Weak<()>,
}

impl Running {
    /// Whether the stream has ended.
    pub fn is_over(&self) -> bool {
        self.alive.strong_count() == 0
    }

    /// Ends the stream at once, and resets the program's socket, whether the trunk is cut or not.
    pub fn reset(&self) {
        if let Some(inbox) = self.inbox.upgrade() {
            inbox.send(Command::Reset(self.id));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(inbox) = &self.inbox {
            inbox.send(Command::Drop(self.id));
        }
    }
}
