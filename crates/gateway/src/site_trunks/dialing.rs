//! The gateway as a party that dials other sites' gateways, by the dialer that agents have: its
//! access to the broker, and how it is seen from outside.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use isthmus_net::relay_places::RelayPlaces;
use isthmus_plan::Remedy;
use isthmus_reach::probing::look_outside;
use isthmus_reach::retry;
use isthmus_reach::{ControlPlane, Dialer, NotDialed};
use isthmus_rpc::contact::carriers_from_facts;
use isthmus_rpc::grpc::{self, Repeat};
use isthmus_rpc::rendezvous::{Peer, Reply, Request, RequestWay};
use isthmus_service::Deadline;
use isthmus_wire::GridName;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_up};
use tokio::time::sleep;
use tonic::Status;
use tracing::info;

use super::SiteTrunks;
use super::known::{Dialing, Known};
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
        if dialing.sees(&told) {
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

    /// Whether the broker has the gateway of this name: it is attached. `None` if the broker doesn't
    /// answer.
    pub(super) async fn is_attached(&self, name: &GridName, limit: Duration) -> Option<bool> {
        match self.ask(name, Deadline::within(limit)).await {
            Ok(_) => Some(true),
            Err(status) if self.gateway.is_lost(&status) => None,
            Err(status) => (grpc::told(&status).remedy == Some(Remedy::StartGateway)).then_some(false),
        }
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
        if let Peer::Gateway(name) = peer {
            self.trunks.dialing.doubt(name);
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
