//! Measurements between sites in the background.

use super::*;

/// A node that has probed its network.
fn ready(node: &str) -> proto::NodeUp {
    let mut up = node_up(node, "10.0.0.1:7730");
    if let Some(seen) = &mut up.seen {
        seen.measured_unix_ms = 1;
    }
    up
}

/// A registry with sites of a single node each, and a relay.
fn grid(sites: &[&str], policy: Policy) -> (Registry, Vec<SessionId>) {
    let mut registry = Registry::new("demo", policy);
    registry.relay("hub");
    let mut sessions = Vec::new();
    for site in sites {
        let session = registry.gateway(site);
        registry.node_up(session, &ready("n1")).unwrap();
        sessions.push(session);
    }
    (registry, sessions)
}

/// The orders to measure, each with the gateway that gets it. Each must follow the same order to
/// the node that is measured.
fn measuring(registry: &mut Registry, now: u64) -> Vec<(String, proto::MeasureOrder)> {
    let order = |effect: &Effect| match effect {
        Effect::Send { to, message: attach_down::Kind::Measure(order) } => (who(to), order.clone()),
        other => panic!("{other:?}"),
    };
    let effects = registry.measure_due(now);
    let pairs = effects.chunks(2).map(|pair| {
        let [(to, serve), (from, order)] = [&pair[0], &pair[1]].map(order);
        let destination = VirtualAddress::new(order.destination.into()).unwrap();
        let acceptor = registry.addresses.node(destination).unwrap();
        assert_eq!(to, acceptor.site.as_str());
        assert_eq!(serve.initiator, format!("{}.{from}", order.node));
        let same = proto::MeasureOrder {
            node: order.node.clone(),
            initiator: String::new(),
            try_direct: order.try_direct,
            ..serve.clone()
        };
        assert_eq!((serve.node.as_str(), same), (acceptor.node.as_str(), order.clone()));
        (from, order)
    });
    pairs.collect()
}

/// The orders to measure, as "alpha to beta, transfer".
fn ordered(registry: &mut Registry, now: u64) -> Vec<String> {
    let words = measuring(registry, now).into_iter().map(|(from, order)| {
        assert!(order.background);
        let to = VirtualAddress::new(order.destination.into()).unwrap();
        let to = &registry.addresses.node(to).unwrap().site;
        format!("{from} to {to}{}", if order.transfer { ", transfer" } else { "" })
    });
    words.collect()
}

fn report(from: &str, to: &str, dial: proto::Dial, transferred: bool) -> proto::PathReport {
    let rate = if transferred { 1000 } else { 0 };
    proto::PathReport {
        from: format!("n1.{from}"),
        to: format!("n1.{to}"),
        route: proto::Route::EndToEnd.into(),
        dial: dial.into(),
        round_trip_us: 7,
        sent_bytes_per_second: rate,
        received_bytes_per_second: rate,
        transferred_unix_ms: u64::from(transferred) * 1_000_000,
        background: true,
        ..proto::PathReport::default()
    }
}

#[test]
fn one_of_each_pair_of_sites_measures_and_the_bandwidth_is_kept() {
    let (mut registry, sessions) = grid(&["alpha", "beta"], Policy::default());
    let (from, to) = match ordered(&mut registry, 1000).as_slice() {
        [one] if one == "alpha to beta, transfer" => ("alpha", "beta"),
        [one] if one == "beta to alpha, transfer" => ("beta", "alpha"),
        other => panic!("{other:?}"),
    };
    let session = sessions[usize::from(from == "beta")];
    assert_eq!(ordered(&mut registry, 1005), [""; 0], "it is under way");
    let relay = proto::Dial::Relay;
    // A report without an order is dropped.
    let other = sessions[usize::from(from == "alpha")];
    registry.measured(other, report(to, from, relay, true)).unwrap();
    assert_eq!(registry.grid().site_paths, []);
    assert!(registry.measured(other, report(from, to, relay, true)).is_err(), "another site's");
    registry.measured(session, report(from, to, relay, true)).unwrap();
    registry.measured(session, report(from, to, proto::Dial::Punch, true)).unwrap();
    assert_eq!(registry.grid().site_paths, [report(from, to, relay, true)]);
    assert_eq!(registry.grid().paths, [], "no user asked");

    assert_eq!(ordered(&mut registry, 1299), [""; 0]);
    let words = format!("{from} to {to}");
    assert_eq!(ordered(&mut registry, 1600), [words.as_str()]);
    let later = proto::PathReport { round_trip_us: 9, ..report(from, to, relay, false) };
    registry.measured(session, later.clone()).unwrap();
    let before = report(from, to, relay, true);
    assert_eq!(registry.grid().site_paths, [proto::PathReport { round_trip_us: 9, ..before }]);

    // Another step: its bandwidth is unknown, and is measured after a while.
    assert_eq!(ordered(&mut registry, 2200), [words.as_str()]);
    registry.measured(session, report(from, to, proto::Dial::Punch, false)).unwrap();
    assert_eq!(registry.grid().site_paths, [report(from, to, proto::Dial::Punch, false)]);
    assert_eq!(ordered(&mut registry, 1000 + 3601), [format!("{words}, transfer")]);
}

#[test]
fn gateways_learn_that_a_way_has_begun_to_lose_much() {
    let (mut registry, sessions) = grid(&["alpha", "beta"], Policy::default());
    let mut now = 1000;
    for (loss_ppm, told) in [(Some(10), false), (Some(5_000), true), (Some(4_000), false), (None, true)] {
        let (from, to) = match ordered(&mut registry, now).as_slice() {
            [one] if one.starts_with("alpha to beta") => ("alpha", "beta"),
            [one] if one.starts_with("beta to alpha") => ("beta", "alpha"),
            other => panic!("{other:?}"),
        };
        let transfer = report(from, to, proto::Dial::Relay, true);
        let found = proto::PathReport { round_trip_us: 10_000, loss_ppm, ..transfer };
        let effects = registry.measured(sessions[usize::from(from == "beta")], found).unwrap();
        assert_eq!(!effects.is_empty(), told, "{loss_ppm:?}: {effects:?}");
        let asked = proto::ExplainRequest {
            from: format!("n1.{from}"),
            to: format!("n1.{to}"),
            ..Default::default()
        };
        assert_eq!(registry.explain(&asked).unwrap().facts.unwrap().loss_ppm, loss_ppm);
        now += 100_000;
    }
}

#[test]
fn sites_that_are_off_busy_absent_or_forbidden_are_left_alone() {
    let none: Vec<String> = Vec::new();
    let off = Policy { measure: Measure::Off, ..Policy::default() };
    assert_eq!(ordered(&mut grid(&["alpha", "beta"], off).0, 1000), none, "the grid's keeper");

    let pair = PairConfig {
        sites: ["alpha".into(), "beta".into()],
        only: Some(Vec::new()),
        never: Vec::new(),
        trunk: None,
    };
    let forbidden = Policy { forbidden: ForbiddenPairs::new(&[pair]).unwrap(), ..Policy::default() };
    assert_eq!(ordered(&mut grid(&["alpha", "beta"], forbidden).0, 1000), none, "no way");

    let (mut registry, sessions) = grid(&["alpha", "beta"], Policy::default());
    let site_off = proto::GatewayUp { measure_off: true, ..gateway_up("beta", proto::Inbound::Closed) };
    let (session, _) = registry.come("beta", "gateway", &site_off).unwrap();
    registry.node_up(session, &ready("n1")).unwrap();
    assert_eq!(ordered(&mut registry, 1000), none, "the site's keeper");
    assert!(registry.grid().sites[1].measure_off);

    let beta = registry.gateway("beta");
    assert_eq!(ordered(&mut registry, 1000), none, "its node isn't back yet");
    registry.node_up(beta, &node_up("n1", "10.0.0.1:7730")).unwrap();
    assert_eq!(ordered(&mut registry, 1000), none, "nor has it probed its network");
    registry.node_up(beta, &ready("n1")).unwrap();
    let job = proto::JobReport {
        job: "ab".repeat(16),
        nodes: vec!["n1.alpha".to_owned()],
        ..proto::JobReport::default()
    };
    registry.job_report(sessions[0], job.clone()).unwrap();
    let orders = ordered(&mut registry, 1000);
    assert!(orders.len() == 1 && !orders[0].contains("transfer"), "beside a job: {orders:?}");
    registry.job_report(sessions[0], proto::JobReport { ended: true, ..job }).unwrap();
    let orders = ordered(&mut registry, 1600);
    assert!(orders.len() == 1 && orders[0].contains("transfer"), "the job has ended: {orders:?}");
}

#[test]
fn a_site_under_measurement_by_a_user_is_left_alone() {
    let (mut registry, _) = grid(&["alpha", "beta", "gamma"], Policy::default());
    let request = proto::MeasureRequest {
        from: "n1.alpha".into(),
        to: "n1.beta".into(),
        start: true,
        ..Default::default()
    };
    assert!(!registry.measure(&View::All, &request, 1000).unwrap().1.is_empty());
    assert_eq!(ordered(&mut registry, 1001), [""; 0]);
    assert_eq!(ordered(&mut registry, 1061).len(), 1, "it is lost");
}

#[test]
fn either_site_measures_for_half_of_the_others() {
    let sites: Vec<Label> = (0..40).map(|number| label(&format!("site{number}"))).collect();
    for site in &sites {
        let others = sites.iter().filter(|other| *other != site);
        let measures =
            others.filter(|other| super::super::site_paths::initiator(site, other) == site).count();
        assert!((8..=32).contains(&measures), "{site}: {measures} of 39");
    }
    for other in &sites[1..] {
        let both =
            [(&sites[0], other), (other, &sites[0])].map(|(a, b)| super::super::site_paths::initiator(a, b));
        assert_eq!(both[0], both[1]);
    }
}

#[test]
fn a_site_that_a_relay_does_not_reach_is_tried_by_others() {
    let reach = |result: proto::Reachability| proto::Reach { result: result.into(), ..Default::default() };
    use proto::Reachability::{Filtered, Reachable};
    for (name, beta, mapping, only, want) in [
        ("declared open", proto::Inbound::Open, proto::Mapping::Untranslated, None, true),
        ("left to measurement", proto::Inbound::Auto, proto::Mapping::Untranslated, None, true),
        ("closed", proto::Inbound::Closed, proto::Mapping::Untranslated, None, false),
        ("behind a NAT", proto::Inbound::Open, proto::Mapping::EndpointIndependent, None, false),
        ("forbidden", proto::Inbound::Open, proto::Mapping::Untranslated, Some("relay"), false),
    ] {
        let pair = PairConfig {
            sites: ["alpha".into(), "beta".into()],
            only: only.map(|only: &str| vec![only.to_owned()]),
            never: Vec::new(),
            trunk: None,
        };
        let policy = Policy { forbidden: ForbiddenPairs::new(&[pair]).unwrap(), ..Policy::default() };
        let mut registry = Registry::new("demo", policy);
        registry.relay("hub");
        let alpha = registry.gateway("alpha");
        registry.node_up(alpha, &ready("n1")).unwrap();
        let (session, _) = registry
            .attach_gateway(&label("beta"), &label("gateway"), &gateway_up("beta", beta), key("beta"))
            .unwrap();
        let mut up = ready("n1");
        if let Some(seen) = &mut up.seen {
            (seen.own, seen.mapping) = (Some(reach(Filtered)), mapping.into());
        }
        registry.node_up(session, &up).unwrap();
        let mut order = |now| match measuring(&mut registry, now).as_slice() {
            [(from, order)] => Some((from == "alpha", order.try_direct)),
            _ => None,
        };
        let first = order(1000).unwrap();
        assert_eq!(first.1, want, "{name}");
        if !want {
            continue;
        }
        assert!(first.0, "{name}: the site that may be open is the destination");
        let planned = |registry: &Registry| {
            let plan = registry.explain(&proto::ExplainRequest {
                from: "n1.alpha".to_owned(),
                to: "n1.beta".to_owned(),
                ..Default::default()
            });
            plan.unwrap().plan.unwrap().steps[0].dial() == proto::Dial::Direct
        };
        assert!(!planned(&registry), "{name}");
        let tried = |result| proto::PathReport {
            direct: Some(reach(result)),
            ..report("alpha", "beta", proto::Dial::Relay, true)
        };
        assert_eq!(
            registry.measured(alpha, tried(Reachable)).unwrap().len(),
            2,
            "{name}: both gateways receive a message"
        );
        assert!(planned(&registry), "{name}");
        // The direct way isn't tried again at once. It is tried later, and the result may differ.
        let mut order = |now| measuring(&mut registry, now).len();
        assert_eq!((order(1200), order(1600)), (0, 1), "{name}");
        registry.measured(alpha, report("alpha", "beta", proto::Dial::Relay, false)).unwrap();
        assert!(planned(&registry), "{name}: nothing was tried");
        assert_eq!(measuring(&mut registry, 4600).len(), 1, "{name}");
        assert_eq!(registry.measured(alpha, tried(Filtered)).unwrap().len(), 2, "{name}");
        assert!(!planned(&registry), "{name}");
    }
}
