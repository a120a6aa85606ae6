//! Join tokens: good, changed, expired and forged ones.

use super::*;
use proptest::prelude::*;

fn invitation(role: Role, site: Option<&str>, name: Option<&str>) -> Invitation {
    Invitation {
        grid: "demo".to_owned(),
        role,
        site: site.map(|site| site.parse().unwrap()),
        name: name.map(|name| name.parse().unwrap()),
        owner: "anna".parse().ok(),
        expires: SystemTime::now() + Duration::from_secs(60),
        broker: "broker.example.org:7700".to_owned(),
    }
}

fn authority() -> Authority {
    Authority::create("demo", SystemTime::now()).unwrap()
}

#[test]
fn a_token_grants_its_invitation() {
    let authority = authority();
    let text = JoinToken::mint(&authority, &invitation(Role::Agent, Some("alpha"), Some("n1"))).unwrap();
    let token = JoinToken::read(&format!("{text}\n")).unwrap();
    assert_eq!(token.invitation.broker, "broker.example.org:7700");
    assert_eq!(JoinToken::verify(&text, &authority, SystemTime::now()), Ok(token.clone()));
    let n2: Label = "n2".parse().unwrap();
    assert_eq!(token.identity(None).unwrap().server_name(), "n1.alpha");
    assert!(matches!(token.identity(Some(n2)), Err(TokenError::OtherName { .. })));
}

#[test]
fn a_token_without_a_name_leaves_the_choice() {
    let text = JoinToken::mint(&authority(), &invitation(Role::Agent, Some("alpha"), None)).unwrap();
    let token = JoinToken::read(&text).unwrap();
    assert_eq!(token.identity("n7".parse().ok()).unwrap().server_name(), "n7.alpha");
    assert!(token.identity(None).is_err());
    assert!(token.identity("gateway".parse().ok()).is_err());
}

#[test]
fn expired_forged_and_changed_tokens() {
    let authority = authority();
    let text = JoinToken::mint(&authority, &invitation(Role::Gateway, Some("alpha"), None)).unwrap();
    let late = SystemTime::now() + Duration::from_secs(3 * 3600);
    let error = JoinToken::verify(&text, &authority, late).unwrap_err();
    assert_eq!(error.to_string(), "the join token expired 2 h ago; ask for a new one (isthmus grid invite)");

    let other = Authority::create("demo", SystemTime::now()).unwrap();
    assert_eq!(JoinToken::verify(&text, &other, SystemTime::now()), Err(TokenError::Forged));

    for changed in
        [&text[..text.len() - 3], &text.replace("token-1.e", "token-1.f"), "", "a.b.c", "isthmus-token-1"]
    {
        assert!(matches!(JoinToken::read(changed), Err(TokenError::Malformed(_))), "{changed}");
    }
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
        assert!(JoinToken::mint(&authority(), &invitation(role, site, name)).is_err(), "{role}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_token_or_none_without_panic(text in "(isthmus-token-1\\.)?[a-zA-Z0-9_.-]{0,80}") {
        prop_assert!(JoinToken::read(&text).is_err());
    }
}
