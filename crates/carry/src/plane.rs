//! The data plane: worker threads and their counters.

use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;

use isthmus_net::keepalive;
use tokio::sync::mpsc;

use crate::item::Item;
use crate::mailbox::Mailbox;
use crate::memory;
use crate::socket::Socket;
use crate::splice::{Pair, Share};
use crate::trunk::{self, Notices, Trunk};
use crate::worker::Worker;

/// Counters since the start, those of former programs of the same process included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many connections were carried: spliced pairs and trunks.
    pub connections: u64,
    /// How many of these connections still run.
    pub running: u64,
    /// Bytes that were carried, in both directions together.
    pub bytes: u64,
}

/// The threads that carry connections. Dropping this resets the connections that still run, and
/// waits for the threads to end.
#[derive(Debug)]
pub struct Plane {
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Vec<JoinHandle<()>>,
    connections: AtomicU64,
    /// Bytes that former programs of this process carried.
    former_bytes: AtomicU64,
    /// A lock that is held for writing while the spliced pairs are released.
    splicing: RwLock<()>,
}

impl Plane {
    /// Starts the workers. A worker that can't go on reports on the channel; its connections are
    /// lost.
    ///
    /// # Errors If descriptors or threads run out.
    pub fn start(workers: NonZeroUsize) -> io::Result<(Self, mpsc::Receiver<io::Error>)> {
        memory::keep_freed();
        let (failure_tx, failure_rx) = mpsc::channel(workers.get());
        let mut plane = Self {
            mailboxes: Vec::new(),
            threads: Vec::new(),
            connections: AtomicU64::new(0),
            former_bytes: AtomicU64::new(0),
            splicing: RwLock::new(()),
        };
        for number in 0..workers.get() {
            let (worker, mailbox) = Worker::new()?;
            let failure_tx = failure_tx.clone();
            let thread = std::thread::Builder::new().name(format!("carry-{number}")).spawn(move || {
                let ran = catch_unwind(AssertUnwindSafe(|| worker.run()));
                let failed = ran.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
                if let Err(error) = failed {
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
    /// have ended in order, or one socket breaks, which resets the other. A pair with a share ends
    /// when the process is replaced.
    ///
    /// # Errors If a socket can't be made non-blocking; both are closed then.
    pub fn splice(
        &self,
        initiator: std::net::TcpStream,
        acceptor: std::net::TcpStream,
        share: Option<&Arc<Share>>,
    ) -> io::Result<()> {
        for socket in [&initiator, &acceptor] {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            keepalive::set(socket)?;
        }
        let ends = [initiator, acceptor].map(Socket::new);
        let _shared = self.splicing.read().unwrap_or_else(PoisonError::into_inner);
        self.send(|_| Item::Spliced(Box::new(Pair::new(ends, share))))
    }

    /// Makes one end of a trunk. It has no carriers yet.
    ///
    /// # Errors If there is no worker.
    pub fn trunk(&self, config: isthmus_trunk::Config) -> io::Result<(Trunk, Notices)> {
        let (notices_tx, notices_rx) = mpsc::unbounded_channel();
        let mut made = None;
        self.send(|mailbox| {
            let inbox = Arc::new(trunk::Inbox::new(Arc::clone(mailbox)));
            made = Some(Trunk::new(Arc::clone(&inbox)));
            Item::Trunk(Box::new(trunk::Ends::new(config, inbox, notices_tx)))
        })?;
        Ok((made.ok_or(io::ErrorKind::NotConnected)?, notices_rx))
    }

    /// Hands a new item over to the worker that has the fewest.
    fn send(&self, make: impl FnOnce(&Arc<Mailbox>) -> Item) -> io::Result<()> {
        let mailbox = self.least()?;
        self.connections.fetch_add(1, Relaxed);
        mailbox.carry(make(mailbox))
    }

    fn least(&self) -> io::Result<&Arc<Mailbox>> {
        let least = self.mailboxes.iter().min_by_key(|mailbox| mailbox.running.load(Relaxed));
        least.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(crate) fn mailboxes(&self) -> &[Arc<Mailbox>] {
        &self.mailboxes
    }

    /// A guard that keeps all others from splicing as long as it exists.
    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.splicing.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over an item that was counted before.
    pub(crate) fn put(&self, item: Item) -> io::Result<()> {
        self.least()?.carry(item)
    }

    /// Begins with the counters of a former program.
    pub(crate) fn count_on_from(&self, connections: u64, bytes: u64) {
        self.connections.store(connections, Relaxed);
        self.former_bytes.store(bytes, Relaxed);
    }

    /// The counters so far.
    pub fn totals(&self) -> Totals {
        Totals {
            connections: self.connections.load(Relaxed),
            running: self.mailboxes.iter().map(|mailbox| mailbox.running.load(Relaxed) as u64).sum(),
            bytes: self.mailboxes.iter().fold(self.former_bytes.load(Relaxed), |sum, mailbox| {
                sum.saturating_add(mailbox.bytes.load(Relaxed))
            }),
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
