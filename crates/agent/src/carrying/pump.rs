//! Carries an encrypted connection for a program, between a loopback socket to the
//! program and a TLS connection to another agent.
//!
//! One task moves both directions. It drives TLS directly: a stream adapter would
//! read the network 4 KiB at a time.

mod side;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io::{self, BufRead as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use isthmus_net::peers::{Refusal, Standing};
use isthmus_net::secured::Secured;
use side::{Network, Side, poll_read, unless_blocked};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::Connection;

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
    let (network, connection) = match tls {
        TlsStream::Client(stream) => {
            let (network, connection) = stream.into_inner();
            (network, Connection::from(connection))
        }
        TlsStream::Server(stream) => {
            let (network, connection) = stream.into_inner();
            (network, Connection::from(connection))
        }
    };
    let mut pump = Pump {
        program: Side { socket: program, lost: None },
        network: Side { socket: network, lost: None },
        connection,
        outgoing: Outgoing { buffer: vec![0; BUFFER], state: OutgoingState::Open },
        incoming: Incoming { buffer: vec![0; BUFFER], start: 0, end: 0, state: IncomingState::Open },
        bytes,
        end,
    };
    pump.connection.set_buffer_limit(None);
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
    connection: Connection,
    outgoing: Outgoing,
    incoming: Incoming,
    bytes: Arc<Bytes>,
    end: End,
}

/// From the program to the network.
struct Outgoing {
    buffer: Vec<u8>,
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
    /// Ciphertext. TLS has taken the part before `start`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
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
            match self.connection.reader().fill_buf() {
                Ok([]) => {
                    self.incoming.state = IncomingState::Ended;
                    // It fails if the program is gone.
                    let _ = SockRef::from(&self.program.socket).shutdown(Shutdown::Write);
                    break;
                }
                Ok(plain) => {
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
                            self.connection.reader().consume(taken);
                            if self.program.lost.is_none() {
                                self.count(self.end.other(), taken);
                            }
                        }
                        Err(error) => self.program.lose(&error, "program"),
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The network ended without a TLS end.
                Err(error) => {
                    self.cut_off(&error);
                    break;
                }
            }
            if let Err(error) = ready!(self.poll_ciphertext(context)) {
                self.cut_off(&error);
            }
        }
        Poll::Ready(())
    }

    /// Gives TLS more ciphertext.
    fn poll_ciphertext(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Incoming { buffer, start, end, .. } = &mut self.incoming;
        if start == end {
            (*start, *end) = (0, ready!(poll_read(&mut self.network.socket, context, buffer))?);
        }
        // At the end of the network TLS must see an empty read.
        let mut rest = &buffer[*start..*end];
        *start += self.connection.read_tls(&mut rest)?;
        self.connection.process_new_packets().map_err(io::Error::other)?;
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
                            self.connection.send_close_notify();
                        }
                        self.outgoing.state = OutgoingState::Ending;
                    }
                    Ok(read) => {
                        // TLS has no limit, so it takes all bytes.
                        if let Err(error) = self.connection.writer().write_all(&self.outgoing.buffer[..read])
                        {
                            self.network.lose(&error, "network");
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

    /// Writes the ciphertext that TLS has.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            ready!(self.network.socket.poll_write_ready(context))?;
            unless_blocked(self.connection.write_tls(&mut Network(&self.network.socket)))?;
        }
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
