//! Meetings over gateways: who dials whom, with which tickets.
//!
//! A gateway joins two connections that show the two tickets of one connection
//! id, as a relay does: its own node's, which the node opens, and one from
//! outside, which comes to the gateway's outside port or is dialed by it. It
//! dials nothing but what is chosen here, and that is: another site's agent,
//! another gateway's outside port, or a relay.

use isthmus_net::contact::plan_from_facts;
use isthmus_net::mac::Secret;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::ticket::{Side, Ticket};
use isthmus_wire::{ConnectionId, VirtualAddress, meeting};

use super::{Effect, NodeEntry, Registry, RendezvousError, SessionId, SiteEntry};

/// What one side dials between the sites.
struct Outward {
    address: String,
    first: Vec<u8>,
}

impl Registry {
    /// Has two nodes meet over one or two gateways, as the request says, if that
    /// is in the plan: `nodes` are initiator and acceptor, `gateway` is the
    /// acceptor's, and `ticket` has the connection id and the second in which
    /// its tickets expire.
    ///
    /// # Errors
    /// If it is not in the plan, with the reason.
    pub(super) fn meet_over_gateways(
        &mut self,
        request: &proto::RendezvousRequest,
        nodes: (VirtualAddress, VirtualAddress),
        gateway: SessionId,
        ticket: (ConnectionId, u64),
    ) -> Result<(proto::RendezvousReply, Vec<Effect>), RendezvousError> {
        let (from, _) = self.present(nodes.0).map_err(RendezvousError::Lookup)?;
        let (to, _) = self.present(nodes.1).map_err(RendezvousError::Lookup)?;
        self.check_planned(from, to, request)?;
        let (near, far) = (self.site(from)?, self.site(to)?);
        let seal = |key: &Secret, side| seal(key, ticket, side);
        let over_near = matches!(request.route(), proto::Route::GatewayOut | proto::Route::TwoGateway);
        let over_far = matches!(request.route(), proto::Route::OneGateway | proto::Route::TwoGateway);
        let mut chosen = None;
        let (from_near, from_far) = match request.dial() {
            proto::Dial::Direct if over_far => {
                (Some(outward(&far.outside_address, seal(&far.key, Side::Initiator))), None)
            }
            proto::Dial::Direct => (Some(outward(&to.contact.address, Vec::new())), None),
            proto::Dial::PortRange => (Some(outward(&self.outside_address(to), Vec::new())), None),
            proto::Dial::Reverse if over_near => {
                (None, Some(outward(&near.outside_address, seal(&near.key, Side::Acceptor))))
            }
            proto::Dial::Reverse => {
                let hello = ConnectionId::try_from(request.meeting.as_slice()).map(meeting::encode);
                let hello = hello.map_err(|error| RendezvousError::Unavailable(error.to_string()))?;
                (None, Some(outward(&self.address_from_outside(nodes.0, &to.name.site)?, hello.to_vec())))
            }
            proto::Dial::Relay => {
                let (name, relay) =
                    self.next_relay([Some(from), Some(to)], &request.avoid).ok_or_else(|| {
                        RendezvousError::Unavailable("no relay is attached to the broker".to_owned())
                    })?;
                chosen = Some(name.clone());
                let side = |side| Some(outward(&relay.address, seal(&relay.key, side)));
                (side(Side::Initiator), side(Side::Acceptor))
            }
            proto::Dial::Unknown | proto::Dial::Punch | proto::Dial::Traverse => {
                let reason = "gateways connect, and know no other dial".to_owned();
                return Err(RendezvousError::Unavailable(reason));
            }
        };
        let relay = chosen.as_ref().map(ToString::to_string).unwrap_or_default();
        let reply = match (over_near, from_near) {
            (true, from_near) => proto::RendezvousReply {
                via_gateway: true,
                ticket: seal(&near.key, Side::Initiator),
                leg: from_near.map(|outward| outward.leg(seal(&near.key, Side::Acceptor))),
                relay: relay.clone(),
                ..proto::RendezvousReply::default()
            },
            (false, from_near) => {
                let outward = from_near.unwrap_or_else(|| outward("", Vec::new()));
                proto::RendezvousReply {
                    relay: relay.clone(),
                    relay_address: outward.address,
                    ticket: outward.first,
                    ..proto::RendezvousReply::default()
                }
            }
        };
        let dial = proto::DialRequest {
            node: to.name.node.to_string(),
            initiator: request.initiator,
            dial: request.dial,
            meeting: request.meeting.clone(),
            relay,
            ..proto::DialRequest::default()
        };
        let dial = match (over_far, from_far) {
            (true, from_far) => Some(proto::DialRequest {
                via_gateway: true,
                ticket: seal(&far.key, Side::Acceptor),
                leg: from_far.map(|outward| outward.leg(seal(&far.key, Side::Initiator))),
                ..dial
            }),
            (false, Some(outward)) => {
                Some(proto::DialRequest { relay_address: outward.address, ticket: outward.first, ..dial })
            }
            // The initiator's gateway comes to its port, and it need not know.
            (false, None) => None,
        };
        self.last_relay = chosen.or(self.last_relay.take());
        let send = |dial| Effect::Send { to: gateway, message: attach_down::Kind::Dial(dial) };
        Ok((reply, dial.map(send).into_iter().collect()))
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

    fn site(&self, node: &NodeEntry) -> Result<&SiteEntry, RendezvousError> {
        let site = &node.name.site;
        self.sites.get(site).ok_or_else(|| {
            RendezvousError::Unavailable(format!("site {site} has never been attached to the broker"))
        })
    }
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
