use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::super::{Admission, OfPilot, Renewal, TokenUse, renew, use_token};
use super::*;
use crate::store::Memory;

const LOGIN: &str = "isthmus:///agent/alpha/login1/anna";
const OTHER: &str = "isthmus:///agent/alpha/login1-berta/berta";

fn identity(uri: &str) -> Identity {
    Identity::from_uri(uri).unwrap()
}

fn node(name: &str) -> Identity {
    identity(&format!("isthmus:///agent/alpha/{name}/anna"))
}

fn certified(uri: &str, issued: u64) -> Certified {
    let issued = UNIX_EPOCH + Duration::from_secs(issued);
    Certified { identity: identity(uri), issued, ends: issued + Duration::from_secs(1000) }
}

/// Makes an agent a member at 50, whose pilots may have so many nodes.
async fn agent(store: &dyn Store, uri: &str, id: u8, pilot_nodes: u32) -> Certified {
    let by = certified(uri, 50);
    let used =
        UsedToken { expiry_unix_seconds: 100, request_sha256: [id; 32], closed: false, minted_by: None };
    let admission =
        Admission { id: [id; 16], used, places: None, identity: &by.identity, pilot_nodes, pilot: None };
    let accepted = TokenUse::Accepted { issued: 50, until: 0 };
    assert_eq!(use_token(store, &admission, 50, || true).await, Ok(accepted));
    by
}

/// A node joins a pilot of two nodes, whose certificates last 30 s.
async fn join(store: &dyn Store, (by, id): (&Certified, u8), identity: &Identity, now: u64) -> TokenUse {
    let used = UsedToken {
        expiry_unix_seconds: 130,
        request_sha256: [1; 32],
        closed: false,
        minted_by: Some(member(&by.identity)),
    };
    let pilot = Some(OfPilot { by, life: Duration::from_secs(30) });
    let admission = Admission { id: [id; 16], used, places: Some(2), identity, pilot_nodes: 0, pilot };
    use_token(store, &admission, now, || true).await.unwrap()
}

async fn are_members(store: &dyn Store, names: &[&str]) -> Vec<bool> {
    let mut members = Vec::new();
    for name in names {
        members.push(is_member(store, &node(name)).await.unwrap());
    }
    members
}

fn done(ended: &Ended) -> Option<u32> {
    match ended {
        Ended::Done { members, .. } => Some(*members),
        Ended::NotMinted | Ended::TooMany => None,
    }
}

#[tokio::test]
async fn a_pilot_s_nodes_are_members_until_it_ends() {
    let store = Memory::new(Arc::new(Instant::now));
    let (login, other) = (agent(&store, LOGIN, 1, 3).await, agent(&store, OTHER, 2, 3).await);
    let accepted = TokenUse::Accepted { issued: 60, until: 90 };
    for (case, id, name, want) in [
        ("a node", 7, "n1", accepted.clone()),
        ("a second one", 7, "n2", accepted.clone()),
        ("it has lost its identity", 7, "n2", accepted.clone()),
        ("too many of the pilot", 7, "n3", TokenUse::UsedUp(2)),
        ("of another pilot", 8, "n3", accepted.clone()),
        ("too many of the agent's pilots", 8, "n4", TokenUse::TooManyPilots(3)),
        ("the name of a node that stays", 8, "login1", TokenUse::NameTaken(LOGIN.to_owned())),
    ] {
        assert_eq!(join(&store, (&login, id), &node(name), 60).await, want, "{case}");
    }
    let renewed = renew(&store, &node("n3"), 60, 80).await;
    assert_eq!(renewed, Ok(Renewal::Accepted { issued: 80, until: 90 }));

    let not_its_own = end_pilot(&store, [7; 16], &other.identity, 130, 70).await;
    assert_eq!(not_its_own, Ok(Ended::NotMinted));
    let no_member = end_pilot(&store, [7; 16], &node("n9"), 130, 70).await;
    assert_eq!(no_member, Ok(Ended::NotMinted));
    for members in [2, 0] {
        let ended = end_pilot(&store, [7; 16], &login.identity, 130, 70).await.unwrap();
        assert_eq!(done(&ended), Some(members));
    }
    assert_eq!(are_members(&store, &["n1", "n2", "n3", "login1"]).await, [false, false, true, true]);
    assert_eq!(join(&store, (&login, 7), &node("n1"), 71).await, TokenUse::Closed);
    let again = join(&store, (&login, 8), &node("n1"), 71).await;
    assert_eq!(again, TokenUse::Accepted { issued: 71, until: 101 }, "its place is free again");

    let before = end_pilot(&store, [9; 16], &login.identity, 130, 75).await.unwrap();
    assert_eq!(done(&before), Some(0), "nobody has joined");
    assert_eq!(join(&store, (&login, 9), &node("n5"), 76).await, TokenUse::Closed);
}

#[tokio::test]
async fn an_agent_without_the_right_has_no_pilots() {
    let store = Memory::new(Arc::new(Instant::now));
    let (login, none) = (agent(&store, LOGIN, 1, 3).await, agent(&store, OTHER, 2, 0).await);
    assert_eq!(join(&store, (&none, 7), &node("n1"), 60).await, TokenUse::NoPilots);
    let stranger = certified("isthmus:///agent/alpha/n9/anna", 50);
    assert_eq!(join(&store, (&stranger, 7), &node("n1"), 60).await, TokenUse::NoPilots);

    assert!(matches!(join(&store, (&login, 8), &node("n1"), 60).await, TokenUse::Accepted { .. }));
    revoke(&store, "login1.alpha", How::default(), 70).await.unwrap().unwrap();
    assert_eq!(end_pilots_of(&store, "login1.alpha", 70).await, Ok(1));
    assert_eq!(are_members(&store, &["n1"]).await, [false]);
    assert_eq!(join(&store, (&login, 8), &node("n1"), 71).await, TokenUse::Closed);
    assert_eq!(join(&store, (&login, 9), &node("n2"), 71).await, TokenUse::NoPilots);
}

#[tokio::test]
async fn ends_of_pilots_without_nodes_are_bounded() {
    let store = Memory::new(Arc::new(Instant::now));
    let login = agent(&store, LOGIN, 1, 3).await;
    for number in 0..=UNUSED {
        let id = (1000 + number as u128).to_be_bytes();
        let ended = end_pilot(&store, id, &login.identity, 130, 60).await.unwrap();
        assert_eq!(done(&ended).is_some(), number < UNUSED, "{number}");
    }
}
