//! Join tokens: good, changed, expired and forged ones.

use proptest::prelude::*;

use super::*;
use crate::Authority;
use crate::peers::Peers;

fn invitation(role: Role, site: Option<&str>, name: Option<&str>) -> Invitation {
    Invitation {
        grid: "demo".to_owned(),
        role,
        site: site.map(|site| site.parse().unwrap()),
        name: name.map(|name| name.parse().unwrap()),
        owner: "anna".parse().ok(),
        nodes: None,
        gateways: 0,
        pilot_nodes: 0,
        expires: SystemTime::now() + Duration::from_secs(60),
        broker: "broker.example.org:7700".to_owned(),
    }
}

fn authority() -> CertificateDer<'static> {
    Authority::create("demo", SystemTime::now()).unwrap().certificate().clone()
}

fn key() -> Secret {
    Secret::new([7; 32])
}

/// The request to join that a token's bearer sends.
fn request(text: &str, name: &str, signing_request: &[u8]) -> proto::JoinRequest {
    BearerToken::read(text).unwrap().request(name.to_owned(), signing_request.to_vec(), false).unwrap()
}

fn verify(request: &proto::JoinRequest, join_key: &Secret, now: SystemTime) -> Result<JoinToken, TokenError> {
    let verifier = Verifier::new(&authority(), Peers::default()).unwrap();
    JoinToken::verify(request, join_key, &verifier, now).map(|verified| verified.token)
}

#[test]
fn a_token_grants_its_invitation() {
    let invitation = invitation(Role::Agent, Some("alpha"), Some("n1"));
    let text = JoinToken::mint(&key(), &authority(), &invitation).unwrap();
    let token = BearerToken::read(&format!("{text}\n")).unwrap().public;
    assert_eq!(token.invitation.broker, "broker.example.org:7700");
    let request = request(&text, "n1", b"request");
    assert_eq!(verify(&request, &key(), SystemTime::now()), Ok(token.clone()));
    let n2: Label = "n2".parse().unwrap();
    assert_eq!(token.identity(None, false).unwrap().server_name(), "n1.alpha");
    assert!(matches!(token.identity(Some(n2), false), Err(TokenError::OtherName { .. })));
}

#[test]
fn a_token_without_a_name_leaves_the_choice() {
    let invitation = invitation(Role::Agent, Some("alpha"), None);
    let text = JoinToken::mint(&key(), &authority(), &invitation).unwrap();
    let token = BearerToken::read(&text).unwrap().public;
    assert_eq!(token.identity("n7".parse().ok(), false).unwrap().server_name(), "n7.alpha");
    assert!(token.identity(None, false).is_err());
    assert!(token.identity("gateway".parse().ok(), false).is_err());
}

#[test]
fn a_site_s_token_makes_nodes_and_gateways_only_with_that_right() {
    let one = invitation(Role::Agent, Some("alpha"), None);
    let nodes = Invitation { nodes: Some(16), ..one.clone() };
    let both = Invitation { gateways: 2, ..nodes.clone() };
    assert_eq!(nodes.to_string(), "role agent site alpha name any owner anna nodes 16 gateways 0");
    assert_eq!(both.to_string(), "role agent site alpha name any owner anna nodes 16 gateways 2");
    let pilots = Invitation { pilot_nodes: 64, ..nodes.clone() };
    assert!(pilots.to_string().ends_with("nodes 16 gateways 0 pilots of 64 nodes"));
    let text = JoinToken::mint(&key(), &authority(), &pilots).unwrap();
    assert_eq!(BearerToken::read(&text).unwrap().public.invitation.pilot_nodes, 64);
    let only = "the join token is for nodes of site alpha, and makes no gateway";
    for (invitation, name, gateway, want) in [
        (&both, Some("n7"), false, Ok("isthmus:///agent/alpha/n7/anna")),
        (&both, None, true, Ok("isthmus:///gateway/alpha/gateway/")),
        (&both, Some("login1"), true, Ok("isthmus:///gateway/alpha/login1/")),
        (&nodes, Some("n7"), false, Ok("isthmus:///agent/alpha/n7/anna")),
        (&nodes, None, true, Err(only)),
        (&nodes, Some("login1"), true, Err(only)),
        (&one, None, true, Err("the join token is for a agent, not for a site")),
    ] {
        let text = JoinToken::mint(&key(), &authority(), invitation).unwrap();
        let token = BearerToken::read(&text).unwrap();
        assert_eq!(token.public.invitation.gateways, invitation.gateways);
        let request =
            token.request(name.unwrap_or_default().to_owned(), b"request".to_vec(), gateway).unwrap();
        let verified = verify(&request, &key(), SystemTime::now()).unwrap();
        let identity = verified.identity(name.map(|name| name.parse().unwrap()), gateway);
        match (identity.map(|identity| identity.uri()).map_err(|error| error.to_string()), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{invitation}"),
            (Err(got), Err(want)) => assert!(got.starts_with(want), "{invitation}: {got}"),
            (got, want) => panic!("{invitation}: {got:?}, not {want:?}"),
        }
    }
    for wrong in [
        Invitation { nodes: Some(0), ..one.clone() },
        Invitation { nodes: Some(MOST_NODES + 1), ..one.clone() },
        Invitation { gateways: MOST_GATEWAYS + 1, ..nodes.clone() },
        Invitation { gateways: 1, ..one.clone() },
        Invitation { pilot_nodes: MOST_NODES + 1, ..nodes.clone() },
        Invitation { pilot_nodes: 1, ..invitation(Role::Relay, None, Some("r1")) },
        Invitation { nodes: Some(1), ..invitation(Role::Agent, Some("alpha"), Some("n1")) },
        Invitation { nodes: Some(1), ..invitation(Role::Gateway, Some("alpha"), None) },
    ] {
        assert!(JoinToken::mint(&key(), &authority(), &wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_site_s_token_that_names_no_gateways_makes_none() {
    let nodes = Invitation { nodes: Some(16), ..invitation(Role::Agent, Some("alpha"), None) };
    let text = JoinToken::mint(&key(), &authority(), &nodes).unwrap();
    let payload = text.split('.').nth(1).unwrap();
    let payload = String::from_utf8(URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    assert!(!payload.contains("gateways"), "{payload}");
    let token = BearerToken::read(&text).unwrap().public;
    assert_eq!((token.places(Role::Gateway), token.places(Role::Agent)), (Some(0), Some(16)));
    assert_eq!(token.identity(None, true), Err(TokenError::NodesOnly("alpha".parse().unwrap())));
}

#[test]
fn expired_and_changed_tokens() {
    let invitation = invitation(Role::Gateway, Some("alpha"), None);
    let text = JoinToken::mint(&key(), &authority(), &invitation).unwrap();
    let late = SystemTime::now() + Duration::from_secs(3 * 3600);
    let error = verify(&request(&text, "", b""), &key(), late).unwrap_err();
    assert_eq!(error.to_string(), "the join token expired 2 h ago; ask for a new one (isthmus grid invite)");

    let public = text.rsplitn(3, '.').nth(2).unwrap();
    for changed in [
        &text[..text.len() - 3],
        &text.replace("token-1.e", "token-1.f"),
        public,
        "",
        "a.b.c",
        "a.b.c.d",
        "isthmus-token-1",
    ] {
        assert!(matches!(BearerToken::read(changed), Err(TokenError::Malformed(_))), "{changed}");
    }
}

/// A gateway that passes a request on has the public part and the HMAC.
#[test]
fn the_bearer_alone_decides_the_request() {
    let invitation = invitation(Role::Agent, Some("alpha"), None);
    let text = JoinToken::mint(&key(), &authority(), &invitation).unwrap();
    let other = JoinToken::mint(&key(), &authority(), &invitation).unwrap();
    let good = request(&text, "n1", b"request");
    let public = |text| BearerToken::read(text).unwrap().public_text().to_owned();
    for (what, altered) in [
        ("another key", proto::JoinRequest { signing_request: b"mine".to_vec(), ..good.clone() }),
        ("another name", proto::JoinRequest { name: "n2".to_owned(), ..good.clone() }),
        ("another token", proto::JoinRequest { token: public(&other), ..good.clone() }),
        (
            "name and request joined otherwise",
            proto::JoinRequest {
                name: "n1r".to_owned(),
                signing_request: b"equest".to_vec(),
                ..good.clone()
            },
        ),
        ("another role", proto::JoinRequest { gateway: true, ..good.clone() }),
        ("no HMAC", proto::JoinRequest { mac: Vec::new(), ..good.clone() }),
        ("an HMAC by another key", proto::JoinRequest { mac: vec![0; 32], ..good.clone() }),
    ] {
        let result = verify(&altered, &key(), SystemTime::now());
        assert_eq!(result, Err(TokenError::Forged), "{what}");
    }
    assert!(verify(&good, &key(), SystemTime::now()).is_ok());
    let foreign = verify(&good, &Secret::new([8; 32]), SystemTime::now());
    assert_eq!(foreign, Err(TokenError::Forged), "another grid's broker");
    // The public part has no secret in it.
    assert!(!text[good.token.len()..].is_empty() && !good.token.contains(&text[good.token.len() + 1..]));
}

#[test]
fn invitations_for_invalid_identities_are_refused() {
    for (role, site, name) in [
        (Role::Agent, None, None),
        (Role::Gateway, None, None),
        (Role::Relay, Some("alpha"), None),
        (Role::Agent, Some("alpha"), Some("gateway")),
        (Role::Broker, None, None),
        (Role::Admin, None, None),
    ] {
        assert!(JoinToken::mint(&key(), &authority(), &invitation(role, site, name)).is_err(), "{role}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_token_or_none_without_panic(text in "(isthmus-(token|pilot)-1\\.)?[a-zA-Z0-9_.-]{0,80}") {
        prop_assert!(BearerToken::read(&text).is_err());
        prop_assert!(JoinToken::read(&text).is_err());
    }
}
