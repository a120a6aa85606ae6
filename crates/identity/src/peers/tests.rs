use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_wire::proto;

use super::*;

fn certified(uri: &str, issued: SystemTime, life: Duration) -> Certified {
    Certified { identity: Identity::from_uri(uri).unwrap(), issued, ends: issued + life }
}

const N1: &str = "isthmus:///agent/alpha/n1/anna";
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_certificate_is_accepted_until_its_end_and_unless_revoked() {
    let now = UNIX_EPOCH + Duration::from_secs(unix_now());
    let at = |seconds_ago: u64| now - Duration::from_secs(seconds_ago);
    let revoked = |identity: &str, ago: u64| Revoked {
        identity: identity.to_owned(),
        issued_until: unix_now() - ago,
        ends: unix_now() + 3600,
    };
    let n1 = "isthmus:///agent/alpha/n1/";
    for (case, uri, issued, list, good) in [
        ("good", N1, at(60), vec![], true),
        ("at its end", N1, at(3600), vec![], false),
        ("revoked in the second of its issue", N1, at(60), vec![revoked(n1, 60)], false),
        ("revoked later", N1, at(60), vec![revoked(n1, 10)], false),
        ("issued after the revocation", N1, at(60), vec![revoked(n1, 61)], true),
        ("another owner", "isthmus:///agent/alpha/n1/berta", at(60), vec![revoked(n1, 10)], false),
        ("another node", "isthmus:///agent/alpha/n10/anna", at(60), vec![revoked(n1, 10)], true),
        ("a relay", "isthmus:///relay//n1/", at(60), vec![revoked("isthmus:///relay//n1/", 10)], false),
        ("the later of two entries", N1, at(60), vec![revoked(n1, 10), revoked(n1, 90)], false),
    ] {
        let peers = Peers::default();
        peers.revoke(list).unwrap();
        assert_eq!(peers.accept(certified(uri, issued, HOUR), now).is_ok(), good, "{case}");
    }
}

#[test]
fn who_joins_again_after_a_revocation_is_not_revoked() {
    let (peers, second) = (Peers::default(), unix_now());
    let at = |ago: u64| UNIX_EPOCH + Duration::from_secs(second - ago);
    let identity = Identity::from_uri(N1).unwrap();
    let _before = peers.accept(certified(N1, at(90), 2 * HOUR), at(0)).unwrap();
    let (identity_of_list, issued_until) = ("isthmus:///agent/alpha/n1/".to_owned(), second - 60);
    let entry = Revoked { identity: identity_of_list, issued_until, ends: second + 3600 };
    peers.revoke([entry]).unwrap();
    assert!(peers.revoked_now(&identity).is_some());
    // Its new certificate ends before the former one.
    let _after = peers.accept(certified(N1, at(30), HOUR), at(0)).unwrap();
    assert_eq!(peers.revoked_now(&identity), None);
}

/// By such revocations, a captured gateway could have its agents refuse somebody for ever, or fill
/// their memory.
#[test]
fn revocations_that_no_broker_sends_are_ignored() {
    let (now, n1) = (SystemTime::now(), "isthmus:///agent/alpha/n1/");
    let (second, year) = (unix_now(), 366 * 24 * 3600);
    let refused = |identity: &str, issued_until: u64, ends: u64| {
        let peers = Peers::default();
        let entry = proto::Revocation { identity: identity.to_owned(), issued_until, ends };
        peers.receive(proto::Revocations { revoked: vec![entry] });
        assert_eq!(peers.revoked().is_empty(), peers.accept(certified(N1, now, HOUR), now).is_ok());
        !peers.revoked().is_empty()
    };
    assert!(refused(n1, second + 1, second + 3600));
    for (identity, issued_until, ends) in [
        (n1, u64::MAX, u64::MAX),
        (n1, u64::MAX, second + 3600),
        (n1, second + 2 * 24 * 3600, second + 3600),
        (n1, second + 1, second + 2 * year),
        (&"x".repeat(257), second + 1, second + 3600),
    ] {
        assert!(!refused(identity, issued_until, ends), "{identity} {issued_until} {ends}");
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test]
async fn a_connection_ends_with_the_latest_certificate_that_its_peer_has_shown() {
    let peers = Peers::default();
    let now = SystemTime::now();
    let short = Duration::from_millis(200);
    let watched = peers.accept(certified(N1, now, short), now).unwrap();
    assert_eq!(peers.agents_to_verify(now), []);
    let due = now + short * 9 / 10;
    assert_eq!(peers.agents_to_verify(due), [watched.identity().clone()]);
    let renewed = peers.accept(certified(N1, now, 4 * short), now).unwrap();
    drop(renewed);
    assert_eq!(peers.agents_to_verify(due), []);
    let refusal = watched.await;
    assert!(now.elapsed().unwrap() >= 4 * short);
    assert!(matches!(refusal, Refusal::Ended { .. }), "{refusal}");
}

#[tokio::test]
async fn a_revocation_ends_open_connections_and_lasts_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let peers = Peers::default();
    peers.keep_in(directory.path()).unwrap();
    let certificate = certified(N1, SystemTime::now(), HOUR);
    let watched = peers.accept(certificate.clone(), SystemTime::now()).unwrap();
    let waiting = tokio::spawn(watched);
    let entry = |ends| Revoked {
        identity: "isthmus:///agent/alpha/n1/".to_owned(),
        issued_until: unix_now() + 1,
        ends,
    };
    peers.revoke([entry(unix_now())]).unwrap();
    assert!(peers.revoked().is_empty(), "all its certificates have ended");
    peers.revoke([entry(unix_now() + 60)]).unwrap();
    let refusal = waiting.await.unwrap();
    assert!(refusal.to_string().contains("of agent n1.alpha issued until"), "{refusal}");

    let restarted = Peers::default();
    restarted.keep_in(directory.path()).unwrap();
    let result = restarted.accept(certificate, SystemTime::now());
    assert!(matches!(result, Err(Refusal::Revoked { .. })), "{result:?}");
}
