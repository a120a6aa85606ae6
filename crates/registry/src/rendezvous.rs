//! Rendezvous. `isthmus_plan::parts` decides who dials whom. The registry chooses
//! gateways and a relay, seals their tickets and fills in addresses.

use isthmus_plan::parts::{End, Part, Parts, Shown, Target, parts};
use isthmus_plan::{Dial, Reason, Route, Told};
use isthmus_rpc::rendezvous::{Request, RequestWay};
use isthmus_service::mac::Secret;
use isthmus_wire::proto::{self, attach_down, dial_request, leg, rendezvous_reply};
use isthmus_wire::ticket::{Side, Ticket};
use isthmus_wire::{ConnectionId, Label, RelayName};

use super::endpoint::{Endpoint, Endpoints};
use super::gateways::{Chosen, Stop};
use super::{Effect, NodeEntry, Registry, RelayEntry, RendezvousError};

/// How long a ticket is good: a dial's deadline, and room for clocks that differ.
const TICKET_SECONDS: u64 = 60;

/// A connection that is being arranged.
struct Arranged<'a> {
    registry: &'a Registry,
    request: &'a Request,
    from: Endpoint<'a>,
    to: Endpoint<'a>,
    near: Option<Chosen<'a>>,
    far: Option<Chosen<'a>>,
    relay: Option<(&'a RelayName, &'a RelayEntry)>,
    connection: ConnectionId,
    expiry_unix_seconds: u64,
}

impl Registry {
    /// Arranges the connection of a node of the caller's site to another node, or of the caller to
    /// another site's gateway, by the way that the request names. `caller` is the site and the name
    /// of the gateway that calls. For `punch` and `traverse` the reply's way is unset until the
    /// acceptor has answered.
    ///
    /// # Errors
    /// If a party is unknown, absent or down, or the way isn't possible.
    pub fn rendezvous(
        &mut self,
        caller: (&Label, &Label),
        request: &Request,
        connection: ConnectionId,
        now_unix_seconds: u64,
    ) -> Result<(proto::RendezvousReply, Vec<Effect>), RendezvousError> {
        let Endpoints { from, to, facts: (near, far, pair), acceptor } = self.endpoints(caller, request)?;
        let (way, avoid) = (request.way.way(), request.way.avoid());
        let parts = parts(way, &near, &far, &pair).map_err(|reason| refused(way.0, &reason))?;
        let gateway_of = |node: Option<_>, part: Option<Part>| {
            // A gateway that waits is connected to from outside.
            let chosen = |(node, part)| self.gateway_for(node, matches!(part, Part::Waits(_)), avoid);
            node.zip(part).map(chosen).transpose()
        };
        let arranged = Arranged {
            registry: self,
            request,
            near: gateway_of(from.node(), parts.initiators_gateway)?,
            far: gateway_of(to.node(), parts.acceptors_gateway)?,
            relay: match way.1 {
                Dial::Relay => {
                    let relay = self.next_relay([&from, &to], avoid);
                    let (name, entry) = relay.ok_or_else(|| refused(way.0, &Reason::NoRelay))?;
                    if entry.is_full() {
                        return Err(refused(way.0, &Reason::RelayFull { relay: name.to_string() }));
                    }
                    Some((name, entry))
                }
                _ => None,
            },
            from,
            to,
            connection,
            expiry_unix_seconds: now_unix_seconds + TICKET_SECONDS,
        };
        arranged.check_avoided()?;
        let mut effects = Vec::new();
        let reply = arranged.reply(&parts, &mut effects)?;
        if let Some(way) = arranged.order(&parts, &mut effects)? {
            let message = attach_down::Kind::Dial(arranged.dial_request(way));
            effects.push(Effect::Send { to: acceptor, message });
        }
        let turns = [&arranged.near, &arranged.far].map(|one| {
            let one = one.as_ref().filter(|one| one.in_turn)?;
            Some((one.site.clone(), one.name.clone()))
        });
        let relay = arranged.relay.map(|(name, _)| name.clone());
        self.last_relay = relay.or(self.last_relay.take());
        for (site, name) in turns.into_iter().flatten() {
            if let Some(site) = self.sites.get_mut(&site) {
                site.last = Some(name);
            }
        }
        Ok((reply, effects))
    }
}

fn refused(route: Route, reason: &Reason) -> RendezvousError {
    let told = Told::from(reason);
    RendezvousError::Unavailable(match route {
        Route::EndToEnd => told,
        _ => told.within(|reason| format!("not in the plan: {reason}")),
    })
}

impl<'a> Arranged<'a> {
    /// Checks that not all gateways and relays of the way have just failed.
    fn check_avoided(&self) -> Result<(), RendezvousError> {
        let avoid = self.request.way.avoid();
        let mut gateways = self.gateways().peekable();
        if gateways.peek().is_none() {
            return Ok(());
        }
        let mut parties = gateways.chain(self.relay.map(|(name, _)| name.to_string()));
        if parties.all(|party| avoid.contains(&party)) {
            let reason =
                format!("all gateways and relays of this way have just failed: {}", avoid.join(", "));
            return Err(RendezvousError::Unavailable(reason.into()));
        }
        Ok(())
    }

    /// Grid names of the gateways of this way.
    fn gateways(&self) -> impl Iterator<Item = String> {
        [&self.near, &self.far].into_iter().flatten().map(Chosen::grid_name)
    }

    /// The reply to the initiator.
    fn reply(
        &self,
        parts: &Parts,
        effects: &mut Vec<Effect>,
    ) -> Result<proto::RendezvousReply, RendezvousError> {
        use rendezvous_reply::Way;
        let way = match self.stop(End::Initiator, parts.initiator, parts.initiators_gateway, effects)? {
            Some(Stop::Relay(at)) => Some(Way::Relay(at)),
            Some(Stop::Gateway(at)) => Some(Way::Gateway(at)),
            Some(Stop::OwnGateway(at)) => Some(Way::OwnGateway(at)),
            Some(Stop::SiteGateway(at)) => Some(Way::SiteGateway(at)),
            None if matches!(parts.initiator, Part::Waits(_)) => {
                Some(Way::Awaited(rendezvous_reply::Awaited {}))
            }
            None => None,
        };
        Ok(proto::RendezvousReply { way, gateways: self.gateways().collect(), signature: Vec::new() })
    }

    /// The order to the acceptor's agent; `None` if the agent has no part.
    fn order(
        &self,
        parts: &Parts,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<dial_request::Way>, RendezvousError> {
        use dial_request::{self as wire, Way as Wire};
        match self.stop(End::Acceptor, parts.acceptor, parts.acceptors_gateway, effects)? {
            Some(Stop::Relay(at)) => return Ok(Some(Wire::Relay(at))),
            Some(Stop::Gateway(at)) => return Ok(Some(Wire::Gateway(at))),
            Some(Stop::OwnGateway(at)) => return Ok(Some(Wire::OwnGateway(at))),
            Some(Stop::SiteGateway(at)) => return Ok(Some(Wire::SiteGateway(at))),
            None => {}
        }
        let id = |id: &ConnectionId| id.0.to_vec();
        Ok(match (&self.request.way, parts.acceptor) {
            (RequestWay::Reverse { rendezvous }, Part::Dials(target, _)) => {
                Some(Wire::Reverse(wire::Reverse {
                    rendezvous: id(rendezvous),
                    address: self.address(target)?,
                }))
            }
            (RequestWay::Punch { rendezvous, port, ask }, _) => Some(Wire::Punch(wire::Punch {
                rendezvous: id(rendezvous),
                address: port.address.to_string(),
                reflectors: self.registry.reflectors([&self.from.name().site, &self.to.name().site]),
                ask: *ask,
                signature: port.signature.clone(),
            })),
            (RequestWay::Traverse { rendezvous, syn }, _) => {
                Some(Wire::Traverse(wire::Traverse { rendezvous: id(rendezvous), syn: syn.to_bytes() }))
            }
            // The initiator's gateway connects to its port.
            (
                RequestWay::Relay { .. }
                | RequestWay::Reverse { .. }
                | RequestWay::OverGateways { .. }
                | RequestWay::DialedByGateway { .. },
                _,
            ) => None,
        })
    }

    /// The order to the acceptor to dial by this way.
    fn dial_request(&self, way: dial_request::Way) -> proto::DialRequest {
        let (node, initiating_gateway) = match (&self.from, &self.to) {
            (_, Endpoint::Node(to)) => (to.name.node.to_string(), String::new()),
            (from, Endpoint::Gateway(..)) => (String::new(), from.name().to_string()),
        };
        let (initiator, segment) = (self.request.initiator.into(), self.segment());
        proto::DialRequest { node, initiator, initiating_gateway, way: Some(way), segment }
    }

    /// The relay or gateway that an end's node connects to; `None` if the node connects to neither.
    fn stop(
        &self,
        end: End,
        part: Part,
        gateways_part: Option<Part>,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Stop>, RendezvousError> {
        let Part::Dials(target, Shown::Ticket(_)) = part else { return Ok(None) };
        let ticket = self.ticket(target, end)?;
        let relay = self.relay.map(|(name, _)| name.to_string()).unwrap_or_default();
        Ok(Some(match (target, gateways_part) {
            (Target::Gateway(_), Some(outward)) => {
                let (gateway, node) = (self.gateway(end)?, self.node(end)?);
                let leg = self.leg(end, outward)?;
                gateway.splice(node, ticket, relay, leg, effects)
            }
            (Target::Relay, _) => {
                Stop::Relay(proto::AtRelay { name: relay, address: self.address(target)?, ticket })
            }
            _ => Stop::Gateway(proto::AtGateway { address: self.address(target)?, ticket }),
        }))
    }

    /// The longest segment of all connections that are opened for the request, in bytes; 0 if each
    /// kernel chooses it.
    fn segment(&self) -> u32 {
        self.request.segment.unwrap_or_default().into()
    }

    /// The connection that an end's gateway dials between the sites; `None` if the
    /// gateway is dialed.
    fn leg(&self, end: End, outward: Part) -> Result<Option<proto::Leg>, RendezvousError> {
        let Part::Dials(target, shown) = outward else { return Ok(None) };
        let first = match (shown, self.request.way.rendezvous()) {
            (Shown::Ticket(side), _) => Some(leg::First::ShownTicket(self.ticket(target, side)?)),
            (Shown::Rendezvous, Some(id)) => Some(leg::First::Rendezvous(id.0.to_vec())),
            (Shown::Rendezvous, None) => return Err(no_such_way()),
            (Shown::Nothing, _) => None,
        };
        let across = match end {
            End::Initiator => End::Acceptor,
            End::Acceptor => End::Initiator,
        };
        let ticket = self.ticket(Target::Gateway(end), across)?;
        let agent = match target {
            Target::Agent(end) | Target::LetIn(end) => self.party(end).name().to_string(),
            Target::Gateway(_) | Target::Relay | Target::Seen(_) => String::new(),
        };
        let relay = matches!(target, Target::Relay);
        let (address, segment) = (self.address(target)?, self.segment());
        Ok(Some(proto::Leg { address, ticket, first, agent, relay, segment }))
    }

    /// A sealed ticket of an end for a relay or gateway.
    fn ticket(&self, target: Target, end: End) -> Result<Vec<u8>, RendezvousError> {
        let key: &Secret = match target {
            Target::Relay => &self.relay()?.key,
            Target::Gateway(end) => &self.gateway(end)?.entry.key,
            Target::Agent(_) | Target::LetIn(_) | Target::Seen(_) => return Err(no_such_way()),
        };
        let side = match end {
            End::Initiator => Side::Initiator,
            End::Acceptor => Side::Acceptor,
        };
        let (connection, expiry_unix_seconds) = (self.connection, self.expiry_unix_seconds);
        Ok(key.seal_ticket(&Ticket { connection, side, expiry_unix_seconds }).to_vec())
    }

    /// The address that a party of the other site connects to, `HOST:PORT`.
    fn address(&self, target: Target) -> Result<String, RendezvousError> {
        Ok(match target {
            Target::Agent(end) => match self.party(end) {
                Endpoint::Node(node) => node.contact.address.clone(),
                Endpoint::Gateway(_, gateway) => gateway.outside_address.clone(),
            },
            Target::LetIn(end) => self.registry.outside_address(self.node(end)?),
            Target::Gateway(end) => self.gateway(end)?.entry.outside_address.clone(),
            Target::Relay => self.relay()?.address.clone(),
            // The two nodes exchange that address by themselves.
            Target::Seen(_) => return Err(no_such_way()),
        })
    }

    fn party(&self, end: End) -> &Endpoint<'a> {
        match end {
            End::Initiator => &self.from,
            End::Acceptor => &self.to,
        }
    }

    fn node(&self, end: End) -> Result<&'a NodeEntry, RendezvousError> {
        self.party(end).node().ok_or_else(no_such_way)
    }

    fn gateway(&self, end: End) -> Result<&Chosen<'a>, RendezvousError> {
        let gateway = match end {
            End::Initiator => &self.near,
            End::Acceptor => &self.far,
        };
        gateway.as_ref().ok_or_else(no_such_way)
    }

    fn relay(&self) -> Result<&'a RelayEntry, RendezvousError> {
        self.relay.map(|(_, relay)| relay).ok_or_else(no_such_way)
    }
}

fn no_such_way() -> RendezvousError {
    RendezvousError::Unavailable((&Reason::NoSuchWay).into())
}
