//! Carries an encrypted connection for a program: its own end is a loopback
//! socket to the agent, the other a TLS connection to another agent.
//!
//! One task moves both directions. TLS is driven directly rather than through
//! a stream adapter, because the adapter reads the network 4 KiB at a time.

use std::future::poll_fn;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::Connection;

use crate::account::Bytes;

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

/// Carries a connection until both directions have ended or one fails. A
/// failure reaches both programs as a reset, never as an orderly end.
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
        program,
        network,
        connection,
        outgoing: Outgoing { buffer: vec![0; BUFFER], state: OutgoingState::Open },
        incoming: Incoming { buffer: vec![0; BUFFER], start: 0, end: 0, closed: false },
    };
    pump.connection.set_buffer_limit(None);
    let (sent, received) = match end {
        End::Initiator => (&bytes.sent, &bytes.received),
        End::Acceptor => (&bytes.received, &bytes.sent),
    };
    let result = poll_fn(|context| {
        // Incoming first: TLS may have to answer, which outgoing then sends.
        let incoming = pump.poll_incoming(context, received)?;
        let outgoing = pump.poll_outgoing(context, sent)?;
        if incoming.is_ready() && outgoing.is_ready() {
            Poll::Ready(io::Result::Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await;
    if let Err(error) = result {
        tracing::debug!(%error, "an encrypted connection broke");
        // Closing with a zero linger time sends a reset (tcp(7)).
        for socket in [&pump.program, &pump.network] {
            let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}

struct Pump {
    program: TcpStream,
    network: TcpStream,
    connection: Connection,
    outgoing: Outgoing,
    incoming: Incoming,
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
    /// It has ended its direction; what is left is on its way.
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
    /// The other side ended its direction, and the program was told.
    closed: bool,
}

impl Pump {
    fn poll_incoming(&mut self, context: &mut Context<'_>, count: &AtomicU64) -> Poll<io::Result<()>> {
        while !self.incoming.closed {
            match self.connection.reader().fill_buf() {
                Ok([]) => {
                    self.incoming.closed = true;
                    // A program that is gone needs no end.
                    let _ = socket2::SockRef::from(&self.program).shutdown(std::net::Shutdown::Write);
                    break;
                }
                Ok(plain) => {
                    ready!(self.program.poll_write_ready(context))?;
                    if let Some(written) = unless_blocked(self.program.try_write(plain))? {
                        self.connection.reader().consume(written);
                        count.fetch_add(written as u64, Relaxed);
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The network ended without a TLS end: cut off.
                Err(error) => return Poll::Ready(Err(error)),
            }
            let Incoming { buffer, start, end, .. } = &mut self.incoming;
            if start == end {
                ready!(self.network.poll_read_ready(context))?;
                let Some(read) = unless_blocked(self.network.try_read(buffer))? else { continue };
                (*start, *end) = (0, read);
            }
            // At the end of the network TLS must see an empty read.
            let mut rest = &buffer[*start..*end];
            *start += self.connection.read_tls(&mut rest)?;
            self.connection.process_new_packets().map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_outgoing(&mut self, context: &mut Context<'_>, count: &AtomicU64) -> Poll<io::Result<()>> {
        loop {
            while self.connection.wants_write() {
                ready!(self.network.poll_write_ready(context))?;
                unless_blocked(self.connection.write_tls(&mut Network(&self.network)))?;
            }
            match self.outgoing.state {
                OutgoingState::Ended => return Poll::Ready(Ok(())),
                OutgoingState::Ending => {
                    socket2::SockRef::from(&self.network).shutdown(std::net::Shutdown::Write)?;
                    self.outgoing.state = OutgoingState::Ended;
                }
                OutgoingState::Open => {
                    ready!(self.program.poll_read_ready(context))?;
                    match unless_blocked(self.program.try_read(&mut self.outgoing.buffer))? {
                        None => {}
                        Some(0) => {
                            self.connection.send_close_notify();
                            self.outgoing.state = OutgoingState::Ending;
                        }
                        Some(read) => {
                            self.connection.writer().write_all(&self.outgoing.buffer[..read])?;
                            count.fetch_add(read as u64, Relaxed);
                        }
                    }
                }
            }
        }
    }
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
