//! Messages cross the wire unchanged, and malformed ones are refused.

use std::net::Ipv4Addr;

use isthmus_plan::Route;
use isthmus_raw::syn::Options;
use isthmus_service::mac::Secret;
use isthmus_wire::JobId;
use isthmus_wire::proto::rendezvous_request;
use isthmus_wire::ticket::{Side, Ticket};
use proptest::prelude::*;
use prost::Message as _;

use super::*;

const ID: ConnectionId = ConnectionId([7; 16]);

fn example_syn() -> Syn {
    Syn {
        source: "198.51.100.1:40000".parse().unwrap(),
        destination: "192.0.2.7:7730".parse().unwrap(),
        sequence: 7,
        window: 64_240,
        options: Options { max_segment: Some(1460), ..Options::default() },
    }
}

fn example_ticket() -> SealedTicket {
    Secret::new([1; 32]).seal_ticket(&Ticket {
        connection: ID,
        side: Side::Initiator,
        expiry_unix_seconds: 9,
    })
}

fn example_port() -> Port {
    Port { address: "192.0.2.1:4000".parse().unwrap(), signature: vec![7; 72] }
}

fn request(way: RequestWay) -> Request {
    let (to, initiator) = (Peer::Node([240, 64, 1, 1].into()), [240, 64, 2, 1].into());
    Request { to, initiator, way, segment: Some(1240) }
}

#[test]
fn requests_cross_the_wire() {
    let avoid = || vec!["hub".to_owned(), "gateway.beta".to_owned()];
    for way in [
        RequestWay::Relay { avoid: avoid() },
        RequestWay::Reverse { rendezvous: ID },
        RequestWay::Punch { rendezvous: ID, port: example_port(), ask: true },
        RequestWay::Traverse { rendezvous: ID, syn: example_syn() },
        RequestWay::OverGateways { route: Route::TwoGateway, dial: Dial::Relay, avoid: avoid(), job: None },
        RequestWay::OverGateways {
            route: Route::TwoGateway,
            dial: Dial::Trunk,
            avoid: avoid(),
            job: Some(JobId([7; 16])),
        },
        RequestWay::DialedByGateway { rendezvous: ID, avoid: avoid() },
    ] {
        let between_gateways = Request {
            to: Peer::Gateway("gateway.beta".parse().unwrap()),
            initiator: Ipv4Addr::UNSPECIFIED,
            ..request(way.clone())
        };
        for request in [request(way), between_gateways] {
            let sent = proto::RendezvousRequest::from(request.clone());
            let read = proto::RendezvousRequest::decode(sent.encode_to_vec().as_slice()).unwrap();
            assert_eq!(Request::try_from(&read), Ok(request));
            let both = proto::RendezvousRequest { destination: 1, initiator: 1, ..read };
            assert_eq!(Request::try_from(&both).is_ok(), both.gateway.is_empty());
        }
    }
}

#[test]
fn malformed_requests_are_refused() {
    use rendezvous_request::{DialedByGateway, OverGateways, Punch, Relay, Reverse, Traverse, Way as Wire};
    let id = || ID.0.to_vec();
    let syn = example_syn().to_bytes();
    let with = |offset: usize, value: u8| {
        let mut bytes = syn.clone();
        bytes[offset] = value;
        Wire::Traverse(Traverse { rendezvous: id(), syn: bytes })
    };
    let carries = |syn: Vec<u8>| Wire::Traverse(Traverse { rendezvous: id(), syn });
    let punch = |address: &str| {
        Wire::Punch(Punch { rendezvous: id(), address: address.to_owned(), ..Punch::default() })
    };
    let signature = vec![1; 81];
    let long =
        Wire::Punch(Punch { address: "192.0.2.1:4".to_owned(), rendezvous: id(), signature, ask: false });
    let over = |route: proto::Route, dial: proto::Dial| {
        Wire::OverGateways(OverGateways {
            route: route.into(),
            dial: dial.into(),
            avoid: vec![],
            job: vec![],
        })
    };
    let relay = |avoid: Vec<String>| Wire::Relay(Relay { avoid });
    for (name, way, want) in [
        ("no way", None, "no known way"),
        ("no id", Some(Wire::Reverse(Reverse { rendezvous: vec![] })), "expected 16 bytes, got 0"),
        ("a long id", Some(Wire::Reverse(Reverse { rendezvous: vec![1; 17] })), "expected 16 bytes, got 17"),
        (
            "no id for a gateway",
            Some(Wire::DialedByGateway(DialedByGateway { rendezvous: vec![], avoid: vec![] })),
            "expected 16 bytes",
        ),
        ("no address", Some(punch("")), "no address and port"),
        ("a name", Some(punch("host:4000")), "no address and port"),
        ("a long address", Some(punch(&"1".repeat(100_000))), "no address and port"),
        ("a long signature", Some(long), "a signature of 81 bytes"),
        ("end to end", Some(over(proto::Route::EndToEnd, proto::Dial::Relay)), "without such a route"),
        ("no route", Some(over(proto::Route::Unknown, proto::Dial::Relay)), "without such a route"),
        ("no dial", Some(over(proto::Route::TwoGateway, proto::Dial::Unknown)), "without a known dial"),
        (
            "a rendezvous without its id",
            Some(over(proto::Route::OneGateway, proto::Dial::Reverse)),
            "a gateway that is to connect to it",
        ),
        ("many names", Some(relay(vec!["r".to_owned(); 65])), "more than 64 names"),
        ("a long name", Some(relay(vec!["r".repeat(300)])), "or a long one"),
        ("no SYN", Some(carries(vec![])), "no SYN to carry: cut off after 0 bytes"),
        ("cut off", Some(carries(syn[..39].to_vec())), "no SYN to carry: cut off after 39 bytes"),
        ("long", Some(carries(vec![0x45; 61])), "a SYN of 61 bytes"),
        ("more than it", Some(carries([syn.clone(), vec![0]].concat())), "1 bytes more than its headers"),
        ("an answer", Some(with(33, 0x12)), "flags 0x12, not SYN alone"),
        ("a reset", Some(with(33, 4)), "no SYN to carry"),
        ("SYN and FIN", Some(with(33, 3)), "no SYN to carry"),
        ("UDP", Some(with(9, 17)), "no SYN to carry"),
        ("a fragment", Some(with(7, 1)), "no SYN to carry"),
    ] {
        let request = proto::RendezvousRequest { way, ..proto::RendezvousRequest::default() };
        let error = Request::try_from(&request).expect_err(name).to_string();
        assert!(error.contains(want) && error.len() < 300, "{name}: {error}");
    }
}

#[test]
fn replies_and_orders_name_one_place_and_one_ticket() {
    let (ticket, relay) = (example_ticket().to_vec(), "hub".to_owned());
    let stop = |kind, address: &str, relay: Option<&str>| {
        let (address, ticket) = (address.to_owned(), example_ticket());
        Stop { kind, address, ticket, relay: relay.map(str::to_owned) }
    };
    let at_relay =
        proto::AtRelay { name: relay.clone(), address: "hub:7720".to_owned(), ticket: ticket.clone() };
    let at_gateway = proto::AtGateway { address: "192.0.2.1:7740".to_owned(), ticket: ticket.clone() };
    let at_own = proto::AtOwnGateway { ticket: ticket.clone(), relay: relay.clone(), leg: None };
    let at_site = proto::AtSiteGateway { address: "10.0.0.2:7710".to_owned(), ticket, relay: String::new() };
    use dial_request::Way as Ordered;
    use rendezvous_reply::Way as Replied;
    for (reply, order, want) in [
        (
            Replied::Relay(at_relay.clone()),
            Ordered::Relay(at_relay),
            stop(StopKind::Relay, "hub:7720", Some("hub")),
        ),
        (
            Replied::Gateway(at_gateway.clone()),
            Ordered::Gateway(at_gateway),
            stop(StopKind::OtherSite, "192.0.2.1:7740", None),
        ),
        (
            Replied::OwnGateway(at_own.clone()),
            Ordered::OwnGateway(at_own),
            stop(StopKind::OwnSite, "10.0.0.1:7710", Some("hub")),
        ),
        (
            Replied::SiteGateway(at_site.clone()),
            Ordered::SiteGateway(at_site),
            stop(StopKind::OwnSite, "10.0.0.2:7710", None),
        ),
    ] {
        let reply = proto::RendezvousReply { way: Some(reply), ..Default::default() };
        let way = ReplyWay::Stop(want.clone());
        assert_eq!(Reply::read(reply, "10.0.0.1:7710"), Ok(Reply { way, gateways: vec![] }));
        let order = proto::DialRequest { way: Some(order), ..proto::DialRequest::default() };
        assert_eq!(Order::read(order, "10.0.0.1:7710").map(|order| order.way), Ok(OrderWay::Stop(want)));
    }
    for (address, ticket) in
        [("", example_ticket().to_vec()), ("hub", example_ticket().to_vec()), ("hub:1", vec![1])]
    {
        let at = proto::AtRelay { name: String::new(), address: address.to_owned(), ticket };
        let reply = proto::RendezvousReply { way: Some(Replied::Relay(at)), ..Default::default() };
        assert!(Reply::read(reply, "").is_err(), "{address:?}");
    }
    assert!(Reply::read(proto::RendezvousReply::default(), "").is_err());
    assert!(Order::read(proto::DialRequest::default(), "").is_err());
}

#[test]
fn ports_to_punch_from_keep_their_signatures() {
    let Port { address, signature } = example_port();
    let way = Some(rendezvous_reply::Way::AcceptorAddress(address.to_string()));
    let reply = proto::RendezvousReply { way, signature: signature.clone(), ..Default::default() };
    let read = Reply::read(reply.clone(), "").map(|reply| reply.way);
    assert_eq!(read, Ok(ReplyWay::Punch(example_port())));
    let punch = dial_request::Punch {
        rendezvous: ID.0.to_vec(),
        address: address.to_string(),
        signature,
        ..Default::default()
    };
    let order = proto::DialRequest { way: Some(dial_request::Way::Punch(punch)), ..Default::default() };
    match Order::read(order, "").map(|order| order.way) {
        Ok(OrderWay::Punch { port, .. }) => assert_eq!(port, example_port()),
        other => panic!("{other:?}"),
    }
    assert!(Reply::read(proto::RendezvousReply { signature: vec![1; 81], ..reply }, "").is_err());
}

#[test]
fn legs_and_expected_nodes_cross_the_wire() {
    let ticket = example_ticket();
    for first in [First::Nothing, First::Ticket(ticket), First::Rendezvous(ID)] {
        let agent = (!matches!(first, First::Ticket(_))).then(|| "n1.beta".parse().unwrap());
        let leg = Leg {
            address: "192.0.2.1:7740".to_owned(),
            ticket,
            first,
            agent,
            relay: first == First::Ticket(ticket),
            segment: Some(500),
        };
        let unnamed = proto::Leg { agent: String::new(), ..proto::Leg::from(leg.clone()) };
        assert_eq!(Leg::try_from(unnamed).is_ok(), matches!(first, First::Ticket(_)), "{first:?}");
        let order = |from: &str, ticket: &[u8]| proto::ExpectOrder {
            ticket: ticket.to_vec(),
            from: from.to_owned(),
            leg: Some(leg.clone().into()),
        };
        let want = Expected { connection: ID, from: [10, 0, 0, 7].into(), leg: Some(leg.clone()) };
        assert_eq!(Expected::try_from(order("10.0.0.7", &ticket)), Ok(want));
        for (from, ticket) in [("", &ticket[..]), ("10.0.0.7", &ticket[1..]), ("10.0.0.7", &[0; TICKET_LEN])]
        {
            assert!(Expected::try_from(order(from, ticket)).is_err(), "{from} {ticket:?}");
        }
    }
}

#[test]
fn a_longest_segment_is_one_that_networks_pass() {
    let ways = rendezvous_request::Way::Relay(rendezvous_request::Relay::default());
    let relay = proto::AtRelay {
        address: "hub:7720".to_owned(),
        ticket: example_ticket().to_vec(),
        ..proto::AtRelay::default()
    };
    for (segment, want) in [
        (0, Some(None)),
        (500, Some(Some(500))),
        (9000, Some(Some(9000))),
        (499, None),
        (9001, None),
        (65_536 + 500, None),
    ] {
        let request = proto::RendezvousRequest {
            way: Some(ways.clone()),
            segment,
            ..proto::RendezvousRequest::default()
        };
        assert_eq!(Request::try_from(&request).ok().map(|request| request.segment), want, "{segment}");
        let way = Some(dial_request::Way::Relay(relay.clone()));
        let order = proto::DialRequest { way, segment, ..proto::DialRequest::default() };
        assert_eq!(Order::read(order, "").ok().map(|order| order.segment), want, "{segment}");
    }
}

#[test]
fn answers_cross_the_wire() {
    for answer in [Ok(Some(example_port())), Ok(None), Err("no right".to_owned())] {
        assert_eq!(read_answer(answer_to_wire(ID, answer.clone())), Ok((ID, answer)));
    }
    let none = proto::DialAnswer { rendezvous: ID.0.to_vec(), ..Default::default() };
    assert!(read_answer(none).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = proto::RendezvousRequest::decode(bytes.as_slice())
            && let Ok(read) = Request::try_from(&request)
        {
            let sent = proto::RendezvousRequest::from(read.clone());
            prop_assert_eq!(Request::try_from(&sent), Ok(read));
        }
        if let Ok(reply) = proto::RendezvousReply::decode(bytes.as_slice()) {
            let _ = Reply::read(reply, "10.0.0.1:7710");
        }
        if let Ok(order) = proto::DialRequest::decode(bytes.as_slice()) {
            let _ = Order::read(order, "10.0.0.1:7710");
        }
    }
}
