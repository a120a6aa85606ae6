//! The gateway as a party that dials other sites' gateways, by the dialer that agents have: its
//! access to the broker, the broker's orders to dial, and how it is seen from outside.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_identity::Credentials;
use isthmus_identity::credentials::CredentialsError;
use isthmus_net::relay_places::RelayPlaces;
use isthmus_plan::Failures;
use isthmus_reach::probing::look_outside;
use isthmus_reach::retry;
use isthmus_reach::{ControlPlane, Dialer, NotDialed, Outside, PendingRendezvous, Signatures};
use isthmus_rpc::contact::carriers_from_facts;
use isthmus_rpc::grpc::{self, Repeat};
use isthmus_rpc::rendezvous::{Order, Peer, Reply, Request, RequestWay};
use isthmus_service::{Deadline, lock};
use isthmus_wire::GridName;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_up};
use tokio::time::sleep;
use tonic::Status;
use tracing::{info, warn};

use super::{SiteTrunks, carriers};
use crate::alone::ways::without_broker;
use crate::gateway::Gateway;
use crate::streams::is_this_machine;

/// How often relays are asked how this gateway is seen from outside.
const LOOK: Duration = Duration::from_secs(60);
/// The first and the longest pause as long as that isn't known.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How long the broker isn't asked again of a gateway, unless it has said that plans have changed.
/// A trunk that is cut is dialed again and again, and the broker may be beyond the cut.
const FRESH: Duration = Duration::from_secs(300);
/// How long the broker may take to answer if it has answered before. A trunk that is cut is dialed by
/// the last answer then.
const BESIDE_KNOWN: Duration = Duration::from_secs(1);
/// For how long an answer holds for a gateway that makes trunks again and again.
const AGAIN: Duration = Duration::from_secs(1);
/// Most gateways of other sites of which the last lookup is kept.
const KNOWN: usize = 4096;

/// What the gateway needs to dial, and to be dialed.
pub(super) struct Dialing {
    /// The connections for which this gateway waits.
    pub(super) rendezvous: Arc<PendingRendezvous>,
    outside: Arc<Outside>,
    failures: Arc<Mutex<Failures<Peer>>>,
    signatures: Arc<Signatures>,
    known: Mutex<HashMap<GridName, Known>>,
    /// How this gateway is seen from outside, as the broker was told last.
    seen: Mutex<Option<proto::Seen>>,
}

/// The last lookup of a gateway, which also serves while the broker is away.
#[derive(Clone)]
struct Known {
    reply: Arc<proto::LookupReply>,
    asked: Instant,
    /// Whether a dial by it has failed since, or plans have changed: the broker is to be asked again.
    doubted: bool,
}

impl Dialing {
    pub(super) fn new(credentials: &Credentials) -> Result<Self, CredentialsError> {
        Ok(Self {
            rendezvous: Arc::default(),
            outside: Arc::default(),
            failures: Arc::default(),
            signatures: Arc::new(Signatures::new(credentials)?),
            known: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    /// Takes in that plans to other sites' gateways may have changed.
    pub(super) fn plans_changed(&self) {
        lock(&self.known).values_mut().for_each(|known| known.doubted = true);
    }

    /// How this gateway is seen from outside; `None` as long as that isn't known.
    pub(super) fn seen(&self) -> Option<proto::Seen> {
        lock(&self.seen).clone()
    }

    fn known(&self, name: &GridName) -> Option<Known> {
        lock(&self.known).get(name).cloned()
    }

    fn keep(&self, name: &GridName, reply: Arc<proto::LookupReply>) {
        let mut known = lock(&self.known);
        if known.len() >= KNOWN && !known.contains_key(name) {
            known.clear();
        }
        known.insert(name.clone(), Known { reply, asked: Instant::now(), doubted: false });
    }
}

/// What the broker says of another site's gateway now, with the plan to it; or what it said last.
///
/// # Errors
/// The broker's status, if it has never said anything.
pub(super) async fn asked(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
    limit: Duration,
) -> Result<Arc<proto::LookupReply>, Status> {
    let just_asked = |known: &Known| known.asked.elapsed() < AGAIN;
    if let Some(known) = trunks.dialing.known(name).filter(just_asked) {
        return Ok(known.reply);
    }
    Party::new(gateway, trunks).ask_or_know(name, Deadline::within(limit)).await
}

/// The dialer of this gateway.
pub(super) fn dialer(gateway: &Arc<Gateway>, trunks: &Arc<SiteTrunks>) -> Dialer {
    let dialing = &trunks.dialing;
    Dialer {
        control: Party::new(gateway, trunks),
        address: gateway.outside_address(),
        rendezvous: dialing.rendezvous.clone(),
        outside: dialing.outside.clone(),
        raw: None,
        failures: dialing.failures.clone(),
        signatures: dialing.signatures.clone(),
    }
}

/// Carries out the broker's order to dial another site's gateway, which waits for that.
pub(crate) fn ordered(gateway: &Arc<Gateway>, order: proto::DialRequest) {
    let Some(trunks) = gateway.site_trunks.clone() else { return };
    let order = match Order::read(order, "") {
        Ok(order) => order,
        Err(error) => return warn!(%error, "the broker's order to dial is ignored"),
    };
    let Peer::Gateway(name) = order.initiator.clone() else {
        return warn!(initiator = %order.initiator, "the broker's order to dial a node is ignored");
    };
    let Some(place) = trunks.orders.take(&name.site) else {
        return info!(peer = %name, "too many orders for trunks with that site at once, one is dropped");
    };
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let dialed = async {
            match dialer(&gateway, &trunks).accept(&order).await.map_err(io::Error::other)? {
                Some(tcp) => carriers::accept(gateway, tcp).await,
                None => Ok(()),
            }
        };
        if let Err(error) = dialed.await {
            let reason = error.to_string();
            info!(peer = %name, way = %order.way, reason, "no carrier to another site's gateway");
        }
        drop(place);
    });
}

/// Tries dials again that have failed, so that no trunk waits for them; never returns.
pub(crate) async fn retry(gateway: &Arc<Gateway>) {
    match &gateway.site_trunks {
        Some(trunks) => retry::watch(&dialer(gateway, trunks), &trunks.client).await,
        None => std::future::pending().await,
    }
}

/// Finds out how this gateway is seen from outside, again and again, and tells the broker what has
/// changed; never returns.
pub(crate) async fn watch(gateway: &Gateway) {
    let mut pause = PAUSE.0;
    loop {
        let known = match &gateway.site_trunks {
            Some(trunks) => look(gateway, &trunks.dialing).await,
            None => std::future::pending().await,
        };
        sleep(if known { LOOK } else { pause }).await;
        pause = if known { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
    }
}

/// Returns whether it is known how the gateway is seen from outside.
async fn look(gateway: &Gateway, dialing: &Dialing) -> bool {
    let Some(directory) = gateway.directory.for_agent(&gateway.site, 0) else { return false };
    let seen = look_outside(&dialing.outside, directory).await;
    let is_known = seen.mapping() != proto::Mapping::Unknown;
    // Relays may be down. What was seen before is the best guess then.
    if is_known {
        // No plan depends on anything else.
        let told = proto::Seen { mapping: seen.mapping, ..proto::Seen::default() };
        let before = lock(&dialing.seen).replace(told.clone());
        if before.as_ref() != Some(&told) {
            info!(mapping = ?told.mapping(), address = seen.address, "how this gateway is seen from outside");
            gateway.upstream.send(attach_up::Kind::Seen(told));
        }
    }
    is_known
}

/// This gateway as a party that dials other sites' gateways, and keeps trunks with them.
pub(super) struct Party {
    pub(super) gateway: Arc<Gateway>,
    pub(super) trunks: Arc<SiteTrunks>,
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gateway {}", self.gateway.grid_name())
    }
}

impl Party {
    pub(super) fn new(gateway: &Arc<Gateway>, trunks: &Arc<SiteTrunks>) -> Arc<Self> {
        Arc::new(Self { gateway: gateway.clone(), trunks: trunks.clone() })
    }

    /// Fails at once while the broker is away. `what` completes "cannot …" in messages.
    async fn reached(&self, what: &str) -> Result<(), Status> {
        let upstream = &self.gateway.upstream;
        upstream.reached().await.map_err(|_| upstream.absent(what))
    }

    async fn ask(&self, name: &GridName, deadline: Deadline) -> Result<proto::LookupReply, Status> {
        const WHAT: &str = "find another site's gateway";
        self.reached(WHAT).await?;
        let request = proto::LookupRequest { gateway: name.to_string(), ..proto::LookupRequest::default() };
        let call = |channel, request| async move { RegistryClient::new(channel).lookup(request).await };
        let budget = (Repeat::IfBroken, deadline);
        let mut reply = self.gateway.upstream.call(WHAT, budget, request, call).await?;
        reply.plan = reply.facts.as_ref().map(carriers_from_facts);
        Ok(reply)
    }

    /// Asks the broker. If the broker gives no answer, its last answer holds.
    async fn ask_or_know(
        &self,
        name: &GridName,
        deadline: Deadline,
    ) -> Result<Arc<proto::LookupReply>, Status> {
        let deadline = match self.trunks.dialing.known(name) {
            Some(_) => deadline.part(BESIDE_KNOWN),
            None => deadline,
        };
        match self.ask(name, deadline).await {
            Ok(reply) => {
                let reply = Arc::new(reply);
                self.trunks.dialing.keep(name, reply.clone());
                Ok(reply)
            }
            Err(status) if self.gateway.is_lost(&status) => self.known(name, status),
            Err(status) => Err(status),
        }
    }

    /// The last answer, without the dials that the broker must arrange: it has failed with this
    /// status.
    ///
    /// # Errors
    /// The status, if there was no answer before.
    fn known(&self, name: &GridName, status: Status) -> Result<Arc<proto::LookupReply>, Status> {
        let Some(Known { reply, .. }) = self.trunks.dialing.known(name) else { return Err(status) };
        let plan = reply.plan.clone().map(|plan| without_broker(plan, &grpc::reason(&status)));
        Ok(Arc::new(proto::LookupReply { plan, ..(*reply).clone() }))
    }
}

#[tonic::async_trait]
impl ControlPlane for Party {
    fn site(&self) -> &str {
        self.gateway.site.as_str()
    }

    async fn lookup(&self, peer: &Peer, deadline: Deadline) -> Result<Arc<proto::LookupReply>, Status> {
        let Peer::Gateway(name) = peer else {
            return Err(Status::unimplemented(format!("a gateway doesn't dial node {peer}")));
        };
        let is_fresh = |known: &Known| !known.doubted && known.asked.elapsed() < FRESH;
        match self.trunks.dialing.known(name).filter(is_fresh) {
            Some(known) => Ok(known.reply),
            None => self.ask_or_know(name, deadline).await.or_else(|status| self.known(name, status)),
        }
    }

    fn forget(&self, peer: &Peer) {
        if let Peer::Gateway(name) = peer
            && let Some(known) = lock(&self.trunks.dialing.known).get_mut(name)
        {
            known.doubted = true;
        }
    }

    async fn rendezvous(
        &self,
        peer: &Peer,
        (way, segment): (RequestWay, Option<u16>),
        deadline: Deadline,
    ) -> Result<Reply, Status> {
        const WHAT: &str = "arrange a carrier";
        self.reached(WHAT).await?;
        let request = Request { to: peer.clone(), initiator: Ipv4Addr::UNSPECIFIED, way, segment };
        let request = proto::RendezvousRequest::from(request);
        let call = |channel, request| async move { RegistryClient::new(channel).rendezvous(request).await };
        let budget = (Repeat::Never, deadline);
        let reply = self.gateway.upstream.call(WHAT, budget, request, call).await?;
        Reply::read(reply, "").map_err(|error| Status::internal(error.to_string()))
    }

    async fn send(&self, kind: attach_up::Kind) {
        self.gateway.upstream.send(kind);
    }

    fn relay_places(&self) -> RelayPlaces {
        self.gateway.directory.relay_places()
    }

    fn check_address(&self, at: IpAddr) -> Result<(), NotDialed> {
        if self.gateway.roster().is_own(at) || is_this_machine(at) {
            return Err(NotDialed::OwnSite(at));
        }
        Ok(())
    }
}
