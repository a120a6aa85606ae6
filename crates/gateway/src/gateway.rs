//! What the gateway's services share.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use isthmus_identity::{Credentials, Identity, Role};
use isthmus_rpc::grpc;
use isthmus_rpc::grpc::attachments::Attachments;
use isthmus_rpc::rendezvous::Leg;
use isthmus_service::lock;
use isthmus_wire::proto::{self, attach_down, attach_up};
use isthmus_wire::{GridName, Label, RelayName, VirtualAddress};
use tonic::{Request, Status};

use crate::config::{GatewayConfig, Measure};
use crate::directory::Directory;
use crate::lookups::Lookups;
use crate::outside::port::OutsidePort;
use crate::roster::{Effect, Roster, SessionId};
use crate::site_trunks::SiteTrunks;
use crate::streams::Streams;
use crate::told::Told;
use crate::upstream::Upstream;
use crate::way_out::Answered;

/// Most messages that may wait for an agent: as many as a rendezvous with each of 1,024 nodes at
/// once.
const QUEUE: usize = 1024;

/// The state that the gateway's services share.
pub(crate) struct Gateway {
    pub(crate) credentials: Credentials,
    pub(crate) site: Label,
    /// The first message to the broker, without the outside address and the likely address.
    pub(crate) hello: proto::GatewayUp,
    pub(crate) upstream: Upstream,
    pub(crate) sessions: Attachments<SessionId>,
    pub(crate) streams: Arc<Streams>,
    /// Trunks with gateways of other sites; `None` if the site keeps none.
    pub(crate) site_trunks: Option<Arc<SiteTrunks>>,
    /// Whether the site's nodes can dial out, as configured; `None` if they measure it.
    pub(crate) nodes_dial_out: Option<bool>,
    /// Whether a relay or gateway outside answers this gateway.
    pub(crate) answered: Answered,
    /// Whether other sites reach the port outside.
    pub(crate) outside: OutsidePort,
    pub(crate) directory: Directory,
    /// The addresses of the site's gateways, as the broker told last.
    pub(crate) site_gateways: Mutex<Option<proto::SiteGateways>>,
    pub(crate) lookups: Lookups,
    /// What the broker told of other sites, for times when the broker is away.
    pub(crate) told: Mutex<Told>,
    /// The address at which other sites reach the gateway, once it is found.
    pub(crate) outside_address: OnceLock<String>,
    roster: Mutex<Roster>,
}

impl Gateway {
    pub(crate) fn new(
        credentials: Credentials,
        site: Label,
        config: &GatewayConfig,
        listening: Option<SocketAddr>,
        (upstream, streams, site_trunks): (Upstream, Streams, Option<SiteTrunks>),
    ) -> Self {
        let listening = || listening.map(|address| address.to_string()).unwrap_or_default();
        let hello = proto::GatewayUp {
            site: site.to_string(),
            inbound: proto::Inbound::from(config.inbound).into(),
            address: config.address.clone().unwrap_or_else(listening),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            outside_address: String::new(),
            measure_off: config.measure == Measure::Off,
            site_trunk: config.site_trunk,
            likely_address: String::new(),
        };
        let directory = Directory::new(credentials.upstream(), &config.relay_networks);
        Self {
            credentials,
            site: site.clone(),
            hello,
            upstream,
            sessions: Attachments::new(QUEUE),
            streams: Arc::new(streams),
            site_trunks: site_trunks.map(Arc::new),
            nodes_dial_out: config.nodes_dial_out,
            answered: Answered::default(),
            outside: OutsidePort::default(),
            directory,
            site_gateways: Mutex::default(),
            lookups: Lookups::default(),
            told: Mutex::new(Told::new(site.clone())),
            outside_address: OnceLock::new(),
            roster: Mutex::new(Roster::new(site)),
        }
    }

    pub(crate) fn roster(&self) -> MutexGuard<'_, Roster> {
        lock(&self.roster)
    }

    /// This gateway's name as a relay.
    pub(crate) fn relay_name(&self) -> RelayName {
        let node = self.credentials.identity().name().clone();
        RelayName::Gateway(GridName { node, site: self.site.clone() })
    }

    /// The address at which other sites reach the gateway; empty if it is unknown, or if there is
    /// none.
    pub(crate) fn outside_address(&self) -> String {
        self.outside_address.get().cloned().unwrap_or_default()
    }

    /// Opens a connection for a node of this site.
    pub(crate) async fn dial(&self, leg: &Leg) -> Result<(), Status> {
        let own = |ip| self.roster().is_own(ip);
        self.streams.dial(leg, &self.directory.relay_places(), own).await.map_err(|reason| {
            Status::unavailable(format!("the gateway of site {} dials for its node: {reason}", self.site))
        })
    }

    /// All messages that a broker without state must receive.
    pub(crate) fn announcements(&self) -> Vec<attach_up::Kind> {
        let reach = self.outside.reach().map(attach_up::Kind::GatewayReach);
        let seen = self.seen_outside().map(attach_up::Kind::Seen);
        reach.into_iter().chain(seen).chain(self.roster().announcements()).collect()
    }

    /// How this gateway is seen from outside; `None` if it isn't known, or the site keeps no trunks.
    pub(crate) fn seen_outside(&self) -> Option<proto::Seen> {
        self.site_trunks.as_ref().and_then(|trunks| trunks.seen_outside())
    }

    /// Carries out the roster's effects. Never waits.
    pub(crate) fn carry_out(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ToAgent(to, kind) => self.sessions.send(to, kind),
                Effect::Close(session, reason) => self.sessions.close(session, reason),
                Effect::ToBroker(kind) => self.upstream.send(kind),
                Effect::Changed(address) => self.contact_changed(address),
            }
        }
    }

    /// Takes in that a contact changed: agents that may hold it drop it.
    pub(crate) fn contact_changed(&self, address: VirtualAddress) {
        if self.lookups.changed(address) {
            self.send_contact_changed(address.ip().into());
        }
    }

    /// Takes in that every contact of another site may have changed.
    pub(crate) fn forget_contacts(&self) {
        if let Some(trunks) = &self.site_trunks {
            trunks.plans_changed();
        }
        if self.lookups.all_changed() {
            self.send_contact_changed(0);
        }
    }

    /// Takes in that the plans of this site's nodes may have changed. What the broker told is kept.
    pub(crate) fn plans_changed(&self) {
        if self.lookups.plans_changed() {
            self.send_contact_changed(0);
        }
    }

    /// Takes in the directory from the broker; agents receive their part of it.
    pub(crate) fn directory_changed(&self, directory: proto::Directory) {
        let nodes = self.roster().sessions().count();
        if let Some(directory) = self.directory.set(&self.site, directory, nodes) {
            self.send_to_agents(attach_down::Kind::Directory(directory));
        }
    }

    /// Takes in the site's gateways from the broker; agents receive them, for when this gateway is
    /// lost.
    pub(crate) fn site_gateways_changed(&self, gateways: proto::SiteGateways) {
        *lock(&self.site_gateways) = Some(gateways.clone());
        self.send_to_agents(attach_down::Kind::SiteGateways(gateways));
    }

    /// Takes in revocations from the broker; agents receive them, too.
    pub(crate) fn revoked(&self, revocations: proto::Revocations) {
        self.credentials.peers().receive(revocations.clone());
        self.send_to_agents(attach_down::Kind::Revocations(revocations));
    }

    /// Tells agents whether this gateway has lost the broker. They may change to another gateway
    /// meanwhile.
    pub(crate) fn send_cut_off(&self, cut_off: bool) {
        self.send_to_agents(attach_down::Kind::CutOff(proto::CutOff { cut_off }));
    }

    /// Tells agents that a trunk ends, as this gateway of another site is gone.
    pub(crate) fn send_gateway_lost(&self, gateway: &GridName) {
        let lost = proto::GatewayLost { gateway: gateway.to_string() };
        self.send_to_agents(attach_down::Kind::GatewayLost(lost));
    }

    /// Tells agents that a contact has changed; 0 stands for those of all other sites.
    fn send_contact_changed(&self, virtual_address: u32) {
        let changed = proto::ContactChanged { virtual_address };
        self.send_to_agents(attach_down::Kind::ContactChanged(changed));
    }

    fn send_to_agents(&self, kind: attach_down::Kind) {
        let sessions: Vec<_> = self.roster().sessions().collect();
        for session in sessions {
            self.sessions.send(session, kind.clone());
        }
    }

    /// The identity of the caller, which must be an agent of this site.
    pub(crate) fn own_agent<T>(&self, request: &Request<T>) -> Result<Arc<Identity>, Status> {
        let caller = grpc::caller(request)?;
        if caller.role() == Role::Agent && caller.site() == Some(&self.site) {
            Ok(caller)
        } else {
            Err(Status::permission_denied(format!(
                "this is the gateway of site {}, which serves the agents of its own site, and not {caller}",
                self.site
            )))
        }
    }

    /// Checks that an agent names its own node as the initiator.
    pub(crate) fn check_initiator(&self, caller: &Identity, initiator: u32) -> Result<(), Status> {
        let own = self.roster().address(caller.name());
        if own.is_some_and(|own| u32::from(own.ip()) == initiator) {
            return Ok(());
        }
        let address = std::net::Ipv4Addr::from(initiator);
        Err(Status::permission_denied(format!("{address} is not the address of {caller}")))
    }
}
