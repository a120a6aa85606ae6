//! Gateways that stand in for their nodes.
//!
//! A gateway joins two connections that show the two tickets of one connection
//! id, as a relay does: its own node's, which the node opens, and one from
//! outside, which comes to the gateway's outside port or is dialed by it.
//!
//! Where a site has several, others connect in turn to those with a port outside.
//! What is to be dialed for a node, the gateway dials that it is attached to. The
//! node connects to the chosen gateway, which expects it.

use std::net::{IpAddr, SocketAddr};

use isthmus_wire::Label;
use isthmus_wire::proto::{self, attach_down};

use super::site::{Avoid, GatewayEntry, grid_name};
use super::{Effect, NodeEntry, Party, Registry, RendezvousError};

impl Registry {
    /// The gateway that stands in for a node; with `let_in`, one that other sites
    /// connect to.
    pub(super) fn gateway_for<'a>(
        &'a self,
        node: &'a NodeEntry,
        let_in: bool,
        avoid: &[String],
    ) -> Result<Chosen<'a>, RendezvousError> {
        let unavailable = |reason: &str| {
            RendezvousError::Unavailable(format!(
                "{reason} of site {} is attached to the broker",
                node.name.site
            ))
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

/// A gateway that stands in for a node.
pub(super) struct Chosen<'a> {
    pub(super) site: &'a Label,
    pub(super) name: &'a Label,
    pub(super) entry: &'a GatewayEntry,
    /// The node is attached to it.
    is_home: bool,
    /// It was its turn.
    pub(super) in_turn: bool,
}

/// Where a node connects to, with which ticket.
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

    /// Has the gateway join its node's connection, which shows `ticket`, with a
    /// `leg` or with one that comes to its outside port. Another gateway than the
    /// node's own gets an order of its own.
    pub(super) fn join(
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

/// The IP address that a node comes from: as its gateway sees it, unless it is
/// on the gateway's own machine.
fn address_of(node: &NodeEntry) -> String {
    let from: Option<IpAddr> = node.contact.from.parse().ok();
    let listens: Option<SocketAddr> = node.contact.address.parse().ok();
    let from = from.filter(|from| !from.to_canonical().is_loopback()).or(listens.map(|at| at.ip()));
    from.map(|from| from.to_string()).unwrap_or_default()
}
