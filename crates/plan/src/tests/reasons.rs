//! Reasons as they are printed.

use super::*;

/// Every text that a plan may print.
#[test]
fn reasons_as_they_are_printed() {
    let site = beta;
    let found = || reach(Reachability::Filtered, "192.0.2.2:7730", "no answer within 3 s");
    let (initiator, acceptor) = (alpha, beta);
    let why = || Box::new(Reason::BothLetOut);
    for (reason, want) in [
        (Reason::SameSite { site: site() }, "both nodes are in site beta"),
        (Reason::LetsIn { site: site() }, "site beta lets connections in"),
        (
            Reason::LetsInMeasured {
                site: site(),
                found: reach(Reachability::Reachable, "192.0.2.2:7730", ""),
            },
            "site beta lets connections in: relay hub reached 192.0.2.2:7730",
        ),
        (
            Reason::LetsInMet { site: site(), found: found() },
            "site beta lets connections from the other site in, as an earlier connection has shown, though relay hub \
             could not reach 192.0.2.2:7730: no answer within 3 s",
        ),
        (Reason::PortLetIn { site: site() }, "site beta lets a port in for the node"),
        (Reason::PortsKnown, "both sites let connections out from ports that are known outside"),
        (
            Reason::MayAnswer { site: site() },
            "the firewall of site beta may let an answer out without having seen the SYN",
        ),
        (Reason::BothLetOut, "both sites let connections out"),
        (Reason::GatewayLetIn { site: site() }, "the gateway of site beta can be reached from outside"),
        (
            Reason::GatewayDials { initiator: initiator(), acceptor: acceptor() },
            "site alpha lets connections in, and the gateway of site beta dials for its node",
        ),
        (Reason::GatewayForEnclosed, "a node without a way out goes over its gateway"),
        (Reason::GatewaysInstead, "gateways dial out, as the nodes are not to dial each other"),
        (Reason::LetsNothingIn { site: site() }, "site beta lets nothing in"),
        (
            Reason::NotReached { site: site(), found: found() },
            "site beta lets nothing in: relay hub could not reach 192.0.2.2:7730: no answer within 3 s",
        ),
        (
            Reason::DeclaredOpen { site: site(), found: found() },
            "site beta is declared open, but relay hub could not reach 192.0.2.2:7730: no answer within 3 s",
        ),
        (
            Reason::NotMeasured { site: site(), found: Reach::default() },
            "whether site beta lets connections in is not known: no relay has tried to reach it yet",
        ),
        (Reason::EveryPortLetIn { site: site() }, "site beta lets every port in"),
        (Reason::NoPortLetIn { site: site() }, "no port of the node is let in by site beta"),
        (
            Reason::PortNotReached { found: found() },
            "a port is declared as let in for the node, but relay hub could not reach 192.0.2.2:7730: no answer \
             within 3 s",
        ),
        (Reason::NoRelay, "no relay is attached to the broker"),
        (
            Reason::NoRelayForBoth,
            "no relay is attached to the broker, so it is unknown how the nodes are seen from outside",
        ),
        (
            Reason::NoRelayForInitiator,
            "no relay is attached to the broker, so it is unknown how the initiator is seen from outside",
        ),
        (
            Reason::MappingUnknown { site: site() },
            "how nodes of site beta are seen from outside is not known",
        ),
        (
            Reason::PortPerDestination { site: site() },
            "the NAT of site beta takes another port for each destination",
        ),
        (
            Reason::BothStateless { initiator: initiator(), acceptor: acceptor() },
            "sites alpha and beta both drop every SYN: their firewalls keep no state",
        ),
        (Reason::EverythingLetIn { site: site() }, "site beta lets every connection in"),
        (
            Reason::NoRawPackets { site: site() },
            "the agent of the node of site beta may not send raw packets; once isthmus-raw is installed there, \
             run `setcap cap_net_raw=ep` on it as root",
        ),
        (
            Reason::KeepsState { site: site() },
            "the firewall of site beta keeps state, and lets no answer out to what it dropped",
        ),
        (Reason::NoOwnAddress { site: site() }, "nodes of site beta have no outside address of their own"),
        (Reason::Detached { site: site() }, "the gateway of site beta is not attached to the broker"),
        (Reason::NoWayOut { site: site() }, "the node of site beta has no way out but its gateway"),
        (Reason::HasWayOut { site: site() }, "the node of site beta has a way out itself"),
        (Reason::NoGatewayPort { site: site() }, "the gateway of site beta has no port outside"),
        (
            Reason::GatewayNotReached { site: site(), found: found() },
            "the gateway of site beta is not reached at its port outside: relay hub could not reach \
             192.0.2.2:7730: no answer within 3 s",
        ),
        (Reason::NodeLetIn { site: site() }, "site beta lets connections in to the node itself"),
        (
            Reason::Forbidden { initiator: initiator(), acceptor: acceptor() },
            "forbidden between sites alpha and beta by the broker's configuration",
        ),
        (Reason::NoSuchWay, "there is no such way"),
        (
            Reason::Measured { why: why(), round_trip: Duration::from_micros(12_040), over_relay: true },
            "both sites let connections out; 12.0 ms there and back over the nearest relay by measurement",
        ),
        (
            Reason::Measured { why: why(), round_trip: Duration::from_micros(12_040), over_relay: false },
            "both sites let connections out; 12.0 ms there and back by measurement",
        ),
        (
            Reason::NotLetOut { why: why(), site: site(), port: Some(7730) },
            "both sites let connections out, but site beta seems to let nothing out to port 7730",
        ),
        (
            Reason::NotLetOut { why: why(), site: site(), port: None },
            "both sites let connections out, but site beta seems to let nothing out to such ports",
        ),
        (
            Reason::FailedBefore { why: why(), failure: "no answer".to_owned() },
            "both sites let connections out, but it failed before: no answer",
        ),
        (Reason::Received("as received".to_owned()), "as received"),
    ] {
        assert_eq!(reason.to_string(), want);
    }
}
