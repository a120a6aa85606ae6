//! Credentials on disk, and their renewal.

use super::*;
use crate::Authority;
use crate::authority::SERVICE_VALIDITY;

fn issue(authority: &Authority, uri: &str) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let identity = Identity::from_uri(uri).unwrap();
    let certificate = authority.sign_request(&identity, &request.der, SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "192.0.2.1:7700").unwrap()
}

#[test]
fn saved_and_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let missing = Credentials::load(&state).unwrap_err().to_string();
    assert!(missing.contains("isthmus join"), "{missing}");
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let credentials = issue(&authority, "isthmus:///agent/alpha/n1/anna");
    credentials.save(&state).unwrap();
    let loaded = Credentials::load(&state).unwrap();
    assert_eq!(loaded.identity(), credentials.identity());
    assert_eq!(loaded.upstream(), "192.0.2.1:7700");
    assert!(!format!("{loaded:?} {:?}", loaded.0.current).contains("PRIVATE"));
}

#[test]
fn renewal_refuses_another_identity() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let credentials = issue(&authority, "isthmus:///agent/alpha/n1/anna");
    let sign = |uri: &str, request: &SigningRequest, at: SystemTime| {
        authority.sign_request(&Identity::from_uri(uri).unwrap(), &request.der, at).unwrap()
    };
    let first_due = credentials.renewal_due();
    let request = SigningRequest::new().unwrap();
    let later = SystemTime::now() + SERVICE_VALIDITY / 2;
    credentials.renew(&request, &sign("isthmus:///agent/alpha/n1/anna", &request, later)).unwrap();
    assert!(credentials.renewal_due() > first_due);
    assert!(credentials.renew(&request, &sign("isthmus:///agent/alpha/n2/anna", &request, later)).is_err());
    let other = SigningRequest::new().unwrap();
    let foreign = sign("isthmus:///agent/alpha/n1/anna", &other, later);
    assert!(credentials.renew(&request, &foreign).is_err(), "a certificate of another key");
    assert!(credentials.check(SystemTime::now()).is_ok());
    assert!(credentials.check(SystemTime::now() + SERVICE_VALIDITY * 2).is_err());
}

/// The connection that refuses the certificate may break before a call learns why.
#[test]
fn a_service_whose_certificate_was_refused_as_revoked_says_so() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let credentials = issue(&authority, "isthmus:///gateway/alpha/login1/");
    let broke = "the connection broke: connection closed";
    let revoked = || credentials.attachment().watch().borrow().revoked;
    credentials.attaching();
    assert_eq!((credentials.not_attached(broke).as_str(), revoked()), (broke, false));
    credentials.attaching();
    credentials.peers().set_revoked_here(true);
    assert_eq!((credentials.not_attached(broke).as_str(), revoked()), (REVOKED_HERE, true));
    credentials.attaching();
    credentials.attachment().begun();
    assert_eq!((credentials.not_attached(broke).as_str(), revoked()), (broke, false));
}
