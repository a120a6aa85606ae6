//! Connections that a gateway opens for its nodes, and nodes that it expects.

use std::net::IpAddr;

use isthmus_wire::proto::{self, leg};
use isthmus_wire::{ConnectionId, DecodeError, GridName, hello};

use super::SealedTicket;
use super::fields::{EXPECT, LEG, OWN_GATEWAY, address, connection, id, malformed, sealed, segment};

/// A connection that a gateway opens for a node of its site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// The address that the gateway dials, `HOST:PORT`.
    pub address: String,
    /// The ticket under which the gateway itself splices the connection.
    pub ticket: SealedTicket,
    /// What the gateway sends first.
    pub first: First,
    /// The node whose agent must be there; `None` for a relay or a gateway.
    pub agent: Option<GridName>,
    /// Whether the address is a relay's.
    pub relay: bool,
    /// The connection's longest segment, in bytes; `None` lets the kernel choose.
    pub segment: Option<u16>,
}

/// What a gateway sends first on a connection that it has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Nothing: the agent there accepts any initiator.
    Nothing,
    /// The ticket for the relay or gateway there.
    Ticket(SealedTicket),
    /// The id of the rendezvous for which the initiator waits.
    Rendezvous(ConnectionId),
}

impl First {
    /// The bytes as they are sent.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Ticket(ticket) => ticket.to_vec(),
            Self::Rendezvous(id) => hello::RENDEZVOUS.encode(id).to_vec(),
        }
    }
}

impl TryFrom<proto::Leg> for Leg {
    type Error = DecodeError;

    fn try_from(leg: proto::Leg) -> Result<Self, DecodeError> {
        let first = match &leg.first {
            None => First::Nothing,
            Some(leg::First::ShownTicket(ticket)) => First::Ticket(sealed(LEG, ticket)?),
            Some(leg::First::Rendezvous(rendezvous)) => First::Rendezvous(id(rendezvous)?),
        };
        let agent = match first {
            First::Ticket(_) => None,
            First::Nothing | First::Rendezvous(_) => {
                let agent = leg.agent.parse();
                Some(agent.map_err(|_| malformed(LEG, format!("{:?} is no node", leg.agent)))?)
            }
        };
        let (ticket, segment) = (sealed(LEG, &leg.ticket)?, segment(LEG, leg.segment)?);
        Ok(Self { address: address(LEG, leg.address)?, ticket, first, agent, relay: leg.relay, segment })
    }
}

impl From<Leg> for proto::Leg {
    fn from(leg: Leg) -> Self {
        let first = match leg.first {
            First::Nothing => None,
            First::Ticket(ticket) => Some(leg::First::ShownTicket(ticket.to_vec())),
            First::Rendezvous(id) => Some(leg::First::Rendezvous(id.0.to_vec())),
        };
        let agent = leg.agent.map_or_else(String::new, |agent| agent.to_string());
        let Leg { address, relay, .. } = leg;
        let (ticket, segment) = (leg.ticket.to_vec(), leg.segment.unwrap_or_default().into());
        Self { address, ticket, first, agent, relay, segment }
    }
}

/// A node that is about to connect to a gateway for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The connection id in the node's ticket.
    pub connection: ConnectionId,
    /// The node's source address.
    pub from: IpAddr,
    /// The connection that the gateway opens for the node meanwhile; `None` if another party dials.
    pub leg: Option<Leg>,
}

impl TryFrom<proto::ExpectOrder> for Expected {
    type Error = DecodeError;

    fn try_from(order: proto::ExpectOrder) -> Result<Self, DecodeError> {
        let from = order.from.parse();
        let from = from.map_err(|_| malformed(EXPECT, format!("{:?} is no IP address", order.from)))?;
        let leg = order.leg.map(Leg::try_from).transpose()?;
        Ok(Self { connection: connection(EXPECT, &order.ticket)?, from, leg })
    }
}

/// Reads what a gateway is to do for its own node. Returns the connection id of the node's ticket,
/// and the connection that the gateway is to open, if any. The latter is removed from the message.
///
/// # Errors
/// If either is malformed.
pub fn take_leg(at: &mut proto::AtOwnGateway) -> Result<(ConnectionId, Option<Leg>), DecodeError> {
    let leg = at.leg.take().map(Leg::try_from).transpose()?;
    Ok((connection(OWN_GATEWAY, &at.ticket)?, leg))
}
