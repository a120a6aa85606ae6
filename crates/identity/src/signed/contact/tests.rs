//! What others may and may not do with a contact that an agent has signed.

use std::time::Duration;

use isthmus_service::clock::unix_seconds;

use super::*;
use crate::Authority;
use crate::authority::SERVICE_VALIDITY;
use crate::credentials::SigningRequest;
use crate::peers::{Peers, Revoked};

const DAY: Duration = Duration::from_secs(24 * 3600);
const N1: &str = "isthmus:///agent/alpha/n1/anna";
const GATEWAY: &str = "isthmus:///gateway/alpha/login1/";
const ADDRESS: &str = "10.0.0.1:7730";
const START: Incarnation = [3; 16];

fn issue(authority: &Authority, uri: &str, at: SystemTime) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let certificate = authority.sign(&identity(uri), request.public_key(), at).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "192.0.2.1:7700").unwrap()
}

fn identity(uri: &str) -> Identity {
    Identity::from_uri(uri).unwrap()
}

fn sign(credentials: &Credentials, gateway: &str) -> proto::SignedContact {
    sign_contact(credentials, &identity(gateway), (7, START), vec![ADDRESS.to_owned()]).unwrap()
}

#[test]
fn a_contact_is_its_agent_s_own() {
    let now = SystemTime::now();
    let authority = Authority::create("demo", now - 40 * DAY).unwrap();
    let forger = Authority::create("demo", now - 40 * DAY).unwrap();
    let (n1, n2) = (issue(&authority, N1, now), issue(&authority, "isthmus:///agent/alpha/n2/bob", now));
    let captured = issue(&authority, GATEWAY, now);
    let verifier = Verifier::new(authority.certificate(), Peers::default()).unwrap();
    let good = sign(&n1, GATEWAY);
    let with = |change: &dyn Fn(&mut proto::SignedContact)| {
        let mut signed = good.clone();
        change(&mut signed);
        signed
    };
    let restated = |change: &dyn Fn(&mut proto::AgentContact)| {
        let mut contact = proto::AgentContact::decode(&*good.contact).unwrap();
        change(&mut contact);
        proto::SignedContact { contact: contact.encode_to_vec(), ..good.clone() }
    };
    let other = sign(&n2, GATEWAY);
    // Signed by another party, with its own certificate.
    let forged = |by: &Credentials| {
        let key = by.certified_key();
        let grid = grid_id(authority.certificate());
        let signature = super::super::sign(&key, &bytes(&grid, &good.contact)).unwrap();
        proto::SignedContact { certificates: certificates(&key), signature, ..good.clone() }
    };
    for (what, signed, want) in [
        ("as it was made", good.clone(), None),
        ("another address", restated(&|it| it.addresses = vec!["10.6.6.6:1".to_owned()]), Some("not signed")),
        ("an address more", restated(&|it| it.addresses.push("10.6.6.6:1".to_owned())), Some("not signed")),
        ("another gateway", restated(&|it| it.gateway.push('2')), Some("not signed")),
        ("a later attachment", restated(&|it| it.attachment += 1), Some("not signed")),
        ("a later start", restated(&|it| it.incarnation[0] += 1), Some("not signed")),
        ("another node", restated(&|it| it.agent = N1.replace("n1", "n2")), Some("not signed")),
        (
            "another one's signature",
            with(&|it| it.signature.clone_from(&other.signature)),
            Some("not signed"),
        ),
        (
            "another one's certificate",
            with(&|it| it.certificates.clone_from(&other.certificates)),
            Some("not signed"),
        ),
        ("no signature", with(&|it| it.signature.clear()), Some("not signed")),
        ("no certificate", with(&|it| it.certificates.clear()), Some("0 certificates")),
        ("a certificate that is none", with(&|it| it.certificates[0] = b"x".to_vec()), Some("not valid")),
        ("signed by another node's agent", forged(&n2), Some("signed by agent n2.alpha")),
        ("signed by its gateway", forged(&captured), Some("signed by gateway login1.alpha")),
        ("of another grid", sign(&issue(&forger, N1, now), GATEWAY), Some("not valid")),
        (
            "of a certificate that has ended",
            sign(&issue(&authority, N1, now - SERVICE_VALIDITY - DAY), GATEWAY),
            Some("not valid"),
        ),
        (
            "for another site's gateway",
            sign(&n1, "isthmus:///gateway/beta/gateway/"),
            Some("as the gateway of"),
        ),
        ("for no gateway", sign(&n1, "isthmus:///relay//r1/"), Some("as the gateway of")),
        ("nothing", proto::SignedContact::default(), Some("0 certificates")),
    ] {
        let verified = verifier.contact(&signed, now);
        match want {
            None => {
                let stated = verified.unwrap();
                assert_eq!((stated.agent.uri().as_str(), stated.attachment), (N1, 7), "{what}");
                assert_eq!(stated.gateway.uri(), GATEWAY, "{what}");
                assert!(stated.names(ADDRESS) && !stated.names("10.6.6.6:1") && !stated.names(""), "{what}");
                assert_eq!((addresses_of(&signed), stated.incarnation), (vec![ADDRESS.to_owned()], START));
            }
            Some(want) => {
                let error = verified.unwrap_err().to_string();
                assert!(error.contains(want), "{what}: {error}");
            }
        }
    }
}

#[test]
fn a_contact_is_signed_anew_with_another_certificate_or_address() {
    let now = SystemTime::now();
    let authority = Authority::create("demo", now).unwrap();
    let n1 = issue(&authority, N1, now);
    let (signed, own) = (sign(&n1, GATEWAY), [ADDRESS.to_owned()]);
    assert!(is_current(&signed, &n1, &own));
    assert!(!is_current(&signed, &n1, &[ADDRESS.to_owned(), "192.0.2.1:7730".to_owned()]));
    let request = SigningRequest::new().unwrap();
    let renewed = authority.sign(n1.identity(), request.public_key(), now).unwrap();
    n1.renew(&request, &renewed).unwrap();
    assert!(!is_current(&signed, &n1, &own) && is_current(&sign(&n1, GATEWAY), &n1, &own));
}

#[test]
fn a_contact_has_few_addresses() {
    let now = SystemTime::now();
    let authority = Authority::create("demo", now).unwrap();
    let n1 = issue(&authority, N1, now);
    let verifier = Verifier::new(authority.certificate(), Peers::default()).unwrap();
    let many = vec![ADDRESS.to_owned(); CONTACT_ADDRESSES + 1];
    let many = sign_contact(&n1, &identity(GATEWAY), (7, START), many).unwrap();
    assert!(verifier.contact(&many, now).unwrap_err().to_string().contains("too many addresses"));
}

#[test]
fn a_contact_tells_the_agent_s_start() {
    let now = SystemTime::now();
    let authority = Authority::create("demo", now).unwrap();
    let n1 = issue(&authority, N1, now);
    let verifier = Verifier::new(authority.certificate(), Peers::default()).unwrap();
    for (incarnation, want) in
        [(vec![], None), (vec![3; 15], None), (vec![3; 17], None), (START.to_vec(), Some(START))]
    {
        let mut contact = proto::AgentContact::decode(&*sign(&n1, GATEWAY).contact).unwrap();
        contact.incarnation = incarnation;
        let (contact, key) = (contact.encode_to_vec(), n1.certified_key());
        let signature =
            super::super::sign(&key, &bytes(&grid_id(authority.certificate()), &contact)).unwrap();
        let signed = proto::SignedContact { contact, certificates: certificates(&key), signature };
        assert_eq!(verifier.contact(&signed, now).ok().map(|stated| stated.incarnation), want);
    }
}

#[test]
fn a_revoked_agent_s_contact_is_refused() {
    let now = SystemTime::now();
    let authority = Authority::create("demo", now).unwrap();
    let n1 = issue(&authority, N1, now);
    let peers = Peers::default();
    let verifier = Verifier::new(authority.certificate(), peers.clone()).unwrap();
    assert!(verifier.contact(&sign(&n1, GATEWAY), now).is_ok());
    let issued_until = unix_seconds(now);
    let ends = issued_until + SERVICE_VALIDITY.as_secs();
    peers.revoke([Revoked { identity: Revoked::key(&identity(N1)), issued_until, ends }]).unwrap();
    let error = verifier.contact(&sign(&n1, GATEWAY), now).unwrap_err().to_string();
    assert!(error.contains("are revoked"), "{error}");
}

#[test]
fn a_port_is_signed_for_one_rendezvous() {
    let now = SystemTime::now();
    let authority = Authority::create("demo", now).unwrap();
    let (n1, n2) = (issue(&authority, N1, now), issue(&authority, N1, now));
    let stated = n1.verifier().unwrap().contact(&sign(&n1, GATEWAY), now).unwrap();
    let (id, other): (_, SocketAddr) = (ConnectionId([7; 16]), "198.51.100.9:40000".parse().unwrap());
    let address: SocketAddr = "198.51.100.1:40000".parse().unwrap();
    let good = sign_port(&n1, id, address).unwrap();
    for (what, id, address, signature, want) in [
        ("as it was made", id, address, &good, true),
        ("another rendezvous", ConnectionId([8; 16]), address, &good, false),
        ("another address", id, other, &good, false),
        ("another key's", id, address, &sign_port(&n2, id, address).unwrap(), false),
        ("none", id, address, &Vec::new(), false),
    ] {
        assert_eq!(stated.dials_from(id, address, signature), want, "{what}");
    }
}
