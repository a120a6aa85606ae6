//! The enums that `isthmus-plan` and the protocol have in common: one table each,
//! for both directions. The printed name is that of `isthmus-plan`.

use isthmus_plan::{
    Dial, Encryption, Filtering, Inbound, Mapping, Reachability, Remedy, Route, Transport, Unsolicited,
    WayOut,
};
use isthmus_wire::proto;

/// Makes two functions from a table of variants, which have the same names on both sides. With
/// `none`, a value that only the protocol has becomes `None`.
macro_rules! table {
    ($to:ident, $from:ident: $name:ident { $($variant:ident),+ }) => {
        #[doc = concat!("[`", stringify!($name), "`] as it is sent.")]
        pub fn $to(value: $name) -> proto::$name {
            match value { $($name::$variant => proto::$name::$variant),+ }
        }

        #[doc = concat!("[`", stringify!($name), "`] as it was received.")]
        pub fn $from(value: proto::$name) -> $name {
            match value { $(proto::$name::$variant => $name::$variant),+ }
        }
    };
    ($to:ident, $from:ident: $name:ident { $($variant:ident),+ }, none: $none:ident) => {
        #[doc = concat!("[`", stringify!($name), "`] as it is sent.")]
        pub fn $to(value: $name) -> proto::$name {
            match value { $($name::$variant => proto::$name::$variant),+ }
        }

        #[doc = concat!("[`", stringify!($name), "`] as it was received; none if this version doesn't know it.")]
        pub fn $from(value: proto::$name) -> Option<$name> {
            match value {
                proto::$name::$none => None,
                $(proto::$name::$variant => Some($name::$variant)),+
            }
        }
    };
}

table!(route_to_wire, route_from_wire: Route { EndToEnd, OneGateway, GatewayOut, TwoGateway }, none: Unknown);
table!(
    dial_to_wire, dial_from_wire: Dial { Direct, PortRange, Reverse, Punch, Traverse, Relay, Trunk }, none: Unknown
);
table!(transport_to_wire, transport_from_wire: Transport { SiteTrunk, Trunk, Socket }, none: Unknown);
table!(
    remedy_to_wire, remedy_from_wire:
    Remedy {
        StartRelay, StartGateway, AllowWay, OpenSite, OpenPort, OpenGatewayPort, JoinGateways, AllowRawPackets
    },
    none: None
);
table!(encryption_to_wire, encryption_from_wire: Encryption { None, Agents, Gateways });
table!(inbound_to_wire, inbound_from_wire: Inbound { Closed, Open, Auto });
table!(way_out_to_wire, way_out_from_wire: WayOut { Unknown, Yes, No });
table!(
    mapping_to_wire, mapping_from_wire: Mapping { Unknown, Untranslated, EndpointIndependent, PortDependent }
);
table!(
    filtering_to_wire, filtering_from_wire:
    Filtering { Unknown, EndpointIndependent, AddressDependent, PortDependent, Stateless }
);
table!(unsolicited_to_wire, unsolicited_from_wire: Unsolicited { Unknown, Dropped, Reset });
table!(
    reachability_to_wire, reachability_from_wire:
    Reachability { Unknown, Reachable, Filtered, Refused, Misdirected }
);

/// A dial's name in docs and messages.
pub fn dial_name(dial: proto::Dial) -> String {
    dial_from_wire(dial).map_or_else(|| "unknown".to_owned(), |dial| dial.to_string())
}

/// A route's name in docs and messages.
pub fn route_name(route: proto::Route) -> String {
    route_from_wire(route).map_or_else(|| "unknown".to_owned(), |route| route.to_string())
}

#[cfg(test)]
mod tests {
    use isthmus_plan::policy::Choice as _;

    use super::*;

    #[test]
    fn every_value_of_the_protocol_has_its_name() {
        for (value, want) in [
            (proto::Dial::Unknown, "unknown"),
            (proto::Dial::Direct, "direct"),
            (proto::Dial::Relay, "relay"),
            (proto::Dial::PortRange, "port-range"),
            (proto::Dial::Reverse, "reverse"),
            (proto::Dial::Punch, "punch"),
            (proto::Dial::Traverse, "traverse"),
            (proto::Dial::Trunk, "trunk"),
        ] {
            assert_eq!(dial_name(value), want);
        }
        for (value, want) in [
            (proto::Route::Unknown, "unknown"),
            (proto::Route::EndToEnd, "end-to-end"),
            (proto::Route::OneGateway, "one-gateway"),
            (proto::Route::GatewayOut, "gateway-out"),
            (proto::Route::TwoGateway, "two-gateway"),
        ] {
            assert_eq!(route_name(value), want);
        }
        assert!(Dial::ALL.iter().all(|dial| dial_from_wire(dial_to_wire(*dial)) == Some(*dial)));
        assert!(Route::ALL.iter().all(|route| route_from_wire(route_to_wire(*route)) == Some(*route)));
    }
}
