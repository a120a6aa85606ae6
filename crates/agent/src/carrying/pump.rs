//! Carries an encrypted connection for a program: its own end is a loopback
//! socket to the agent, the other a TLS connection to another agent.
//!
//! One task moves both directions. TLS is driven directly rather than through
//! a stream adapter, because the adapter reads the network 4 KiB at a time.

use std::future::poll_fn;
use std::io::{self, BufRead as _, Write as _};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::Connection;

use crate::observing::account::Bytes;

/// What is read at once, from either side: four TLS records.
const BUFFER: usize = 64 * 1024;

/// Which end of the connection this agent's program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
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

/// How long what is left of a broken connection may take: for a program to read
/// what came before, or for the other side to end it, too.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Carries a connection until both directions have ended or it breaks.
///
/// Programs see what they would see of one TCP connection: an end arrives as
/// an end, after all that was written before it, and a failure as a reset,
/// after what was under way in order. Between agents a TLS end stands for the
/// one and the network's end without it for the other, rather than a reset,
/// which would overtake data.
pub async fn pump(program: TcpStream, tls: TlsStream<TcpStream>, bytes: Arc<Bytes>, end: End) {
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
    let mut settled = poll_fn(|context| pump.poll(context, true)).await;
    if !settled {
        let rest = poll_fn(|context| pump.poll(context, false));
        settled = tokio::time::timeout(DRAIN_TIMEOUT, rest).await.is_ok();
    }
    pump.close(settled);
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

/// One of the two sockets.
struct Side {
    socket: TcpStream,
    /// Why nothing more can be written to it. What it had received before can
    /// still be read.
    lost: Option<io::ErrorKind>,
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
    /// It has ended its direction, or is gone; what is left is on its way.
    Ending,
    /// All has been sent.
    Ended,
}

/// From the network to the program.
struct Incoming {
    /// Ciphertext, of which TLS has taken what is before `start`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    state: IncomingState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IncomingState {
    /// The other side may write.
    Open,
    /// It has ended its direction, and the program was told.
    Ended,
    /// It was cut off; all that came before has been passed on.
    CutOff,
}

impl Pump {
    /// Ready with `true` once both directions have ended, with `false` once
    /// the connection is broken, if that is asked for.
    fn poll(&mut self, context: &mut Context<'_>, until_broken: bool) -> Poll<bool> {
        loop {
            let before = self.broken();
            // Incoming first: TLS may have to answer, which outgoing then sends.
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
            // What broke in one direction changes what the other is to do.
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
                    // A program that is gone needs no end.
                    let _ = SockRef::from(&self.program.socket).shutdown(Shutdown::Write);
                    break;
                }
                Ok(plain) => {
                    // What comes for a program that is gone is read all the
                    // same: unread, it would turn the end of what the program
                    // wrote into a reset.
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

    /// Gives TLS more to decrypt.
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
                        // After a reset that a write met, a read only says that
                        // there is no more. Had the program ended in order
                        // before, the write would have met a broken pipe.
                        if self.program.lost != Some(io::ErrorKind::ConnectionReset) {
                            self.connection.send_close_notify();
                        }
                        self.outgoing.state = OutgoingState::Ending;
                    }
                    Ok(read) => {
                        // Without a limit TLS takes everything.
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

    /// Writes what TLS has to send.
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

    /// Throws away what the program writes while it reads what came before the
    /// network broke: a program that only reads once it has written would never
    /// come to it.
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

    /// Closes both sockets; `settled` if nothing was left to do.
    fn close(self, settled: bool) {
        // Closing with a zero linger time sends a reset (tcp(7)). After an end
        // in order a plain close does: it answers with a reset what comes
        // later.
        let ended = self.incoming.state == IncomingState::Ended;
        if self.network.lost.is_some() && !ended || !settled {
            self.program.reset();
        }
        if !settled {
            self.network.reset();
        }
    }
}

impl Side {
    fn lose(&mut self, error: &io::Error, side: &str) {
        tracing::debug!(%error, side, "an encrypted connection broke");
        self.lost.get_or_insert(error.kind());
    }

    fn reset(&self) {
        // Already gone, if it fails.
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }
}

/// Reads through tokio's own stream rather than by `try_read`: after a read
/// that didn't fill the buffer it knows that there is no more, and saves the
/// system call that would say so.
fn poll_read(
    socket: &mut TcpStream,
    context: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(Pin::new(socket).poll_read(context, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// `None` where the readiness was a false alarm.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The network as TLS writes to it.
struct Network<'a>(&'a TcpStream);

impl io::Write for Network<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
