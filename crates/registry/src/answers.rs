//! Answers to lookups and explanations, and their errors.

use std::fmt;
use std::net::Ipv4Addr;

use isthmus_identity::signed::contact::addresses_of;
use isthmus_plan::ways::Pin;
use isthmus_plan::{Inbound, Reason, Remedy, Told};
use isthmus_rpc::contact::plan_from_facts;
use isthmus_rpc::enums::{dial_to_wire, inbound_to_wire, route_to_wire};
use isthmus_rpc::seen;
use isthmus_wire::{GridName, Label, VirtualAddress, proto};

use super::{NodeEntry, Party, Presence, Registry, SiteEntry, contact};

/// Why a lookup failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    /// The grid never had a node of this name or address.
    Unknown(String),
    /// The node has an address, but no gateway has announced it.
    Absent(String),
    /// No gateway with this grid name is attached.
    NoGateway(String),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(what) => {
                write!(f, "there is no node {what} in the grid; `isthmus status` lists the nodes")
            }
            Self::Absent(node) => {
                write!(f, "the agent of node {node} is not attached to the grid at the moment")
            }
            Self::NoGateway(name) => write!(f, "gateway {name} is not attached to the broker"),
        }
    }
}

impl LookupError {
    /// What a person can do about it.
    pub fn remedy(&self) -> Option<Remedy> {
        matches!(self, Self::NoGateway(_)).then_some(Remedy::StartGateway)
    }
}

/// Why a rendezvous was not arranged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RendezvousError {
    /// A node of the request was not found.
    Lookup(LookupError),
    /// The initiator is no node of the caller's site.
    NotYours(String),
    /// The caller orders too much.
    TooOften(String),
    /// A party or a way is missing at the moment.
    Unavailable(Told),
}

impl fmt::Display for RendezvousError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup(error) => error.fmt(f),
            Self::NotYours(text) | Self::TooOften(text) => f.write_str(text),
            Self::Unavailable(told) => told.fmt(f),
        }
    }
}

impl Registry {
    /// The contact of a node, and the facts for plans from nodes of `site` to it. The gateway that
    /// asked receives a message when the contact changes. Or the address of another site's gateway,
    /// and the facts for a plan from the gateway that asked.
    ///
    /// # Errors
    /// If the node is unknown or absent, or the gateway isn't attached.
    pub fn lookup(
        &mut self,
        (site, gateway): (&Label, &Label),
        request: &proto::LookupRequest,
    ) -> Result<proto::LookupReply, LookupError> {
        if !request.gateway.is_empty() {
            return self.lookup_gateway((site, gateway), &request.gateway);
        }
        let address = self.resolve(request)?;
        self.present(address)?;
        self.holds(site, gateway, address);
        let (entry, _) = self.present(address)?;
        let signed = entry.contact.signed.clone();
        let node = proto::Node { signed, ..self.node(address, entry) };
        if entry.presence == Presence::Down {
            // Without its gateways nobody knows.
            let gone = self.sites.get(&entry.name.site).is_some_and(SiteEntry::is_attached);
            let node = proto::Node { gone, ..node };
            return Ok(proto::LookupReply { node: Some(node), plan: Some(no_way(entry)), facts: None });
        }
        let facts = self.facts(site, entry);
        Ok(proto::LookupReply { node: Some(node), plan: None, facts: Some(facts) })
    }

    /// The plan from one node to another.
    ///
    /// # Errors
    /// If either node is unknown or absent.
    pub fn explain(&self, request: &proto::ExplainRequest) -> Result<proto::ExplainReply, LookupError> {
        let find = |name: &str| {
            let lookup = proto::LookupRequest { name: name.to_owned(), ..proto::LookupRequest::default() };
            self.resolve(&lookup).and_then(|address| Ok(self.present(address)?.0))
        };
        let (from, to) = (find(&request.from)?, find(&request.to)?);
        let (initiator, facts) = (self.end(from), self.facts(&from.name.site, to));
        let down = [from, to].into_iter().find(|entry| entry.presence == Presence::Down);
        let plan = down.map_or_else(|| plan_from_facts(&initiator, &facts), no_way);
        let (plan, initiator, facts) = (Some(plan), Some(initiator), Some(facts));
        Ok(proto::ExplainReply { plan, initiator, facts, without_broker: None })
    }

    pub(super) fn facts(&self, site: &Label, acceptor: &NodeEntry) -> proto::Facts {
        let other = &acceptor.name.site;
        proto::Facts {
            initiator_site: self.sites.get(site).map(SiteEntry::facts),
            acceptor_met: self.site_paths.has_connected(site, other),
            initiator_met: self.site_paths.has_connected(other, site),
            joining: self.joining([site, other], acceptor),
            ..self.pair_facts(site, other, self.end(acceptor))
        }
    }

    /// The facts about two sites together, with those of the acceptor.
    pub(super) fn pair_facts(&self, site: &Label, other: &Label, acceptor: proto::End) -> proto::Facts {
        let forbidden = self.policy.forbidden.between(site, other);
        let path = self.site_paths.between(site, other);
        proto::Facts {
            acceptor: Some(acceptor),
            trusted: self.policy.trusted.contains(site, other),
            relays: u32::try_from(self.reflecting([site, other]).count()).unwrap_or(u32::MAX),
            gateways_join_none: self.relays_up() > 0 && self.relays_for([site, other]).is_empty(),
            forbidden: forbidden.dials.each().map(|dial| dial_to_wire(dial).into()).collect(),
            forbidden_routes: forbidden.routes.each().map(|route| route_to_wire(route).into()).collect(),
            trunk_pin: match self.policy.pins.between(site, other) {
                None => proto::TrunkPin::None,
                Some(Pin::Always) => proto::TrunkPin::Always,
                Some(Pin::Never) => proto::TrunkPin::Never,
            }
            .into(),
            round_trip_us: path.as_ref().map_or(0, |path| path.round_trip_us),
            loss_ppm: path.and_then(|path| path.loss_ppm),
            ..proto::Facts::default()
        }
    }

    pub(super) fn node(&self, address: VirtualAddress, entry: &NodeEntry) -> proto::Node {
        let found = contact::node(&entry.name, address, &entry.contact, entry.presence == Presence::Up);
        proto::Node { outside_address: self.outside_address(entry), ..found }
    }

    pub(super) fn end(&self, entry: &NodeEntry) -> proto::End {
        let site = self.sites.get(&entry.name.site);
        let facts = site.map(SiteEntry::facts).unwrap_or_default();
        proto::End {
            outside_address: self.outside_address(entry),
            attached: site.is_some_and(SiteEntry::is_attached),
            virtual_address: self.addresses.address(&entry.name).map_or(0, |address| address.ip().into()),
            gateway: entry.gateway.to_string(),
            ..contact::end(&entry.name, &entry.contact, facts)
        }
    }

    fn inbound(&self, entry: &NodeEntry) -> proto::Inbound {
        let site = self.sites.get(&entry.name.site);
        inbound_to_wire(site.map_or(Inbound::Closed, |site| site.declared().inbound))
    }

    /// The address at which a node's agent is let in though its site isn't open; empty if there is
    /// none.
    pub(super) fn outside_address(&self, entry: &NodeEntry) -> String {
        let contact = &entry.contact;
        let let_in = seen::let_in_at(&contact.outside_address, self.inbound(entry), contact.seen.as_ref());
        // A gateway may pass on another address, or an earlier one, than the agent has signed.
        let is_own = contact.signed.as_ref().is_some_and(|signed| addresses_of(signed).contains(&let_in));
        if is_own { let_in } else { String::new() }
    }

    /// The gateway that a node is attached to.
    pub(super) fn home(&self, node: &GridName) -> Result<Party, RendezvousError> {
        let address = self.addresses.address(node);
        let home = address.and_then(|address| self.nodes.get(&address)).map(|node| &node.gateway);
        let site = self.sites.get(&node.site);
        let attached = home.filter(|home| site.is_some_and(|site| site.has(home)));
        attached.map(|home| Party::gateway(&node.site, home)).ok_or_else(|| {
            let reason = Reason::Detached { site: node.site.to_string() };
            RendezvousError::Unavailable((&reason).into())
        })
    }

    /// The virtual address of the initiator, which the caller says is a node of its `site`.
    pub(super) fn own_node(&self, site: &Label, address: u32) -> Result<VirtualAddress, RendezvousError> {
        VirtualAddress::new(address.into())
            .filter(|address| self.addresses.node(*address).is_some_and(|node| node.site == *site))
            .ok_or_else(|| {
                let address = Ipv4Addr::from(address);
                RendezvousError::NotYours(format!("{address} is no node of site {site}"))
            })
    }

    /// Relays that report outside addresses to nodes of two sites. There are two, because a comparison
    /// of two answers shows whether the NAT's port depends on the destination.
    pub(super) fn reflectors(&self, sites: [&Label; 2]) -> Vec<String> {
        self.reflecting(sites).take(2).map(|relay| relay.address.clone()).collect()
    }

    pub(super) fn resolve(&self, request: &proto::LookupRequest) -> Result<VirtualAddress, LookupError> {
        if request.virtual_address == 0 {
            let unknown = || LookupError::Unknown(format!("{:?}", request.name));
            let name = request.name.parse().map_err(|_| unknown())?;
            return self.addresses.address(&name).ok_or_else(unknown);
        }
        let ip = Ipv4Addr::from(request.virtual_address);
        VirtualAddress::new(ip)
            .filter(|address| self.addresses.node(*address).is_some())
            .ok_or_else(|| LookupError::Unknown(ip.to_string()))
    }

    /// A node whose contact may be used, and whether a gateway of its site is
    /// attached.
    pub(super) fn present(&self, address: VirtualAddress) -> Result<(&NodeEntry, bool), LookupError> {
        let absent = || {
            let name = self.addresses.node(address).map(ToString::to_string);
            LookupError::Absent(name.unwrap_or_else(|| address.to_string()))
        };
        let entry = self.nodes.get(&address).ok_or_else(absent)?;
        let attached = self.sites.get(&entry.name.site).is_some_and(SiteEntry::is_attached);
        // A gateway of its site will announce it in a moment, if its agent still runs.
        if entry.presence == Presence::Lost && attached {
            return Err(absent());
        }
        Ok((entry, attached))
    }
}

/// The plan for a node that is down: it has no steps.
fn no_way(entry: &NodeEntry) -> proto::Plan {
    let left_out = proto::LeftOut {
        route: proto::Route::EndToEnd.into(),
        dial: proto::Dial::Direct.into(),
        reason: format!("the agent of node {} is not running", entry.name),
        remedy: proto::Remedy::None.into(),
    };
    proto::Plan { left_out: vec![left_out], ..proto::Plan::default() }
}
