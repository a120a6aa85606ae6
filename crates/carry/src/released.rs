//! Taking the spliced pairs out of the workers, for a program that takes this one's
//! place, and putting pairs in.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, RwLockWriteGuard};
use std::time::{Duration, Instant};

use isthmus_service::lock;
use isthmus_wire::upgrade;

use crate::item::Item;
use crate::mailbox::Mail;
use crate::plane::{Plane, Totals};
use crate::splice::Pair;

/// How long the workers may take to give their pairs. A turn takes some 200 µs.
const DEADLINE: Duration = Duration::from_secs(5);

/// Gets the spliced pairs of all workers, until it is given up. Each pair is always here or at its
/// worker.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    collected: Mutex<Collected>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Collected {
    given_up: bool,
    workers: usize,
    pairs: Vec<Pair>,
}

impl Collection {
    /// For a worker: gives its pairs. Returns them if the collection is given up.
    pub(crate) fn give(&self, pairs: Vec<Pair>) -> Vec<Pair> {
        let mut collected = lock(&self.collected);
        if collected.given_up {
            return pairs;
        }
        collected.workers += 1;
        collected.pairs.extend(pairs);
        self.changed.notify_all();
        Vec::new()
    }

    /// Waits for the pairs of so many workers. Returns what was given, and whether all of them gave
    /// in time.
    fn wait(&self, workers: usize, within: Duration) -> (Vec<Pair>, bool) {
        let until = Instant::now() + within;
        let mut collected = lock(&self.collected);
        while collected.workers < workers {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            collected = match self.changed.wait_timeout(collected, left) {
                Ok((collected, _)) => collected,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        collected.given_up = true;
        (std::mem::take(&mut collected.pairs), collected.workers >= workers)
    }
}

/// All spliced pairs of a plane, which stand still. A thread that wants to splice waits as long as
/// this exists. Dropping this closes the pairs.
pub struct Released<'a> {
    plane: &'a Plane,
    pairs: Vec<Pair>,
    totals: Totals,
    _alone: RwLockWriteGuard<'a, ()>,
}

impl fmt::Debug for Released<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Released").field("pairs", &self.pairs.len()).finish_non_exhaustive()
    }
}

impl<'a> Released<'a> {
    pub(crate) fn take(plane: &'a Plane, alone: RwLockWriteGuard<'a, ()>) -> io::Result<Self> {
        let collection = std::sync::Arc::<Collection>::default();
        for mailbox in plane.mailboxes() {
            mailbox.send(Mail::Release(collection.clone()))?;
        }
        let (pairs, all) = collection.wait(plane.mailboxes().len(), DEADLINE);
        let released = Self { plane, pairs, totals: plane.totals(), _alone: alone };
        if !all {
            released.resume();
            let text = format!("a worker of the data plane didn't answer within {DEADLINE:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(released)
    }

    /// The pairs as they are handed over, with the numbers of their descriptors.
    pub fn pairs(&self) -> Vec<upgrade::Pair> {
        self.pairs.iter().map(Pair::describe).collect()
    }

    /// The descriptors that the pairs name.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pairs.iter().flat_map(Pair::descriptors)
    }

    /// The plane's counters: the pairs count as connections, but no longer as running.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Has the plane carry the pairs on.
    pub fn resume(self) {
        for mailbox in self.plane.mailboxes() {
            // Sending fails only after 2^64 wake-ups.
            let _ = mailbox.send(Mail::Resume);
        }
        for pair in self.pairs {
            if let Err(error) = self.plane.put(Item::Spliced(Box::new(pair))) {
                tracing::error!(%error, "a spliced connection is lost");
            }
        }
    }
}

impl Plane {
    /// Takes all spliced pairs out of the workers. All else that they carry goes on, but its
    /// programs' connections end by a reset if the process is replaced.
    ///
    /// # Errors
    /// If a worker doesn't answer; then all goes on.
    pub fn release(&self) -> io::Result<Released<'_>> {
        Released::take(self, self.alone())
    }

    /// Carries pairs of another program on, from where it stopped.
    ///
    /// # Errors If a descriptor isn't of the kind that it should be.
    pub fn adopt(&self, pairs: Vec<upgrade::Pair<OwnedFd>>, connections: u64, bytes: u64) -> io::Result<()> {
        self.count_on_from(connections, bytes);
        for pair in pairs {
            self.put(Item::Spliced(Box::new(Pair::adopt(pair)?)))?;
        }
        Ok(())
    }
}

/// The number of a descriptor, as it is handed over.
pub(crate) fn number(descriptor: BorrowedFd<'_>) -> u32 {
    use std::os::fd::AsRawFd as _;
    // No descriptor is negative.
    descriptor.as_raw_fd().unsigned_abs()
}

impl crate::socket::Socket {
    pub(crate) fn describe(&self) -> upgrade::PairSocket {
        let (urgent, failed) = self.marks();
        upgrade::PairSocket { descriptor: number(self.as_fd()), urgent, failed }
    }
}
