//! Reasons as they are printed.

use super::*;

fn check(table: Vec<(Reason, &str)>) {
    for (reason, want) in table {
        assert_eq!(reason.to_string(), want);
    }
}

/// A relay's failure to reach a node.
fn filtered() -> Reach {
    reach(Reachability::Filtered, "192.0.2.2:7730", "no answer within 3 s")
}

#[test]
fn reasons_of_planned_steps() {
    check(vec![
        (Reason::SameSite { site: beta() }, "both nodes are in site beta"),
        (Reason::LetsIn { site: beta() }, "site beta lets connections in"),
        (
            Reason::LetsInMeasured {
                site: beta(),
                found: reach(Reachability::Reachable, "192.0.2.2:7730", ""),
            },
            "site beta lets connections in: relay hub reached 192.0.2.2:7730",
        ),
        (
            Reason::LetsInMet { site: beta(), found: filtered() },
            "site beta lets connections from the other site in, as an earlier connection has shown, though relay hub \
             could not reach 192.0.2.2:7730: no answer within 3 s",
        ),
        (Reason::PortLetIn { site: beta() }, "site beta lets a port in for the node"),
        (Reason::PortsKnown, "both sites let connections out from ports that are known outside"),
        (
            Reason::MayAnswer { site: beta() },
            "the firewall of site beta may let an answer out without having seen the SYN",
        ),
        (Reason::BothLetOut, "both sites let connections out"),
        (Reason::GatewayLetIn { site: beta() }, "the gateway of site beta can be reached from outside"),
        (
            Reason::GatewayDials { initiator: alpha(), acceptor: beta() },
            "site alpha lets connections in, and the gateway of site beta dials for its node",
        ),
        (Reason::GatewayForEnclosed, "a node without a way out goes over its gateway"),
        (Reason::GatewaysInstead, "gateways dial out, as the nodes are not to dial each other"),
        (Reason::GatewaysTrunk, "the gateways of both sites keep a trunk, and encrypt"),
    ]);
}

#[test]
fn reasons_of_steps_that_are_left_out() {
    check(vec![
        (Reason::LetsNothingIn { site: beta() }, "site beta lets nothing in"),
        (
            Reason::NotReached { site: beta(), found: filtered() },
            "site beta lets nothing in: relay hub could not reach 192.0.2.2:7730: no answer within 3 s",
        ),
        (
            Reason::DeclaredOpen { site: beta(), found: filtered() },
            "site beta is declared open, but relay hub could not reach 192.0.2.2:7730: no answer within 3 s",
        ),
        (
            Reason::NotMeasured { site: beta(), found: Reach::default() },
            "whether site beta lets connections in is not known: no relay has tried to reach it yet",
        ),
        (Reason::EveryPortLetIn { site: beta() }, "site beta lets every port in"),
        (Reason::NoPortLetIn { site: beta() }, "no port of the node is let in by site beta"),
        (
            Reason::PortNotReached { found: filtered() },
            "a port is declared as let in for the node, but relay hub could not reach 192.0.2.2:7730: no answer \
             within 3 s",
        ),
        (Reason::NoRelay, "no relay is attached to the broker"),
        (Reason::GatewaysJoinNone, "only gateways relay, and none of them may join these two sites"),
        (
            Reason::NoRelayForBoth,
            "no relay is attached to the broker, so it is unknown how the nodes are seen from outside",
        ),
        (
            Reason::NoRelayForInitiator,
            "no relay is attached to the broker, so it is unknown how the initiator is seen from outside",
        ),
        (
            Reason::MappingUnknown { site: beta() },
            "how nodes of site beta are seen from outside is not known",
        ),
        (
            Reason::PortPerDestination { site: beta() },
            "the NAT of site beta takes another port for each destination",
        ),
        (
            Reason::BothStateless { initiator: alpha(), acceptor: beta() },
            "sites alpha and beta both drop every SYN: their firewalls keep no state",
        ),
        (Reason::EverythingLetIn { site: beta() }, "site beta lets every connection in"),
        (
            Reason::NoRawPackets { site: beta() },
            "the agent of the node of site beta may not send raw packets; its log names the remedy, such as \
             `setcap cap_net_raw=ep` on isthmus-raw, or the agent's user in the group isthmus",
        ),
        (
            Reason::KeepsState { site: beta() },
            "the firewall of site beta keeps state, and lets no answer out to what it dropped",
        ),
        (Reason::NoOwnAddress { site: beta() }, "nodes of site beta have no outside address of their own"),
        (Reason::Detached { site: beta() }, "the gateway of site beta is not attached to the broker"),
        (Reason::NoWayOut { site: beta() }, "the node of site beta has no way out but its gateway"),
        (Reason::HasWayOut { site: beta() }, "the node of site beta has a way out itself"),
        (Reason::NoGatewayPort { site: beta() }, "the gateway of site beta has no port outside"),
        (
            Reason::GatewayNotReached { site: beta(), found: filtered() },
            "the gateway of site beta is not reached at its port outside: relay hub could not reach \
             192.0.2.2:7730: no answer within 3 s",
        ),
        (Reason::NodeLetIn { site: beta() }, "site beta lets connections in to the node itself"),
        (
            Reason::Forbidden { initiator: alpha(), acceptor: beta() },
            "forbidden between sites alpha and beta by the broker's configuration",
        ),
        (Reason::NoSiteTrunk { site: beta() }, "the gateways of site beta keep no trunks with other sites"),
        (
            Reason::RawAnyway { initiator: alpha(), acceptor: beta() },
            "data between sites alpha and beta is not encrypted anyway",
        ),
        (
            Reason::NoCarrier { initiator: alpha(), acceptor: beta() },
            "the gateways of sites alpha and beta can't reach each other: no port outside is reached, they can't punch, \
             and no relay may be used",
        ),
        (Reason::NoSuchWay, "there is no such way"),
    ]);
}

#[test]
fn reasons_after_measurements_and_failures() {
    let why = || Box::new(Reason::BothLetOut);
    check(vec![
        (
            Reason::Measured { why: why(), round_trip: Duration::from_micros(12_040), over_relay: true },
            "both sites let connections out; 12.0 ms there and back over the nearest relay by measurement",
        ),
        (
            Reason::Measured { why: why(), round_trip: Duration::from_micros(12_040), over_relay: false },
            "both sites let connections out; 12.0 ms there and back by measurement",
        ),
        (
            Reason::NotLetOut { why: why(), site: beta(), port: Some(7730) },
            "both sites let connections out, but site beta seems to let nothing out to port 7730",
        ),
        (
            Reason::NotLetOut { why: why(), site: beta(), port: None },
            "both sites let connections out, but site beta seems to let nothing out to such ports",
        ),
        (
            Reason::FailedBefore { why: why(), failure: "no answer".to_owned() },
            "both sites let connections out, but it failed before: no answer",
        ),
        (Reason::Received("as received".into()), "as received"),
    ]);
}
