//! An initiator's request for a rendezvous.

use std::net::Ipv4Addr;

use isthmus_plan::{Dial, Route};
use isthmus_raw::Syn;
use isthmus_wire::proto::{self, rendezvous_request};
use isthmus_wire::{ConnectionId, DecodeError, JobId};

use super::fields::{LONGEST_ADDRESS, REQUEST, carried, id, job, malformed, port, segment, unknown_way};
use super::{Peer, Port};
use crate::enums::{dial_from_wire, dial_to_wire, route_from_wire, route_to_wire};

/// Most relays and gateways that a request names as failed.
const MOST_AVOIDED: usize = 64;

/// An initiator's request to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The party to be connected to.
    pub to: Peer,
    /// The virtual address of the node that connects; unspecified for a gateway, which is the
    /// caller.
    pub initiator: Ipv4Addr,
    /// The dial and the route, with what they need.
    pub way: RequestWay,
    /// The longest segment of all connections that are opened for the request, in bytes; `None`
    /// lets each kernel choose.
    pub segment: Option<u16>,
}

/// The ways that need the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestWay {
    /// Both nodes connect to a relay.
    Relay {
        /// Relays that have just failed, by name.
        avoid: Vec<String>,
    },
    /// The acceptor connects to the initiator.
    Reverse {
        /// The id that the acceptor sends first.
        rendezvous: ConnectionId,
    },
    /// Both nodes connect to each other.
    Punch {
        /// The id of the acceptor's answer.
        rendezvous: ConnectionId,
        /// The port that the initiator dials from.
        port: Port,
        /// Whether both nodes ask a relay how they are seen from outside.
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
        /// The route over gateways: any but [`Route::EndToEnd`].
        route: Route,
        /// How the connection between the sites is opened.
        dial: Dial,
        /// Names of relays, and grid names of gateways, that have just failed.
        avoid: Vec<String>,
        /// The job that the connection is for; only with [`Dial::Trunk`].
        job: Option<JobId>,
    },
    /// The acceptor's gateway connects to the initiator.
    DialedByGateway {
        /// The id that the gateway sends first.
        rendezvous: ConnectionId,
        /// Names of relays, and grid names of gateways, that have just failed.
        avoid: Vec<String>,
    },
}

impl RequestWay {
    /// The route and the dial that the request is for.
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

    /// The id that the initiator has drawn; `None` if the way needs none.
    pub fn rendezvous(&self) -> Option<ConnectionId> {
        match self {
            Self::Reverse { rendezvous }
            | Self::Punch { rendezvous, .. }
            | Self::Traverse { rendezvous, .. }
            | Self::DialedByGateway { rendezvous, .. } => Some(*rendezvous),
            Self::Relay { .. } | Self::OverGateways { .. } => None,
        }
    }

    /// Names of relays and gateways that have just failed.
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
            Wire::Relay(relay) => RequestWay::Relay { avoid: avoided(&relay.avoid)? },
            Wire::Reverse(reverse) => RequestWay::Reverse { rendezvous: id(&reverse.rendezvous)? },
            Wire::Punch(punch) => RequestWay::Punch {
                rendezvous: id(&punch.rendezvous)?,
                port: port(REQUEST, &punch.address, punch.signature.clone())?,
                ask: punch.ask,
            },
            Wire::Traverse(traverse) => RequestWay::Traverse {
                rendezvous: id(&traverse.rendezvous)?,
                syn: carried(REQUEST, &traverse.syn)?,
            },
            Wire::OverGateways(over) => over_gateways(over)?,
            Wire::DialedByGateway(by) => {
                RequestWay::DialedByGateway { rendezvous: id(&by.rendezvous)?, avoid: avoided(&by.avoid)? }
            }
        };
        let segment = segment(REQUEST, request.segment)?;
        let to = Peer::read(REQUEST, request.destination, &request.gateway)?;
        if request.initiator != 0 && to.node().is_none() {
            return Err(malformed(REQUEST, "a node that asks for a gateway"));
        }
        Ok(Self { to, initiator: request.initiator.into(), way, segment })
    }
}

fn over_gateways(over: &rendezvous_request::OverGateways) -> Result<RequestWay, DecodeError> {
    let route = route_from_wire(over.route()).filter(|route| *route != Route::EndToEnd);
    let route = route.ok_or_else(|| malformed(REQUEST, "a way over gateways without such a route"))?;
    let dial = dial_from_wire(over.dial());
    let dial = dial.ok_or_else(|| malformed(REQUEST, "a way over gateways without a known dial"))?;
    if (route, dial) == (Route::OneGateway, Dial::Reverse) {
        return Err(malformed(REQUEST, "the initiator connects to a gateway that is to connect to it"));
    }
    if dial == Dial::Trunk && route != Route::TwoGateway {
        return Err(malformed(REQUEST, "the trunk of two gateways with another route"));
    }
    let job = if over.job.is_empty() { None } else { Some(job(&over.job)?) };
    if job.is_some() && dial != Dial::Trunk {
        return Err(malformed(REQUEST, "a job with another way than the trunk of two gateways"));
    }
    Ok(RequestWay::OverGateways { route, dial, avoid: avoided(&over.avoid)?, job })
}

impl From<Request> for proto::RendezvousRequest {
    fn from(request: Request) -> Self {
        use rendezvous_request::{self as wire, Way as Wire};
        let id = |id: ConnectionId| id.0.to_vec();
        let way = match request.way {
            RequestWay::Relay { avoid } => Wire::Relay(wire::Relay { avoid }),
            RequestWay::Reverse { rendezvous } => Wire::Reverse(wire::Reverse { rendezvous: id(rendezvous) }),
            RequestWay::Punch { rendezvous, port, ask } => {
                let Port { address, signature } = port;
                let (rendezvous, address) = (id(rendezvous), address.to_string());
                Wire::Punch(wire::Punch { rendezvous, address, ask, signature })
            }
            RequestWay::Traverse { rendezvous, syn } => {
                Wire::Traverse(wire::Traverse { rendezvous: id(rendezvous), syn: syn.to_bytes() })
            }
            RequestWay::OverGateways { route, dial, avoid, job } => {
                let (route, dial) = (route_to_wire(route).into(), dial_to_wire(dial).into());
                let job = job.map(|job| job.0.to_vec()).unwrap_or_default();
                Wire::OverGateways(wire::OverGateways { route, dial, avoid, job })
            }
            RequestWay::DialedByGateway { rendezvous, avoid } => {
                Wire::DialedByGateway(wire::DialedByGateway { rendezvous: id(rendezvous), avoid })
            }
        };
        let (destination, gateway) = request.to.fields();
        let segment = request.segment.unwrap_or_default().into();
        Self { destination, gateway, initiator: request.initiator.into(), way: Some(way), segment }
    }
}

fn avoided(names: &[String]) -> Result<Vec<String>, DecodeError> {
    if names.len() > MOST_AVOIDED || names.iter().any(|name| name.len() > LONGEST_ADDRESS) {
        return Err(malformed(REQUEST, format!("more than {MOST_AVOIDED} names to avoid, or a long one")));
    }
    Ok(names.to_vec())
}
