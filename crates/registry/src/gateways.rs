//! Chooses gateways that carry connections of their nodes.
//!
//! A gateway splices two connections that show the two tickets of the same connection id, as a
//! relay does. The node opens one of the connections. The other arrives at the gateway's port
//! outside, or the gateway dials it.
//!
//! Other sites connect in turn to the gateways with a port outside. The gateway that a node is
//! attached to dials out for it. If another gateway is chosen, that gateway receives an order to
//! expect the node.

use std::net::{IpAddr, SocketAddr};

use isthmus_wire::Label;
use isthmus_wire::proto::{self, attach_down};

use super::site::{Avoid, GatewayEntry, grid_name};
use super::{Effect, NodeEntry, Party, Registry, RendezvousError};

impl Registry {
    /// The gateway that is to carry a node's connection. With `let_in`, other sites must be able to
    /// connect to that gateway.
    pub(super) fn gateway_for<'a>(
        &'a self,
        node: &'a NodeEntry,
        let_in: bool,
        avoid: &[String],
    ) -> Result<Chosen<'a>, RendezvousError> {
        let unavailable = |reason: &str| {
            let reason = format!("{reason} of site {} is attached to the broker", node.name.site);
            RendezvousError::Unavailable(reason.into())
        };
        let site = self.sites.get(&node.name.site).ok_or_else(|| unavailable("no gateway"))?;
        let avoid = Avoid { names: avoid, site: &node.name.site };
        let next = match let_in {
            true => site.next_let_in(&node.gateway, &avoid),
            false => site.next_way_out(&node.gateway, &avoid),
        };
        let (name, entry) = next.ok_or_else(|| {
            unavailable(if let_in { "no gateway with a port outside" } else { "no gateway" })
        })?;
        let is_home = *name == node.gateway;
        Ok(Chosen { site: &node.name.site, name, entry, is_home, in_turn: let_in || !is_home })
    }
}

/// A gateway that was chosen to carry a node's connection.
pub(super) struct Chosen<'a> {
    pub(super) site: &'a Label,
    pub(super) name: &'a Label,
    pub(super) entry: &'a GatewayEntry,
    /// Whether the node is attached to the gateway.
    is_home: bool,
    /// Whether the gateway was chosen because it was its turn.
    pub(super) in_turn: bool,
}

/// The relay or gateway that a node connects to, with its ticket.
pub(super) enum Stop {
    Relay(proto::AtRelay),
    Gateway(proto::AtGateway),
    OwnGateway(proto::AtOwnGateway),
    SiteGateway(proto::AtSiteGateway),
}

impl Chosen<'_> {
    pub(super) fn grid_name(&self) -> String {
        grid_name(self.name, self.site)
    }

    /// Has the gateway splice the node's connection, which shows `ticket`, with a `leg` that the
    /// gateway dials. Without a `leg`, a connection to the gateway's port outside takes its place.
    /// If the node isn't attached to the gateway, the gateway receives an order of its own.
    pub(super) fn splice(
        &self,
        node: &NodeEntry,
        ticket: Vec<u8>,
        relay: String,
        leg: Option<proto::Leg>,
        effects: &mut Vec<Effect>,
    ) -> Stop {
        if self.is_home {
            return Stop::OwnGateway(proto::AtOwnGateway { ticket, relay, leg });
        }
        let to = Party::gateway(self.site, self.name);
        let expect = proto::ExpectOrder { ticket: ticket.clone(), from: address_of(node), leg };
        effects.push(Effect::Send { to, message: attach_down::Kind::Expect(expect) });
        Stop::SiteGateway(proto::AtSiteGateway { address: self.entry.inside_address.clone(), ticket, relay })
    }
}

/// The IP address that a node comes from, as its gateway sees it. If the node is on the gateway's
/// own machine, the address that the node announces.
fn address_of(node: &NodeEntry) -> String {
    let from: Option<IpAddr> = node.contact.from.parse().ok();
    let listens: Option<SocketAddr> = node.contact.address.parse().ok();
    let from = from.filter(|from| !from.to_canonical().is_loopback()).or(listens.map(|at| at.ip()));
    from.map(|from| from.to_string()).unwrap_or_default()
}
