//! Identities of every role, and texts that are none.

use proptest::prelude::*;

use super::*;

fn build(role: &str, site: &str, name: &str, owner: &str) -> Result<Identity, IdentityError> {
    let label = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    let owner = (!owner.is_empty()).then(|| owner.parse().unwrap());
    Identity::new(role.parse()?, label(site), label(name), owner)
}

#[test]
fn names_of_every_role() {
    for ((role, site, name, owner), server_name, uri) in [
        (("broker", "", "", ""), "broker", "isthmus:///broker//broker/"),
        (("gateway", "alpha", "", ""), "gateway.alpha", "isthmus:///gateway/alpha/gateway/"),
        (("gateway", "alpha", "login1", ""), "gateway.alpha", "isthmus:///gateway/alpha/login1/"),
        (("agent", "alpha", "n1", "anna_b"), "n1.alpha", "isthmus:///agent/alpha/n1/anna_b"),
        (("relay", "", "r1", ""), "r1.relay", "isthmus:///relay//r1/"),
        (("admin", "", "", "anna"), "admin", "isthmus:///admin//admin/anna"),
        (("admin", "", "anna", ""), "anna.admin", "isthmus:///admin//anna/"),
    ] {
        let identity = build(role, site, name, owner).unwrap();
        assert_eq!(identity.server_name(), server_name);
        assert_eq!(identity.uri(), uri);
        assert_eq!(Identity::from_uri(uri), Ok(identity));
    }
}

#[test]
fn a_gateway_shows_its_name_only_if_it_has_its_own() {
    for (name, display) in
        [("", "gateway.alpha"), ("gateway", "gateway.alpha"), ("login1", "gateway login1.alpha")]
    {
        assert_eq!(build("gateway", "alpha", name, "").unwrap().to_string(), display);
    }
}

#[test]
fn invalid_identities_are_refused() {
    for (role, site, name) in [
        ("agent", "", "n1"),
        ("agent", "alpha", ""),
        ("agent", "alpha", "gateway"),
        ("agent", "alpha", "relay"),
        ("agent", "relay", "n1"),
        ("gateway", "", ""),
        ("gateway", "broker", ""),
        ("gateway", "alpha", "relay"),
        ("relay", "", ""),
        ("relay", "", "broker"),
        ("relay", "alpha", "r1"),
        ("broker", "alpha", ""),
        ("broker", "", "b1"),
        ("admin", "alpha", "anna"),
        ("admin", "", "broker"),
        ("root", "", ""),
    ] {
        assert!(build(role, site, name, "anna").is_err(), "{role} {site} {name}");
    }
    for uri in [
        "",
        "isthmus:///",
        "isthmus:///admin//admin",
        "isthmus:///admin//admin//",
        "http:///admin//admin/",
        "isthmus:///agent/alpha/n1/",
    ] {
        assert!(Identity::from_uri(uri).is_err(), "{uri}");
    }
    for owner in ["", "a b", "a/b", &"x".repeat(65)] {
        assert!(owner.parse::<Owner>().is_err(), "{owner}");
    }
}

proptest! {
    #[test]
    fn any_text_is_an_identity_or_none_without_panic(uri in "(isthmus:///)?[a-z./]{0,40}") {
        if let Ok(identity) = Identity::from_uri(&uri) {
            prop_assert_eq!(Identity::from_uri(&identity.uri()), Ok(identity));
        }
    }

    #[test]
    fn any_bytes_are_a_certificate_or_none_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Identity::from_certificate(&bytes);
    }
}
