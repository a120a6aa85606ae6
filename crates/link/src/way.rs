//! How a carrier was dialed.

use std::sync::Arc;

use isthmus_plan::Used;
use isthmus_reach::Reached;
use isthmus_rpc::enums::{dial_from_wire, route_from_wire};
use isthmus_trunk::CarrierId;
use isthmus_wire::proto;
use isthmus_wire::way::{self, WAY_LEN};

/// How a carrier of a trunk was dialed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CarrierWay {
    /// Which parties dialed.
    pub route: proto::Route,
    /// How the carrier was opened.
    pub dial: proto::Dial,
    /// The relay on the way; empty if there is none.
    pub relay: String,
}

/// A carrier that this end has dialed.
#[derive(Debug, Clone)]
pub struct DialedWay {
    /// How it was dialed.
    pub how: CarrierWay,
    /// Its addresses, for messages.
    pub ends: Arc<str>,
}

impl CarrierWay {
    /// How a connection was dialed.
    pub fn of(reached: &Reached) -> Self {
        Self { route: reached.route, dial: reached.dial, relay: reached.relay.clone() }
    }

    /// The way to an address that the other end has told.
    pub(crate) fn told_address() -> Self {
        Self { route: proto::Route::EndToEnd, dial: proto::Dial::Direct, relay: String::new() }
    }

    /// The way as a plan judges it; `None` if this version doesn't know the route or the dial.
    pub(crate) fn used(&self) -> Option<Used<'_>> {
        let (route, dial) = route_from_wire(self.route).zip(dial_from_wire(self.dial))?;
        Some(Used { route, dial, relay: &self.relay })
    }

    /// The message that tells the other end of this way. `carrier` is the number that the other end
    /// has for the carrier.
    pub fn encode(&self, carrier: Option<u32>) -> [u8; WAY_LEN] {
        // Route and dial have few values.
        let number = |value: i32| u8::try_from(value).unwrap_or(0);
        let (route, dial) = (number(self.route.into()), number(self.dial.into()));
        way::CarrierWay { route, dial, relay: self.relay.parse().ok(), carrier }.encode()
    }

    /// Reads the other end's message of a way, with this end's number of the carrier.
    ///
    /// # Errors
    /// If this version doesn't know the route or the dial.
    pub fn decode(bytes: &[u8; WAY_LEN]) -> Result<(Self, Option<CarrierId>), String> {
        let told = way::CarrierWay::decode(bytes).map_err(|error| error.to_string())?;
        let unknown = |what: &str, number: u8| format!("there is no {what} {number}");
        let way = Self {
            route: i32::from(told.route).try_into().map_err(|_| unknown("route", told.route))?,
            dial: i32::from(told.dial).try_into().map_err(|_| unknown("dial", told.dial))?,
            relay: told.relay.map(|relay| relay.to_string()).unwrap_or_default(),
        };
        Ok((way, told.carrier.map(CarrierId)))
    }
}
