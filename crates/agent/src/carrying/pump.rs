//! Carries an encrypted connection for a program, between a loopback socket to the
//! program and a TLS connection to another agent.
//!
//! One task moves both directions. It drives TLS directly.

mod side;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use isthmus_net::peers::{Refusal, Standing};
use isthmus_net::secured::Secured;
use isthmus_net::tls::{Parts, Session};
use side::{Side, poll_read, unless_blocked};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::observing::account::Bytes;

/// Size of a read from either side: four TLS records.
const BUFFER: usize = 64 * 1024;

/// Which end of the connection this agent's program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The one that called `connect`.
    Initiator,
    /// The one that accepted.
    Acceptor,
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Acceptor,
            Self::Acceptor => Self::Initiator,
        }
    }
}

/// How long the rest of a broken connection may take: until the program has read the
/// remaining data, or the other side has ended it, too.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Carries a connection until both directions have ended or it breaks.
///
/// Programs see the behaviour of one TCP connection: an end arrives as an end, after
/// all data; a failure arrives as a reset, after the data under way. Between agents,
/// `close_notify` of TLS is an end, and the network's end without it is a failure. A
/// reset between agents would overtake data. A connection whose peer's certificate ends
/// or is revoked is reset at once.
pub(crate) async fn pump(program: TcpStream, tls: Secured, bytes: Arc<Bytes>, end: End) {
    let (tls, peer) = tls.into_parts();
    let Parts { tcp, session, unopened, unread, unsent } = tls;
    // The start of a record is shorter than the buffer.
    let (mut buffer, length) = (vec![0; BUFFER], unopened.len());
    buffer[..length].copy_from_slice(&unopened);
    let mut pump = Pump {
        program: Side { socket: program, lost: None },
        network: Side { socket: tcp, lost: None },
        session,
        outgoing: Outgoing { buffer: vec![0; BUFFER], sealed: unsent, sent: 0, state: OutgoingState::Open },
        incoming: Incoming { buffer, length, plain: unread, taken: 0, state: IncomingState::Open },
        bytes,
        end,
    };
    let mut settled = tokio::select! {
        biased;
        settled = poll_fn(|context| pump.poll(context, true)) => settled,
        refusal = ended(peer) => {
            tracing::info!(reason = %refusal, "an encrypted connection ends");
            pump.close(false);
            return;
        }
    };
    if !settled {
        let rest = poll_fn(|context| pump.poll(context, false));
        settled = tokio::time::timeout(DRAIN_TIMEOUT, rest).await.is_ok();
    }
    pump.close(settled);
}

/// The end of the peer's certificate.
async fn ended(peer: Option<Standing>) -> Refusal {
    match peer {
        Some(peer) => peer.await,
        None => std::future::pending().await,
    }
}

struct Pump {
    program: Side,
    network: Side,
    session: Session,
    outgoing: Outgoing,
    incoming: Incoming,
    bytes: Arc<Bytes>,
    end: End,
}

/// From the program to the network.
struct Outgoing {
    buffer: Vec<u8>,
    /// Records. The part before `sent` has been sent.
    sealed: Vec<u8>,
    sent: usize,
    state: OutgoingState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OutgoingState {
    /// The program may write.
    Open,
    /// The program has ended its direction, or is gone; the rest is being sent.
    Ending,
    /// All has been sent.
    Ended,
}

/// From the network to the program.
struct Incoming {
    /// Begins with `length` bytes that are the start of a record.
    buffer: Vec<u8>,
    length: usize,
    /// Plaintext. The part before `taken` has been passed on.
    plain: Vec<u8>,
    taken: usize,
    state: IncomingState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IncomingState {
    /// The other side may write.
    Open,
    /// It has ended its direction, and so has the socket to the program.
    Ended,
    /// It was cut off; all data before that has been passed on.
    CutOff,
}

impl Pump {
    /// Ready with `true` once both directions have ended; with `until_broken` also
    /// with `false`, once the connection is broken.
    fn poll(&mut self, context: &mut Context<'_>, until_broken: bool) -> Poll<bool> {
        loop {
            let before = self.broken();
            // Incoming first: TLS may make an answer, which outgoing then sends.
            let incoming = self.poll_incoming(context);
            let outgoing = self.poll_outgoing(context);
            if incoming.is_ready() && outgoing.is_ready() {
                return Poll::Ready(true);
            }
            if self.broken() == before {
                return Poll::Pending;
            }
            if until_broken {
                return Poll::Ready(false);
            }
            // A failure of one direction changes the work of the other.
        }
    }

    fn broken(&self) -> (bool, bool) {
        (self.program.lost.is_some(), self.network.lost.is_some())
    }

    fn poll_incoming(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.incoming.state == IncomingState::Open {
            let plain = &self.incoming.plain[self.incoming.taken..];
            if !plain.is_empty() {
                // Data for a program that is gone is read as well. Unread, it
                // would turn the end of the program's own data into a reset.
                let taken = match self.program.lost {
                    Some(_) => Ok(Some(plain.len())),
                    None => {
                        let _ = ready!(self.program.socket.poll_write_ready(context));
                        unless_blocked(self.program.socket.try_write(plain))
                    }
                };
                match taken {
                    Ok(taken) => {
                        let taken = taken.unwrap_or(0);
                        self.incoming.taken += taken;
                        if self.program.lost.is_none() {
                            self.count(self.end.other(), taken);
                        }
                    }
                    Err(error) => self.program.lose(&error, "program"),
                }
                continue;
            }
            if self.session.ended() {
                self.incoming.state = IncomingState::Ended;
                // It fails if the program is gone.
                let _ = SockRef::from(&self.program.socket).shutdown(Shutdown::Write);
                break;
            }
            if let Err(error) = ready!(self.poll_ciphertext(context)) {
                self.cut_off(&error);
            }
        }
        Poll::Ready(())
    }

    /// Reads ciphertext and opens its records. Fails if the network ended without a TLS
    /// end.
    fn poll_ciphertext(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Incoming { buffer, length, plain, taken, .. } = &mut self.incoming;
        // Plaintext that was opened before the failure has been passed on by now.
        if let Some(error) = self.session.failure() {
            return Poll::Ready(Err(io::Error::other(error.clone())));
        }
        let read = ready!(poll_read(&mut self.network.socket, context, &mut buffer[*length..]))?;
        if read == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        *length += read;
        *taken = 0;
        plain.clear();
        let records = &mut buffer[..*length];
        let opened =
            self.session.open(records, &mut self.outgoing.sealed, |record| plain.extend_from_slice(record));
        let consumed = opened.map_or(*length, |opened| opened.consumed);
        buffer.copy_within(consumed..*length, 0);
        *length -= consumed;
        Poll::Ready(Ok(()))
    }

    fn cut_off(&mut self, error: &io::Error) {
        self.incoming.state = IncomingState::CutOff;
        self.network.lose(error, "network");
    }

    fn poll_outgoing(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.network.lost.is_some() {
                return self.poll_discarding(context);
            }
            if let Err(error) = ready!(self.poll_flush(context)) {
                self.network.lose(&error, "network");
                continue;
            }
            match self.outgoing.state {
                OutgoingState::Ended => return Poll::Ready(()),
                OutgoingState::Ending => {
                    self.outgoing.state = OutgoingState::Ended;
                    if let Err(error) = SockRef::from(&self.network.socket).shutdown(Shutdown::Write) {
                        self.network.lose(&error, "network");
                    }
                }
                OutgoingState::Open => match ready!(self.poll_program(context)) {
                    Ok(0) => {
                        // If a write has failed by a reset, this is no end in order:
                        // after an end in order it would have failed by a broken pipe.
                        if self.program.lost != Some(io::ErrorKind::ConnectionReset) {
                            self.session.seal_end(&mut self.outgoing.sealed);
                        }
                        self.outgoing.state = OutgoingState::Ending;
                    }
                    Ok(read) => {
                        let Outgoing { buffer, sealed, .. } = &mut self.outgoing;
                        if let Err(error) = self.session.seal(&buffer[..read], sealed) {
                            self.network.lose(&io::Error::other(error), "network");
                        }
                        self.count(self.end, read);
                    }
                    Err(error) => {
                        self.program.lose(&error, "program");
                        self.outgoing.state = OutgoingState::Ending;
                    }
                },
            }
        }
    }

    /// Writes the records that TLS has made.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Outgoing { sealed, sent, .. } = &mut self.outgoing;
        while *sent < sealed.len() {
            ready!(self.network.socket.poll_write_ready(context))?;
            *sent += unless_blocked(self.network.socket.try_write(&sealed[*sent..]))?.unwrap_or(0);
        }
        sealed.clear();
        *sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads from the program.
    fn poll_program(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        poll_read(&mut self.program.socket, context, &mut self.outgoing.buffer)
    }

    /// Discards the program's writes after the network broke, while the program reads
    /// the remaining data. A program that writes before it reads would block otherwise.
    fn poll_discarding(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.incoming.state == IncomingState::Open && self.outgoing.state == OutgoingState::Open {
            match ready!(self.poll_program(context)) {
                Ok(0) => self.outgoing.state = OutgoingState::Ended,
                Ok(_) => {}
                Err(error) => {
                    self.program.lose(&error, "program");
                    self.outgoing.state = OutgoingState::Ended;
                }
            }
        }
        Poll::Ready(())
    }

    /// Counts bytes by the program that wrote them.
    fn count(&self, from: End, count: usize) {
        match from {
            End::Initiator => self.bytes.add_sent(count as u64),
            End::Acceptor => self.bytes.add_received(count as u64),
        }
    }

    /// Closes both sockets; `settled`: nothing was left to do.
    fn close(self, settled: bool) {
        // Closing with a zero linger time sends a reset (tcp(7)). After an end in
        // order a plain close suffices: it answers later data with a reset.
        let ended = self.incoming.state == IncomingState::Ended;
        if self.network.lost.is_some() && !ended || !settled {
            self.program.reset();
        }
        if !settled {
            self.network.reset();
        }
    }
}
