//! What other threads hand over to a worker, and the worker's counters.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use isthmus_service::lock;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::item::Item;
use crate::released::Collection;

/// The place of an item at its worker.
#[derive(Debug)]
pub(crate) struct Address(AtomicUsize);

impl Default for Address {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl Address {
    /// Sets the item's key; `None` once the item has ended. For the worker alone.
    pub(crate) fn set(&self, key: Option<usize>) {
        self.0.store(key.unwrap_or(usize::MAX), Relaxed);
    }

    /// The item's key; `None` once the item has ended. For the worker alone: another thread might
    /// see a key that is another item's by now.
    pub(crate) fn key(&self) -> Option<usize> {
        Some(self.0.load(Relaxed)).filter(|key| *key != usize::MAX)
    }
}

/// A message to a worker.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A new item to carry; its sockets must be non-blocking.
    New(Item),
    /// The item at this address has work to do without an event.
    Nudge(Arc<Address>),
    /// The worker is to give its spliced pairs to this collection.
    Release(Arc<Collection>),
    /// The process isn't replaced: all goes on as before.
    Resume,
}

/// A worker's queue of messages, and its counters. Aligned to cache lines of its own,
/// because each worker counts while it carries.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Mailbox {
    arrivals: Mutex<Vec<Mail>>,
    stop: AtomicBool,
    pub(crate) wake: EventFd,
    /// How many items were handed over and have not ended yet.
    pub(crate) running: AtomicUsize,
    /// Bytes carried, in both directions together.
    pub(crate) bytes: AtomicU64,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            arrivals: Mutex::default(),
            stop: AtomicBool::new(false),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            running: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// Hands over an item to carry.
    ///
    /// # Errors If the worker can't be woken.
    pub(crate) fn carry(&self, item: Item) -> io::Result<()> {
        self.running.fetch_add(1, Relaxed);
        self.send(Mail::New(item))
    }

    /// Has the item at this address get a turn.
    pub(crate) fn nudge(&self, address: &Arc<Address>) {
        // The counter of an eventfd overflows after 2^64 wake-ups.
        let _ = self.send(Mail::Nudge(Arc::clone(address)));
    }

    pub(crate) fn send(&self, mail: Mail) -> io::Result<()> {
        lock(&self.arrivals).push(mail);
        self.wake.write(1)?;
        Ok(())
    }

    /// Has the worker reset all items and end.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.stop.store(true, Relaxed);
        self.wake.write(1)?;
        Ok(())
    }

    /// Takes the messages that have arrived, and whether to stop. For the worker alone.
    pub(crate) fn take(&self) -> (Vec<Mail>, bool) {
        // The eventfd's value isn't used.
        let _ = self.wake.read();
        let arrivals = std::mem::take(&mut *lock(&self.arrivals));
        (arrivals, self.stop.load(Relaxed))
    }
}
