//! PendingRendezvous over gateways: who dials whom, with which tickets.
//!
//! A gateway joins two connections that show the two tickets of one connection
//! id, as a relay does: its own node's, which the node opens, and one from
//! outside, which comes to the gateway's outside port or is dialed by it. It
//! dials nothing but what is chosen here, and that is: another site's agent,
//! another gateway's outside port, or a relay.
//!
//! Where a site has several, those with a port outside take turns at being come
//! to; what is to be dialed for a node, the one that it is attached to dials.
//! Whichever it is, the node goes there, and the gateway is told to expect it.

use std::net::{IpAddr, SocketAddr};

use isthmus_net::contact::plan_from_facts;
use isthmus_net::mac::Secret;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::ticket::{Side, Ticket};
use isthmus_wire::{ConnectionId, Label, VirtualAddress, hello};

use super::site::{Avoid, GatewayEntry, grid_name};
use super::{Effect, NodeEntry, Party, Registry, RendezvousError};

/// What one side dials between the sites.
struct Outward {
    address: String,
    first: Vec<u8>,
}

impl Registry {
    /// Has two nodes meet over one or two gateways, as the request says, if that
    /// is in the plan: `nodes` are initiator and acceptor, `gateway` is the one that
    /// the acceptor is attached to, and `ticket` has the connection id and the second in which
    /// its tickets expire.
    ///
    /// # Errors
    /// If it is not in the plan, with the reason.
    pub(super) fn meet_over_gateways(
        &mut self,
        request: &proto::RendezvousRequest,
        nodes: (VirtualAddress, VirtualAddress),
        gateway: Party,
        ticket: (ConnectionId, u64),
    ) -> Result<(proto::RendezvousReply, Vec<Effect>), RendezvousError> {
        let (from, _) = self.present(nodes.0).map_err(RendezvousError::Lookup)?;
        let (to, _) = self.present(nodes.1).map_err(RendezvousError::Lookup)?;
        self.check_planned(from, to, request)?;
        let seal = |key: &Secret, side| seal(key, ticket, side);
        let over_near = matches!(request.route(), proto::Route::GatewayOut | proto::Route::TwoGateway);
        let over_far = matches!(request.route(), proto::Route::OneGateway | proto::Route::TwoGateway);
        let (direct, reverse) =
            (request.dial() == proto::Dial::Direct, request.dial() == proto::Dial::Reverse);
        let near = over_near.then(|| self.gateway_for(from, reverse, &request.avoid)).transpose()?;
        let far = over_far.then(|| self.gateway_for(to, direct, &request.avoid)).transpose()?;
        let mut chosen = None;
        let (from_near, from_far) = match (request.dial(), &near, &far) {
            (proto::Dial::Direct, _, Some(far)) => {
                (Some(outward(&far.entry.outside_address, seal(&far.entry.key, Side::Initiator))), None)
            }
            (proto::Dial::Direct, _, None) => (Some(outward(&to.contact.address, Vec::new())), None),
            (proto::Dial::PortRange, ..) => (Some(outward(&self.outside_address(to), Vec::new())), None),
            (proto::Dial::Reverse, Some(near), _) => {
                (None, Some(outward(&near.entry.outside_address, seal(&near.entry.key, Side::Acceptor))))
            }
            (proto::Dial::Reverse, None, _) => {
                let hello = ConnectionId::try_from(request.rendezvous.as_slice())
                    .map(|id| hello::RENDEZVOUS.encode(id));
                let hello = hello.map_err(|error| RendezvousError::Unavailable(error.to_string()))?;
                (None, Some(outward(&self.address_from_outside(nodes.0, &to.name.site)?, hello.to_vec())))
            }
            (proto::Dial::Relay, ..) => {
                let (name, relay) =
                    self.next_relay([Some(from), Some(to)], &request.avoid).ok_or_else(|| {
                        RendezvousError::Unavailable("no relay is attached to the broker".to_owned())
                    })?;
                chosen = Some(name.clone());
                let side = |side| Some(outward(&relay.address, seal(&relay.key, side)));
                (side(Side::Initiator), side(Side::Acceptor))
            }
            (proto::Dial::Unknown | proto::Dial::Punch | proto::Dial::Traverse, ..) => {
                let reason = "gateways connect, and know no other dial".to_owned();
                return Err(RendezvousError::Unavailable(reason));
            }
        };
        let relay = chosen.as_ref().map(ToString::to_string).unwrap_or_default();
        let gateways: Vec<_> = [&near, &far].into_iter().flatten().map(Chosen::grid_name).collect();
        let mut parties = gateways.iter().chain(Some(&relay).filter(|relay| !relay.is_empty()));
        if parties.all(|party| request.avoid.contains(party)) {
            let reason = format!("all that can stand between have failed: {}", request.avoid.join(", "));
            return Err(RendezvousError::Unavailable(reason));
        }
        let mut effects = Vec::new();
        let mut reply = proto::RendezvousReply { relay: relay.clone(), gateways, ..Default::default() };
        match (&near, from_near) {
            (Some(near), from_near) => {
                reply.via_gateway = true;
                reply.ticket = seal(&near.entry.key, Side::Initiator);
                let leg = from_near.map(|outward| outward.leg(seal(&near.entry.key, Side::Acceptor)));
                (reply.leg, reply.gateway_address) = near.join(from, &reply.ticket, leg, &mut effects);
            }
            (None, Some(outward)) => (reply.relay_address, reply.ticket) = (outward.address, outward.first),
            (None, None) => {}
        }
        let dial = proto::DialRequest {
            node: to.name.node.to_string(),
            initiator: request.initiator,
            dial: request.dial,
            rendezvous: request.rendezvous.clone(),
            relay,
            ..proto::DialRequest::default()
        };
        let dial = match (&far, from_far) {
            (Some(far), from_far) => {
                let ticket = seal(&far.entry.key, Side::Acceptor);
                let leg = from_far.map(|outward| outward.leg(seal(&far.entry.key, Side::Initiator)));
                let (leg, gateway_address) = far.join(to, &ticket, leg, &mut effects);
                Some(proto::DialRequest { via_gateway: true, ticket, leg, gateway_address, ..dial })
            }
            (None, Some(outward)) => {
                Some(proto::DialRequest { relay_address: outward.address, ticket: outward.first, ..dial })
            }
            // The initiator's gateway comes to its port, and it need not know.
            (None, None) => None,
        };
        let turns = [&near, &far].map(|one| {
            let one = one.as_ref().filter(|one| one.in_turn)?;
            Some((one.site.clone(), one.name.clone()))
        });
        self.last_relay = chosen.or(self.last_relay.take());
        for (site, name) in turns.into_iter().flatten() {
            if let Some(site) = self.sites.get_mut(&site) {
                site.last = Some(name);
            }
        }
        let send = |dial| Effect::Send { to: gateway, message: attach_down::Kind::Dial(dial) };
        effects.extend(dial.map(send));
        Ok((reply, effects))
    }

    /// The gateway that stands in for a node; with `let_in`, one that others come
    /// to.
    fn gateway_for<'a>(
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

    /// A gateway does nothing for anybody that isn't in the plan.
    fn check_planned(
        &self,
        from: &NodeEntry,
        to: &NodeEntry,
        request: &proto::RendezvousRequest,
    ) -> Result<(), RendezvousError> {
        let plan = plan_from_facts(&self.end(from), &self.facts(&from.name.site, to));
        let wanted = (request.route, request.dial);
        if plan.steps.iter().any(|step| (step.route, step.dial) == wanted) {
            return Ok(());
        }
        let left_out = plan.left_out.into_iter().find(|left| (left.route, left.dial) == wanted);
        let reason = left_out.map_or_else(|| "there is no such way".to_owned(), |left| left.reason);
        Err(RendezvousError::Unavailable(format!("not in the plan: {reason}")))
    }
}

/// A gateway that stands in for a node.
struct Chosen<'a> {
    site: &'a Label,
    name: &'a Label,
    entry: &'a GatewayEntry,
    /// The node is attached to it.
    is_home: bool,
    /// It was its turn.
    in_turn: bool,
}

impl Chosen<'_> {
    fn grid_name(&self) -> String {
        grid_name(self.name, self.site)
    }

    /// What the node's own gateway is told to dial, and where the node is to go
    /// if that is another gateway, which is then told itself.
    fn join(
        &self,
        node: &NodeEntry,
        ticket: &[u8],
        leg: Option<proto::Leg>,
        effects: &mut Vec<Effect>,
    ) -> (Option<proto::Leg>, String) {
        if self.is_home {
            return (leg, String::new());
        }
        let to = Party::gateway(self.site, self.name);
        let expect = proto::ExpectOrder { ticket: ticket.to_vec(), from: address_of(node), leg };
        effects.push(Effect::Send { to, message: attach_down::Kind::Expect(expect) });
        (None, self.entry.inside_address.clone())
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

fn outward(address: &str, first: Vec<u8>) -> Outward {
    Outward { address: address.to_owned(), first }
}

impl Outward {
    /// The same for a gateway, which joins it under this ticket.
    fn leg(self, ticket: Vec<u8>) -> proto::Leg {
        proto::Leg { address: self.address, first: self.first, ticket }
    }
}

fn seal(key: &Secret, (connection, expiry_unix_seconds): (ConnectionId, u64), side: Side) -> Vec<u8> {
    key.seal_ticket(&Ticket { connection, side, expiry_unix_seconds }).to_vec()
}
