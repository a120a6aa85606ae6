//! Carriers of the trunks that gateways of two sites keep. The asking gateway dials the other
//! gateway, is dialed by it, or both dial a relay. Between them TLS verifies who is there; the
//! registry brings them together. A gateway takes a trunk only from gateways that it was told of
//! here.

use isthmus_net::mac::Secret;
use isthmus_net::rendezvous::site_trunk::Request;
use isthmus_net::seen;
use isthmus_plan::site_trunk::carrier_allowed;
use isthmus_plan::{Dial, Reason, Route};
use isthmus_wire::proto::{self, attach_down, site_trunk_order, site_trunk_reply};
use isthmus_wire::ticket::{Side, Ticket};
use isthmus_wire::{ConnectionId, Label};

use super::rendezvous::TICKET_SECONDS;
use super::site::{GatewayEntry, grid_name};
use super::{Effect, Party, Registry, RendezvousError};

impl Registry {
    /// Arranges a carrier between an attached gateway and another site's gateway.
    ///
    /// # Errors
    /// If either gateway isn't attached, a site keeps no trunks, or the dial is forbidden or can't
    /// work.
    pub(crate) fn site_trunk(
        &mut self,
        (site, name): (&Label, &Label),
        request: &Request,
        connection: ConnectionId,
        now_unix_seconds: u64,
    ) -> Result<(proto::SiteTrunkReply, Vec<Effect>), RendezvousError> {
        let other = &request.gateway;
        if *site == other.site {
            return Err(unavailable("a site's gateways keep no trunks with each other".to_owned()));
        }
        let from = self.trunk_gateway(site, name)?;
        let to = self.trunk_gateway(&other.site, &other.node)?;
        let forbidden = self.policy.forbidden.between(site, &other.site);
        if forbidden.contains(Route::TwoGateway, Dial::Trunk) || !carrier_allowed(request.dial, forbidden) {
            let (initiator, acceptor) = (site.to_string(), other.site.to_string());
            return Err(unavailable(Reason::Forbidden { initiator, acceptor }.to_string()));
        }
        let (reply, order) = match request.dial {
            Dial::Direct => {
                let expect = site_trunk_order::Way::Expect(site_trunk_order::Expect {});
                (site_trunk_reply::Way::Address(let_in(to, &other.site)?), expect)
            }
            Dial::Reverse => {
                let address = let_in(from, site)?;
                let awaited = site_trunk_reply::Way::Awaited(site_trunk_reply::Awaited {});
                (awaited, site_trunk_order::Way::Address(address))
            }
            Dial::Relay => {
                let found = self.next_relay([None, None], &request.avoid);
                let (relay, entry) = found.ok_or_else(|| unavailable(Reason::NoRelay.to_string()))?;
                let at = |side| {
                    let expiry_unix_seconds = now_unix_seconds + TICKET_SECONDS;
                    let ticket = sealed(&entry.key, Ticket { connection, side, expiry_unix_seconds });
                    proto::AtRelay { name: relay.to_string(), address: entry.address.clone(), ticket }
                };
                let ways = (
                    site_trunk_reply::Way::Relay(at(Side::Initiator)),
                    site_trunk_order::Way::Relay(at(Side::Acceptor)),
                );
                let relay = relay.clone();
                self.last_relay = Some(relay);
                ways
            }
            Dial::PortRange | Dial::Punch | Dial::Traverse | Dial::Trunk => {
                return Err(unavailable(Reason::NoSuchWay.to_string()));
            }
        };
        let segment = request.segment.unwrap_or_default().into();
        let order = proto::SiteTrunkOrder { gateway: grid_name(name, site), way: Some(order), segment };
        let to = Party::gateway(&other.site, &other.node);
        let effect = Effect::Send { to, message: attach_down::Kind::SiteTrunk(order) };
        Ok((proto::SiteTrunkReply { way: Some(reply) }, vec![effect]))
    }

    /// An attached gateway of a site that keeps trunks.
    fn trunk_gateway(&self, site: &Label, name: &Label) -> Result<&GatewayEntry, RendezvousError> {
        let found = self.sites.get(site).filter(|entry| entry.has(name));
        let entry = found.and_then(|entry| entry.gateways.get(name).map(|gateway| (entry, gateway)));
        let (entry, gateway) = entry.ok_or_else(|| {
            unavailable(format!("gateway {name} of site {site} is not attached to the broker"))
        })?;
        if !entry.declared().site_trunk {
            return Err(unavailable(Reason::NoSiteTrunk { site: site.to_string() }.to_string()));
        }
        Ok(gateway)
    }
}

/// The address at which other sites reach a gateway.
fn let_in(gateway: &GatewayEntry, site: &Label) -> Result<String, RendezvousError> {
    let site = site.to_string();
    match gateway.outside_address.as_str() {
        "" => Err(unavailable(Reason::NoGatewayPort { site }.to_string())),
        _ if gateway.outside_failed() => {
            let found = seen::reach_from_wire(gateway.outside_reach.as_ref());
            Err(unavailable(Reason::GatewayNotReached { site, found }.to_string()))
        }
        address => Ok(address.to_owned()),
    }
}

fn sealed(key: &Secret, ticket: Ticket) -> Vec<u8> {
    key.seal_ticket(&ticket).to_vec()
}

fn unavailable(reason: String) -> RendezvousError {
    RendezvousError::Unavailable(reason)
}
