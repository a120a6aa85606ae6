//! Requests, replies and orders by which two nodes or two gateways connect, read from the protocol
//! into types that can't hold contradictions. Each receiver reads a message here,
//! once.
//!
//! | module | what |
//! |---|---|
//! | this one | the broker's replies to initiators and orders to acceptors |
//! | `request` | an initiator's request |
//! | `peer` | the party at the other end |
//! | `legs` | connections that gateways open for their nodes |
//! | `fields` | checked fields of all of them |

mod fields;
mod legs;
mod peer;
mod request;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;

use fields::{ANSWER, ORDER, REPLY, address, carried, id, malformed, port, sealed, segment, unknown_way};
use isthmus_plan::Dial;
use isthmus_raw::Syn;
use isthmus_wire::proto::{self, dial_answer, dial_request, rendezvous_reply};
use isthmus_wire::ticket::TICKET_LEN;
use isthmus_wire::{ConnectionId, DecodeError};

pub use legs::{Expected, First, Leg, take_leg};
pub use peer::Peer;
pub use request::{Request, RequestWay};

/// A ticket with its HMAC, as it is sent.
pub type SealedTicket = [u8; TICKET_LEN];

/// Most relays that an order names as reflectors.
const MOST_REFLECTORS: usize = 16;

/// A relay or gateway to connect to, and the ticket to show there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// Whether a relay or a gateway is there.
    pub kind: StopKind,
    /// The address to connect to, `HOST:PORT`.
    pub address: String,
    /// The ticket to send first.
    pub ticket: SealedTicket,
    /// Name of the relay on the way: the relay here, or a relay behind the gateway. `None` without
    /// a relay.
    pub relay: Option<String>,
}

/// The port that a party punches from, as it is seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The port's address as seen from outside.
    pub address: SocketAddr,
    /// The party's signature ([`sign_port`](isthmus_identity::signed::contact::sign_port)); empty if it
    /// couldn't sign.
    pub signature: Vec<u8>,
}

/// The kind of party that a [`Stop`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopKind {
    /// A relay, which both sites can reach.
    Relay,
    /// A gateway of the other node's site, at its outside port.
    OtherSite,
    /// A gateway of the node's own site.
    OwnSite,
}

/// The broker's reply to an initiator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What the initiator is to do.
    pub way: ReplyWay,
    /// Grid names of the gateways on the way.
    pub gateways: Vec<String>,
}

/// What an initiator is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyWay {
    /// Connect to this relay or gateway.
    Stop(Stop),
    /// Wait to be dialed.
    Awaited,
    /// Connect to this port at the same time as the acceptor connects back.
    Punch(Port),
    /// Nothing more: the acceptor's agent has taken in the SYN.
    TakenIn,
}

impl Reply {
    /// Reads a reply; `own_gateway` is the address of the node's gateway,
    /// `HOST:PORT`.
    ///
    /// # Errors
    /// If the message is malformed.
    pub fn read(reply: proto::RendezvousReply, own_gateway: &str) -> Result<Self, DecodeError> {
        use rendezvous_reply::Way as Wire;
        let way = match reply.way.ok_or_else(|| unknown_way(REPLY))? {
            Wire::Relay(at) => ReplyWay::Stop(at_relay(REPLY, at)?),
            Wire::Gateway(at) => ReplyWay::Stop(at_gateway(REPLY, at)?),
            Wire::OwnGateway(at) => ReplyWay::Stop(at_own_gateway(REPLY, at, own_gateway)?),
            Wire::SiteGateway(at) => ReplyWay::Stop(at_site_gateway(REPLY, at)?),
            Wire::Awaited(_) => ReplyWay::Awaited,
            Wire::AcceptorAddress(address) => ReplyWay::Punch(port(REPLY, &address, reply.signature)?),
            Wire::TakenIn(_) => ReplyWay::TakenIn,
        };
        Ok(Self { way, gateways: reply.gateways.into_iter().take(2).collect() })
    }
}

/// What an acceptor is to do: an agent, or a gateway that another gateway dials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The party that asked for it.
    pub initiator: Peer,
    /// How the acceptor connects.
    pub way: OrderWay,
    /// The longest segment of the acceptor's connection, in bytes; `None` lets the kernel choose.
    pub segment: Option<u16>,
}

/// How an acceptor connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderWay {
    /// Connect to this relay or gateway.
    Stop(Stop),
    /// Connect to the node's own gateway, which has a stream of the trunk with the
    /// initiator's site.
    SiteTrunk(Stop),
    /// Connect to the initiator.
    Reverse {
        /// The id to send first.
        rendezvous: ConnectionId,
        /// Where the initiator is let in, `HOST:PORT`.
        address: String,
    },
    /// Connect to the initiator at the same time as the initiator connects back.
    Punch {
        /// The id to answer with.
        rendezvous: ConnectionId,
        /// The port that the initiator dials from.
        port: Port,
        /// Relays that report how this node is seen, `HOST:PORT`.
        reflectors: Vec<String>,
        /// Whether to ask a relay, even if the outside address could be predicted.
        ask: bool,
    },
    /// Take in the initiator's SYN.
    Traverse {
        /// The id to answer with.
        rendezvous: ConnectionId,
        /// The SYN, whose source and destination are not checked yet.
        syn: Syn,
    },
}

impl fmt::Display for StopKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay => "the relay",
            Self::OtherSite => "the other site's gateway",
            Self::OwnSite => "this site's gateway",
        })
    }
}

impl fmt::Display for OrderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop(stop) => write!(f, "{} at {}", stop.kind, stop.address),
            Self::SiteTrunk(stop) => write!(f, "{} over {} at {}", Dial::Trunk, stop.kind, stop.address),
            Self::Reverse { address, .. } => write!(f, "{} to {address}", Dial::Reverse),
            Self::Punch { port, .. } => write!(f, "{} with {}", Dial::Punch, port.address),
            Self::Traverse { syn, .. } => write!(f, "{} from {}", Dial::Traverse, syn.source),
        }
    }
}

impl Order {
    /// Reads an order; `own_gateway` is the address of the node's gateway,
    /// `HOST:PORT`.
    ///
    /// # Errors
    /// If the message is malformed.
    pub fn read(request: proto::DialRequest, own_gateway: &str) -> Result<Self, DecodeError> {
        use dial_request::Way as Wire;
        let way = match request.way.ok_or_else(|| unknown_way(ORDER))? {
            Wire::Relay(at) => OrderWay::Stop(at_relay(ORDER, at)?),
            Wire::Gateway(at) => OrderWay::Stop(at_gateway(ORDER, at)?),
            Wire::OwnGateway(at) => OrderWay::Stop(at_own_gateway(ORDER, at, own_gateway)?),
            Wire::SiteGateway(at) => OrderWay::Stop(at_site_gateway(ORDER, at)?),
            Wire::SiteTrunk(at) => OrderWay::SiteTrunk(at_own_gateway(ORDER, at, own_gateway)?),
            Wire::Reverse(reverse) => OrderWay::Reverse {
                rendezvous: id(&reverse.rendezvous)?,
                address: address(ORDER, reverse.address)?,
            },
            Wire::Punch(punch) => {
                let reflectors = punch.reflectors.into_iter().take(MOST_REFLECTORS);
                OrderWay::Punch {
                    rendezvous: id(&punch.rendezvous)?,
                    port: port(ORDER, &punch.address, punch.signature)?,
                    reflectors: reflectors.map(|one| address(ORDER, one)).collect::<Result<_, _>>()?,
                    ask: punch.ask,
                }
            }
            Wire::Traverse(traverse) => OrderWay::Traverse {
                rendezvous: id(&traverse.rendezvous)?,
                syn: carried(ORDER, &traverse.syn)?,
            },
        };
        let segment = segment(ORDER, request.segment)?;
        let initiator = Peer::read(ORDER, request.initiator, &request.initiating_gateway)?;
        Ok(Self { initiator, way, segment })
    }
}

/// An acceptor's answer: the port that it punches from, or the reason why it can't connect. `None`
/// stands for a SYN that it has taken in.
pub type Answer = Result<Option<Port>, String>;

/// Reads an acceptor's answer, with the id of the rendezvous.
///
/// # Errors
/// If the message is malformed.
pub fn read_answer(answer: proto::DialAnswer) -> Result<(ConnectionId, Answer), DecodeError> {
    let result = match answer.result.ok_or_else(|| malformed(ANSWER, "no known result"))? {
        dial_answer::Result::Address(address) => Ok(Some(port(ANSWER, &address, answer.signature)?)),
        dial_answer::Result::TakenIn(_) => Ok(None),
        dial_answer::Result::Failure(failure) => Err(failure),
    };
    Ok((id(&answer.rendezvous)?, result))
}

/// An acceptor's answer as it is sent.
pub fn answer_to_wire(rendezvous: ConnectionId, answer: Answer) -> proto::DialAnswer {
    let mut signature = Vec::new();
    let result = match answer {
        Ok(Some(port)) => {
            signature = port.signature;
            dial_answer::Result::Address(port.address.to_string())
        }
        Ok(None) => dial_answer::Result::TakenIn(proto::TakenIn {}),
        Err(failure) => dial_answer::Result::Failure(failure),
    };
    proto::DialAnswer { rendezvous: rendezvous.0.to_vec(), result: Some(result), signature }
}

fn at_relay(message: &'static str, at: proto::AtRelay) -> Result<Stop, DecodeError> {
    let (address, ticket) = (address(message, at.address)?, sealed(message, &at.ticket)?);
    Ok(Stop { kind: StopKind::Relay, address, ticket, relay: Some(at.name) })
}

fn at_gateway(message: &'static str, at: proto::AtGateway) -> Result<Stop, DecodeError> {
    let (address, ticket) = (address(message, at.address)?, sealed(message, &at.ticket)?);
    Ok(Stop { kind: StopKind::OtherSite, address, ticket, relay: None })
}

fn at_own_gateway(
    message: &'static str,
    at: proto::AtOwnGateway,
    own_gateway: &str,
) -> Result<Stop, DecodeError> {
    let (address, ticket) = (own_gateway.to_owned(), sealed(message, &at.ticket)?);
    Ok(Stop { kind: StopKind::OwnSite, address, ticket, relay: named(at.relay) })
}

fn at_site_gateway(message: &'static str, at: proto::AtSiteGateway) -> Result<Stop, DecodeError> {
    let (address, ticket) = (address(message, at.address)?, sealed(message, &at.ticket)?);
    Ok(Stop { kind: StopKind::OwnSite, address, ticket, relay: named(at.relay) })
}

fn named(relay: String) -> Option<String> {
    Some(relay).filter(|relay| !relay.is_empty())
}
