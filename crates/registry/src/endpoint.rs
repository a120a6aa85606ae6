//! The two parties of a connection that is arranged: two nodes, or two gateways.

use isthmus_plan::{Dial, EndFacts, PairFacts, Reason, Route, Told, site_trunk};
use isthmus_rpc::contact::known;
use isthmus_rpc::enums::mapping_to_wire;
use isthmus_rpc::rendezvous::{Peer, Request};
use isthmus_wire::{GridName, Label, proto};

use super::answers::{LookupError, RendezvousError};
use super::site::{GatewayEntry, SiteEntry};
use super::{NodeEntry, Party, Presence, Registry};

/// A party that dials, or is dialed.
#[derive(Debug)]
pub(super) enum Endpoint<'a> {
    Node(&'a NodeEntry),
    Gateway(GridName, &'a GatewayEntry),
}

/// The two parties of a request, which are both there.
pub(super) struct Endpoints<'a> {
    pub(super) from: Endpoint<'a>,
    pub(super) to: Endpoint<'a>,
    /// The facts about the initiator, the acceptor, and both together.
    pub(super) facts: (EndFacts, EndFacts, PairFacts),
    /// The gateway that receives the order to the acceptor.
    pub(super) acceptor: Party,
}

impl<'a> Endpoint<'a> {
    pub(super) fn name(&self) -> &GridName {
        match self {
            Self::Node(entry) => &entry.name,
            Self::Gateway(name, _) => name,
        }
    }

    /// The node; `None` for a gateway.
    pub(super) fn node(&self) -> Option<&'a NodeEntry> {
        match self {
            Self::Node(entry) => Some(entry),
            Self::Gateway(..) => None,
        }
    }
}

impl Registry {
    /// Finds both parties of a request. `caller` is the gateway that sent the request.
    ///
    /// # Errors
    /// If a party is unknown, absent or down, or isn't the caller's.
    pub(super) fn endpoints(
        &self,
        caller: (&Label, &Label),
        request: &Request,
    ) -> Result<Endpoints<'_>, RendezvousError> {
        match &request.to {
            Peer::Node(destination) => {
                self.nodes(caller.0, (request.initiator.into(), (*destination).into()))
            }
            Peer::Gateway(other) => self.gateways(caller, other, request.way.way()),
        }
    }

    fn nodes(&self, site: &Label, (from, to): (u32, u32)) -> Result<Endpoints<'_>, RendezvousError> {
        let initiator = self.own_node(site, from)?;
        let lookup = proto::LookupRequest { virtual_address: to, ..proto::LookupRequest::default() };
        let address = self.resolve(&lookup).map_err(RendezvousError::Lookup)?;
        let (to, _) = self.present(address).map_err(RendezvousError::Lookup)?;
        if to.presence == Presence::Down {
            let reason = format!("the agent of node {} is not running", to.name);
            return Err(RendezvousError::Unavailable(reason.into()));
        }
        let acceptor = self.home(&to.name)?;
        let (from, _) = self.present(initiator).map_err(RendezvousError::Lookup)?;
        // Down by a revocation: its gateway may be captured as well, and not have said so.
        if from.presence == Presence::Down {
            let reason = format!("the agent of node {} is not attached", from.name);
            return Err(RendezvousError::Unavailable(reason.into()));
        }
        let facts = known(&self.end(from), &self.facts(site, to));
        Ok(Endpoints { from: Endpoint::Node(from), to: Endpoint::Node(to), facts, acceptor })
    }

    /// Two gateways, which may have a trunk by this way.
    fn gateways(
        &self,
        (site, name): (&Label, &Label),
        other: &GridName,
        (route, dial): (Route, Dial),
    ) -> Result<Endpoints<'_>, RendezvousError> {
        let own = GridName { node: name.clone(), site: site.clone() };
        if other.site == own.site {
            let reason = "a site's gateways keep no trunks with each other".to_owned();
            return Err(RendezvousError::Unavailable(reason.into()));
        }
        let unavailable = |error: LookupError| {
            RendezvousError::Unavailable(Told { text: error.to_string(), remedy: error.remedy() })
        };
        let from = self.attached_entry(&own).map_err(unavailable)?;
        let to = self.attached_entry(other).map_err(unavailable)?;
        let wire = self.gateway_facts((&own, from), (other, to));
        let facts = known(&wire.initiator.clone().unwrap_or_default(), &wire);
        let plan = site_trunk::carriers(&facts.0, &facts.1, &facts.2);
        if !plan.steps.iter().any(|step| (step.route, step.dial) == (route, dial)) {
            let left_out = plan.left_out.into_iter();
            let mut reasons = left_out.filter(|left| left.dial == dial || !plan.takes_site_trunk);
            let reason = reasons.next().map_or(Reason::NoSuchWay, |left| left.reason);
            return Err(RendezvousError::Unavailable((&reason).into()));
        }
        let (from, to) = (Endpoint::Gateway(own, from), Endpoint::Gateway(other.clone(), to));
        Ok(Endpoints { from, to, facts, acceptor: Party::gateway(&other.site, &other.node) })
    }

    /// The address of another site's gateway, and the facts for the plan from the caller to it.
    ///
    /// # Errors
    /// If either isn't attached, or both are of one site.
    pub(super) fn lookup_gateway(
        &self,
        (site, name): (&Label, &Label),
        other: &str,
    ) -> Result<proto::LookupReply, LookupError> {
        let own = GridName { node: name.clone(), site: site.clone() };
        let other: GridName = other.parse().map_err(|_| LookupError::NoGateway(other.to_owned()))?;
        let (from, to) = (self.attached_entry(&own)?, self.attached_entry(&other)?);
        let (version, address) = (to.version.clone(), to.outside_address.clone());
        let node = proto::Node { name: other.to_string(), address, version, up: true, ..Default::default() };
        let facts = self.gateway_facts((&own, from), (&other, to));
        Ok(proto::LookupReply { node: Some(node), plan: None, facts: Some(facts) })
    }

    fn gateway_facts(
        &self,
        (own, from): (&GridName, &GatewayEntry),
        (other, to): (&GridName, &GatewayEntry),
    ) -> proto::Facts {
        let initiator = Some(self.gateway_end(own, from));
        proto::Facts { initiator, ..self.pair_facts(&own.site, &other.site, self.gateway_end(other, to)) }
    }

    /// The facts about a gateway as a party that dials other gateways, and is dialed by them.
    fn gateway_end(&self, name: &GridName, gateway: &GatewayEntry) -> proto::End {
        let inbound = match gateway.outside_address.as_str() {
            "" => proto::Inbound::Closed,
            _ => proto::Inbound::Open,
        };
        let seen = proto::Seen {
            mapping: mapping_to_wire(gateway.mapping).into(),
            way_out: proto::WayOut::Yes.into(),
            own: gateway.outside_reach.clone(),
            ..proto::Seen::default()
        };
        let site = self.sites.get(&name.site);
        proto::End {
            node: name.to_string(),
            inbound: inbound.into(),
            seen: Some(seen),
            attached: gateway.session.is_some(),
            site_trunk: site.is_some_and(|site| site.declared().site_trunk),
            ..proto::End::default()
        }
    }

    fn attached_entry(&self, name: &GridName) -> Result<&GatewayEntry, LookupError> {
        let gateway = self.sites.get(&name.site).and_then(|site: &SiteEntry| site.gateways.get(&name.node));
        let attached = gateway.filter(|gateway| gateway.session.is_some());
        attached.ok_or_else(|| LookupError::NoGateway(name.to_string()))
    }
}
