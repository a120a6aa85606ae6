//! Gateways that relay for other sites.

use super::*;
use crate::policy::{ForbiddenPairs, PairConfig};

/// Three sites with a node each, of which some pairs trust the network, and where gateways may relay.
fn sites(trusted: &[[&str; 2]]) -> Registry {
    let mut registry = registry(trusted);
    registry.policy.gateways_relay = true;
    for site in ["alpha", "beta", "gamma"] {
        let outside_address = format!("gateway.{site}.example.org:7720");
        let up = proto::GatewayUp { outside_address, ..gateway_up(site, proto::Inbound::Auto) };
        let (session, _) = registry.attach_gateway(&label(site), &label("gateway"), &up, key(site)).unwrap();
        registry.node_up(session, &node_up("n1", "10.0.0.1:7730")).unwrap();
    }
    registry
}

/// The relay for a node of alpha and one of beta.
fn joins(registry: &mut Registry) -> Result<String, String> {
    registry.meet("alpha", "n1.alpha", "n1.beta").map(|met| at_relay(met.0).name)
}

const NONE: &str = "only gateways relay";

#[test]
fn a_gateway_relays_for_sites_that_encrypt() {
    let never = |a: &str, b: &str| {
        let never = vec!["relay".to_owned()];
        vec![PairConfig { sites: [a.to_owned(), b.to_owned()], only: None, never, trunk: None }]
    };
    for (name, trusted, forbidden, relays, want) in [
        ("a third site's", vec![], vec![], &["gateway.gamma"][..], Ok("gateway.gamma")),
        ("of an end's site", vec![], vec![], &["gateway.beta"], Err(NONE)),
        ("an end's and a third", vec![], vec![], &["gateway.alpha", "gateway.gamma"], Ok("gateway.gamma")),
        ("of sites that trust the network", vec![["beta", "alpha"]], vec![], &["gateway.gamma"], Err(NONE)),
        ("with a trusted third", vec![["alpha", "gamma"]], vec![], &["gateway.gamma"], Ok("gateway.gamma")),
        ("an end may use no relay with it", vec![], never("gamma", "beta"), &["gateway.gamma"], Err(NONE)),
        ("a relay of its own as well", vec![], vec![], &["gateway.gamma", "r1"], Ok("r1")),
        ("a relay of its own for trust", vec![["beta", "alpha"]], vec![], &["gateway.gamma", "r1"], Ok("r1")),
    ] {
        let mut registry = sites(&trusted);
        registry.policy.forbidden = ForbiddenPairs::new(&forbidden).unwrap();
        for relay in relays {
            registry.relay(relay);
        }
        let joined = joins(&mut registry);
        match want {
            Ok(relay) => assert_eq!(joined.as_deref(), Ok(relay), "{name}"),
            Err(reason) => {
                assert!(joined.as_ref().is_err_and(|text| text.contains(reason)), "{name}: {joined:?}")
            }
        }
        // The plan has a relay exactly if there is one.
        let facts = registry.find("alpha", "n1.beta").unwrap().facts.unwrap();
        assert_eq!(facts.gateways_join_none, want.is_err(), "{name}");
    }
}

#[test]
fn a_much_nearer_gateway_is_taken_before_a_relay() {
    for (gateway_us, want) in [(1_000, "gateway.gamma"), (9_800, "r1"), (30_000, "r1")] {
        let mut registry = sites(&[]);
        for site in ["alpha", "beta"] {
            let session = registry.sites[&label(site)].gateways[&label("gateway")].session.unwrap();
            registry
                .node_up(session, &seeing("n1", &[("r1", 10_000), ("gateway.gamma", gateway_us)]))
                .unwrap();
        }
        registry.relay("r1");
        registry.relay("gateway.gamma");
        assert_eq!(joins(&mut registry).as_deref(), Ok(want), "{gateway_us}");
    }
}

#[test]
fn contacts_change_with_the_gateways_that_relay_only_where_no_relay_is() {
    let mut registry = sites(&[]);
    let changes = |effects: &[Effect]| effects.iter().filter(|effect| is_change(effect)).count();
    let (first, effects) = registry.relay("gateway.gamma");
    assert_eq!(changes(&effects), 3, "one for each gateway");
    let (_, effects) = registry.relay("gateway.beta");
    assert_eq!(changes(&effects), 3);
    let (own, effects) = registry.relay("r1");
    assert_eq!(changes(&effects), 3);
    assert_eq!(changes(&registry.detach(first)), 0);
    assert_eq!(changes(&registry.detach(own)), 3);
}

fn is_change(effect: &Effect) -> bool {
    matches!(effect, Effect::Send { message: attach_down::Kind::ContactChanged(_), .. })
}

/// Where nodes of alpha and beta are told how they are seen, if these relay.
#[test]
fn gateways_tell_nodes_of_other_sites_how_they_are_seen() {
    for (trusted, relays, want) in [
        (vec![], &["gateway.gamma"][..], &["gateway.gamma"][..]),
        (vec![], &["gateway.alpha", "gateway.beta", "gateway.gamma"], &["gateway.gamma"]),
        (vec![], &["gateway.gamma", "r1"], &["r1", "gateway.gamma"]),
        (vec![["alpha", "beta"]], &["gateway.gamma", "r1"], &["r1"]),
        (vec![["alpha", "beta"]], &["gateway.gamma"], &[]),
    ] {
        let mut registry = sites(&trusted);
        for relay in relays {
            registry.relay(relay);
        }
        let want: Vec<String> = want.iter().map(|name| format!("{name}.example.org:7720")).collect();
        assert_eq!(registry.reflectors([&label("alpha"), &label("beta")]), want, "{trusted:?} {relays:?}");
        let facts = registry.find("alpha", "n1.beta").unwrap().facts.unwrap();
        assert_eq!(facts.relays as usize, want.len(), "{trusted:?} {relays:?}");
    }
}

#[test]
fn a_gateway_relays_at_its_own_port_outside_and_where_the_broker_wants_it() {
    let system = "gateway.gamma.example.org:22";
    for (name, wanted, address, want) in [
        ("gateway.gamma", true, system, "has a port of system services"),
        ("gateway.gamma", false, "gateway.gamma.example.org:7720", "gateways_relay = false"),
        ("gateway.gamma", true, "broker.example.org:22", "is not the port outside of gateway gateway.gamma"),
        (
            "other.gamma",
            true,
            "gateway.gamma.example.org:7720",
            "is not the port outside of gateway other.gamma",
        ),
    ] {
        let mut registry = sites(&[]);
        if address == system {
            let up = proto::GatewayUp {
                outside_address: system.to_owned(),
                ..gateway_up("gamma", proto::Inbound::Auto)
            };
            registry.attach_gateway(&label("gamma"), &label("gateway"), &up, key("gamma")).unwrap();
        }
        registry.policy.gateways_relay = wanted;
        let up = proto::RelayUp { name: name.to_owned(), address: address.to_owned(), ..Default::default() };
        let refused = registry.attach_relay(&relay_name(name), &up, Secret::new([1; 32])).unwrap_err();
        assert!(refused.0.contains(want), "{refused}");
    }
}

#[test]
fn relays_are_listed_by_name() {
    let mut registry = sites(&[]);
    for relay in ["zeta", "gateway.gamma", "hub"] {
        registry.relay(relay);
    }
    let listed = registry.all(Records::Relays(proto::RelayFilter::default())).relays;
    let names: Vec<_> = listed.into_iter().map(|relay| relay.name).collect();
    assert_eq!(names, ["gateway.gamma", "hub", "zeta"]);
}

#[test]
fn a_revoked_gateway_relays_no_more() {
    let mut registry = sites(&[]);
    registry.relay("gateway.gamma");
    let identity = "isthmus:///gateway/gamma/gateway/".to_owned();
    let entry = proto::Revocation { identity: identity.clone(), issued_until: 50, ends: 100 };
    let effects = registry.fold(Fact::Revoked { identity, record: Some(entry) });
    let closed = |effect: &&Effect| matches!(effect, Effect::Close { reason, .. } if reason.contains("relay gateway.gamma"));
    assert_eq!(effects.iter().filter(closed).count(), 1, "{effects:?}");
    assert!(joins(&mut registry).is_err_and(|text| text.contains("no relay is attached")));
}

#[test]
fn a_full_relay_joins_no_further_nodes() {
    let mut registry = sites(&[]);
    let (gamma, _) = registry.relay("gateway.gamma");
    let report = |room| proto::RelayReport { connections: 7, bytes: 700, room };
    let shown = |registry: &mut Registry| {
        let listed = registry.all(Records::Relays(proto::RelayFilter::default())).relays;
        listed.into_iter().map(|relay| relay.full).collect::<Vec<_>>()
    };
    // An older relay doesn't tell.
    for room in [None, Some(1)] {
        registry.relay_report(gamma, report(room));
        assert_eq!(joins(&mut registry).as_deref(), Ok("gateway.gamma"), "{room:?}");
        assert_eq!(shown(&mut registry), [false]);
    }
    registry.relay_report(gamma, report(Some(0)));
    let refused = joins(&mut registry).unwrap_err();
    assert!(refused.contains("relay gateway.gamma has as many connections as it takes"), "{refused}");
    assert_eq!(shown(&mut registry), [true]);
    registry.relay("hub");
    assert_eq!(joins(&mut registry).as_deref(), Ok("hub"));
}
