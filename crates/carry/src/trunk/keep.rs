//! Keeps one trunk: dials a new carrier when none works, more while it is busy, and better
//! ones; ends the trunk when it isn't needed or can't be healed.
//!
//! | module | does |
//! |---|---|
//! | `cut` | decides since when the trunk is cut |
//! | `redial` | dials until a carrier is there |
//! | `joined` | what is known of a carrier |
//! | `lengths` | how long the segments of carriers may be |
//! | `better` | looks for better ways than those in use |

mod better;
mod cut;
mod joined;
mod lengths;
mod redial;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_identity::peers;
use isthmus_net::rails;
use isthmus_trunk::{CarrierId, Purpose, Reason};
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::embedding::{By, Dialed, Embedding, First};
use super::further::Further;
use super::handle::{Notice, Notices, Waits};
use super::kept::Kept;
use better::Betters;
use cut::{Carriers, LATE, Why};
use joined::{Joined, State};
use lengths::Lengths;
use redial::{AGAIN, Redialed, Redialing, redial};

/// How long a trunk whose carriers are all cut is kept, unless a job wants it longer.
const OUTLIVE: Duration = Duration::from_secs(15 * 60);
/// How long a trunk without streams is kept whose carriers are all cut.
const OUTLIVE_UNUSED: Duration = Duration::from_secs(60);
/// How long a trunk that works is kept without streams, for those that may be opened soon.
const WARM: Duration = Duration::from_secs(300);
/// Interval between looks whether the trunk is used.
const LOOK: Duration = Duration::from_secs(5);

/// The state of one trunk that is kept.
struct Keeper<E: Embedding> {
    embedding: Arc<E>,
    kept: Arc<Kept>,
    carriers: HashMap<CarrierId, Joined<E::CarrierWay>>,
    further: Further<E>,
    betters: Betters<E>,
    lengths: Lengths,
    /// What is known of sent data that hasn't arrived; `None` as far as nothing was told.
    waits: Option<Waits>,
    /// Since when the trunk is cut; `None` while it works.
    cut: Option<Instant>,
    /// Whether the last carrier that fell silent during the cut had brought nothing large.
    vain: bool,
    /// Since when the trunk has no streams; `None` while it has some.
    unused: Option<Instant>,
    redialing: Option<Redialing<E::CarrierWay>>,
    /// When the trunk was last dialed after a cut.
    dialed: Option<Instant>,
    /// When a carrier that had ended was last replaced.
    replaced: Option<Instant>,
}

/// Tells the service, when dropped, that a trunk has ended. If the trunk's keeper has panicked,
/// this ends the trunk. Otherwise nobody would dial it anew, and its streams would wait for ever.
struct KeeperGuard<E: Embedding>(Arc<E>, Arc<Kept>);

impl<E: Embedding> Drop for KeeperGuard<E> {
    fn drop(&mut self) {
        let Self(embedding, kept) = self;
        if std::thread::panicking() {
            tracing::error!(
                peer = embedding.peer(),
                "the part that keeps a trunk has failed: the trunk ends"
            );
            kept.trunk.close(Reason::Silent);
        }
        embedding.ended();
        kept.ended.cancel();
    }
}

/// Keeps a trunk until it has ended, or until the certificate of its other end has ended.
pub async fn keep<E: Embedding>(
    embedding: Arc<E>,
    kept: Arc<Kept>,
    mut notices: Notices,
    (first, certificate): (First<E::CarrierWay>, Option<peers::WatchedCertificate>),
) {
    let peer = embedding.peer();
    let _guard = KeeperGuard(embedding.clone(), kept.clone());
    // Since before anything was sent, which may be earlier than now.
    let cut = *kept.cut().borrow();
    let mut keeper = Keeper {
        embedding,
        kept,
        carriers: HashMap::from([(first.id, Joined::new(Purpose::Bulk, 0, first.dialed))]),
        further: Further::new(),
        betters: Betters::new(),
        lengths: Lengths::default(),
        waits: None,
        cut,
        vain: false,
        unused: None,
        redialing: None,
        dialed: None,
        replaced: None,
    };
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let refused = peers::refused(certificate);
    tokio::pin!(refused);
    let mut is_refused = false;
    loop {
        let lasts_at = keeper.lasts_at().filter(|at| *at > Instant::now());
        tokio::select! {
            notice = notices.recv() => match notice {
                None => break,
                Some(Notice::Closed(why)) => {
                    tracing::info!(peer, why, "a trunk has ended");
                    break;
                }
                Some(notice) => keeper.on_notice(notice),
            },
            redialed = redialed(&mut keeper.redialing) => keeper.on_redialed(redialed).await,
            (at, dialed) = keeper.further.dialed() => {
                keeper.join(dialed, at).await;
            }
            (dialed, outdone) = keeper.betters.found() => {
                if let Some(id) = keeper.join(dialed, (Purpose::Bulk, 0)).await {
                    keeper.betters.joined(id, outdone);
                }
            }
            refusal = &mut refused, if !is_refused => {
                tracing::info!(peer, reason = %refusal, "a trunk ends");
                is_refused = true;
                keeper.kept.trunk.close(Reason::Done);
            }
            () = reached(lasts_at) => keeper.judge(LATE, Instant::now()),
            _ = looks.tick() => keeper.look().await,
        }
    }
}

async fn redialed<W>(redialing: &mut Option<Redialing<W>>) -> Redialed<W> {
    match redialing {
        Some(future) => {
            let done = future.await;
            *redialing = None;
            done
        }
        None => std::future::pending().await,
    }
}

impl<E: Embedding> Keeper<E> {
    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Established(incarnation, addresses) => self.kept.set_told(incarnation, addresses),
            Notice::Opened(stream) => self.embedding.opened(stream),
            Notice::Waits(waits) => {
                self.waits = waits;
                self.judge(LATE, Instant::now());
            }
            Notice::Live(id) => self.live(id),
            Notice::Large(id, both) => self.large(id, both),
            Notice::Silent(id, since) => self.silent(id, since),
            Notice::CarrierEnded(id, why) => {
                self.embedding.carrier_ended(id);
                self.betters.fails(id);
                if let Some(carrier) = self.carriers.remove(&id) {
                    self.further.ended(carrier.rail, carrier.ends_young(), carrier.is_live());
                }
                self.check(Why::Broken(&why), Instant::now());
                self.replace();
            }
            Notice::Wanted(wanted) => {
                self.further.want(wanted);
                self.dial_further();
            }
            // The loop handles it.
            Notice::Closed(_) => {}
        }
    }

    fn live(&mut self, id: CarrierId) {
        self.set(id, State::Live(Instant::now()));
        self.judge(LATE, Instant::now());
        let way = self.carriers.get(&id).and_then(|carrier| carrier.dialed.as_ref());
        self.embedding.works(id, way.map(|(way, _)| way));
        self.redialing = None;
        // TCP may go on sending over a connection that was cut for minutes.
        for (silent, carrier) in &self.carriers {
            if carrier.state == State::Silent {
                self.kept.trunk.end_carrier(*silent);
            }
        }
        for outdone in self.betters.works(id) {
            if let Some(carrier) = self.carriers.get_mut(&outdone) {
                carrier.outdone = true;
            }
        }
        self.dial_further();
        self.let_outdone_leave();
    }

    /// Notes that a large frame has come over a carrier. `both` says that large frames pass in both
    /// directions.
    fn large(&mut self, id: CarrierId, both: bool) {
        if let Some(carrier) = self.carriers.get_mut(&id) {
            (carrier.large_came, carrier.large) = (true, both);
            if both {
                self.lengths.passed(carrier.rail, carrier.segment());
                self.kept.set_primes(true);
            }
        }
        self.judge(LATE, Instant::now());
    }

    /// Notes that nothing is heard over a carrier, though an answer is waited for since `since`.
    fn silent(&mut self, id: CarrierId, since: Instant) {
        self.set(id, State::Silent);
        self.betters.fails(id);
        let is_live = self.is_live();
        if let Some(carrier) = self.carriers.get_mut(&id).filter(|carrier| !carrier.large) {
            carrier.swallows = self.lengths.swallowed(carrier.rail, carrier.segment(), Instant::now());
            if carrier.swallows {
                let peer = self.embedding.peer();
                tracing::info!(peer, "large packets seem to vanish on the way: shorter segments are tried");
            }
            self.vain |= !is_live;
            self.kept.set_primes(!self.lengths.none_helps());
        }
        if is_live {
            self.kept.trunk.end_carrier(id);
        }
        self.check(Why::Silent("nothing is heard over its carrier"), since);
    }

    fn set(&mut self, id: CarrierId, state: State) {
        // This end dials no further carriers to a trunk that the other end dials.
        let new = || Joined::new(Purpose::Bulk, 0, None);
        self.carriers.entry(id).or_insert_with(new).state = state;
    }

    fn is_live(&self) -> bool {
        self.carriers.values().any(Joined::is_live)
    }

    /// While it is in doubt whether the trunk works: when the next carrier will have shown that it
    /// does.
    fn lasts_at(&self) -> Option<Instant> {
        let in_doubt = self.cut.is_some() && self.vain;
        self.carriers.values().filter_map(Joined::lasts_at).min().filter(|_| in_doubt)
    }

    fn carriers_show(&self) -> Carriers {
        if !self.is_live() {
            return Carriers::Dead;
        }
        let in_doubt = self.lasts_at().is_some_and(|at| Instant::now() < at);
        if in_doubt { Carriers::Open } else { Carriers::Live }
    }

    /// Finds out whether the trunk works, and tells those who wait. If it doesn't, `unheard` is
    /// since when nothing is heard of the last carrier.
    fn judge(&mut self, why: Why<'_>, unheard: Instant) {
        let cut = cut::cut(self.cut, self.carriers_show(), self.waits, unheard);
        let before = std::mem::replace(&mut self.cut, cut);
        if before.is_none() && cut.is_some() {
            // Before those who wait look.
            self.kept.set_broken(why.broken());
        }
        self.kept.set_swallows(cut.is_some() && (self.vain || self.is_live()));
        self.kept.set_cut(cut);
        match (before, cut) {
            (None, Some(_)) => {
                tracing::info!(peer = self.embedding.peer(), why = why.text(), "a trunk is cut");
            }
            (Some(since), None) => {
                tracing::info!(peer = self.embedding.peer(), after = ?since.elapsed(), "a trunk works");
                self.vain = false;
                self.further.healed();
                self.betters.healed();
                self.embedding.healed();
            }
            _ => {}
        }
    }

    /// Dials what a busy trunk wants beside the carriers that it has.
    fn dial_further(&mut self) {
        if !self.is_live() || !self.embedding.dials() {
            return;
        }
        let carriers = self.carriers.values().filter(|carrier| !carrier.outdone);
        let carriers = carriers.map(|carrier| (carrier.purpose, carrier.rail));
        self.further.dial(&self.embedding, &self.ways(), carriers);
    }

    /// Lets carriers leave that others outdo, unless further ones are being dialed in their place.
    /// So the trunk never has fewer than it needs.
    fn let_outdone_leave(&mut self) {
        let is_replaced = |carrier: &Joined<E::CarrierWay>| carrier.is_live() && !carrier.outdone;
        if self.further.is_dialing() || !self.carriers.values().any(is_replaced) {
            return;
        }
        for (id, _) in self.carriers.iter().filter(|(_, carrier)| carrier.outdone) {
            self.kept.trunk.let_leave(*id);
        }
    }

    /// How carriers are dialed now, for each rail between the two ends.
    fn ways(&self) -> Vec<By> {
        let now = Instant::now();
        let ways = rails::ways(self.embedding.rails(), &self.kept.peers_addresses()).into_iter();
        let by = |(at, rail)| By { rail, segment: self.lengths.next(at, now) };
        ways.enumerate().map(by).collect()
    }

    /// Dials another carrier for one that has ended. If carriers end as soon as they have joined,
    /// the next look is soon enough.
    fn replace(&mut self) {
        if self.replaced.is_none_or(|replaced| replaced.elapsed() >= AGAIN) {
            self.replaced = Some(Instant::now());
            self.dial_further();
        }
    }

    /// Finds out whether the trunk works, as [`judge`](Self::judge) does. Begins to dial if no
    /// carrier works or is joining.
    fn check(&mut self, why: Why<'_>, unheard: Instant) {
        self.judge(why, unheard);
        let joining = self.carriers.values().any(|carrier| carrier.state == State::Joining);
        if !self.is_live() && self.redialing.is_none() && !joining && self.embedding.dials() {
            let now = Instant::now();
            // A dial that works may still lead nowhere.
            let begin = self.dialed.map_or(now, |dialed| now.max(dialed + AGAIN));
            self.dialed = Some(begin);
            self.redialing = Some(Box::pin(redial(self.embedding.clone(), self.ways(), begin)));
        }
    }

    async fn on_redialed(&mut self, redialed: Redialed<E::CarrierWay>) {
        match redialed {
            Ok((rail, dialed)) => {
                self.join(dialed, (Purpose::Bulk, rail)).await;
            }
            Err(error) => {
                tracing::info!(peer = self.embedding.peer(), error, "a trunk can't be healed");
                self.kept.trunk.close(Reason::Done);
            }
        }
    }

    /// Joins a carrier; returns its number, or `None` if it can't join.
    async fn join(
        &mut self,
        Dialed { tls, way, segment }: Dialed<E::CarrierWay>,
        (purpose, rail): (Purpose, usize),
    ) -> Option<CarrierId> {
        self.embedding.joins(&way);
        match self.kept.join_for(purpose, tls, Vec::new()).await {
            Ok((id, _)) => {
                self.embedding.joined(id, &way);
                self.carriers.insert(id, Joined::new(purpose, rail, Some((way, segment))));
                Some(id)
            }
            Err(error) => {
                tracing::debug!(peer = self.embedding.peer(), error, "a carrier doesn't join");
                self.check(Why::Broken(&error), Instant::now());
                None
            }
        }
    }

    /// Ends the trunk if nobody needs it, or if it has been cut for too long.
    async fn look(&mut self) {
        let Some(status) = self.kept.trunk.status().await else { return };
        // The first carrier has its time.
        if since(self.cut) > LOOK {
            self.check(Why::Silent("no carrier works"), Instant::now());
        }
        self.dial_further();
        self.let_outdone_leave();
        self.look_for_better();
        self.unused = if status.trunk.streams == 0 { self.unused.or(Some(Instant::now())) } else { None };
        let (cut, unused) = (since(self.cut), since(self.unused));
        // The end that dials it decides; the other one, once it is cut.
        let cold = unused > WARM && self.kept.is_own;
        let outlived = cut > OUTLIVE.max(self.kept.outlives());
        if cold || outlived || unused.min(cut) > OUTLIVE_UNUSED {
            self.kept.trunk.close(if outlived { Reason::Silent } else { Reason::Done });
        }
    }

    /// Looks for a better way than those of the carriers on the first rail that this end has
    /// dialed, while the trunk works.
    fn look_for_better(&mut self) {
        if self.cut.is_some() || !self.embedding.dials() {
            return;
        }
        let is_meant =
            |carrier: &Joined<E::CarrierWay>| carrier.rail == 0 && carrier.is_live() && !carrier.outdone;
        let carriers = self.carriers.iter().filter(|(_, carrier)| is_meant(carrier));
        let carriers = carriers.filter_map(|(id, carrier)| Some((*id, carrier.dialed.as_ref()?.0.clone())));
        let segment = self.lengths.next(0, Instant::now());
        self.betters.look(&self.embedding, carriers.collect(), segment);
    }
}

async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn since(then: Option<Instant>) -> Duration {
    then.map_or(Duration::ZERO, |then| then.elapsed())
}
