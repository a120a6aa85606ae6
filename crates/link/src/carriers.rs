//! How a trunk's carriers are dialed, accepted, bettered and dialed anew, for agents and gateways
//! alike. When each of that happens is decided in `isthmus_carry::trunk::keep`, by way of
//! [`Embedding`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::accept::{hello, refuse};
use isthmus_carry::trunk::{Better, By, Dialed, Embedding, First, Kept, Stream, Undialed, keep};
use isthmus_identity::secured::Secured;
use isthmus_net::dial::{SocketOptions, ends};
use isthmus_net::rails::Rail;
use isthmus_reach::{Expected, Purpose, ReachError, Reached};
use isthmus_rpc::enums::dial_name;
use isthmus_rpc::rendezvous::Peer;
use isthmus_service::mac::random;
use isthmus_trunk::{CarrierId, Reason, Role, TrunkId};
use isthmus_wire::GridName;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::service::{Link, Service};
use crate::standing::{Last, Standing};
use crate::way::{CarrierWay, DialedWay};

/// How long the first HELLO of the other end may take.
const ESTABLISHED: Duration = Duration::from_secs(10);

/// Dials a carrier along the whole plan. Also returns the ways that have failed before, each with
/// its reason.
///
/// # Errors
/// [`ReachError`].
pub async fn dial<S: Service>(
    service: &Arc<S>,
    name: &GridName,
    peer: Peer,
    by: By,
) -> Result<(Dialed<DialedWay>, Vec<String>), ReachError> {
    let expected = service.expected(name);
    let mut reached = service.dialer().reach(peer, purpose(&**service, name, &expected, by)).await?;
    let failures = std::mem::take(&mut reached.failures);
    Ok((dialed::<S>(reached)?, failures))
}

/// Makes a trunk of a first carrier that this end has dialed at `peer`.
///
/// # Errors
/// [`ReachError::NoWay`] if the carrier doesn't join, or there are too many trunks.
pub async fn make<S: Service>(
    service: &Arc<S>,
    name: &GridName,
    peer: Peer,
    Dialed { tls, way, segment }: Dialed<DialedWay>,
) -> Result<Arc<Standing<S::Own>>, ReachError> {
    let (service, to) = (service.clone(), name.clone());
    // A task of its own: the caller may give up, and the trunk is kept all the same.
    let making = tokio::spawn(async move {
        start(&service, &to, TrunkId(random()), (tls, Vec::new()), Some((peer, way, segment))).await
    });
    let made = making.await.unwrap_or_else(|error| Err(error.to_string()));
    made.map_err(ReachError::no_way)
}

/// What comes once a trunk that was made just now works. If its other end says no HELLO in time,
/// the trunk ends.
///
/// # Errors
/// If the other end says none, or ends the trunk.
pub async fn established<T>(kept: &Kept, works: impl Future<Output = T>) -> Result<T, String> {
    let late = |_| {
        kept.trunk.close(Reason::Silent);
        format!("no HELLO within {ESTABLISHED:?}")
    };
    tokio::select! {
        works = timeout(ESTABLISHED, works) => works.map_err(late),
        () = kept.ended.cancelled() => Err("the trunk has ended before it worked".to_owned()),
    }
}

/// Joins a carrier that the other end has dialed to its trunk, or makes the trunk.
///
/// # Errors
/// If the carrier is refused; the other end is told why. `UnexpectedEof` if it ends before its
/// HELLO.
pub async fn accept<S: Service>(service: &Arc<S>, mut tls: Secured) -> io::Result<()> {
    let (hello, first) = hello(&mut tls).await?;
    let name = match service.other_end(tls.identity()) {
        Ok(name) => name,
        Err(reason) => return refuse(tls, Reason::Done, reason).await,
    };
    let standing = service.peers().find(&name, hello.trunk);
    if let Some(standing) = standing.filter(|standing| tls.identity() == Some(&*standing.kept.peer)) {
        debug!(peer = %name, "a trunk's new carrier");
        return standing.kept.join(tls, first).await.map(drop).map_err(io::Error::other);
    }
    if hello.standing || hello.role != Role::Initiator {
        let reason = format!("{} has no such trunk any more", service.own_name());
        return refuse(tls, Reason::Trunk, reason).await;
    }
    if let Err(reason) = service.takes(&name).await {
        return refuse(tls, Reason::Done, reason).await;
    }
    if let Err(reason) = service.peers().room_for(&name) {
        return refuse(tls, Reason::Done, reason).await;
    }
    start(service, &name, hello.trunk, (tls, first), None).await.map(drop).map_err(io::Error::other)
}

/// Registers a trunk, joins its first carrier, and keeps the trunk from here on. `first` is
/// plaintext that was read from the carrier. `dialed` is whom this end has dialed, how, and with
/// which longest segment; `None` if the other end has dialed.
async fn start<S: Service>(
    service: &Arc<S>,
    name: &GridName,
    id: TrunkId,
    (tls, first): (Secured, Vec<u8>),
    dialed: Option<(Peer, DialedWay, Option<u16>)>,
) -> Result<Arc<Standing<S::Own>>, String> {
    let role = if dialed.is_some() { Role::Initiator } else { Role::Acceptor };
    let identity = tls.identity().cloned().ok_or("its carrier has no certificate")?;
    let config = service.config(role, id);
    let (trunk, notices) = service.plane().trunk(config).map_err(|error| error.to_string())?;
    let kept = Arc::new(Kept::new((id, dialed.is_some()), trunk, identity));
    let way = dialed.as_ref().map(|(_, way, _)| way.how.clone());
    let last = Last { way, ends: ends(tls.get_ref().0).into() };
    let peer = dialed.as_ref().map(|(peer, ..)| peer.clone());
    let standing = Arc::new(Standing::new(name.clone(), kept.clone(), last, peer));
    service.peers().add(standing.clone())?;
    let (carrier, certificate) = match kept.join(tls, first).await {
        Ok(joined) => joined,
        Err(error) => {
            service.peers().remove(&standing);
            service.ended();
            return Err(error);
        }
    };
    let dialed = dialed.map(|(_, way, segment)| (way, segment));
    if let Some((way, _)) = &dialed {
        standing.joined(carrier, way);
    }
    let first = First { id: carrier, dialed };
    let link = Link { service: service.clone(), standing: standing.clone() };
    tokio::spawn(keep(Arc::new(link), kept, notices, (first, certificate)));
    Ok(standing)
}

/// What the dialing of a carrier is told.
fn purpose<'a, S: Service>(
    service: &'a S,
    name: &'a GridName,
    expected: &'a Expected,
    by: By,
) -> Purpose<'a> {
    let tls = Purpose::tls(service.tls(), expected.owner.as_ref());
    Purpose { options: options(by), node: Some(name), ..tls }
}

fn options(by: By) -> SocketOptions {
    SocketOptions { source: by.rail.source, segment: by.segment, ..SocketOptions::default() }
}

/// Takes a connection that was dialed along the plan as a carrier.
fn dialed<S: Service>(reached: Reached) -> Result<Dialed<DialedWay>, ReachError> {
    let (how, segment, name) = (CarrierWay::of(&reached), reached.segment, reached.node);
    let carrier = reached.carrier.encrypted().and_then(|tls| carrier::<S>(tls, &name, (how, segment)));
    carrier.map_err(|error| ReachError::no_way(error.to_string()))
}

/// Takes a connection as a carrier, if the party at the other end keeps trunks, which the protocol
/// name shows.
fn carrier<S: Service>(
    tls: Secured,
    name: &GridName,
    (how, segment): (CarrierWay, Option<u16>),
) -> io::Result<Dialed<DialedWay>> {
    if tls.get_ref().1.alpn_protocol() != Some(S::PROTOCOL) {
        return Err(io::Error::other(format!("{} has no trunks", S::called(name))));
    }
    let way = DialedWay { how, ends: ends(tls.get_ref().0).into() };
    Ok(Dialed { tls, way, segment })
}

impl<S: Service> Link<S> {
    /// Dials a carrier: at the address that the other end has told for the rail, or else along the
    /// whole plan.
    async fn dial_once(&self, by: By) -> Result<Dialed<DialedWay>, Undialed> {
        let Self { service, standing } = self;
        let name = &standing.name;
        let Some(address) = by.rail.address else {
            let peer = standing.peer().ok_or_else(|| io::Error::other("the other end dials it"))?;
            return Ok(dial(service, name, peer, by).await?.0);
        };
        let (dialer, expected) = (service.dialer(), service.expected(name));
        let tls = dialer.reach_at(address.into(), &expected, service.tls(), options(by)).await?;
        Ok(carrier::<S>(tls, name, (CarrierWay::told_address(), by.segment))?)
    }

    /// Dials by a step of the plan that is better than at least one of `than`. `None` if there is
    /// none, or it has failed of late.
    async fn dial_by_better_step(
        &self,
        than: &[DialedWay],
        segment: Option<u16>,
    ) -> Result<Option<Better<DialedWay>>, ReachError> {
        let Self { service, standing } = self;
        let ways: Option<Vec<_>> = than.iter().map(|way| way.how.used()).collect();
        let (Some(ways), Some(peer)) = (ways, standing.peer()) else { return Ok(None) };
        if than.iter().all(|way| S::is_best(&way.how)) {
            return Ok(None);
        }
        let (name, expected) = (&standing.name, service.expected(&standing.name));
        let purpose = purpose(&**service, name, &expected, By { segment, ..By::default() });
        let better = service.dialer().reach_better(peer, &ways, purpose).await?;
        let Some((reached, outdone)) = better else { return Ok(None) };
        let dialed = dialed::<S>(reached)?;
        let way = &dialed.way.how;
        info!(peer = %name, dial = %dial_name(way.dial), relay = way.relay, "a better way works");
        Ok(Some(Better { dialed, outdone }))
    }
}

impl<S: Service> Embedding for Link<S> {
    type CarrierWay = DialedWay;

    fn peer(&self) -> String {
        S::called(&self.standing.name)
    }

    fn dials(&self) -> bool {
        self.standing.peer().is_some()
    }

    fn rails(&self) -> &[Rail] {
        self.service.rails()
    }

    async fn dial(self: Arc<Self>, by: By) -> Result<Dialed<DialedWay>, Undialed> {
        tokio::select! {
            dialed = self.dial_once(by) => dialed,
            reason = S::gone(&self) => Err(Undialed::Never(reason)),
        }
    }

    /// Dials a carrier by a step of the plan that is better than at least one of `than`, and that has
    /// not failed of late. Steps that have failed are tried again in the background.
    async fn dial_better(
        self: Arc<Self>,
        than: Vec<DialedWay>,
        segment: Option<u16>,
    ) -> Option<Result<Better<DialedWay>, Undialed>> {
        let better = self.dial_by_better_step(&than, segment).await;
        better.map_err(Undialed::from).transpose()
    }

    fn joins(&self, way: &DialedWay) {
        self.standing.joins(way);
    }

    fn joined(&self, id: CarrierId, way: &DialedWay) {
        self.standing.joined(id, way);
    }

    fn carrier_ended(&self, id: CarrierId) {
        self.standing.forget(id);
    }

    fn works(&self, id: CarrierId, way: Option<&DialedWay>) {
        S::works(self, id, way.map(|way| &way.how));
    }

    fn healed(&self) {
        S::healed(self);
    }

    fn opened(&self, stream: Stream) {
        S::opened(self, stream);
    }

    fn ended(&self) {
        self.service.peers().remove(&self.standing);
        self.service.ended();
    }
}
