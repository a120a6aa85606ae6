//! Keeps one trunk: takes the streams that the peer opens, dials a new carrier when none
//! works, and ends the trunk when it isn't needed or can't be healed.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_carry::trunk::{Notice, Notices};
use isthmus_net::peers;
use isthmus_net::secured::Secured;
use isthmus_reach::Security;
use isthmus_reach::carrier::Carrier;
use isthmus_trunk::{CarrierId, Reason};
use isthmus_wire::{GridName, way};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, interval_at};

use super::registry::{Last, Standing, Way};
use super::{TRUNK_PROTOCOL, calls, open};
use crate::accepting::incoming::{Programs, preamble};
use crate::carrying::link::{Link, Messages as _, TrunkStream};
use crate::jobs::node::Node;

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
/// Attempts at once.
const ATTEMPTS: usize = 4;

/// What is kept.
pub(super) struct Kept {
    pub node: Arc<Node>,
    /// The peer.
    pub name: GridName,
    pub standing: Arc<Standing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Joining,
    Live,
    Silent,
}

type Redialing = Pin<Box<dyn Future<Output = Result<(Secured, Last), String>> + Send>>;

/// The state of one trunk.
struct Keeper {
    kept: Kept,
    carriers: HashMap<CarrierId, State>,
    /// Since when no carrier works.
    cut: Option<Instant>,
    /// Since when it has no streams.
    unused: Option<Instant>,
    redialing: Option<Redialing>,
    /// When it was dialed last.
    dialed: Option<Instant>,
}

/// Keeps a trunk until it has ended.
pub(super) async fn keep(kept: Kept, mut notices: Notices, certificate: Option<peers::Standing>) {
    let mut keeper = Keeper {
        kept,
        carriers: HashMap::new(),
        cut: Some(Instant::now()),
        unused: None,
        redialing: None,
        dialed: None,
    };
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let refused = async {
        match certificate {
            Some(certificate) => certificate.await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(refused);
    let mut is_refused = false;
    loop {
        tokio::select! {
            notice = notices.recv() => match notice {
                None => break,
                Some(Notice::Closed(why)) => {
                    tracing::info!(peer = %keeper.kept.name, why, "a trunk has ended");
                    break;
                }
                Some(notice) => keeper.on_notice(notice),
            },
            redialed = redialed(&mut keeper.redialing) => keeper.on_redialed(redialed).await,
            refusal = &mut refused, if !is_refused => {
                tracing::info!(peer = %keeper.kept.name, reason = %refusal, "a trunk ends");
                is_refused = true;
                keeper.kept.standing.trunk.close(Reason::Done);
            }
            _ = looks.tick() => keeper.look().await,
        }
    }
    keeper.kept.node.trunks().remove(&keeper.kept.name, keeper.kept.standing.id);
    keeper.kept.standing.ended.cancel();
}

async fn redialed(redialing: &mut Option<Redialing>) -> Result<(Secured, Last), String> {
    match redialing {
        Some(future) => {
            let done = future.await;
            *redialing = None;
            done
        }
        None => std::future::pending().await,
    }
}

impl Keeper {
    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Opened(stream) => {
                let standing = &self.kept.standing;
                let stream = TrunkStream { stream, peer: standing.peer.clone(), ends: standing.last().ends };
                tokio::spawn(take(self.kept.node.clone(), standing.clone(), stream));
            }
            Notice::Live(id) => self.live(id),
            Notice::Silent(id) => {
                self.carriers.insert(id, State::Silent);
                if self.carriers.values().any(|state| *state == State::Live) {
                    self.kept.standing.trunk.end_carrier(id);
                }
                self.check("nothing is heard over its carrier");
            }
            Notice::CarrierEnded(id, why) => {
                self.carriers.remove(&id);
                self.check(&why);
            }
            Notice::Wanted(_) => {}
            // The loop handles it.
            Notice::Closed(_) => {}
        }
    }

    fn live(&mut self, id: CarrierId) {
        self.carriers.insert(id, State::Live);
        if self.kept.standing.is_own {
            tokio::spawn(tell_way(self.kept.standing.clone()));
        }
        if let Some(cut) = self.cut.take() {
            tracing::info!(peer = %self.kept.name, after = ?cut.elapsed(), ends = %self.kept.standing.last().ends, "a trunk works");
        }
        self.kept.standing.set_cut(None);
        self.redialing = None;
        // TCP may go on sending over a connection that was cut for minutes.
        for (silent, state) in &self.carriers {
            if *state == State::Silent {
                self.kept.standing.trunk.end_carrier(*silent);
            }
        }
    }

    /// Begins to dial if no carrier works.
    fn check(&mut self, why: &str) {
        if self.carriers.values().any(|state| *state == State::Live) {
            return;
        }
        if self.cut.is_none() {
            tracing::info!(peer = %self.kept.name, why, "a trunk is cut");
            self.cut = Some(Instant::now());
        }
        self.kept.standing.set_cut(self.cut);
        let joining = self.carriers.values().any(|state| *state == State::Joining);
        let destination = self.kept.standing.destination();
        if let (Some(destination), None, false) = (destination, &self.redialing, joining) {
            let now = Instant::now();
            // A dial that works may still lead nowhere.
            let begin = self.dialed.map_or(now, |dialed| now.max(dialed + AGAIN));
            self.dialed = Some(begin);
            self.redialing = Some(Box::pin(redial(self.kept.node.clone(), destination, begin)));
        }
    }

    async fn on_redialed(&mut self, redialed: Result<(Secured, Last), String>) {
        let (tls, last) = match redialed {
            Ok(redialed) => redialed,
            Err(error) => {
                tracing::info!(peer = %self.kept.name, error, "a trunk can't be healed");
                return self.kept.standing.trunk.close(Reason::Done);
            }
        };
        if self.kept.standing.is_own {
            self.kept.standing.set_last(last);
        }
        match open::join(&self.kept.standing, tls, Vec::new()).await {
            Ok((id, _)) => {
                self.carriers.entry(id).or_insert(State::Joining);
            }
            Err(error) => {
                tracing::debug!(peer = %self.kept.name, error, "a carrier doesn't join");
                self.check(&error);
            }
        }
    }

    /// Ends the trunk if nobody needs it, or if it has been cut for too long.
    async fn look(&mut self) {
        let Some(status) = self.kept.standing.trunk.status().await else { return };
        // The first carrier has its time.
        if since(self.cut) > LOOK {
            self.check("no carrier works");
        }
        self.unused = if status.trunk.streams == 0 { self.unused.or(Some(Instant::now())) } else { None };
        let (cut, unused) = (since(self.cut), since(self.unused));
        // The end that dials it decides; the other one, once it is cut.
        let cold = unused > WARM && self.kept.standing.is_own;
        let outlived = cut > OUTLIVE.max(self.kept.standing.outlives());
        if cold || outlived || unused.min(cut) > OUTLIVE_UNUSED {
            self.kept.standing.trunk.close(if outlived { Reason::Silent } else { Reason::Done });
        }
    }
}

fn since(then: Option<Instant>) -> Duration {
    then.map_or(Duration::ZERO, |then| then.elapsed())
}

/// Tells the other end how the newest carrier was dialed.
async fn tell_way(standing: Arc<Standing>) {
    if let (Some(way), Ok(stream)) = (standing.last().way, standing.trunk.open().await) {
        stream.send(&way.encode());
    }
}

/// Takes a stream that the peer has opened: the way of its carrier, or a program's
/// connection.
async fn take(node: Arc<Node>, standing: Arc<Standing>, stream: TrunkStream) {
    let mut link = Link::Stream(stream);
    let ends = link.ends();
    let taken = async {
        let bytes = preamble(&mut link).await?;
        if way::Way::is(&bytes) {
            standing.set_way(Way::decode(&bytes).map_err(io::Error::other)?);
            return Ok(());
        }
        match link {
            Link::Stream(stream) if isthmus_wire::calls::is(&bytes) => {
                calls::serve(&node, standing.id, stream).await
            }
            link => Programs { node }.take(link, &bytes, None).await,
        }
    };
    if let Err(error) = Box::pin(taken).await {
        tracing::debug!(ends, %error, "a stream is dropped");
    }
}

/// Dials along the whole plan, again and again, until that works.
///
/// # Errors
/// If the other end has no trunks any more.
async fn redial(node: Arc<Node>, destination: Ipv4Addr, begin: Instant) -> Result<(Secured, Last), String> {
    let mut attempts = JoinSet::new();
    let mut again = interval_at(begin.into(), AGAIN);
    loop {
        tokio::select! {
            _ = again.tick(), if attempts.len() < ATTEMPTS => {
                let node = node.clone();
                attempts.spawn(async move {
                    open::dial(&node, destination, Security::Tls(&node.tls().trunk)).await
                });
            }
            Some(dialed) = attempts.join_next() => match dialed {
                Ok(Ok(reached)) => {
                    let last = open::last(&reached);
                    return match reached.carrier {
                        Carrier::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(TRUNK_PROTOCOL) => {
                            Ok((*tls, last))
                        }
                        _ => Err("the other agent has no trunks any more".to_owned()),
                    };
                }
                Ok(Err(error)) => tracing::debug!(%error, "a carrier was not dialed"),
                Err(error) => tracing::warn!(%error, "an attempt to dial a carrier failed"),
            },
        }
    }
}
