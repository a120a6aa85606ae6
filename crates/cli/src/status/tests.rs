use isthmus_wire::proto::{self, Inbound, ListReply};

use super::view::View;

fn reply() -> ListReply {
    let node = |name: &str, up| proto::Node {
        name: name.to_owned(),
        virtual_address: 0xf040_0101,
        address: "10.0.0.1:7730".to_owned(),
        host_name: "node1".to_owned(),
        owner: "anna".to_owned(),
        slots: 4,
        architecture: "x86_64".to_owned(),
        up,
        ..proto::Node::default()
    };
    let gateway = |name: &str, up| proto::SiteGateway {
        name: name.to_owned(),
        up,
        nodes: 1,
        inbound: Inbound::Open.into(),
        ..proto::SiteGateway::default()
    };
    let site = |name: &str, inbound: Inbound, trusted: &[&str]| proto::Site {
        name: name.to_owned(),
        inbound: inbound.into(),
        up: true,
        trusted: trusted.iter().map(|site| (*site).to_owned()).collect(),
        version: "1.2.3".to_owned(),
        nodes_up: 1,
        nodes_down: trusted.iter().filter(|site| **site == "beta").count() as u32,
        slots: 4,
        jobs: trusted.iter().filter(|site| **site == "beta").count() as u32,
        outside_address: String::new(),
        gateways: match inbound {
            Inbound::Open => vec![gateway("login1", true), gateway("login2", false)],
            Inbound::Auto | Inbound::Closed => vec![gateway("gateway", true)],
        },
        ..proto::Site::default()
    };
    let joined = |initiator: &str, acceptor: &str| proto::Joined {
        initiator: initiator.to_owned(),
        acceptor: acceptor.to_owned(),
        route: proto::Route::EndToEnd.into(),
        dial: proto::Dial::Relay.into(),
        relay: "r1".to_owned(),
        encryption: proto::Encryption::Agents.into(),
        connections: 2,
        bytes_sent: 1000,
        bytes_received: 2000,
        bytes_known: true,
        ..proto::Joined::default()
    };
    let measured = proto::PathReport {
        from: "n1.alpha".to_owned(),
        to: "n1.beta".to_owned(),
        route: proto::Route::EndToEnd.into(),
        dial: proto::Dial::Punch.into(),
        round_trip_us: 12_000,
        ..proto::PathReport::default()
    };
    ListReply {
        paths: vec![measured],
        grid: "demo".to_owned(),
        sites: vec![site("alpha", Inbound::Closed, &["beta"]), site("beta", Inbound::Open, &["alpha"])],
        nodes: vec![node("n1.alpha", true), node("n2.alpha", false), node("n1.beta", true)],
        relays: vec![proto::Relay {
            name: "r1".to_owned(),
            up: true,
            bytes: 5000,
            ..proto::Relay::default()
        }],
        jobs: vec![proto::JobReport {
            job: "ab".repeat(16),
            program: "mpirun".to_owned(),
            nodes: vec!["n1.alpha".to_owned(), "n1.beta".to_owned()],
            joined: vec![joined("n1.alpha", "n1.beta"), joined("n2.alpha", "n1.alpha")],
            ..proto::JobReport::default()
        }],
        ..ListReply::default()
    }
}

#[test]
fn tables_for_people() {
    let reply = reply();
    let text = View::new(&reply).text(&reply, false);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = text.lines().map(words).collect();
    for want in [
        "grid demo: 2 sites, 2 nodes up (1 down), 1 relay, 1 job",
        "alpha up nothing 1 1 4 1 beta 1.2.3",
        "beta 1 of 2 up everything 1 0 4 0 alpha 1.2.3",
        "login2.beta down 1 open -",
        "n1.alpha up 240.64.1.1 10.0.0.1:7730 node1 anna 4 x86_64",
        "r1 up 0 5.0 kB",
        "alpha – beta punch 12.0 ms - - -",
    ] {
        assert!(lines.iter().any(|line| line == want), "{want} is not in\n{text}");
    }
    assert!(text.contains("job abababab: mpirun of an unknown user, 2 nodes from n1.alpha"), "{text}");
    assert!(text.contains("alpha – beta"), "{text}");
    assert!(!text.contains("n2.alpha"), "{text}");
    assert!(View::new(&reply).text(&reply, true).contains("n1.alpha – n2.alpha"));
}

#[test]
fn it_is_said_which_sites_a_relay_joins() {
    let path = |to: &str, relay: &str, failure: &str| proto::PathReport {
        from: "n1.gamma".to_owned(),
        to: to.to_owned(),
        relay: relay.to_owned(),
        failure: failure.to_owned(),
        ..proto::PathReport::default()
    };
    let mut reply = reply();
    reply.relays.push(proto::Relay { name: "gateway.delta".to_owned(), ..proto::Relay::default() });
    reply.paths.extend([
        path("n1.alpha", "r1", ""),
        path("n1.beta", "", ""),
        path("n1.beta", "gateway.delta", "nothing answers"),
    ]);
    let view = View::new(&reply);
    let text = view.text(&reply, true);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = text.lines().map(words).collect();
    for want in ["r1 up 0 5.0 kB alpha – beta, alpha – gamma", "gateway.delta down 0 0 B -"] {
        assert!(lines.iter().any(|line| line == want), "{want} is not in\n{text}");
    }
    assert!(!view.text(&reply, false).contains("joins"));
    let json = serde_json::to_value(view).unwrap();
    assert_eq!(json["relays"][0]["joins"], serde_json::json!([["alpha", "beta"], ["alpha", "gamma"]]));
    assert_eq!(json["relays"][1]["joins"], serde_json::json!([]));
}

/// The control characters are in texts of other users.
#[test]
fn control_characters_reach_no_terminal() {
    let mut reply = reply();
    reply.jobs[0].program = "\u{1b}[2J\nn9.beta  up".to_owned();
    reply.nodes[0].host_name = "\u{1b}[31m\nn8.beta  up".to_owned();
    let text = View::new(&reply).text(&reply, true);
    assert!(
        text.contains(r"\u{1b}[2J\nn9.beta  up of") && text.contains(r"\u{1b}[31m\nn8.beta  up"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_large_grid_s_nodes_are_counted_and_not_listed() {
    let reply = ListReply { nodes: Vec::new(), ..reply() };
    let text = View::new(&reply).text(&reply, false);
    assert!(text.starts_with("grid demo: 2 sites, 2 nodes up (1 down), 1 relay, 1 job"), "{text}");
    assert!(text.contains("`isthmus status --nodes` all"), "{text}");
    let path = reply.paths[0].clone();
    let reply = ListReply { paths: vec![path; 100], ..reply };
    assert!(View::new(&reply).text(&reply, false).contains("and 36 more"));
    assert!(!View::new(&reply).text(&reply, true).contains("36 more"));
}

#[test]
fn a_gateway_s_own_answer_says_so() {
    assert!(View::new(&reply()).without_broker.is_none());
    let answer =
        proto::WithoutBroker { gateway: "gateway.alpha".to_owned(), away_ms: 5000, told_ms: Some(60_000) };
    let reply = ListReply { without_broker: Some(answer), ..reply() };
    let view = View::new(&reply);
    let text = view.text(&reply, false);
    assert!(
        text.starts_with("the broker can't be reached for 5 s: this is what gateway.alpha knows"),
        "{text}"
    );
    assert!(text.contains("\ngrid demo: 2 sites"), "{text}");
    let json = serde_json::to_value(view).unwrap();
    let want = serde_json::json!({"gateway": "gateway.alpha", "away_seconds": 5.0, "told_seconds": 60.0});
    assert_eq!(json["without_broker"], want);
}

#[test]
fn names_in_json_stay() {
    let json = serde_json::to_value(View::new(&reply())).unwrap();
    for pointer in [
        "/grid",
        "/sites/0/name",
        "/sites/0/up",
        "/sites/0/inbound",
        "/sites/0/gateways/0/name",
        "/sites/0/gateways/0/up",
        "/sites/0/gateways/0/nodes_up",
        "/sites/0/trusted",
        "/sites/0/nodes_up",
        "/sites/0/nodes_down",
        "/sites/0/slots",
        "/sites/0/jobs",
        "/sites/0/outside_address",
        "/nodes/0/name",
        "/nodes/0/virtual_address",
        "/nodes/0/slots",
        "/relays/0/connections",
        "/relays/0/bytes",
        "/relays/0/joins",
        "/jobs/0/id",
        "/jobs/0/nodes",
        "/jobs/0/node_count",
        "/jobs/0/joined/0/ends",
        "/jobs/0/joined/0/dial",
        "/jobs/0/joined/0/route",
        "/jobs/0/joined/0/gateways",
        "/jobs/0/joined/0/encrypted",
        "/jobs/0/joined/0/encryption",
        "/jobs/0/joined/0/bytes",
        "/site_paths/0/from",
        "/site_paths/0/to",
        "/site_paths/0/route",
        "/site_paths/0/dial",
        "/site_paths/0/relay",
        "/site_paths/0/round_trip_ms",
        "/site_paths/0/sent_bytes_per_second",
        "/site_paths/0/received_bytes_per_second",
        "/site_paths/0/transferred_unix_ms",
        "/site_paths/0/measured_unix_ms",
        "/site_paths/0/failure",
    ] {
        assert!(json.pointer(pointer).is_some(), "{pointer} is missing in {json:#}");
    }
    assert_eq!(json["nodes"][0]["virtual_address"], "240.64.1.1");
    assert_eq!(json["jobs"][0]["joined"][0]["ends"], serde_json::json!(["n1.alpha", "n1.beta"]));
}
