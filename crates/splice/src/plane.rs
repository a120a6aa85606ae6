//! The data plane: worker threads and their counters.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::sync::mpsc;

use crate::worker::{Mailbox, Worker};

/// Keepalive of idle connections: below the five minutes after which firewalls
/// commonly forget one, and patient enough (six minutes) to sit out a cut.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(30))
    .with_retries(10);

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections spliced.
    pub connections: u64,
    /// Those that still run.
    pub running: u64,
    /// Bytes carried, both directions.
    pub bytes: u64,
}

/// The threads that carry spliced connections. Dropping it resets the connections
/// that still run, and waits for the threads to end.
#[derive(Debug)]
pub struct Plane {
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Vec<JoinHandle<()>>,
    connections: AtomicU64,
}

impl Plane {
    /// Starts the workers. One that can't go on reports on the channel; its
    /// connections are lost.
    ///
    /// # Errors
    /// Where descriptors or threads run out.
    pub fn start(workers: NonZeroUsize) -> io::Result<(Self, mpsc::Receiver<io::Error>)> {
        let (failure_tx, failure_rx) = mpsc::channel(workers.get());
        let mut plane = Self { mailboxes: Vec::new(), threads: Vec::new(), connections: AtomicU64::new(0) };
        for number in 0..workers.get() {
            let (worker, mailbox) = Worker::new()?;
            let failure_tx = failure_tx.clone();
            let thread = std::thread::Builder::new().name(format!("splice-{number}")).spawn(move || {
                if let Err(error) = worker.run() {
                    // Full or closed: a failure was reported already.
                    let _ = failure_tx.try_send(error);
                }
            })?;
            plane.mailboxes.push(mailbox);
            plane.threads.push(thread);
        }
        Ok((plane, failure_rx))
    }

    /// Splices two connected sockets. Bytes flow between them until both directions
    /// have ended in order, or one socket breaks, which resets the other.
    ///
    /// # Errors
    /// Where the sockets can't be made non-blocking; both are closed then.
    pub fn splice(&self, initiator: std::net::TcpStream, acceptor: std::net::TcpStream) -> io::Result<()> {
        for socket in [&initiator, &acceptor] {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            SockRef::from(socket).set_tcp_keepalive(&KEEPALIVE)?;
        }
        let Some(mailbox) = self.mailboxes.iter().min_by_key(|mailbox| mailbox.pairs.load(Relaxed)) else {
            return Ok(());
        };
        self.connections.fetch_add(1, Relaxed);
        mailbox.send([initiator, acceptor])
    }

    /// The counters so far.
    pub fn totals(&self) -> Totals {
        Totals {
            connections: self.connections.load(Relaxed),
            running: self.mailboxes.iter().map(|mailbox| mailbox.pairs.load(Relaxed) as u64).sum(),
            bytes: self.mailboxes.iter().map(|mailbox| mailbox.bytes.load(Relaxed)).sum(),
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            if let Err(error) = mailbox.stop() {
                tracing::error!(%error, "cannot wake a worker of the data plane");
            }
        }
        for thread in self.threads.drain(..) {
            // A panic was reported in its thread.
            let _ = thread.join();
        }
    }
}
