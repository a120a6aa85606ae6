//! Keeps one trunk: dials a new carrier when none works, and more while it is busy; ends
//! the trunk when it isn't needed or can't be healed.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_net::peers;
use isthmus_net::rails::{self, Rail, RailWay};
use isthmus_net::secured::Secured;
use isthmus_trunk::{CarrierId, Purpose, Reason};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, interval_at};

use super::further::Further;
use super::handle::{Notice, Notices};
use super::kept::Kept;
use super::stream::Stream;

/// How long a trunk whose carriers are all cut is kept, unless a job wants it longer.
const OUTLIVE: Duration = Duration::from_secs(15 * 60);
/// How long such a trunk is kept that has no streams.
const OUTLIVE_UNUSED: Duration = Duration::from_secs(60);
/// How long a trunk without streams is kept warm.
const WARM: Duration = Duration::from_secs(300);
/// Interval of looking whether the trunk is used.
const LOOK: Duration = Duration::from_secs(5);
/// Interval of new attempts to dial. A network may heal at any time, and an attempt from
/// before that may wait for long.
const AGAIN: Duration = Duration::from_secs(1);
/// Attempts at once. The first rail never has all of them while there are others, nor have
/// these.
const ATTEMPTS: usize = 4;
/// How long an attempt over a further rail may take: the next one has its turn then.
const FURTHER: Duration = Duration::from_secs(10);
/// A carrier that falls silent sooner than this shows that its rail carries nothing.
const YOUNG: Duration = Duration::from_secs(30);

/// Why a trunk is cut whose last carrier didn't break.
const SILENT: &str = "nothing is heard over its carrier";

/// Why a carrier was not dialed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undialed {
    /// It is tried again.
    Failed(String),
    /// The other end has no trunks any more: the trunk ends.
    Never(String),
}

/// The service whose trunk is kept.
pub trait Embedding: Send + Sync + 'static {
    /// How a carrier was dialed.
    type Way: Send + 'static;

    /// The other end, for messages.
    fn peer(&self) -> String;

    /// Whether this end can dial carriers.
    fn dials(&self) -> bool;

    /// This end's further rails; by default there are none.
    fn rails(&self) -> &[Rail] {
        &[]
    }

    /// Dials a carrier once on a rail, along all ways that take it; several at once if asked
    /// again. It verifies the other end.
    fn dial(
        self: Arc<Self>,
        rail: RailWay,
    ) -> impl Future<Output = Result<(Secured, Self::Way), Undialed>> + Send;

    /// A carrier that was dialed in this way is about to join.
    fn joins(&self, way: Self::Way);

    /// A carrier works.
    fn works(&self);

    /// The other end has opened a stream.
    fn opened(&self, stream: Stream);

    /// The trunk has ended.
    fn ended(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Joining,
    Live,
    Silent,
}

/// A carrier, and what is known of it.
#[derive(Debug, Clone, Copy)]
struct Joined {
    state: State,
    purpose: Purpose,
    /// The place of its rail among the ways.
    rail: usize,
    since: Instant,
}

impl Joined {
    fn new(purpose: Purpose, rail: usize) -> Self {
        Self { state: State::Joining, purpose, rail, since: Instant::now() }
    }
}

type Redialed<W> = Result<(usize, Secured, W), String>;
type Redialing<W> = Pin<Box<dyn Future<Output = Redialed<W>> + Send>>;

/// The state of one trunk.
struct Keeper<E: Embedding> {
    embedding: Arc<E>,
    kept: Arc<Kept>,
    carriers: HashMap<CarrierId, Joined>,
    further: Further<E>,
    /// Since when no carrier works.
    cut: Option<Instant>,
    /// Since when it has no streams.
    unused: Option<Instant>,
    redialing: Option<Redialing<E::Way>>,
    /// When it was dialed last.
    dialed: Option<Instant>,
    /// When a carrier that had ended was replaced last.
    replaced: Option<Instant>,
}

/// Tells that a trunk has ended. If its keeper has panicked, the trunk ends as well: nobody
/// would dial it anew, and its streams would wait for ever.
struct End<E: Embedding>(Arc<E>, Arc<Kept>);

impl<E: Embedding> Drop for End<E> {
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

/// Keeps a trunk until it has ended, or until the certificate of its other end has.
pub async fn keep<E: Embedding>(
    embedding: Arc<E>,
    kept: Arc<Kept>,
    mut notices: Notices,
    certificate: Option<peers::Standing>,
) {
    let peer = embedding.peer();
    let _end = End(embedding.clone(), kept.clone());
    let mut keeper = Keeper {
        embedding,
        kept,
        carriers: HashMap::new(),
        further: Further::new(),
        cut: Some(Instant::now()),
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
            (at, tls, way) = keeper.further.dialed() => keeper.join(tls, at, way).await,
            refusal = &mut refused, if !is_refused => {
                tracing::info!(peer, reason = %refusal, "a trunk ends");
                is_refused = true;
                keeper.kept.trunk.close(Reason::Done);
            }
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
            Notice::Live(id) => self.live(id),
            Notice::Silent(id) => {
                self.set(id, State::Silent);
                if self.is_live() {
                    self.kept.trunk.end_carrier(id);
                }
                self.check(SILENT);
            }
            Notice::CarrierEnded(id, why) => {
                if let Some(carrier) = self.carriers.remove(&id) {
                    let young = carrier.since.elapsed() < YOUNG;
                    self.further.ended(carrier.rail, young, carrier.state == State::Live);
                }
                self.check(&why);
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
        self.set(id, State::Live);
        self.kept.set_cut(None);
        self.embedding.works();
        if let Some(cut) = self.cut.take() {
            tracing::info!(peer = self.embedding.peer(), after = ?cut.elapsed(), "a trunk works");
            self.further.healed();
        }
        self.redialing = None;
        // TCP may go on sending over a connection that was cut for minutes.
        for (silent, carrier) in &self.carriers {
            if carrier.state == State::Silent {
                self.kept.trunk.end_carrier(*silent);
            }
        }
        self.dial_further();
    }

    fn set(&mut self, id: CarrierId, state: State) {
        // The first one. What the other end dials, this end doesn't add to.
        self.carriers.entry(id).or_insert_with(|| Joined::new(Purpose::Bulk, 0)).state = state;
    }

    fn is_live(&self) -> bool {
        self.carriers.values().any(|carrier| carrier.state == State::Live)
    }

    /// Dials what a busy trunk wants beside the carriers that it has.
    fn dial_further(&mut self) {
        if !self.is_live() || !self.embedding.dials() {
            return;
        }
        let carriers = self.carriers.values().map(|carrier| (carrier.purpose, carrier.rail));
        self.further.dial(&self.embedding, &self.ways(), carriers);
    }

    /// The ways of the rails between the two ends.
    fn ways(&self) -> Vec<RailWay> {
        rails::ways(self.embedding.rails(), &self.kept.peers_addresses())
    }

    /// Dials another for a carrier that has ended. If carriers end as soon as they have
    /// joined, the next look is soon enough.
    fn replace(&mut self) {
        if self.replaced.is_none_or(|replaced| replaced.elapsed() >= AGAIN) {
            self.replaced = Some(Instant::now());
            self.dial_further();
        }
    }

    /// Begins to dial if no carrier works.
    fn check(&mut self, why: &str) {
        if self.is_live() {
            return;
        }
        if self.cut.is_none() {
            tracing::info!(peer = self.embedding.peer(), why, "a trunk is cut");
            self.cut = Some(Instant::now());
            self.kept.set_broken((why != SILENT).then(|| why.to_owned()));
        }
        self.kept.set_cut(self.cut);
        let joining = self.carriers.values().any(|carrier| carrier.state == State::Joining);
        if self.redialing.is_none() && !joining && self.embedding.dials() {
            let now = Instant::now();
            // A dial that works may still lead nowhere.
            let begin = self.dialed.map_or(now, |dialed| now.max(dialed + AGAIN));
            self.dialed = Some(begin);
            self.redialing = Some(Box::pin(redial(self.embedding.clone(), self.ways(), begin)));
        }
    }

    async fn on_redialed(&mut self, redialed: Redialed<E::Way>) {
        let (rail, tls, way) = match redialed {
            Ok(redialed) => redialed,
            Err(error) => {
                tracing::info!(peer = self.embedding.peer(), error, "a trunk can't be healed");
                return self.kept.trunk.close(Reason::Done);
            }
        };
        self.join(tls, (Purpose::Bulk, rail), way).await;
    }

    async fn join(&mut self, tls: Secured, (purpose, rail): (Purpose, usize), way: E::Way) {
        self.embedding.joins(way);
        match self.kept.join_for(purpose, tls, Vec::new()).await {
            Ok((id, _)) => {
                self.carriers.entry(id).or_insert_with(|| Joined::new(purpose, rail));
            }
            Err(error) => {
                tracing::debug!(peer = self.embedding.peer(), error, "a carrier doesn't join");
                self.check(&error);
            }
        }
    }

    /// Ends the trunk if nobody needs it, or if it has been cut for too long.
    async fn look(&mut self) {
        let Some(status) = self.kept.trunk.status().await else { return };
        // The first carrier has its time.
        if since(self.cut) > LOOK {
            self.check("no carrier works");
        }
        self.dial_further();
        self.unused = if status.trunk.streams == 0 { self.unused.or(Some(Instant::now())) } else { None };
        let (cut, unused) = (since(self.cut), since(self.unused));
        // The end that dials it decides; the other one, once it is cut.
        let cold = unused > WARM && self.kept.is_own;
        let outlived = cut > OUTLIVE.max(self.kept.outlives());
        if cold || outlived || unused.min(cut) > OUTLIVE_UNUSED {
            self.kept.trunk.close(if outlived { Reason::Silent } else { Reason::Done });
        }
    }
}

fn since(then: Option<Instant>) -> Duration {
    then.map_or(Duration::ZERO, |then| then.elapsed())
}

/// Dials again and again, over each rail in turn, until that works.
///
/// # Errors
/// If the other end has no trunks any more.
async fn redial<E: Embedding>(embedding: Arc<E>, ways: Vec<RailWay>, begin: Instant) -> Redialed<E::Way> {
    let mut turns = (0..ways.len()).cycle();
    let mut attempts = JoinSet::new();
    // The rails of those under way.
    let mut running = HashMap::new();
    let mut again = interval_at(begin.into(), AGAIN);
    loop {
        tokio::select! {
            _ = again.tick(), if attempts.len() < ATTEMPTS => {
                let further = running.values().filter(|rail| **rail != 0).count();
                let rail = turn(&mut turns, attempts.len() - further, further);
                let way = ways.get(rail).copied().unwrap_or_default();
                let dialing = dial(embedding.clone(), rail, way);
                running.insert(attempts.spawn(dialing).id(), rail);
            }
            Some(dialed) = attempts.join_next_with_id() => {
                let id = dialed.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
                let rail = running.remove(&id).unwrap_or_default();
                match dialed {
                    Ok((_, Ok((tls, way)))) => return Ok((rail, tls, way)),
                    Ok((_, Err(Undialed::Never(reason)))) => return Err(reason),
                    Ok((_, Err(Undialed::Failed(error)))) => {
                        tracing::debug!(error, rail, "a carrier was not dialed");
                    }
                    Err(error) => tracing::warn!(%error, "an attempt to dial a carrier failed"),
                }
            }
        }
    }
}

/// The rail whose turn it is, while so many attempts over the first rail and over further
/// ones are under way.
fn turn(turns: &mut impl Iterator<Item = usize>, first: usize, further: usize) -> usize {
    let next = turns.next().unwrap_or_default();
    match next {
        0 if first + 1 >= ATTEMPTS => turns.next().unwrap_or_default(),
        rail if rail != 0 && further + 1 >= ATTEMPTS => 0,
        rail => rail,
    }
}

async fn dial<E: Embedding>(
    embedding: Arc<E>,
    rail: usize,
    way: RailWay,
) -> Result<(Secured, E::Way), Undialed> {
    if rail == 0 {
        return embedding.dial(way).await;
    }
    let late = |_| Err(Undialed::Failed(format!("no carrier over this rail within {FURTHER:?}")));
    tokio::time::timeout(FURTHER, embedding.dial(way)).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_rails_leave_the_others_their_turns() {
        // Rails; attempts under way over the first and over further ones; the next turns.
        for (rails, first, further, want) in [
            (1, 0, 0, [0, 0, 0]),
            (1, 3, 0, [0, 0, 0]),
            (2, 0, 0, [0, 1, 0]),
            (2, 3, 0, [1, 1, 1]),
            (5, 0, 3, [0, 0, 0]),
            (5, 1, 2, [0, 1, 2]),
        ] {
            let mut turns = (0..rails).cycle();
            let got = [(); 3].map(|()| turn(&mut turns, first, further));
            assert_eq!(got, want, "{rails} {first} {further}");
        }
    }
}
