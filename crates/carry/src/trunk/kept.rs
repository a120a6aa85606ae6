//! A trunk that is kept: who is at its other end, and whether it works.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use isthmus_identity::secured::Secured;
use isthmus_identity::{Identity, peers};
use isthmus_net::rails::{self, Rail};
use isthmus_service::lock;
use isthmus_trunk::{Addresses, CarrierId, Config, Incarnation, MAX_RAILS, Purpose, Role, TrunkId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::congestion::{Bbr, congestion};
use super::handle::{Joining, Trunk};

// What the configuration allows, HELLO has room for.
const _: () = assert!(rails::MOST == MAX_RAILS);

/// The configuration of a trunk whose carriers are TCP connections, for an end with these further
/// rails.
pub fn config(role: Role, id: TrunkId, rails: &[Rail], bbr: Bbr) -> Config {
    let addresses = rails::addresses(rails).collect();
    Config { congestion: congestion(bbr), addresses, further_rails: rails.len(), ..Config::new(role, id) }
}

/// A trunk, for those who use it and for [`keep`](super::keep).
#[derive(Debug)]
pub struct Kept {
    /// The trunk's id, which the end that made it has chosen.
    pub id: TrunkId,
    /// Whether this end has made the trunk.
    pub is_own: bool,
    /// The handle of the trunk at its worker.
    pub trunk: Trunk,
    /// The identity of the other end; every carrier has shown the same.
    pub peer: Arc<Identity>,
    /// The other end's incarnation, which tells when it was started. Empty before the trunk works,
    /// or if the other end doesn't tell.
    peers_incarnation: OnceLock<Incarnation>,
    /// Where the other end is reached on its further rails. Empty before the trunk works.
    peers_addresses: OnceLock<Addresses>,
    /// Cancelled when the trunk has ended.
    pub ended: CancellationToken,
    /// Since when the trunk is cut: no carrier works, or what is sent doesn't arrive. `None` while
    /// it works.
    cut: watch::Sender<Option<Instant>>,
    /// How the last carrier broke, if the trunk was cut by that. `None` if it fell silent.
    broken: Mutex<Option<String>>,
    /// Whether the trunk is cut though carriers open.
    swallows: AtomicBool,
    /// Whether new carriers are primed.
    primes: AtomicBool,
    /// How long the trunk is kept at least while it is cut.
    outlives: Mutex<Duration>,
    /// When this end's part of the trunk was made.
    pub made: Instant,
    pauses: Mutex<Pauses>,
}

/// The cuts of a trunk that had worked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pauses {
    /// How many cuts there were. A cut that lasts counts.
    pub count: u32,
    /// How long the cuts have lasted in all, so far.
    pub total: Duration,
}

impl Kept {
    /// A trunk without carriers. `is_own` says that this end has made it.
    pub fn new((id, is_own): (TrunkId, bool), trunk: Trunk, peer: Identity) -> Self {
        Self {
            id,
            is_own,
            trunk,
            peer: Arc::new(peer),
            peers_incarnation: OnceLock::new(),
            peers_addresses: OnceLock::new(),
            ended: CancellationToken::new(),
            cut: watch::Sender::new(Some(Instant::now())),
            broken: Mutex::default(),
            swallows: AtomicBool::new(false),
            primes: AtomicBool::new(true),
            outlives: Mutex::default(),
            made: Instant::now(),
            pauses: Mutex::default(),
        }
    }

    /// The other end's incarnation, which tells when it was started. `None` before the trunk works,
    /// or if the other end doesn't tell.
    pub fn peers_incarnation(&self) -> Option<Incarnation> {
        self.peers_incarnation.get().copied()
    }

    /// Where the other end is reached on its further rails; nothing before the trunk works.
    pub(super) fn peers_addresses(&self) -> Vec<SocketAddrV4> {
        self.peers_addresses.get().map_or_else(Vec::new, |addresses| addresses.iter().collect())
    }

    /// Notes what the other end has told of itself. It does so once.
    pub(super) fn set_told(&self, incarnation: Option<Incarnation>, addresses: Addresses) {
        if let Some(incarnation) = incarnation {
            let _ = self.peers_incarnation.set(incarnation);
        }
        let _ = self.peers_addresses.set(addresses);
    }

    /// Follows since when the trunk is cut: no carrier works, or what is sent doesn't arrive.
    /// `None` while it works.
    pub fn cut(&self) -> watch::Receiver<Option<Instant>> {
        self.cut.subscribe()
    }

    /// Whether the trunk is cut now.
    pub fn is_cut(&self) -> bool {
        self.cut.borrow().is_some()
    }

    /// How the last carrier broke, if the last cut began so; `None` if it began by silence.
    pub fn broken(&self) -> Option<String> {
        lock(&self.broken).clone()
    }

    pub(super) fn set_broken(&self, why: Option<String>) {
        *lock(&self.broken) = why;
    }

    /// Whether the trunk is cut though carriers open, and what is sent over them seems to vanish.
    pub fn swallows(&self) -> bool {
        self.swallows.load(Relaxed)
    }

    pub(super) fn set_swallows(&self, swallows: bool) {
        self.swallows.store(swallows, Relaxed);
    }

    /// Decides whether new carriers are primed: where large packets vanish whatever is tried,
    /// small ones may still pass.
    pub(super) fn set_primes(&self, primes: bool) {
        self.primes.store(primes, Relaxed);
    }

    pub(super) fn set_cut(&self, cut: Option<Instant>) {
        // The lock is held meanwhile, so that no cut is counted twice, or not at all.
        let mut pauses = lock(&self.pauses);
        let before = self.cut.send_replace(cut);
        match (before, cut) {
            (None, Some(_)) => pauses.count += 1,
            // The time before the trunk first worked is no pause.
            (Some(since), None) if pauses.count > 0 => pauses.total += since.elapsed(),
            _ => {}
        }
    }

    /// The cuts of the trunk so far.
    pub fn pauses(&self) -> Pauses {
        let pauses = lock(&self.pauses);
        let (Pauses { count, total }, cut) = (*pauses, *self.cut.borrow());
        drop(pauses);
        let lasting = cut.filter(|_| count > 0).map_or(Duration::ZERO, |since| since.elapsed());
        Pauses { count, total: total + lasting }
    }

    /// Has the trunk be kept at least for this time while it is cut.
    pub fn outlive(&self, time: Duration) {
        let mut outlives = lock(&self.outlives);
        *outlives = time.max(*outlives);
    }

    pub(super) fn outlives(&self) -> Duration {
        *lock(&self.outlives)
    }

    /// Joins a carrier, whose other end must be the trunk's. Returns its id, and the check of the
    /// peer's certificate. `first` is plaintext that was read from the carrier.
    ///
    /// # Errors
    /// If another party is at the other end, or the trunk takes no carrier.
    pub async fn join(
        &self,
        tls: Secured,
        first: Vec<u8>,
    ) -> Result<(CarrierId, Option<peers::WatchedCertificate>), String> {
        self.join_for(Purpose::Bulk, tls, first).await
    }

    /// Joins a carrier as [`join`](Self::join) does, for this purpose.
    pub(super) async fn join_for(
        &self,
        purpose: Purpose,
        tls: Secured,
        first: Vec<u8>,
    ) -> Result<(CarrierId, Option<peers::WatchedCertificate>), String> {
        if tls.identity() != Some(&*self.peer) {
            return Err(format!("the other end is {:?}, not {}", tls.identity(), self.peer));
        }
        let (mut parts, certificate) = tls.into_parts();
        parts.unread = [first, parts.unread].concat();
        let joining = Joining { purpose, primes: self.primes.load(Relaxed) };
        let id = self.trunk.join_so(parts, joining).await?;
        Ok((id, certificate))
    }
}
