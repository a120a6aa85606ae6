//! The registry after a revocation.

use super::*;

fn revoke(registry: &mut Registry, identity: &str) -> Vec<String> {
    let entry = proto::Revocation { identity: identity.to_owned(), issued_until: 50, ends: 100 };
    let effects = registry.fold(Fact::Revoked { identity: identity.to_owned(), record: Some(entry) });
    let told =
        |effect: &&Effect| !matches!(effect, Effect::Send { message: attach_down::Kind::Revocations(_), .. });
    texts(&effects.iter().filter(told).cloned().collect::<Vec<_>>())
}

/// Two sites with a node each.
fn two_sites() -> (Registry, [SessionId; 2]) {
    let mut registry = registry(&[]);
    let sessions = ["alpha", "beta"].map(|site| {
        let session = registry.gateway(site);
        registry.node_up(session, &node_up("n1", "10.0.0.1:7730")).unwrap();
        session
    });
    (registry, sessions)
}

/// A revoked relay's key is forgotten, too: whoever has taken the relay could seal tickets with it.
#[test]
fn a_revoked_relay_is_used_for_nothing_and_its_key_is_forgotten() {
    let (mut registry, _) = two_sites();
    let (session, _) = registry.relay("r1");
    let (_, effects) = registry.relay("r22");
    assert_eq!(texts(&effects), ["r22 key"]);
    registry.directory_due();
    let reason = "the certificates of relay r1 are revoked";
    assert_eq!(revoke(&mut registry, "isthmus:///relay//r1/"), [format!("close {}: {reason}", session.0)]);
    for _ in 0..3 {
        let (reply, _) = registry.meet("alpha", "n1.alpha", "n1.beta").unwrap();
        assert_eq!(at_relay(reply).name, "r22");
    }
    let listed = registry.all(Records::Relays(proto::RelayFilter::default())).relays;
    assert_eq!(listed.iter().map(|relay| relay.name.as_str()).collect::<Vec<_>>(), ["r22"]);
    let due = registry.directory_due();
    let directories = due.iter().filter_map(|effect| match effect {
        Effect::Send { message: attach_down::Kind::Directory(directory), .. } => Some(directory),
        _ => None,
    });
    let relays = directories.map(|directory| directory.relays.iter().map(|relay| relay.name.as_str()));
    assert_eq!(relays.map(Iterator::collect::<Vec<_>>).collect::<Vec<_>>(), [["r22"], ["r22"]]);
    // The end of the attachment comes later, and changes nothing.
    assert_eq!(texts(&registry.fold(Fact::Relay { name: relay_name("r1"), record: None })), [""; 0]);
    // A relay that joined anew.
    let up = proto::RelayUp { name: "r1".to_owned(), address: "r1:7720".to_owned(), ..Default::default() };
    let record = registry.relay_record(&relay_name("r1"), &up, &Secret::new([9; 32])).unwrap();
    assert_eq!(record.key, [9; 32], "a new key");
}

#[test]
fn the_last_relay_s_revocation_changes_plans() {
    let (mut registry, _) = two_sites();
    registry.relay("r1");
    let effects = revoke(&mut registry, "isthmus:///relay//r1/");
    assert!(effects.contains(&"alpha changed 0.0.0.0".to_owned()), "{effects:?}");
    let refused = registry.meet("alpha", "n1.alpha", "n1.beta").unwrap_err();
    assert_eq!(refused, "no relay is attached to the broker");
}

#[test]
fn a_revoked_gateway_is_used_for_nothing_and_its_key_is_forgotten() {
    let (mut registry, [alpha, _]) = two_sites();
    registry.relay("r1");
    let effects = revoke(&mut registry, "isthmus:///gateway/alpha/gateway/");
    let closed = format!("close {}: the certificates of gateway gateway of site alpha are revoked", alpha.0);
    assert!(effects.contains(&closed), "{effects:?}");
    let refused = registry.meet("beta", "n1.beta", "n1.alpha").unwrap_err();
    assert!(refused.contains("is not attached to the"), "{refused}");
    let up = gateway_up("alpha", proto::Inbound::Closed);
    let record = registry.gateway_record(&label("alpha"), &label("gateway"), &up, &Secret::new([9; 32]));
    assert_eq!(record.unwrap().key, [9; 32], "a new key");
}

/// A revoked node is down even if its gateway has not said so.
#[test]
fn a_revoked_node_is_down_and_gets_no_tickets() {
    let (mut registry, _) = two_sites();
    registry.relay("r1");
    registry.find("beta", "n1.alpha").unwrap();
    let effects = revoke(&mut registry, "isthmus:///agent/alpha/n1/");
    assert_eq!(effects, ["alpha changed 240.64.1.1", "beta changed 240.64.1.1"]);
    let node = &registry.grid().nodes[0];
    assert_eq!((node.name.as_str(), node.up), ("n1.alpha", false));
    for (site, from, to, want) in [
        ("alpha", "n1.alpha", "n1.beta", "the agent of node n1.alpha is not attached"),
        ("beta", "n1.beta", "n1.alpha", "the agent of node n1.alpha is not running"),
    ] {
        assert_eq!(registry.meet(site, from, to).unwrap_err(), want);
    }
    assert_eq!(revoke(&mut registry, "isthmus:///agent/gamma/n1/"), [""; 0], "a node that never came");
    assert_eq!(revoke(&mut registry, "isthmus:///admin//anna/"), [""; 0]);
}
