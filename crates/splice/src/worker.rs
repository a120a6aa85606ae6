//! A thread that carries the bytes of its share of the pairs.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_net::lock;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use slab::Slab;
use socket2::SockRef;

use crate::flow::{Broken, Flow, Tools, Turn};

/// Marks the event of the worker's mailbox among those of its sockets.
const MAILBOX: u64 = u64::MAX;
/// Events taken from the kernel at once.
const EVENTS: usize = 256;

/// Two sockets to be spliced: the initiator's and the acceptor's.
pub(crate) type Ends = [TcpStream; 2];

/// A worker's queue of new pairs, and its counters. Aligned to cache lines of its own,
/// because each worker counts while it carries.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Mailbox {
    arrivals: Mutex<Vec<Ends>>,
    stop: AtomicBool,
    wake: EventFd,
    /// Pairs handed over and not ended yet.
    pub(crate) pairs: AtomicUsize,
    /// Bytes carried, both directions.
    pub(crate) bytes: AtomicU64,
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        Ok(Self {
            arrivals: Mutex::default(),
            stop: AtomicBool::new(false),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            pairs: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// Hands over a pair; both must be non-blocking.
    pub(crate) fn send(&self, ends: Ends) -> io::Result<()> {
        self.pairs.fetch_add(1, Relaxed);
        lock(&self.arrivals).push(ends);
        self.wake.write(1)?;
        Ok(())
    }

    /// Has the worker reset its pairs and end.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.stop.store(true, Relaxed);
        self.wake.write(1)?;
        Ok(())
    }
}

/// One pair. Flow `i` goes from end `i` to the other.
#[derive(Debug)]
struct Pair {
    ends: Ends,
    flows: [Flow; 2],
    /// Stands in the worker's queue of unfinished pairs.
    queued: bool,
}

/// State of one worker thread.
#[derive(Debug)]
pub(crate) struct Worker {
    mailbox: Arc<Mailbox>,
    epoll: Epoll,
    pairs: Slab<Pair>,
    unfinished: VecDeque<usize>,
    tools: Tools,
}

impl Worker {
    pub(crate) fn new() -> io::Result<(Self, Arc<Mailbox>)> {
        let mailbox = Arc::new(Mailbox::new()?);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&mailbox.wake, EpollEvent::new(EpollFlags::EPOLLIN, MAILBOX))?;
        let worker = Self {
            mailbox: Arc::clone(&mailbox),
            epoll,
            pairs: Slab::new(),
            unfinished: VecDeque::new(),
            tools: Tools::new(),
        };
        Ok((worker, mailbox))
    }

    /// Carries until [`Mailbox::stop`].
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let timeout = if self.unfinished.is_empty() { EpollTimeout::NONE } else { EpollTimeout::ZERO };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut woken = false;
            for event in &events[..count] {
                match event.data() {
                    MAILBOX => woken = true,
                    token => self.on_event(token, event.events()),
                }
            }
            for _ in 0..self.unfinished.len() {
                if let Some(key) = self.unfinished.pop_front() {
                    if let Some(pair) = self.pairs.get_mut(key) {
                        pair.queued = false;
                    }
                    self.pump(key);
                }
            }
            // Last, so that no key of this round's events is given to a new pair.
            if woken && !self.on_mail() {
                return Ok(());
            }
        }
    }

    /// Takes new pairs; returns whether to go on.
    fn on_mail(&mut self) -> bool {
        // Only this thread reads it, and its value isn't used.
        let _ = self.mailbox.wake.read();
        let arrivals = std::mem::take(&mut *lock(&self.mailbox.arrivals));
        let stop = self.mailbox.stop.load(Relaxed);
        for ends in arrivals {
            let key = self.pairs.insert(Pair { ends, flows: [Flow::new(), Flow::new()], queued: false });
            match self.register(key) {
                Ok(()) => self.pump(key),
                Err(error) => {
                    tracing::warn!(%error, "cannot watch the sockets of a new pair");
                    self.reset(key);
                }
            }
        }
        if stop {
            let keys: Vec<_> = self.pairs.iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| self.reset(key));
        }
        !stop
    }

    fn register(&self, key: usize) -> io::Result<()> {
        let interest =
            EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        if let Some(pair) = self.pairs.get(key) {
            for (end, socket) in pair.ends.iter().enumerate() {
                self.epoll.add(socket, EpollEvent::new(interest, token(key, end)))?;
            }
        }
        Ok(())
    }

    fn on_event(&mut self, token: u64, events: EpollFlags) {
        let (key, end) = key_and_end(token);
        let Some(pair) = self.pairs.get_mut(key) else { return };
        let closing = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if events.intersects(closing | EpollFlags::EPOLLIN) {
            pair.flows[end].source_is_ready(events.intersects(closing));
        }
        if events.intersects(EpollFlags::EPOLLOUT | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            pair.flows[1 - end].sink_is_ready();
        }
        // A socket that has ended in order is no longer read, so only this event
        // shows that it was reset afterwards.
        let lost = events.intersects(EpollFlags::EPOLLERR) && pair.flows[end].ended();
        self.pump(key);
        if lost {
            self.reset(key);
        }
    }

    /// Gives both directions of a pair a turn.
    fn pump(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else { return };
        let mut carried = 0;
        let mut broken = false;
        let mut unfinished = false;
        for from in 0..2 {
            match Self::turn(pair, from, &mut self.tools, &mut carried) {
                Ok(turn) => unfinished |= turn == Turn::Unfinished,
                Err(Broken::Source(error)) => {
                    tracing::debug!(%error, "a spliced connection broke");
                    broken = true;
                }
                Err(Broken::Sink(error)) => {
                    tracing::debug!(%error, "a spliced connection broke");
                    broken = true;
                    // Bytes that the broken end sent before are still carried.
                    let _ = Self::turn(pair, 1 - from, &mut self.tools, &mut carried);
                }
            }
            if broken {
                break;
            }
        }
        let ended = pair.flows.iter().all(Flow::ended);
        if unfinished && !pair.queued {
            pair.queued = true;
            self.unfinished.push_back(key);
        }
        if carried > 0 {
            self.mailbox.bytes.fetch_add(carried, Relaxed);
        }
        if broken {
            self.reset(key);
        } else if ended {
            self.remove(key);
        }
    }

    fn turn(pair: &mut Pair, from: usize, tools: &mut Tools, carried: &mut u64) -> Result<Turn, Broken> {
        pair.flows[from].pump(&pair.ends[from], &pair.ends[1 - from], tools, carried)
    }

    /// Ends a pair by a reset of both sockets, so that it is no orderly end.
    fn reset(&mut self, key: usize) {
        if let Some(pair) = self.remove(key) {
            for socket in &pair.ends {
                // Already gone, if it fails.
                let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
            }
        }
    }

    fn remove(&mut self, key: usize) -> Option<Pair> {
        let pair = self.pairs.try_remove(key)?;
        self.mailbox.pairs.fetch_sub(1, Relaxed);
        Some(pair)
    }
}

/// The epoll data of one end of a pair.
fn token(key: usize, end: usize) -> u64 {
    (key as u64) << 1 | end as u64
}

fn key_and_end(token: u64) -> (usize, usize) {
    (usize::try_from(token >> 1).unwrap_or(usize::MAX), usize::from(token & 1 == 1))
}
