use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use isthmus_registry::records::{TOKENS, token_key};

use super::*;
use crate::store::Memory;

const ANNA: &str = "isthmus:///agent/alpha/n1/anna";
const BERTA: &str = "isthmus:///agent/alpha/n1/berta";

fn store() -> Memory {
    Memory::new(Arc::new(Instant::now))
}

fn identity(uri: &str) -> Identity {
    Identity::from_uri(uri).unwrap()
}

fn used(request: u8) -> UsedToken {
    let request_sha256 = [request; 32];
    UsedToken { expiry_unix_seconds: 100, request_sha256, closed: false, minted_by: None }
}

/// A join by a token that isn't a pilot's.
fn admission((id, used): ([u8; 16], UsedToken), places: Option<u32>, identity: &Identity) -> Admission<'_> {
    Admission { id, used, places, identity, pilot_nodes: 0, pilot: None }
}

/// Uses a token without a bound on how often.
async fn use_token(
    store: &dyn Store,
    token: ([u8; 16], UsedToken),
    places: Option<u32>,
    identity: &Identity,
    now: u64,
) -> Result<TokenUse, StoreError> {
    super::use_token(store, &admission(token, places, identity), now, || true).await
}

async fn revoke_now(store: &dyn Store, name: &str, how: How, now: u64) -> RevokedMember {
    revoke(store, name, how, now).await.unwrap().unwrap()
}

/// A revocation that leaves the site's token good for others.
const KEEP_TOKEN: How = How { remove: false, keep_token: true };

fn accepted(issued: u64) -> TokenUse {
    TokenUse::Accepted { issued, until: 0 }
}

#[tokio::test]
async fn a_token_is_good_once_and_its_bearer_is_a_member() {
    let store = store();
    for (name, id, request, now, good) in [
        ("first", 1, 7, 50, accepted(50)),
        ("used before", 1, 8, 50, TokenUse::UsedBefore),
        ("the same request again", 1, 7, 51, accepted(51)),
        ("another token", 2, 8, 50, accepted(50)),
        ("the first request, after the other token", 1, 7, 51, TokenUse::UsedBefore),
        ("forgotten once it has expired", 3, 8, 101, accepted(101)),
    ] {
        let result = use_token(&store, ([id; 16], used(request)), None, &identity(ANNA), now).await;
        assert_eq!(result, Ok(good), "{name}");
    }
    let tokens = store.range(TOKENS).await.unwrap().records;
    assert_eq!(tokens.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>(), [token_key([3; 16])]);
    assert!(is_member(&store, &identity(ANNA)).await.unwrap());
    assert!(!is_member(&store, &identity(BERTA)).await.unwrap());
}

/// Whoever has a token chooses the names, and the counted joins are bounded.
#[tokio::test]
async fn a_join_is_counted_only_if_it_is_accepted() {
    let store = store();
    let node = |name: &str| format!("isthmus:///agent/alpha/{name}/anna");
    let counted = Cell::new(0);
    let may = || {
        counted.set(counted.get() + 1);
        counted.get() <= 3
    };
    for (case, id, request, places, uri, want, count) in [
        ("a node", 1, 1, Some(1), node("n1"), accepted(50), 1),
        ("one more", 1, 2, Some(1), node("n2"), TokenUse::UsedUp(1), 1),
        ("again", 1, 3, Some(1), node("n1"), accepted(50), 2),
        ("another owner's name", 2, 4, None, BERTA.to_owned(), TokenUse::NameTaken(node("n1")), 2),
        ("a token for one", 3, 5, None, node("n3"), accepted(50), 3),
        ("it was used before", 3, 6, None, node("n4"), TokenUse::UsedBefore, 3),
        ("too often", 3, 5, None, node("n3"), TokenUse::TooOften, 4),
    ] {
        let token = ([id; 16], used(request));
        let identity = identity(&uri);
        let result = super::use_token(&store, &admission(token, places, &identity), 50, may).await;
        assert_eq!((result, counted.get()), (Ok(want), count), "{case}");
    }
}

#[tokio::test]
async fn a_site_s_token_is_good_for_its_nodes_and_gateways() {
    let store = store();
    let node = |name: &str| format!("isthmus:///agent/alpha/{name}/anna");
    let gateway = |name: &str| format!("isthmus:///gateway/alpha/{name}/");
    for (case, uri, request, want) in [
        ("a node", node("n1"), 1, accepted(50)),
        ("another", node("n2"), 2, accepted(50)),
        ("it has lost its identity", node("n1"), 3, accepted(50)),
        ("too many", node("n3"), 4, TokenUse::UsedUp(2)),
    ] {
        let result = use_token(&store, ([1; 16], used(request)), Some(2), &identity(&uri), 50).await;
        assert_eq!(result, Ok(want), "{case}");
    }
    for (case, uri, places, want) in [
        ("no gateways", gateway("gateway"), 0, TokenUse::UsedUp(0)),
        ("gateways count apart", gateway("gateway"), 1, accepted(50)),
        ("too many", gateway("login1"), 1, TokenUse::UsedUp(1)),
        ("the same again", gateway("gateway"), 1, accepted(50)),
        ("another", gateway("login1"), 2, accepted(50)),
        ("still too many nodes", node("n3"), 2, TokenUse::UsedUp(2)),
    ] {
        let result = use_token(&store, ([1; 16], used(5)), Some(places), &identity(&uri), 50).await;
        assert_eq!(result, Ok(want), "{case}");
    }
    assert_eq!(revoke_now(&store, "n1.alpha", KEEP_TOKEN, 55).await.token_ends, Some(100));
    let again = use_token(&store, ([1; 16], used(7)), Some(2), &identity(&node("n1")), 60).await;
    assert_eq!(again, Ok(TokenUse::UsedBefore), "revoked");
    let other =
        use_token(&store, ([2; 16], used(9)), None, &identity("isthmus:///agent/beta/n1/anna"), 101).await;
    assert_eq!(other, Ok(accepted(101)));
    let left = store.range(TOKENS).await.unwrap().records.len();
    assert_eq!(left, 1, "all of it is forgotten once it has expired");
}

/// A party that is revoked still has the site's token, and must not come back under another name.
#[tokio::test]
async fn a_revocation_closes_the_site_s_token() {
    let (n1, n2) = ("isthmus:///agent/alpha/n1/anna", "isthmus:///agent/alpha/n2/anna");
    let join = async |store: &Memory, id: u8, nodes, uri: &str| {
        use_token(store, ([id; 16], used(id)), nodes, &identity(uri), 50).await.unwrap()
    };
    for remove in [false, true] {
        let store = store();
        for uri in [n1, "isthmus:///gateway/alpha/gateway/"] {
            assert_eq!(join(&store, 1, Some(4), uri).await, accepted(50));
        }
        let how = How { remove, keep_token: true };
        assert_eq!(revoke_now(&store, "n1.alpha", how, 55).await.token_ends, Some(100), "it is told");
        assert_eq!(join(&store, 1, Some(4), n2).await, accepted(50), "it was kept");
        let how = How { remove, keep_token: false };
        assert_eq!(revoke_now(&store, "n2.alpha", how, 55).await.token_ends, Some(100));
        for uri in [n1, n2, "isthmus:///agent/alpha/n3/anna", "isthmus:///gateway/alpha/gateway/"] {
            assert_eq!(join(&store, 1, Some(4), uri).await, TokenUse::Closed, "{uri}");
        }
        assert!(is_member(&store, &identity("isthmus:///gateway/alpha/gateway/")).await.unwrap());
        assert_eq!(revoke_now(&store, "gateway.alpha", how, 56).await.token_ends, None, "closed already");
        assert_eq!(join(&store, 2, Some(4), n2).await, accepted(56), "a new token");
        assert_eq!(join(&store, 3, None, n1).await, accepted(56), "one for one service");
        assert_eq!(revoke_now(&store, "n1.alpha", how, 57).await.token_ends, None);
        assert_eq!(revoke_now(&store, "n2.alpha", how, 101).await.token_ends, None, "over by itself");
    }
}

/// As many nodes at once as a token is good for, and an additional node.
#[tokio::test]
async fn nodes_that_join_at_once_are_counted() {
    let store = Arc::new(store());
    let joins = (0..33).map(|node| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let uri = format!("isthmus:///agent/alpha/n{node}/anna");
            use_token(&*store, ([1; 16], used(node)), Some(32), &identity(&uri), 50).await.unwrap()
        })
    });
    let mut good = 0;
    for join in joins.collect::<Vec<_>>() {
        good += usize::from(join.await.unwrap() == accepted(50));
    }
    assert_eq!(good, 32);
}

#[tokio::test]
async fn a_name_belongs_to_its_owner() {
    let store = store();
    let taken = || TokenUse::NameTaken(ANNA.to_owned());
    for (case, id, uri, want) in [
        ("new", 1, ANNA, accepted(50)),
        ("the same owner again", 2, ANNA, accepted(50)),
        ("another owner", 3, BERTA, taken()),
        ("the refused join did not use up the token", 3, "isthmus:///agent/alpha/n2/berta", accepted(50)),
        ("the same name at another site", 4, "isthmus:///agent/beta/n1/berta", accepted(50)),
    ] {
        let result = use_token(&store, ([id; 16], used(id)), None, &identity(uri), 50).await;
        assert_eq!(result, Ok(want), "{case}");
    }
    assert!(is_member(&store, &identity(ANNA)).await.unwrap());
}

/// What happens to the member n1.alpha.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A join with the token and the request of these numbers.
    Join(u8, u8, &'static str),
    /// A renewal of the certificate that was issued at this time.
    Renew(&'static str, u64),
    Revoke,
    Remove,
}

/// A party that holds or recorded an old request or certificate gets nothing by it after a
/// revocation. A new token makes a member.
#[tokio::test]
async fn nothing_from_before_a_revocation_makes_a_member() {
    use Step::{Join, Remove, Renew, Revoke};
    let no = "no";
    let renewed = "renewed 60";
    for (case, steps, last, member) in [
        ("repeated", vec![Join(1, 1, ANNA)], (Join(1, 1, ANNA), "joined 60"), Some(ANNA)),
        ("repeated, revoked", vec![Join(1, 1, ANNA), Revoke], (Join(1, 1, ANNA), no), None),
        ("repeated, removed", vec![Join(1, 1, ANNA), Remove], (Join(1, 1, ANNA), no), None),
        (
            "repeated, removed, taken by another owner",
            vec![Join(1, 1, ANNA), Remove, Join(2, 2, BERTA)],
            (Join(1, 1, ANNA), no),
            Some(BERTA),
        ),
        (
            "repeated, revoked, joined again",
            vec![Join(1, 1, ANNA), Revoke, Join(2, 2, ANNA)],
            (Join(1, 1, ANNA), no),
            Some(ANNA),
        ),
        (
            "repeated, renewed",
            vec![Join(1, 1, ANNA), Renew(ANNA, 50)],
            (Join(1, 1, ANNA), "joined 60"),
            Some(ANNA),
        ),
        ("a new token", vec![Join(1, 1, ANNA), Revoke], (Join(2, 2, ANNA), "joined 60"), Some(ANNA)),
        ("a new owner", vec![Join(1, 1, ANNA), Remove], (Join(2, 2, BERTA), "joined 60"), Some(BERTA)),
        ("a new owner, not removed", vec![Join(1, 1, ANNA), Revoke], (Join(2, 2, BERTA), no), None),
        ("renewal", vec![Join(1, 1, ANNA)], (Renew(ANNA, 50), renewed), Some(ANNA)),
        ("renewal, revoked", vec![Join(1, 1, ANNA), Revoke], (Renew(ANNA, 50), no), None),
        ("renewal, removed", vec![Join(1, 1, ANNA), Remove], (Renew(ANNA, 50), no), None),
        (
            "renewal of the former certificate",
            vec![Join(1, 1, ANNA), Revoke, Join(2, 2, ANNA)],
            (Renew(ANNA, 50), no),
            Some(ANNA),
        ),
        (
            "renewal of the present one",
            vec![Join(1, 1, ANNA), Revoke, Join(2, 2, ANNA)],
            (Renew(ANNA, 51), renewed),
            Some(ANNA),
        ),
        (
            "renewal by the former owner",
            vec![Join(1, 1, ANNA), Remove, Join(2, 2, BERTA)],
            (Renew(ANNA, 51), no),
            Some(BERTA),
        ),
    ] {
        let store = store();
        for step in steps {
            carry_out(&store, step, 50).await;
        }
        assert_eq!(carry_out(&store, last.0, 60).await, last.1, "{case}");
        for uri in [ANNA, BERTA] {
            assert_eq!(is_member(&store, &identity(uri)).await, Ok(member == Some(uri)), "{case}: {uri}");
        }
    }
}

async fn carry_out(store: &dyn Store, step: Step, now: u64) -> String {
    match step {
        Step::Join(id, request, uri) => {
            match use_token(store, ([id; 16], used(request)), None, &identity(uri), now).await.unwrap() {
                TokenUse::Accepted { issued, .. } => format!("joined {issued}"),
                TokenUse::UsedBefore
                | TokenUse::Closed
                | TokenUse::NoPilots
                | TokenUse::TooManyPilots(_)
                | TokenUse::UsedUp(_)
                | TokenUse::NameTaken(_)
                | TokenUse::TooOften => "no".to_owned(),
            }
        }
        Step::Renew(uri, former) => match renew(store, &identity(uri), former, now).await.unwrap() {
            Renewal::Accepted { issued, .. } => format!("renewed {issued}"),
            Renewal::NotMember | Renewal::Revoked { .. } => "no".to_owned(),
        },
        Step::Revoke | Step::Remove => {
            let remove = matches!(step, Step::Remove);
            revoke_now(store, "n1.alpha", How { remove, keep_token: false }, now).await;
            "revoked".to_owned()
        }
    }
}

/// Revocations and certificates of the same second. A certificate that is issued after a revocation
/// is good. The next revocation ends it. A renewal in between does not save it.
#[tokio::test]
async fn revocations_and_certificates_of_one_second_are_told_apart() {
    let store = store();
    let mut token = 0;
    for (joined, former) in [(50, 0), (51, 50), (52, 51)] {
        token += 1;
        assert_eq!(carry_out(&store, Step::Join(token, 1, ANNA), 50).await, format!("joined {joined}"));
        assert_eq!(carry_out(&store, Step::Renew(ANNA, former), 50).await, "no");
        let renewed = format!("renewed {joined}");
        assert_eq!(carry_out(&store, Step::Renew(ANNA, joined), 50).await, renewed);
        let member = revoke_now(&store, "n1.alpha", How::default(), 50).await.member;
        assert_eq!(member.revoked, joined, "the last certificate is revoked");
        assert_eq!(carry_out(&store, Step::Renew(ANNA, joined), 50).await, "no");
    }
}

/// The end of the certificate that the first administrator was made with is not known.
#[tokio::test]
async fn an_end_that_is_not_known_is_none() {
    let admin = identity("isthmus:///admin//admin/");
    let year = validity(Role::Admin).as_secs();
    for (case, record, want) in [
        ("made with the grid", MemberRecord::new(&admin, 0, 0), 0),
        ("made by hand", MemberRecord { ends: year, ..MemberRecord::new(&admin, 0, 0) }, 0),
        ("renewed", MemberRecord::new(&admin, 0, 50), 50 + year),
    ] {
        let store = store();
        let put = Transaction::default().put(member_key("admin"), record.encode_to_vec(), None);
        store.transact(put).await.unwrap();
        let ends: Vec<u64> = members(&store, "").await.unwrap().map(|member| member.ends).collect();
        assert_eq!(ends, [want], "{case}");
    }
}

/// The first administrator has joined by no token. Once the administrator is revoked or removed,
/// neither its certificate nor a new start of the broker brings it back.
#[tokio::test]
async fn the_first_administrator_is_a_member_until_it_is_revoked() {
    let admin = identity("isthmus:///admin//admin/");
    for remove in [false, true] {
        let store = store();
        for _ in 0..2 {
            enrol_first_administrator(&store).await.unwrap();
        }
        assert_eq!(renew(&store, &admin, 40, 50).await, Ok(Renewal::Accepted { issued: 50, until: 0 }));
        enrol_first_administrator(&store).await.unwrap();
        let how = How { remove, keep_token: false };
        let member = revoke_now(&store, "admin", how, 50).await.member;
        assert_eq!((member.name.as_str(), member.issued, member.revoked), ("admin", 50, 50));
        enrol_first_administrator(&store).await.unwrap();
        for former in [40, 50] {
            assert_eq!(renew(&store, &admin, former, 50).await, Ok(Renewal::Revoked { until: 50 }));
        }
        assert!(!is_member(&store, &admin).await.unwrap());
    }
}
