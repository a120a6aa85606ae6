//! Gateways that relay for other sites.

use super::*;
use crate::policy::{ForbiddenPairs, PairConfig};

/// Three sites with a node each, of which some pairs trust the network, and where gateways may relay.
fn sites(trusted: &[[&str; 2]]) -> Registry {
    let mut registry = registry(trusted);
    registry.policy.gateways_relay = true;
    for site in ["alpha", "beta", "gamma"] {
        let session = registry.gateway(site);
        registry.node_up(session, &node_up("n1", "10.0.0.1:7730")).unwrap();
    }
    registry
}

/// The relay for a node of alpha and one of beta.
fn joins(registry: &mut Registry) -> Result<String, String> {
    registry.meet("alpha", "n1.alpha", "n1.beta").map(|met| at_relay(met.0).name)
}

const NONE: &str = "no relay is attached";

#[test]
fn a_gateway_relays_for_sites_that_encrypt() {
    let never = |a: &str, b: &str| {
        let never = vec!["relay".to_owned()];
        vec![PairConfig { sites: [a.to_owned(), b.to_owned()], only: None, never, trunk: None }]
    };
    for (name, trusted, forbidden, relays, want) in [
        ("a third site's", vec![], vec![], &["fe.gamma"][..], Ok("fe.gamma")),
        ("of an end's site", vec![], vec![], &["fe.beta"], Err(NONE)),
        ("an end's and a third", vec![], vec![], &["fe.alpha", "fe.gamma"], Ok("fe.gamma")),
        ("of sites that trust the network", vec![["beta", "alpha"]], vec![], &["fe.gamma"], Err(NONE)),
        ("with a trusted third", vec![["alpha", "gamma"]], vec![], &["fe.gamma"], Ok("fe.gamma")),
        ("an end may use no relay with it", vec![], never("gamma", "beta"), &["fe.gamma"], Err(NONE)),
        ("a relay of its own as well", vec![], vec![], &["fe.gamma", "r1"], Ok("r1")),
        ("a relay of its own for trust", vec![["beta", "alpha"]], vec![], &["fe.gamma", "r1"], Ok("r1")),
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
        assert_eq!(facts.relays > 0, want.is_ok(), "{name}");
    }
}

#[test]
fn a_much_nearer_gateway_is_taken_before_a_relay() {
    for (gateway_us, want) in [(1_000, "fe.gamma"), (9_800, "r1"), (30_000, "r1")] {
        let mut registry = sites(&[]);
        for site in ["alpha", "beta"] {
            let session = registry.gateway(site);
            registry.node_up(session, &seeing("n1", &[("r1", 10_000), ("fe.gamma", gateway_us)])).unwrap();
        }
        registry.relay("r1");
        registry.relay("fe.gamma");
        assert_eq!(joins(&mut registry).as_deref(), Ok(want), "{gateway_us}");
    }
}

#[test]
fn contacts_change_with_the_gateways_that_relay_only_where_no_relay_is() {
    let mut registry = sites(&[]);
    let changes = |effects: &[Effect]| effects.iter().filter(|effect| is_change(effect)).count();
    let (first, effects) = registry.relay("fe.gamma");
    assert_eq!(changes(&effects), 3, "one for each gateway");
    let (_, effects) = registry.relay("fe.beta");
    assert_eq!(changes(&effects), 3);
    let (own, effects) = registry.relay("r1");
    assert_eq!(changes(&effects), 3);
    assert_eq!(changes(&registry.detach(first)), 0);
    assert_eq!(changes(&registry.detach(own)), 3);
}

fn is_change(effect: &Effect) -> bool {
    matches!(effect, Effect::Send { message: attach_down::Kind::ContactChanged(_), .. })
}

#[test]
fn a_broker_may_want_no_gateways_as_relays() {
    let mut registry = sites(&[]);
    registry.policy.gateways_relay = false;
    let up = proto::RelayUp {
        name: "fe.gamma".to_owned(),
        address: "192.0.2.1:7740".to_owned(),
        ..Default::default()
    };
    let refused = registry.attach_relay(&relay_name("fe.gamma"), &up, Secret::new([1; 32])).unwrap_err();
    assert!(refused.0.contains("gateways_relay = false"), "{refused}");
}

#[test]
fn a_revoked_gateway_relays_no_more() {
    let mut registry = sites(&[]);
    registry.relay("fe.gamma");
    let identity = "isthmus:///gateway/gamma/fe/".to_owned();
    let entry = proto::Revocation { identity: identity.clone(), issued_until: 50, ends: 100 };
    let effects = registry.fold(Fact::Revoked { identity, record: Some(entry) });
    let closed = |effect: &&Effect| matches!(effect, Effect::Close { reason, .. } if reason.contains("relay fe.gamma"));
    assert_eq!(effects.iter().filter(closed).count(), 1, "{effects:?}");
    assert!(joins(&mut registry).is_err_and(|text| text.contains(NONE)));
}
