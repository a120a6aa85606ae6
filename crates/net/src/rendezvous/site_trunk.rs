//! How two gateways get a carrier of the trunk that they keep: the asking one's request
//! to the broker, the reply, and the order to the other one.

use isthmus_plan::Dial;
use isthmus_plan::site_trunk::CARRIERS;
use isthmus_wire::proto::{self, site_trunk_order, site_trunk_reply};
use isthmus_wire::{DecodeError, GridName};

use super::fields::{SITE_TRUNK, address, malformed, segment, unknown_way};
use super::request::avoided;
use super::{Stop, at_relay};
use crate::enums::{dial_from_wire, dial_to_wire};

/// A gateway's request for a carrier of its trunk with another site's gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The grid name of the other gateway.
    pub gateway: GridName,
    /// How the carrier is opened, one of [`CARRIERS`].
    pub dial: Dial,
    /// Relays that have just failed, by name.
    pub avoid: Vec<String>,
    /// The longest segment of the carrier's connections, in bytes; `None` lets each kernel choose.
    pub segment: Option<u16>,
}

/// What the gateway that asks is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Connect to the other gateway's port outside, `HOST:PORT`.
    Connect(String),
    /// Wait for the trunk that the other gateway makes.
    Await,
    /// Connect to a relay, and begin TLS with the other gateway over it.
    Relay(Stop),
}

/// What the other gateway is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The grid name of the gateway that asks.
    pub gateway: GridName,
    /// How the gateway that asks gets its carrier.
    pub way: OrderWay,
    /// The longest segment of this end's connection, as in the request.
    pub segment: Option<u16>,
}

/// How the other gateway gets its carrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderWay {
    /// Make a trunk with the gateway that asks, whose port outside is at this `HOST:PORT`.
    Connect(String),
    /// Connect to a relay; the gateway that asks begins TLS over it.
    Relay(Stop),
    /// Take the trunk that the gateway that asks makes.
    Expect,
}

impl TryFrom<&proto::SiteTrunkRequest> for Request {
    type Error = DecodeError;

    fn try_from(request: &proto::SiteTrunkRequest) -> Result<Self, DecodeError> {
        let dial = dial_from_wire(request.dial()).filter(|dial| CARRIERS.contains(dial));
        Ok(Self {
            gateway: gateway(&request.gateway)?,
            dial: dial.ok_or_else(|| unknown_way(SITE_TRUNK))?,
            avoid: avoided(&request.avoid)?,
            segment: segment(SITE_TRUNK, request.segment)?,
        })
    }
}

impl From<Request> for proto::SiteTrunkRequest {
    fn from(request: Request) -> Self {
        let Request { gateway, dial, avoid, segment } = request;
        let segment = segment.unwrap_or_default().into();
        Self { gateway: gateway.to_string(), dial: dial_to_wire(dial).into(), avoid, segment }
    }
}

impl TryFrom<proto::SiteTrunkReply> for Reply {
    type Error = DecodeError;

    fn try_from(reply: proto::SiteTrunkReply) -> Result<Self, DecodeError> {
        use site_trunk_reply::Way;
        Ok(match reply.way.ok_or_else(|| unknown_way(SITE_TRUNK))? {
            Way::Address(at) => Self::Connect(address(SITE_TRUNK, at)?),
            Way::Awaited(_) => Self::Await,
            Way::Relay(at) => Self::Relay(at_relay(SITE_TRUNK, at)?),
        })
    }
}

impl TryFrom<proto::SiteTrunkOrder> for Order {
    type Error = DecodeError;

    fn try_from(order: proto::SiteTrunkOrder) -> Result<Self, DecodeError> {
        use site_trunk_order::Way;
        let way = match order.way.ok_or_else(|| unknown_way(SITE_TRUNK))? {
            Way::Address(at) => OrderWay::Connect(address(SITE_TRUNK, at)?),
            Way::Relay(at) => OrderWay::Relay(at_relay(SITE_TRUNK, at)?),
            Way::Expect(_) => OrderWay::Expect,
        };
        let segment = segment(SITE_TRUNK, order.segment)?;
        Ok(Self { gateway: gateway(&order.gateway)?, way, segment })
    }
}

fn gateway(name: &str) -> Result<GridName, DecodeError> {
    name.parse().map_err(|_| malformed(SITE_TRUNK, "a gateway without a grid name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_relay() -> proto::AtRelay {
        proto::AtRelay { name: "hub".to_owned(), address: "hub:7720".to_owned(), ticket: vec![7; 64] }
    }

    #[test]
    fn requests_survive_the_wire_and_other_dials_are_refused() {
        for dial in CARRIERS {
            let gateway = "gateway.beta".parse().unwrap();
            let request = Request { gateway, dial, avoid: vec!["hub".to_owned()], segment: Some(1240) };
            assert_eq!(Request::try_from(&proto::SiteTrunkRequest::from(request.clone())), Ok(request));
        }
        let sent = |gateway: &str, dial: proto::Dial| proto::SiteTrunkRequest {
            gateway: gateway.to_owned(),
            dial: dial.into(),
            avoid: Vec::new(),
            segment: 0,
        };
        for wrong in [
            sent("gateway.beta", proto::Dial::Punch),
            sent("gateway.beta", proto::Dial::Unknown),
            sent("beta", proto::Dial::Relay),
            sent("", proto::Dial::Relay),
            proto::SiteTrunkRequest {
                avoid: vec![String::new(); 65],
                ..sent("gateway.beta", proto::Dial::Relay)
            },
            proto::SiteTrunkRequest { segment: 499, ..sent("gateway.beta", proto::Dial::Relay) },
        ] {
            assert!(Request::try_from(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn replies_and_orders_are_read_or_refused() {
        use {site_trunk_order as order, site_trunk_reply as reply};
        let at = "login.beta.example:7740".to_owned();
        let read = |way| Reply::try_from(proto::SiteTrunkReply { way });
        assert_eq!(read(Some(reply::Way::Address(at.clone()))), Ok(Reply::Connect(at.clone())));
        assert_eq!(read(Some(reply::Way::Awaited(reply::Awaited {}))), Ok(Reply::Await));
        let relayed = read(Some(reply::Way::Relay(at_relay())));
        assert!(matches!(relayed, Ok(Reply::Relay(stop)) if stop.relay.as_deref() == Some("hub")));
        assert!(read(Some(reply::Way::Address("nowhere".to_owned()))).is_err());
        assert!(read(None).is_err());
        let read = |gateway: &str, way| {
            Order::try_from(proto::SiteTrunkOrder { gateway: gateway.to_owned(), way, segment: 1240 })
        };
        let ordered = read("g1.alpha", Some(order::Way::Address(at.clone())));
        assert_eq!(ordered.map(|order| (order.way, order.segment)), Ok((OrderWay::Connect(at), Some(1240))));
        assert!(read("g1.alpha", Some(order::Way::Relay(at_relay()))).is_ok());
        let expected = read("g1.alpha", Some(order::Way::Expect(order::Expect {})));
        assert_eq!(expected.map(|order| order.way), Ok(OrderWay::Expect));
        let short = proto::AtRelay { ticket: vec![7; 63], ..at_relay() };
        assert!(read("g1.alpha", Some(order::Way::Relay(short))).is_err());
        assert!(read("alpha", Some(order::Way::Relay(at_relay()))).is_err());
        assert!(read("g1.alpha", None).is_err());
    }
}
