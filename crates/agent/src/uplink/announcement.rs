//! What this agent announces of its node, and signs: which gateway it is attached to, where
//! other nodes reach it, and when it was started. The gateway passes that on, and can change none
//! of it.

use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::signed::contact::{Incarnation, is_current, sign_contact};
use isthmus_identity::{Credentials, Identity};
use isthmus_wire::proto;

/// This node's announcement, signed for a gateway with the number of the attachment and this
/// agent's incarnation.
///
/// # Errors
/// If the key can't sign.
pub(super) fn signed(
    node_up: &proto::NodeUp,
    credentials: &Credentials,
    gateway: &Identity,
    (attachment, incarnation): (u64, Incarnation),
) -> Result<proto::NodeUp, CredentialsError> {
    let signed = sign_contact(credentials, gateway, (attachment, incarnation), addresses(node_up))?;
    Ok(proto::NodeUp { attachment, signed: Some(signed), ..node_up.clone() })
}

/// Whether the signed part of the last announcement is of a former certificate, or lacks an
/// address.
pub(super) fn is_outdated(node_up: &proto::NodeUp, credentials: &Credentials) -> bool {
    let current = |signed| is_current(signed, credentials, &addresses(node_up));
    !node_up.signed.as_ref().is_some_and(current)
}

/// The addresses at which the agent is reached, at most three: its own, a declared one, and one at
/// which a relay has reached it. A declared address is that at which its ports are let in.
fn addresses(node_up: &proto::NodeUp) -> Vec<String> {
    let found = node_up.seen.as_ref().and_then(|seen| seen.outside.as_ref());
    let found = found.filter(|found| found.result() == proto::Reachability::Reachable);
    let all = [Some(&node_up.address), Some(&node_up.outside_address), found.map(|found| &found.address)];
    let mut addresses: Vec<String> =
        all.into_iter().flatten().filter(|address| !address.is_empty()).cloned().collect();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use isthmus_identity::Authority;
    use isthmus_identity::credentials::SigningRequest;

    use super::*;

    const ADDRESS: &str = "10.0.0.1:7730";

    #[test]
    fn an_announcement_names_each_way_in_and_its_gateway() {
        let now = SystemTime::now();
        let authority = Authority::create("demo", now).unwrap();
        let request = SigningRequest::new().unwrap();
        let identity = Identity::from_uri("isthmus:///agent/alpha/n1/anna").unwrap();
        let certificate = authority.sign(&identity, request.public_key(), now).unwrap();
        let own = Credentials::new(&request, &certificate, authority.certificate_pem(), "fe:7710").unwrap();
        let gateway = Identity::from_uri("isthmus:///gateway/alpha/login1/").unwrap();
        let reached = |result: proto::Reachability| proto::Seen {
            outside: Some(proto::Reach {
                result: result.into(),
                address: "192.0.2.1:7730".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let up = |outside: &str, result| proto::NodeUp {
            address: ADDRESS.to_owned(),
            outside_address: outside.to_owned(),
            seen: Some(reached(result)),
            ..Default::default()
        };
        use proto::Reachability::{Filtered, Reachable};
        for (up, want) in [
            (up("", Filtered), &[ADDRESS][..]),
            (up("", Reachable), &[ADDRESS, "192.0.2.1:7730"]),
            (up("gate:7731", Filtered), &[ADDRESS, "gate:7731"]),
            (up("192.0.2.1:7730", Reachable), &[ADDRESS, "192.0.2.1:7730"]),
            (up(ADDRESS, Filtered), &[ADDRESS]),
        ] {
            assert!(is_outdated(&up, &own), "nothing is signed yet");
            let announced = signed(&up, &own, &gateway, (7, [3; 16])).unwrap();
            assert!(!is_outdated(&announced, &own));
            let stated = own.verifier().unwrap().contact(announced.signed.as_ref().unwrap(), now).unwrap();
            let want = want.iter().map(|&address| address.to_owned()).collect();
            assert_eq!((stated.addresses, stated.attachment, stated.incarnation), (want, 7, [3; 16]));
            assert_eq!((stated.agent, stated.gateway), (identity.clone(), gateway.clone()));
            let changed = proto::NodeUp { outside_address: "gate:1".to_owned(), ..announced };
            assert!(is_outdated(&changed, &own));
        }
    }
}
