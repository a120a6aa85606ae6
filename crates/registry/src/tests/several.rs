//! Sites with several gateways: which gateway has which node, and receives what.

use isthmus_plan::{Dial, Route};
use prost::Message as _;

use super::*;

fn up(name: &str, inbound: proto::Inbound) -> proto::GatewayUp {
    proto::GatewayUp {
        address: format!("{name}.inside:7710"),
        outside_address: format!("{name}:7740"),
        ..gateway_up("alpha", inbound)
    }
}

/// Site alpha with gateways a and b, and site beta with a single gateway.
fn two() -> (Registry, [SessionId; 2]) {
    let mut registry = registry(&[]);
    let [a, b] =
        ["a", "b"].map(|name| registry.come("alpha", name, &up(name, proto::Inbound::Closed)).unwrap().0);
    registry.gateway("beta");
    (registry, [a, b])
}

/// Effects as [`texts`] has them, with the messages about nodes of other gateways.
fn lines(effects: &[Effect]) -> Vec<String> {
    let line = |effect: &Effect| match effect {
        Effect::Send { to, message: attach_down::Kind::SiteNode(node) } => {
            let name = &node.contact.as_ref().unwrap().node;
            format!("{} {name} {}", who(to), if node.gone { "gone" } else { "elsewhere" })
        }
        Effect::Send { to, message: attach_down::Kind::Notice(notice) } => {
            format!("{} {}", who(to), notice.text)
        }
        other => texts(std::slice::from_ref(other)).pop().unwrap_or_default(),
    };
    effects.iter().map(line).filter(|line| !line.is_empty()).collect()
}

/// Has a node's agent attach. Each attachment has a number of its own.
fn come(registry: &mut Registry, session: SessionId, node: &str) -> Vec<String> {
    registry.last_attachment += 1;
    let up = signed(node_up(node, "10.0.0.1:7730"), registry.last_attachment);
    lines(&registry.node_up(session, &up).unwrap().effects)
}

#[test]
fn a_second_gateway_with_a_name_of_its_own_changes_no_contact() {
    let (mut registry, [a, b]) = two();
    assert_eq!(
        come(&mut registry, a, "n1"),
        ["a.alpha welcome 240.64.1.1", "b.alpha changed 240.64.1.1", "b.alpha n1 elsewhere"]
    );
    assert_eq!(come(&mut registry, a, "n1"), ["a.alpha welcome 240.64.1.1"], "the same again");
    registry.node_up(b, &node_up("n2", "10.0.0.2:7730")).unwrap();
    let (c, effects) = registry.come("alpha", "c", &up("c", proto::Inbound::Closed)).unwrap();
    assert_eq!(lines(&effects), ["c.alpha key", "c.alpha n1 elsewhere", "c.alpha n2 elsewhere"]);
    let gateways = registry.grid().sites[0].gateways.clone();
    let listed: Vec<_> =
        gateways.iter().map(|one| format!("{} {} {}", one.name, one.up, one.nodes)).collect();
    assert_eq!(listed, ["a true 1", "b true 1", "c true 0"]);
    assert_eq!(registry.detach(c), []);
    assert!(registry.find("beta", "n1.alpha").is_ok() && registry.find("beta", "n2.alpha").is_ok());
}

/// The gateways' places, as each gateway is told them for its agents.
fn told(effects: &[Effect]) -> Vec<String> {
    let line = |effect: &Effect| match effect {
        Effect::Send { to, message: attach_down::Kind::SiteGateways(told) } => {
            Some(format!("{}: {}", who(to), told.addresses.join(" ")))
        }
        _ => None,
    };
    effects.iter().filter_map(line).collect()
}

#[test]
fn agents_hear_of_all_gateways_of_their_site() {
    let mut registry = registry(&[]);
    let unknown = proto::GatewayUp {
        address: "0.0.0.0:7710".to_owned(),
        likely_address: "10.0.0.102:7710".to_owned(),
        ..gateway_up("alpha", proto::Inbound::Closed)
    };
    let (_, effects) = registry.come("alpha", "a", &up("a", proto::Inbound::Closed)).unwrap();
    assert_eq!(told(&effects), [""; 0], "its agents know it");
    let (b, effects) = registry.come("alpha", "b", &unknown).unwrap();
    let all = "a.inside:7710 10.0.0.102:7710";
    assert_eq!(told(&effects), [format!("a.alpha: {all}"), format!("b.alpha: {all}")]);
    registry.gateway("beta");
    // Where its first agent has reached it is certain.
    let node = |name: &str| proto::NodeUp {
        gateway_address: "192.168.0.2:7710".to_owned(),
        ..node_up(name, "10.0.0.1:7730")
    };
    let effects = registry.node_up(b, &node("n1")).unwrap().effects;
    let all = "a.inside:7710 192.168.0.2:7710";
    assert_eq!(told(&effects), [format!("a.alpha: {all}"), format!("b.alpha: {all}")]);
    assert_eq!(told(&registry.node_up(b, &node("n2")).unwrap().effects), [""; 0], "nothing new");
    // A gateway that was started again has forgotten what it was told.
    let (_, effects) = registry.come("alpha", "b", &unknown).unwrap();
    assert_eq!(told(&effects), [format!("a.alpha: {all}"), format!("b.alpha: {all}")]);
}

/// A forgotten `--via` makes a node a gateway, which must not take the place of the real gateway.
#[test]
fn a_gateway_that_is_attached_is_in_the_way_of_another_one() {
    let (mut registry, [a, b]) = two();
    let way = |registry: &Registry, site: &str, name: &str| {
        let uri = format!("isthmus:///gateway/{site}/{name}/");
        registry.in_the_way(&isthmus_identity::Identity::from_uri(&uri).unwrap())
    };
    for (site, name, there) in [
        ("alpha", "gateway", Some("gateway a.alpha")),
        ("alpha", "b", Some("gateway b.alpha")),
        ("alpha", "c", None),
        ("beta", "gateway", Some("gateway.beta")),
        ("beta", "c", None),
        ("gamma", "gateway", None),
    ] {
        let reason = way(&registry, site, name);
        assert_eq!(reason.is_some(), there.is_some(), "{site} {name}: {reason:?}");
        let told = |reason: &String| reason.contains(there.unwrap_or_default()) && reason.contains("--via");
        assert!(reason.iter().all(told), "{reason:?}");
    }
    registry.detach(a);
    assert!(way(&registry, "alpha", "a").is_none() && way(&registry, "alpha", "gateway").is_some());
    registry.detach(b);
    assert!(way(&registry, "alpha", "gateway").is_none());
}

#[test]
fn nodes_of_a_lost_gateway_attach_to_another_and_keep_their_addresses() {
    let (mut registry, [a, b]) = two();
    for node in ["n1", "n2"] {
        come(&mut registry, a, node);
    }
    come(&mut registry, b, "n3");
    assert_eq!(registry.detach(a), [], "the site declares what it did before");
    assert!(
        matches!(registry.find("beta", "n1.alpha"), Err(LookupError::Absent(_))),
        "it attaches in a moment"
    );
    assert!(registry.find("beta", "n3.alpha").unwrap().node.unwrap().up);
    let site = &registry.grid().sites[0];
    assert!(site.up && !site.gateways[0].up && site.gateways[1].up);
    assert_eq!(
        come(&mut registry, b, "n1"),
        ["b.alpha welcome 240.64.1.1"],
        "and no other gateway receives a message"
    );
    assert!(registry.find("beta", "n1.alpha").unwrap().node.unwrap().up);
    let effects = registry.settle_without(&label("alpha"), &label("a"));
    assert_eq!(lines(&effects), ["b.alpha changed 240.64.1.2", "b.alpha n2 gone"], "n2 didn't come");
    // The last gateway's nodes are lost, not down.
    registry.detach(b);
    assert!(!registry.grid().sites[0].up);
    assert_eq!(registry.settle_without(&label("alpha"), &label("b")), []);
    assert_eq!(registry.find("beta", "n1.alpha").unwrap().node.unwrap().address, "10.0.0.1:7730");
}

#[test]
fn a_node_that_moved_to_another_gateway_is_not_down() {
    let (mut registry, [a, b]) = two();
    come(&mut registry, a, "n1");
    assert_eq!(come(&mut registry, b, "n1"), ["b.alpha welcome 240.64.1.1", "a.alpha n1 elsewhere"]);
    let report = proto::JobReport {
        job: "0123456789abcdef0123456789abcdef".to_owned(),
        nodes: vec!["n1.alpha".to_owned()],
        ..proto::JobReport::default()
    };
    registry.job_report(b, report.clone()).unwrap();
    // The former gateway reports the node's end only now.
    registry.job_report(a, proto::JobReport { ended: true, ..report }).unwrap();
    let down = proto::NodeDown { node: "n1".to_owned() };
    assert_eq!(registry.node_down(a, &down), []);
    assert_eq!(registry.grid().jobs.len(), 1);
    assert_eq!(registry.detach(a), []);
    assert_eq!(registry.grid().jobs.len(), 1);
    assert!(registry.find("beta", "n1.alpha").unwrap().node.unwrap().up);
    assert_eq!(lines(&registry.node_down(b, &down)), ["beta changed 240.64.1.1"]);

    // An announcement with a lower attachment number has no effect.
    let attached = |attachment| signed(node_up("n1", "10.0.0.1:7730"), attachment);
    registry.node_up(b, &attached(102)).unwrap();
    let a = registry.come("alpha", "a", &up("a", proto::Inbound::Closed)).unwrap().0;
    assert_eq!(registry.node_up(a, &attached(101)).unwrap().effects, []);
    assert_eq!(registry.node_down(a, &down), []);
    assert!(registry.find("beta", "n1.alpha").unwrap().node.unwrap().up);
}

#[test]
fn a_second_node_of_one_name_is_refused_at_every_gateway_of_the_site() {
    let (mut registry, [a, b]) = two();
    come(&mut registry, a, "n1");
    let second = signed(node_up("n1", "10.0.0.9:7730"), 100);
    let other = registry.node_up(b, &second).unwrap_err();
    assert!(other.0.contains("attached already, to gateway a: its agent is at 10.0.0.1:7730"), "{other}");
    registry.detach(a);
    assert!(registry.node_up(b, &second).is_ok());
}

/// A gateway knows the addresses of its site's other nodes, and can name any attachment.
#[test]
fn a_node_moves_to_another_gateway_by_its_agent_s_own_word_alone() {
    use Presence::{Down, Lost, Up};
    let (own, other) = ("10.0.0.1:7730", "10.6.6.6:7730");
    let by_agent = |address, attachment| signed(node_up("n1", address), attachment);
    let (yes, no) = (Ok(true), Ok(false));
    for (case, presence, former, new, want) in [
        ("it is gone", Down, by_agent(own, 7), by_agent(other, 1), yes),
        ("a later attachment", Up, by_agent(own, 7), by_agent(own, 8), yes),
        ("the same, its gateway is lost", Lost, by_agent(own, 7), by_agent(other, 8), yes),
        ("an earlier one, recorded before", Up, by_agent(own, 7), by_agent(own, 6), no),
        ("the same one again", Up, by_agent(own, 7), by_agent(own, 7), no),
        ("the same, its gateway is lost", Lost, by_agent(own, 7), by_agent(own, 6), no),
        ("two agents", Up, by_agent(own, 7), by_agent(other, 8), Err("attached already, to gateway a")),
    ] {
        let (mut registry, [a, b]) = two();
        registry.node_up(a, &former).unwrap();
        match presence {
            Up => {}
            Lost => drop(registry.detach(a)),
            Down => drop(registry.node_down(a, &proto::NodeDown { node: "n1".to_owned() })),
        }
        let taken = registry.node_record(b, &new).map(|record| record.is_some());
        match (taken, want) {
            (Ok(taken), Ok(want)) => assert_eq!(taken, want, "{case}"),
            (Err(refused), Err(want)) => assert!(refused.0.contains(want), "{case}: {refused}"),
            (taken, want) => panic!("{case}: {taken:?}, not {want:?}"),
        }
        // The node's present gateway announces the node again.
        if presence == Up {
            assert!(registry.node_record(a, &former).unwrap().is_some(), "{case}");
        }
    }
}

/// The gateway has what the agent signed for it, and says which of the signed addresses is inside
/// the site.
#[test]
fn a_gateway_keeps_no_node_by_another_address_of_its_agent() {
    let (inside, outside, other) = ("10.0.0.1:7730", "192.0.2.1:7731", "10.0.0.9:7730");
    let by_agent = |address: &str, attachment, start: u8, addresses: &[&str]| {
        let contact = proto::AgentContact {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            incarnation: if start > 0 { vec![start; 16] } else { Vec::new() },
            ..proto::AgentContact::default()
        };
        let contact = proto::SignedContact { contact: contact.encode_to_vec(), ..Default::default() };
        proto::NodeUp { attachment, signed: Some(contact), ..node_up("n1", address) }
    };
    for (case, former, new, want) in [
        (
            "its outside address as that in the site",
            by_agent(outside, 7, 1, &[inside, outside]),
            by_agent(inside, 8, 2, &[inside, outside]),
            true,
        ),
        ("a former address", by_agent(other, 7, 1, &[other]), by_agent(inside, 8, 1, &[inside]), true),
        ("two agents", by_agent(other, 7, 1, &[other]), by_agent(inside, 8, 2, &[inside]), false),
        ("two that tell no start", by_agent(other, 7, 0, &[other]), by_agent(inside, 8, 0, &[inside]), false),
    ] {
        let (mut registry, [a, b]) = two();
        registry.node_up(a, &former).unwrap();
        assert_eq!(registry.node_record(b, &new).is_ok_and(|record| record.is_some()), want, "{case}");
    }
}

/// A gateway takes a node as long as nobody knows better: the broker has been started anew, and the
/// node's own gateway isn't attached again.
#[test]
fn the_agent_s_own_gateway_has_the_node_back_and_is_told_when_a_taker_has_left() {
    let (mut registry, [a, b]) = two();
    let at = "10.0.0.1:7730";
    registry.node_up(b, &signed(node_up("n1", at), 6)).unwrap();
    let effects = registry.node_up(a, &signed(node_up("n1", at), 7)).unwrap().effects;
    assert_eq!(lines(&effects), ["a.alpha welcome 240.64.1.1", "b.alpha n1 elsewhere"]);
    assert_eq!(registry.attached_at(&"n1.alpha".parse().unwrap()), Some((label("a"), 7)));
    // The gateway of n2's agent is told that the taker has left, and announces the node again.
    registry.node_up(b, &signed(node_up("n2", at), 6)).unwrap();
    registry.detach(b);
    let effects = registry.settle_without(&label("alpha"), &label("b"));
    assert_eq!(lines(&effects), ["a.alpha changed 240.64.1.2", "a.alpha n2 gone"]);
    assert_eq!(registry.attached_at(&"n2.alpha".parse().unwrap()), None);
    registry.node_up(a, &signed(node_up("n2", at), 5)).unwrap();
    assert!(registry.find("beta", "n2.alpha").unwrap().node.unwrap().up);
}

/// A gateway may pass on findings that aren't the agent's.
#[test]
fn a_node_is_let_in_only_where_its_agent_says() {
    let seen = |address: &str| proto::Seen {
        outside: Some(proto::Reach {
            result: proto::Reachability::Reachable.into(),
            address: address.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let contact = proto::AgentContact { addresses: vec!["192.0.2.1:7730".to_owned()], ..Default::default() };
    let contact = proto::SignedContact { contact: contact.encode_to_vec(), ..Default::default() };
    let mut registry = registry(&[]);
    let alpha = registry.come("alpha", "a", &up("a", proto::Inbound::Auto)).unwrap().0;
    for (address, want) in [("192.0.2.1:7730", "192.0.2.1:7730"), ("198.51.100.6:1", "")] {
        let (seen, signed) = (Some(seen(address)), Some(contact.clone()));
        registry.node_up(alpha, &proto::NodeUp { seen, signed, ..node_up("n1", "a:1") }).unwrap();
        let found = registry.outside_address(registry.nodes.values().next().unwrap());
        assert_eq!(found, want);
    }
}

#[test]
fn declarations_change_with_the_gateways_and_a_disagreement_is_reported() {
    let mut registry = registry(&[]);
    let a = registry.come("alpha", "a", &up("a", proto::Inbound::Auto)).unwrap().0;
    registry.node_up(a, &node_up("n1", "10.0.0.1:7730")).unwrap();
    registry.gateway("beta");
    let (b, effects) = registry.come("alpha", "b", &up("b", proto::Inbound::Closed)).unwrap();
    let want = "site alpha: the gateways do not agree on `inbound`: a declares \"auto\", b declares \"closed\"; \
                the strictest, \"closed\", holds. Set the same in section [gateway] at each";
    let notices: Vec<_> = ["a.alpha", "b.alpha"].map(|to| format!("{to} {want}")).into();
    let changed =
        ["a.alpha changed 0.0.0.0", "b.alpha changed 0.0.0.0", "beta changed 0.0.0.0"].map(str::to_owned);
    let mut all = vec!["b.alpha key".to_owned()];
    all.extend(changed);
    all.push("b.alpha n1 elsewhere".to_owned());
    all.extend(notices);
    assert_eq!(lines(&effects), all);
    let facts = registry.find("beta", "n1.alpha").unwrap().facts.unwrap();
    let end = facts.acceptor.unwrap();
    assert_eq!((end.inbound(), end.gateway_outside.as_str()), (proto::Inbound::Closed, "a:7740, b:7740"));
    let own = registry.find("alpha", "n1.alpha").unwrap().facts.unwrap().initiator_site.unwrap();
    assert_eq!((own.inbound(), own.gateway_outside.as_str()), (proto::Inbound::Closed, "a:7740, b:7740"));
    assert_eq!(lines(&registry.detach(b)), ["a.alpha changed 0.0.0.0", "beta changed 0.0.0.0"]);
    let end = registry.find("beta", "n1.alpha").unwrap().facts.unwrap().acceptor.unwrap();
    assert_eq!((end.inbound(), end.gateway_outside.as_str()), (proto::Inbound::Auto, "a:7740"));
}

/// The effects of dialing an enclosed node of alpha from beta: the reply's address,
/// and the orders with their addressees.
fn dialed(registry: &mut Registry, avoid: &[&str]) -> Result<(String, Vec<String>), String> {
    let address = |name: &str| registry.addresses.address(&name.parse().unwrap()).unwrap().ip();
    let request = Request {
        initiator: address("n1.beta"),
        to: Peer::Node(address("n1.alpha")),
        way: RequestWay::OverGateways {
            route: Route::OneGateway,
            dial: Dial::Direct,
            avoid: avoid.iter().map(|name| (*name).to_owned()).collect(),
            job: None,
        },
        segment: None,
    };
    let met = registry.rendezvous((&label("beta"), &label("gateway")), &request, ConnectionId([7; 16]), 1000);
    let (reply, effects) = met.map_err(|error| error.to_string())?;
    let line = |effect: &Effect| match effect {
        Effect::Send { to, message: attach_down::Kind::Expect(order) } => {
            assert!(order.leg.is_none() && !order.ticket.is_empty());
            format!("{} expect {}", who(to), order.from)
        }
        Effect::Send { to, message: attach_down::Kind::Dial(dial) } => {
            let at = match &dial.way {
                Some(dial_request::Way::OwnGateway(_)) => "",
                Some(dial_request::Way::SiteGateway(at)) => &at.address,
                other => panic!("{other:?}"),
            };
            format!("{} dial {at}", who(to))
        }
        other => panic!("{other:?}"),
    };
    let Some(rendezvous_reply::Way::Gateway(at)) = &reply.way else { panic!("{reply:?}") };
    Ok((format!("{} {}", reply.gateways.join(" "), at.address), effects.iter().map(line).collect()))
}

#[test]
fn connections_from_outside_go_to_each_gateway_in_turn() {
    let (mut registry, [a, b]) = two();
    let beta = registry.gateway("beta");
    registry.node_up(beta, &node_up("n1", "192.0.2.1:7730")).unwrap();
    let seen = proto::Seen { way_out: proto::WayOut::No.into(), ..proto::Seen::default() };
    let node =
        proto::NodeUp { seen: Some(seen), from: "10.0.0.7".to_owned(), ..node_up("n1", "10.0.0.1:7730") };
    registry.node_up(a, &node).unwrap();
    let over = |gateway: &str| format!("{gateway}.alpha {gateway}:7740");
    let own = || Ok((over("a"), vec!["a.alpha dial ".to_owned()]));
    let other = || {
        Ok((over("b"), vec!["b.alpha expect 10.0.0.7".to_owned(), "a.alpha dial b.inside:7710".to_owned()]))
    };
    assert_eq!(dialed(&mut registry, &[]), own());
    assert_eq!(dialed(&mut registry, &[]), other());
    assert_eq!(dialed(&mut registry, &["b.alpha"]), own());
    assert_eq!(dialed(&mut registry, &["a.alpha"]), other());
    let none = dialed(&mut registry, &["a.alpha", "b.alpha"]).unwrap_err();
    assert_eq!(none, "all gateways and relays of this way have just failed: a.alpha, b.alpha");
    registry.detach(b);
    assert_eq!(dialed(&mut registry, &[]), own());
    assert_eq!(dialed(&mut registry, &[]), own());
    // Gateway b is back.
    registry.come("alpha", "b", &up("b", proto::Inbound::Closed)).unwrap();
    let again = dialed(&mut registry, &[]).unwrap();
    assert_eq!(again.0, over("b"));
}
