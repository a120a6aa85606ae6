//! What the registry answers: lookups, meetings, the whole grid.

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Bound;

use isthmus_net::contact::{inbound_to_wire, plan_to_wire};
use isthmus_plan::{Inbound, PairFacts, SiteFacts, plan};
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::ticket::{Side, Ticket};
use isthmus_wire::{ConnectionId, Label, VirtualAddress};

use super::{Effect, NodeEntry, Presence, Registry, RelayEntry};

/// How long a ticket is good: a dial's deadline and what clocks may differ.
const TICKET_SECONDS: u64 = 60;

/// Why a lookup found nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    /// There never was such a node.
    Unknown(String),
    /// The node is known, but where it is isn't at the moment.
    Absent(String),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(what) => {
                write!(f, "no node {what} is known in the grid; `isthmus status` lists them")
            }
            Self::Absent(node) => {
                write!(f, "node {node} is known, but its agent is not attached to the grid at the moment")
            }
        }
    }
}

/// Why no meeting can be arranged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RendezvousError {
    /// The destination isn't known.
    Lookup(LookupError),
    /// The caller asks for somebody else.
    NotYours(String),
    /// It can't be done at the moment.
    Unavailable(String),
}

impl fmt::Display for RendezvousError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup(error) => error.fmt(f),
            Self::NotYours(text) | Self::Unavailable(text) => f.write_str(text),
        }
    }
}

impl Registry {
    /// Where a node is, and how a node of `site` reaches it.
    ///
    /// # Errors
    /// If it is unknown or absent.
    pub fn lookup(
        &self,
        site: &Label,
        request: &proto::LookupRequest,
    ) -> Result<proto::LookupReply, LookupError> {
        let address = self.resolve(request)?;
        let (entry, attached) = self.present(address)?;
        let node = node(address, entry);
        if entry.presence == Presence::Down {
            let reason = format!("the agent of node {} is not running", entry.name);
            let left_out = proto::LeftOut {
                route: proto::Route::EndToEnd.into(),
                dial: proto::Dial::Direct.into(),
                reason,
            };
            let plan = proto::Plan { left_out: vec![left_out], ..proto::Plan::default() };
            return Ok(proto::LookupReply { node: Some(node), plan: Some(plan) });
        }
        let facts = |site: &Label, attached| SiteFacts {
            name: site.to_string(),
            inbound: self.sites.get(site).map_or(Inbound::Closed, |entry| entry.inbound),
            attached,
        };
        let pair =
            PairFacts { trusted: self.trusted.contains(site, &entry.name.site), relays: self.relays_up() };
        let plan = plan(&facts(site, true), &facts(&entry.name.site, attached), &pair);
        Ok(proto::LookupReply { node: Some(node), plan: Some(plan_to_wire(&plan)) })
    }

    /// Has a node dial out to meet a node of `site` at a relay.
    ///
    /// # Errors
    /// If it can't be reached or there is no relay.
    pub fn rendezvous(
        &mut self,
        site: &Label,
        request: &proto::RendezvousRequest,
        connection: ConnectionId,
        now_unix_seconds: u64,
    ) -> Result<(proto::RendezvousReply, Effect), RendezvousError> {
        let initiator = VirtualAddress::new(request.initiator.into());
        if initiator.and_then(|address| self.addresses.node(address)).is_none_or(|node| node.site != *site) {
            let initiator = Ipv4Addr::from(request.initiator);
            return Err(RendezvousError::NotYours(format!("{initiator} is no node of site {site}")));
        }
        let lookup = proto::LookupRequest { virtual_address: request.destination, name: String::new() };
        let address = self.resolve(&lookup).map_err(RendezvousError::Lookup)?;
        let (entry, _) = self.present(address).map_err(RendezvousError::Lookup)?;
        if entry.presence == Presence::Down {
            let reason = format!("the agent of node {} is not running", entry.name);
            return Err(RendezvousError::Unavailable(reason));
        }
        let destination = entry.name.clone();
        let gateway = self.sites.get(&destination.site).and_then(|entry| entry.session).ok_or_else(|| {
            RendezvousError::Unavailable(format!(
                "the gateway of site {} is not attached to the broker",
                destination.site
            ))
        })?;
        let (relay, entry) = self
            .next_relay()
            .ok_or_else(|| RendezvousError::Unavailable("no relay is attached to the broker".to_owned()))?;
        let ticket = |side| {
            let expiry_unix_seconds = now_unix_seconds + TICKET_SECONDS;
            entry.key.seal_ticket(&Ticket { connection, side, expiry_unix_seconds }).to_vec()
        };
        let dial = proto::DialRequest {
            node: destination.node.to_string(),
            relay: relay.to_string(),
            relay_address: entry.address.clone(),
            ticket: ticket(Side::Acceptor),
            initiator: request.initiator,
        };
        let reply = proto::RendezvousReply {
            relay: relay.to_string(),
            relay_address: entry.address.clone(),
            ticket: ticket(Side::Initiator),
        };
        let relay = relay.clone();
        self.last_relay = Some(relay);
        Ok((reply, Effect::Send { to: gateway, message: attach_down::Kind::Dial(dial) }))
    }

    /// Everything.
    pub fn grid(&self) -> proto::GridReply {
        let sites = self.sites.iter().map(|(name, entry)| proto::Site {
            name: name.to_string(),
            inbound: inbound_to_wire(entry.inbound).into(),
            up: entry.session.is_some(),
            trusted: self.trusted.of(name).map(Label::to_string).collect(),
            version: entry.version.clone(),
        });
        let relays = self.relays.iter().map(|(name, entry)| proto::Relay {
            name: name.to_string(),
            address: entry.address.clone(),
            up: entry.session.is_some(),
            connections: entry.report.connections,
            bytes: entry.report.bytes,
            version: entry.version.clone(),
        });
        proto::GridReply {
            grid: self.grid.clone(),
            sites: sites.collect(),
            nodes: self.nodes.iter().map(|(address, entry)| node(*address, entry)).collect(),
            relays: relays.collect(),
            jobs: self.jobs.all().cloned().collect(),
            own: String::new(),
        }
    }

    fn resolve(&self, request: &proto::LookupRequest) -> Result<VirtualAddress, LookupError> {
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

    /// A node that there is something to say of, and whether its site is
    /// attached.
    fn present(&self, address: VirtualAddress) -> Result<(&NodeEntry, bool), LookupError> {
        let absent = || {
            let name = self.addresses.node(address).map(ToString::to_string);
            LookupError::Absent(name.unwrap_or_else(|| address.to_string()))
        };
        let entry = self.nodes.get(&address).ok_or_else(absent)?;
        let attached = self.sites.get(&entry.name.site).is_some_and(|site| site.session.is_some());
        // Its gateway is back and will say in a moment whether it is, too.
        if entry.presence == Presence::Lost && attached {
            return Err(absent());
        }
        Ok((entry, attached))
    }

    /// Round robin by name over those that are attached.
    fn next_relay(&self) -> Option<(&Label, &RelayEntry)> {
        let after = match &self.last_relay {
            Some(last) => (Bound::Excluded(last), Bound::Unbounded),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let up = |(_, relay): &(&Label, &RelayEntry)| relay.session.is_some();
        self.relays.range::<Label, _>(after).find(up).or_else(|| self.relays.iter().find(up))
    }
}

fn node(address: VirtualAddress, entry: &NodeEntry) -> proto::Node {
    let contact = &entry.contact;
    proto::Node {
        name: entry.name.to_string(),
        virtual_address: address.ip().into(),
        address: contact.address.clone(),
        host_name: contact.host_name.clone(),
        owner: contact.owner.clone(),
        slots: contact.slots,
        version: contact.version.clone(),
        architecture: contact.architecture.clone(),
        up: entry.presence == Presence::Up,
    }
}
