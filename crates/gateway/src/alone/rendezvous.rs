//! Ways that need no broker. There is one such way: its own node's connection through this gateway
//! to an agent that another site lets in. Gateway and agent are all its parties, and the ticket is
//! for this gateway alone.

use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

use isthmus_identity::Identity;
use isthmus_plan::parts::{End, Part, Parts, Shown, Target, needs_broker, parts};
use isthmus_rpc::connection;
use isthmus_rpc::contact::known;
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::{First, Leg, Request};
use isthmus_service::clock::unix_seconds;
use isthmus_wire::proto::{self, rendezvous_reply};
use isthmus_wire::ticket::{Side, Ticket};
use tonic::Status;

use crate::gateway::Gateway;

/// How long a ticket is good: as long as those of the broker.
const TICKET_SECONDS: u64 = 60;

impl Gateway {
    /// Arranges a connection of a node, which calls from this address, without the broker.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the broker must arrange the connection, or if it can't be opened.
    pub(crate) async fn rendezvous_alone(
        &self,
        (caller, from): (&Identity, IpAddr),
        (request, destination): (&Request, Ipv4Addr),
    ) -> Result<proto::RendezvousReply, Status> {
        let (route, dial) = request.way.way();
        let absent = || self.upstream.absent(&format!("arrange the way {dial}, {route}"));
        let own = self.grid_name().to_string();
        if needs_broker((route, dial)) || request.way.avoid().contains(&own) {
            return Err(absent());
        }
        let lookup =
            proto::LookupRequest { virtual_address: destination.into(), ..proto::LookupRequest::default() };
        let reply = self.lookups.known(&lookup).ok_or_else(absent)?;
        let (node, facts) = (reply.node.ok_or_else(absent)?, reply.facts.ok_or_else(absent)?);
        let initiator = self.initiator(caller.name(), facts.initiator_site.clone());
        let (near, far, pair) = known(&initiator, &facts);
        // The step must be in the plan, as the broker would have it.
        let parts = parts((route, dial), &near, &far, &pair);
        let parts = parts.map_err(|reason| {
            let remedy = reason.remedy();
            grpc::with_remedy(Status::unavailable(format!("not in the plan: {reason}")), remedy)
        })?;
        let address = own_dial(&parts, &node).ok_or_else(absent)?.to_owned();
        let agent = node.name.parse().map_err(|_| absent())?;
        let (connection, now) = (connection::new_id(), unix_seconds(SystemTime::now()));
        let ticket = |side| {
            let ticket = Ticket { connection, side, expiry_unix_seconds: now + TICKET_SECONDS };
            self.streams.seal(&ticket).ok_or_else(absent)
        };
        let (ticket, across) = (ticket(Side::Initiator)?, ticket(Side::Acceptor)?);
        self.streams.expect(connection, from);
        let (first, agent, segment) = (First::Nothing, Some(agent), request.segment);
        self.dial(&Leg { address, ticket: across, first, agent, relay: false, segment }).await?;
        let at = proto::AtOwnGateway { ticket: ticket.to_vec(), ..proto::AtOwnGateway::default() };
        let way = Some(rendezvous_reply::Way::OwnGateway(at));
        Ok(proto::RendezvousReply { way, gateways: vec![own], ..Default::default() })
    }
}

/// The address that the initiator's gateway dials. `None` if the way needs more than the other
/// node's contact.
fn own_dial<'a>(parts: &Parts, node: &'a proto::Node) -> Option<&'a str> {
    match (parts.initiators_gateway, parts.acceptors_gateway) {
        (Some(Part::Dials(Target::Agent(End::Acceptor), Shown::Nothing)), None) => Some(&node.address),
        (Some(Part::Dials(Target::LetIn(End::Acceptor), Shown::Nothing)), None) => {
            Some(&node.outside_address)
        }
        _ => None,
    }
}
