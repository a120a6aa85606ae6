//! Rendezvous over gateways: the order that each of the four parties receives.

use isthmus_plan::{Dial, Route};
use isthmus_wire::proto::leg;
use isthmus_wire::ticket::Ticket;

use super::*;

#[test]
fn a_gateway_has_its_own_port_outside_dialed_and_the_result_counts() {
    let mut registry = registry(&[]);
    registry.relay("hub");
    let up = |site: &str| proto::GatewayUp {
        outside_address: "192.0.2.9:7740".to_owned(),
        ..gateway_up(site, proto::Inbound::Closed)
    };
    let (session, _) = registry.come("alpha", "gateway", &up("alpha")).unwrap();
    registry.gateway("beta");
    let mut probe = |site: &str, address: &str, now| {
        let task = Task::DialGateway(ProbeTarget::new(address, ConnectionId([5; 16])));
        let request = ProbeRequest { initiator: 0, relay: "hub".to_owned(), task };
        registry.probe(&label(site), &request, ConnectionId([7; 16]), now).map_err(|error| error.to_string())
    };
    for (site, address) in [("alpha", "192.0.2.1:7740"), ("beta", "192.0.2.9:7740"), ("beta", "")] {
        let want = format!("{address:?} is not the port outside of a gateway of site {site}");
        assert_eq!(probe(site, address, 0).unwrap_err(), want);
    }
    let allowed = (0..20).filter(|_| probe("alpha", "192.0.2.9:7740", 0).is_ok()).count();
    assert_eq!(allowed, 6);
    assert!(probe("alpha", "192.0.2.9:7740", 60).is_ok());

    let reach = |result: proto::Reachability| proto::Reach { result: result.into(), ..Default::default() };
    use proto::Reachability::{Filtered, Reachable, Refused};
    for (result, sent) in [(Reachable, 0), (Filtered, 2), (Refused, 0), (Reachable, 2)] {
        let effects = registry.gateway_reach(session, reach(result)).unwrap();
        assert_eq!(effects.len(), sent, "{result:?}: every gateway makes new plans, or none need");
        assert_eq!(registry.grid().sites[0].outside_reach, Some(reach(result)));
    }
    registry.gateway_reach(session, reach(Filtered)).unwrap();
    registry.come("alpha", "gateway", &up("alpha")).unwrap();
    assert_eq!(
        registry.grid().sites[0].outside_reach,
        Some(reach(Filtered)),
        "it holds until the next report"
    );
    assert!(registry.gateway_reach(session, reach(Filtered)).is_err(), "the former attachment");
    let moved = proto::GatewayUp { outside_address: "192.0.2.9:7741".to_owned(), ..up("alpha") };
    registry.come("alpha", "gateway", &moved).unwrap();
    assert_eq!(registry.grid().sites[0].outside_reach, None);
}

/// Adds a site with a single node, which `words` describe.
fn site(registry: &mut Registry, name: &str, words: &str) {
    let has = |word| words.split(' ').any(|other| other == word);
    let up = proto::GatewayUp {
        outside_address: if has("gate") { format!("gate.{name}:7740") } else { String::new() },
        ..gateway_up(name, if has("open") { proto::Inbound::Open } else { proto::Inbound::Closed })
    };
    let session = registry.come(name, "gateway", &up).unwrap().0;
    let way_out = if has("enclosed") { proto::WayOut::No } else { proto::WayOut::Yes };
    let node = proto::NodeUp {
        outside_address: if has("port") { format!("{name}:7731") } else { String::new() },
        seen: Some(proto::Seen { way_out: way_out.into(), ..proto::Seen::default() }),
        ..node_up("n1", &format!("n1.{name}:7730"))
    };
    registry.node_up(session, &signed(node, 1)).unwrap();
}

/// Whose key signed a ticket, and which side the ticket is for.
fn ticket(bytes: &[u8]) -> String {
    let (ticket, mac) = Ticket::decode(bytes.try_into().unwrap()).unwrap();
    assert_eq!((ticket.connection.0, ticket.expiry_unix_seconds), ([7; 16], 1060));
    let keys = [("a", key("alpha")), ("b", key("beta")), ("relay", Secret::new([2; 32]))];
    let signed = keys.into_iter().find(|(_, key)| key.verify(&ticket.signed_bytes(), &mac)).unwrap().0;
    format!("{signed}/{:?}", ticket.side)
}

fn leg(leg: Option<&proto::Leg>) -> String {
    let dials = |leg: &proto::Leg| {
        assert_eq!(leg.segment, 1240);
        let first = match &leg.first {
            None => "nothing".to_owned(),
            Some(leg::First::ShownTicket(bytes)) => ticket(bytes),
            Some(leg::First::Rendezvous(id)) => format!("rendezvous {}", id[0]),
        };
        let whose = if leg.agent.is_empty() { String::new() } else { format!(" of {}", leg.agent) };
        format!(" dials {}{whose} {first} for {}", leg.address, ticket(&leg.ticket))
    };
    leg.map(dials).unwrap_or_default()
}

fn own_gateway(at: &proto::AtOwnGateway) -> String {
    format!("gateway {}{}", ticket(&at.ticket), leg(at.leg.as_ref()))
}

fn meet(registry: &mut Registry, route: Route, dial: Dial) -> Result<[String; 2], String> {
    let address = |name: &str| registry.addresses.address(&name.parse().unwrap()).unwrap().ip();
    let way = match (route, dial) {
        (Route::OneGateway, Dial::Reverse) => {
            RequestWay::DialedByGateway { rendezvous: ConnectionId([9; 16]), avoid: Vec::new() }
        }
        _ => RequestWay::OverGateways { route, dial, avoid: Vec::new(), job: None },
    };
    let (initiator, to) = (address("n1.alpha"), Peer::Node(address("n1.beta")));
    let request = Request { initiator, to, way, segment: Some(1240) };
    let met =
        registry.rendezvous((&label("alpha"), &label("gateway")), &request, ConnectionId([7; 16]), 1000);
    let (reply, effects) = met.map_err(|error| error.to_string())?;
    let initiator = match reply.way.unwrap() {
        rendezvous_reply::Way::Relay(at) => format!("{} {}", at.address, ticket(&at.ticket)),
        rendezvous_reply::Way::Gateway(at) => format!("{} {}", at.address, ticket(&at.ticket)),
        rendezvous_reply::Way::OwnGateway(at) => own_gateway(&at),
        rendezvous_reply::Way::Awaited(_) => "waits".to_owned(),
        other => panic!("{other:?}"),
    };
    let acceptor = match effects.as_slice() {
        [] => "nothing".to_owned(),
        [Effect::Send { to, message: attach_down::Kind::Dial(dial) }] => {
            // Whoever dials keeps to what the initiator has asked for.
            assert_eq!((who(to).as_str(), dial.node.as_str(), dial.segment), ("beta", "n1", 1240));
            match dial.way.as_ref().unwrap() {
                dial_request::Way::Relay(at) => format!("{} {}", at.address, ticket(&at.ticket)),
                dial_request::Way::Gateway(at) => format!("{} {}", at.address, ticket(&at.ticket)),
                dial_request::Way::OwnGateway(at) => own_gateway(at),
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    };
    Ok([initiator, acceptor])
}

#[test]
fn each_party_receives_its_part() {
    use Dial::{Direct, PortRange, Relay, Reverse};
    use Route::{GatewayOut, OneGateway, TwoGateway};
    for (near, far, route, dial, initiator, acceptor) in [
        ("nat", "gate", OneGateway, Direct, "gate.beta:7740 b/Initiator", "gateway b/Acceptor"),
        (
            "open",
            "enclosed",
            OneGateway,
            Reverse,
            "waits",
            "gateway b/Acceptor dials n1.alpha:7730 of n1.alpha rendezvous 9 for b/Initiator",
        ),
        (
            "nat",
            "enclosed",
            OneGateway,
            Relay,
            "r1.example.org:7720 relay/Initiator",
            "gateway b/Acceptor dials r1.example.org:7720 relay/Acceptor for b/Initiator",
        ),
        (
            "enclosed",
            "open",
            GatewayOut,
            Direct,
            "gateway a/Initiator dials n1.beta:7730 of n1.beta nothing for a/Acceptor",
            "nothing",
        ),
        (
            "enclosed",
            "port",
            GatewayOut,
            PortRange,
            "gateway a/Initiator dials beta:7731 of n1.beta nothing for a/Acceptor",
            "nothing",
        ),
        ("gate", "nat", GatewayOut, Reverse, "gateway a/Initiator", "gate.alpha:7740 a/Acceptor"),
        (
            "enclosed",
            "nat",
            GatewayOut,
            Relay,
            "gateway a/Initiator dials r1.example.org:7720 relay/Initiator for a/Acceptor",
            "r1.example.org:7720 relay/Acceptor",
        ),
        (
            "enclosed",
            "enclosed gate",
            TwoGateway,
            Direct,
            "gateway a/Initiator dials gate.beta:7740 b/Initiator for a/Acceptor",
            "gateway b/Acceptor",
        ),
        (
            "enclosed gate",
            "enclosed",
            TwoGateway,
            Reverse,
            "gateway a/Initiator",
            "gateway b/Acceptor dials gate.alpha:7740 a/Acceptor for b/Initiator",
        ),
    ] {
        let mut registry = registry(&[]);
        site(&mut registry, "alpha", near);
        site(&mut registry, "beta", far);
        registry.relay("r1");
        let found = meet(&mut registry, route, dial);
        assert_eq!(found, Ok([initiator.to_owned(), acceptor.to_owned()]), "{route:?} {dial:?}");
    }
}

/// A gateway dials and splices for steps of the plan only, not for steps that an agent
/// made up or that are outdated.
#[test]
fn what_is_not_in_the_plan_is_refused() {
    let mut registry = registry(&[]);
    site(&mut registry, "alpha", "nat");
    site(&mut registry, "beta", "gate");
    for (route, dial, want) in [
        (Route::GatewayOut, Dial::Direct, "not in the plan: the node of site alpha has a way out itself"),
        (Route::TwoGateway, Dial::Relay, "not in the plan: no relay is attached to the broker"),
        (Route::OneGateway, Dial::Punch, "not in the plan: there is no such way"),
        (Route::GatewayOut, Dial::Traverse, "not in the plan: there is no such way"),
    ] {
        assert_eq!(meet(&mut registry, route, dial), Err(want.to_owned()), "{route:?} {dial:?}");
    }
    assert!(meet(&mut registry, Route::OneGateway, Dial::Direct).is_ok());
}
