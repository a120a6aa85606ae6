//! Requests and replies by which two nodes are connected, read from the protocol
//! into types that hold only what makes sense. Whoever receives one reads it here,
//! once.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use isthmus_plan::{Dial, Route};
use isthmus_raw::{Syn, syn};
use isthmus_wire::proto::{self, dial_answer, dial_request, leg, rendezvous_reply, rendezvous_request};
use isthmus_wire::ticket::{TICKET_LEN, Ticket};
use isthmus_wire::{ConnectionId, DecodeError, hello};

use crate::enums::{dial_from_wire, dial_to_wire, route_from_wire, route_to_wire};

/// A sealed ticket, as it is shown.
pub type SealedTicket = [u8; TICKET_LEN];

/// Longest `HOST:PORT`: a name of 253 bytes (RFC 1035 section 3.1) and a port.
const LONGEST_ADDRESS: usize = 259;
/// Relays and gateways that one request names as failed, at most.
const MOST_AVOIDED: usize = 64;
/// Relays named to an acceptor as reflectors, at most.
const MOST_REFLECTORS: usize = 16;

/// What an initiator asks the broker for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The node to be connected to.
    pub destination: Ipv4Addr,
    /// The node that asks.
    pub initiator: Ipv4Addr,
    /// How.
    pub way: Way,
}

/// The ways that need the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Both connect to a relay.
    Relay {
        /// Relays that have just failed, by name.
        avoid: Vec<String>,
    },
    /// The acceptor connects to the initiator.
    Reverse {
        /// The id that the acceptor shows.
        rendezvous: ConnectionId,
    },
    /// Both connect to each other.
    Punch {
        /// The id of the acceptor's answer.
        rendezvous: ConnectionId,
        /// Where the initiator dials from, as seen from outside.
        address: SocketAddr,
        /// Both ask a relay how they are seen.
        ask: bool,
    },
    /// The acceptor's agent takes in the initiator's SYN.
    Traverse {
        /// The id of the acceptor's answer.
        rendezvous: ConnectionId,
        /// The SYN, with its source as seen from outside.
        syn: Syn,
    },
    /// The initiator connects to a relay or a gateway.
    OverGateways {
        /// Any but [`Route::EndToEnd`].
        route: Route,
        /// How the gateways connect.
        dial: Dial,
        /// Relays and gateways that have just failed, by (grid) name.
        avoid: Vec<String>,
    },
    /// The acceptor's gateway connects to the initiator.
    DialedByGateway {
        /// The id that the gateway shows.
        rendezvous: ConnectionId,
        /// As in `OverGateways`.
        avoid: Vec<String>,
    },
}

impl Way {
    /// The route and the dial that this is a request for.
    pub fn way(&self) -> (Route, Dial) {
        match self {
            Self::Relay { .. } => (Route::EndToEnd, Dial::Relay),
            Self::Reverse { .. } => (Route::EndToEnd, Dial::Reverse),
            Self::Punch { .. } => (Route::EndToEnd, Dial::Punch),
            Self::Traverse { .. } => (Route::EndToEnd, Dial::Traverse),
            Self::OverGateways { route, dial, .. } => (*route, *dial),
            Self::DialedByGateway { .. } => (Route::OneGateway, Dial::Reverse),
        }
    }

    /// The id that the initiator has made up, for those ways that need one.
    pub fn rendezvous(&self) -> Option<ConnectionId> {
        match self {
            Self::Reverse { rendezvous }
            | Self::Punch { rendezvous, .. }
            | Self::Traverse { rendezvous, .. }
            | Self::DialedByGateway { rendezvous, .. } => Some(*rendezvous),
            Self::Relay { .. } | Self::OverGateways { .. } => None,
        }
    }

    /// Relays and gateways that have just failed.
    pub fn avoid(&self) -> &[String] {
        match self {
            Self::Relay { avoid }
            | Self::OverGateways { avoid, .. }
            | Self::DialedByGateway { avoid, .. } => avoid,
            Self::Reverse { .. } | Self::Punch { .. } | Self::Traverse { .. } => &[],
        }
    }
}

impl TryFrom<&proto::RendezvousRequest> for Request {
    type Error = DecodeError;

    fn try_from(request: &proto::RendezvousRequest) -> Result<Self, DecodeError> {
        use rendezvous_request::Way as Wire;
        let way = match request.way.as_ref().ok_or_else(|| unknown_way(REQUEST))? {
            Wire::Relay(relay) => Way::Relay { avoid: avoided(&relay.avoid)? },
            Wire::Reverse(reverse) => Way::Reverse { rendezvous: id(&reverse.rendezvous)? },
            Wire::Punch(punch) => Way::Punch {
                rendezvous: id(&punch.rendezvous)?,
                address: socket_address(REQUEST, &punch.address)?,
                ask: punch.ask,
            },
            Wire::Traverse(traverse) => {
                Way::Traverse { rendezvous: id(&traverse.rendezvous)?, syn: carried(REQUEST, &traverse.syn)? }
            }
            Wire::OverGateways(over) => over_gateways(over)?,
            Wire::DialedByGateway(by) => {
                Way::DialedByGateway { rendezvous: id(&by.rendezvous)?, avoid: avoided(&by.avoid)? }
            }
        };
        Ok(Self { destination: request.destination.into(), initiator: request.initiator.into(), way })
    }
}

fn over_gateways(over: &rendezvous_request::OverGateways) -> Result<Way, DecodeError> {
    let route = route_from_wire(over.route()).filter(|route| *route != Route::EndToEnd);
    let route = route.ok_or_else(|| malformed(REQUEST, "a way over gateways without such a route"))?;
    let dial = dial_from_wire(over.dial());
    let dial = dial.ok_or_else(|| malformed(REQUEST, "a way over gateways without a known dial"))?;
    if (route, dial) == (Route::OneGateway, Dial::Reverse) {
        return Err(malformed(REQUEST, "the initiator connects to a gateway that is to connect to it"));
    }
    Ok(Way::OverGateways { route, dial, avoid: avoided(&over.avoid)? })
}

impl From<Request> for proto::RendezvousRequest {
    fn from(request: Request) -> Self {
        use rendezvous_request::{self as wire, Way as Wire};
        let id = |id: ConnectionId| id.0.to_vec();
        let way = match request.way {
            Way::Relay { avoid } => Wire::Relay(wire::Relay { avoid }),
            Way::Reverse { rendezvous } => Wire::Reverse(wire::Reverse { rendezvous: id(rendezvous) }),
            Way::Punch { rendezvous, address, ask } => {
                let (rendezvous, address) = (id(rendezvous), address.to_string());
                Wire::Punch(wire::Punch { rendezvous, address, ask })
            }
            Way::Traverse { rendezvous, syn } => {
                Wire::Traverse(wire::Traverse { rendezvous: id(rendezvous), syn: syn.to_bytes() })
            }
            Way::OverGateways { route, dial, avoid } => {
                let (route, dial) = (route_to_wire(route).into(), dial_to_wire(dial).into());
                Wire::OverGateways(wire::OverGateways { route, dial, avoid })
            }
            Way::DialedByGateway { rendezvous, avoid } => {
                Wire::DialedByGateway(wire::DialedByGateway { rendezvous: id(rendezvous), avoid })
            }
        };
        Self { destination: request.destination.into(), initiator: request.initiator.into(), way: Some(way) }
    }
}

/// A relay or gateway to connect to, and the ticket to show there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// Where it is.
    pub place: Place,
    /// `HOST:PORT`.
    pub address: String,
    /// To be shown there.
    pub ticket: SealedTicket,
    /// Name of the relay that the connection goes over, there or behind it.
    pub relay: Option<String>,
}

/// What kind of party a [`Stop`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A relay.
    Relay,
    /// A gateway of the other site, at its port outside.
    OtherSite,
    /// A gateway of the node's own site.
    OwnSite,
}

/// What the broker answers an initiator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What the initiator is to do.
    pub way: ReplyWay,
    /// Grid names of the gateways that stand between.
    pub gateways: Vec<String>,
}

/// What an initiator is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyWay {
    /// Connect there.
    Stop(Stop),
    /// Wait to be dialed.
    Awaited,
    /// Connect to this address at the same time as the acceptor connects back.
    Punch(SocketAddr),
    /// Nothing: the SYN has been taken in.
    TakenIn,
}

impl Reply {
    /// Reads a reply; `own_gateway` is where the node's gateway is, `HOST:PORT`.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(reply: proto::RendezvousReply, own_gateway: &str) -> Result<Self, DecodeError> {
        use rendezvous_reply::Way as Wire;
        let way = match reply.way.ok_or_else(|| unknown_way(REPLY))? {
            Wire::Relay(at) => ReplyWay::Stop(at_relay(REPLY, at)?),
            Wire::Gateway(at) => ReplyWay::Stop(at_gateway(REPLY, at)?),
            Wire::OwnGateway(at) => ReplyWay::Stop(at_own_gateway(REPLY, at, own_gateway)?),
            Wire::SiteGateway(at) => ReplyWay::Stop(at_site_gateway(REPLY, at)?),
            Wire::Awaited(_) => ReplyWay::Awaited,
            Wire::AcceptorAddress(address) => ReplyWay::Punch(socket_address(REPLY, &address)?),
            Wire::TakenIn(_) => ReplyWay::TakenIn,
        };
        Ok(Self { way, gateways: reply.gateways.into_iter().take(2).collect() })
    }
}

/// What an acceptor's agent is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The node that asked.
    pub initiator: Ipv4Addr,
    /// What.
    pub way: OrderWay,
}

/// The ways in which an acceptor dials out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderWay {
    /// Connect there.
    Stop(Stop),
    /// Connect to the initiator.
    Reverse {
        /// The id to show.
        rendezvous: ConnectionId,
        /// Where the initiator is let in, `HOST:PORT`.
        address: String,
    },
    /// Connect to the initiator at the same time as it connects back.
    Punch {
        /// The id to answer with.
        rendezvous: ConnectionId,
        /// Where the initiator dials from, as seen from outside.
        address: SocketAddr,
        /// Relays to be asked how this node is seen, `HOST:PORT`.
        reflectors: Vec<String>,
        /// A relay is to be asked, whatever is known.
        ask: bool,
    },
    /// Take in the initiator's SYN.
    Traverse {
        /// The id to answer with.
        rendezvous: ConnectionId,
        /// The SYN, not checked yet for where it comes from and goes to.
        syn: Syn,
    },
}

impl fmt::Display for Place {
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
            Self::Stop(stop) => write!(f, "{} at {}", stop.place, stop.address),
            Self::Reverse { address, .. } => write!(f, "{} to {address}", Dial::Reverse),
            Self::Punch { address, .. } => write!(f, "{} with {address}", Dial::Punch),
            Self::Traverse { syn, .. } => write!(f, "{} from {}", Dial::Traverse, syn.source),
        }
    }
}

impl Order {
    /// Reads a request; `own_gateway` is where the node's gateway is, `HOST:PORT`.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(request: proto::DialRequest, own_gateway: &str) -> Result<Self, DecodeError> {
        use dial_request::Way as Wire;
        let way = match request.way.ok_or_else(|| unknown_way(ORDER))? {
            Wire::Relay(at) => OrderWay::Stop(at_relay(ORDER, at)?),
            Wire::Gateway(at) => OrderWay::Stop(at_gateway(ORDER, at)?),
            Wire::OwnGateway(at) => OrderWay::Stop(at_own_gateway(ORDER, at, own_gateway)?),
            Wire::SiteGateway(at) => OrderWay::Stop(at_site_gateway(ORDER, at)?),
            Wire::Reverse(reverse) => OrderWay::Reverse {
                rendezvous: id(&reverse.rendezvous)?,
                address: address(ORDER, reverse.address)?,
            },
            Wire::Punch(punch) => {
                let reflectors = punch.reflectors.into_iter().take(MOST_REFLECTORS);
                OrderWay::Punch {
                    rendezvous: id(&punch.rendezvous)?,
                    address: socket_address(ORDER, &punch.address)?,
                    reflectors: reflectors.map(|one| address(ORDER, one)).collect::<Result<_, _>>()?,
                    ask: punch.ask,
                }
            }
            Wire::Traverse(traverse) => OrderWay::Traverse {
                rendezvous: id(&traverse.rendezvous)?,
                syn: carried(ORDER, &traverse.syn)?,
            },
        };
        Ok(Self { initiator: request.initiator.into(), way })
    }
}

/// A connection that a gateway opens for one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// Where to, `HOST:PORT`.
    pub address: String,
    /// For its place at the gateway itself.
    pub ticket: SealedTicket,
    /// What to show there.
    pub first: First,
}

/// What a gateway shows on a connection that it has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Nothing.
    Nothing,
    /// A ticket.
    Ticket(SealedTicket),
    /// The rendezvous that the initiator waits with.
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
        Ok(Self { address: address(LEG, leg.address)?, ticket: sealed(LEG, &leg.ticket)?, first })
    }
}

impl From<Leg> for proto::Leg {
    fn from(leg: Leg) -> Self {
        let first = match leg.first {
            First::Nothing => None,
            First::Ticket(ticket) => Some(leg::First::ShownTicket(ticket.to_vec())),
            First::Rendezvous(id) => Some(leg::First::Rendezvous(id.0.to_vec())),
        };
        Self { address: leg.address, ticket: leg.ticket.to_vec(), first }
    }
}

/// A node that is about to come to a gateway for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The connection of the ticket that it shows.
    pub connection: ConnectionId,
    /// Where it comes from.
    pub from: IpAddr,
    /// What is to be dialed for it meanwhile.
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

/// What a gateway does for its own node: the connection of the ticket that the node
/// shows, and what is to be dialed meanwhile, which is taken out of the message.
///
/// # Errors
/// If one of the two can't be read.
pub fn take_leg(at: &mut proto::AtOwnGateway) -> Result<(ConnectionId, Option<Leg>), DecodeError> {
    let leg = at.leg.take().map(Leg::try_from).transpose()?;
    Ok((connection(OWN_GATEWAY, &at.ticket)?, leg))
}

/// What an acceptor has answered: the address that it punches from, nothing for a
/// SYN that it has taken in, or why it can't.
pub type Answer = Result<Option<SocketAddr>, String>;

/// Reads an acceptor's answer, with the id of the rendezvous.
///
/// # Errors
/// If it is none.
pub fn read_answer(answer: proto::DialAnswer) -> Result<(ConnectionId, Answer), DecodeError> {
    let result = match answer.result.ok_or_else(|| malformed(ANSWER, "no known result"))? {
        dial_answer::Result::Address(address) => Ok(Some(socket_address(ANSWER, &address)?)),
        dial_answer::Result::TakenIn(_) => Ok(None),
        dial_answer::Result::Failure(failure) => Err(failure),
    };
    Ok((id(&answer.rendezvous)?, result))
}

/// An acceptor's answer as it is sent.
pub fn answer_to_wire(rendezvous: ConnectionId, answer: Answer) -> proto::DialAnswer {
    let result = match answer {
        Ok(Some(address)) => dial_answer::Result::Address(address.to_string()),
        Ok(None) => dial_answer::Result::TakenIn(proto::TakenIn {}),
        Err(failure) => dial_answer::Result::Failure(failure),
    };
    proto::DialAnswer { rendezvous: rendezvous.0.to_vec(), result: Some(result) }
}

const REQUEST: &str = "request for a rendezvous";
const REPLY: &str = "reply to a request for a rendezvous";
const ORDER: &str = "request to dial";
const LEG: &str = "leg of a gateway";
const EXPECT: &str = "order to expect a node";
const OWN_GATEWAY: &str = "stream over the own gateway";
const ANSWER: &str = "answer of an acceptor";

fn malformed(message: &'static str, reason: impl Into<String>) -> DecodeError {
    DecodeError { message, reason: reason.into() }
}

fn unknown_way(message: &'static str) -> DecodeError {
    malformed(message, "no known way")
}

fn id(bytes: &[u8]) -> Result<ConnectionId, DecodeError> {
    ConnectionId::try_from(bytes)
}

fn sealed(message: &'static str, bytes: &[u8]) -> Result<SealedTicket, DecodeError> {
    bytes.try_into().map_err(|_| malformed(message, format!("a ticket of {} bytes", bytes.len())))
}

fn connection(message: &'static str, ticket: &[u8]) -> Result<ConnectionId, DecodeError> {
    Ok(Ticket::decode(&sealed(message, ticket)?)?.0.connection)
}

fn carried(message: &'static str, bytes: &[u8]) -> Result<Syn, DecodeError> {
    if bytes.len() > syn::MAX_LEN {
        return Err(malformed(message, format!("a SYN of {} bytes", bytes.len())));
    }
    Syn::parse(bytes).map_err(|error| malformed(message, format!("no SYN to carry: {error}")))
}

fn socket_address(message: &'static str, text: &str) -> Result<SocketAddr, DecodeError> {
    let bounded = Some(text).filter(|text| text.len() <= LONGEST_ADDRESS);
    let address = bounded.and_then(|text| text.parse().ok());
    address.ok_or_else(|| malformed(message, format!("{:?} is no address and port", shortened(text))))
}

/// `HOST:PORT`.
fn address(message: &'static str, text: String) -> Result<String, DecodeError> {
    let is_one = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    if text.len() <= LONGEST_ADDRESS && text.rsplit_once(':').is_some_and(is_one) {
        return Ok(text);
    }
    Err(malformed(message, format!("{:?} is no HOST:PORT", shortened(&text))))
}

/// The beginning of a text, for messages.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

fn avoided(names: &[String]) -> Result<Vec<String>, DecodeError> {
    if names.len() > MOST_AVOIDED || names.iter().any(|name| name.len() > LONGEST_ADDRESS) {
        return Err(malformed(REQUEST, format!("more than {MOST_AVOIDED} names to avoid, or a long one")));
    }
    Ok(names.to_vec())
}

fn at_relay(message: &'static str, at: proto::AtRelay) -> Result<Stop, DecodeError> {
    let (address, ticket) = (address(message, at.address)?, sealed(message, &at.ticket)?);
    Ok(Stop { place: Place::Relay, address, ticket, relay: Some(at.name) })
}

fn at_gateway(message: &'static str, at: proto::AtGateway) -> Result<Stop, DecodeError> {
    let (address, ticket) = (address(message, at.address)?, sealed(message, &at.ticket)?);
    Ok(Stop { place: Place::OtherSite, address, ticket, relay: None })
}

fn at_own_gateway(
    message: &'static str,
    at: proto::AtOwnGateway,
    own_gateway: &str,
) -> Result<Stop, DecodeError> {
    let (address, ticket) = (own_gateway.to_owned(), sealed(message, &at.ticket)?);
    Ok(Stop { place: Place::OwnSite, address, ticket, relay: named(at.relay) })
}

fn at_site_gateway(message: &'static str, at: proto::AtSiteGateway) -> Result<Stop, DecodeError> {
    let (address, ticket) = (address(message, at.address)?, sealed(message, &at.ticket)?);
    Ok(Stop { place: Place::OwnSite, address, ticket, relay: named(at.relay) })
}

fn named(relay: String) -> Option<String> {
    Some(relay).filter(|relay| !relay.is_empty())
}

#[cfg(test)]
mod tests;
