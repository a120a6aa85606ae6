//! An announcement of a node: what its gateway says of it, against what its agent has signed.

use std::time::SystemTime;

use isthmus_identity::Identity;
use isthmus_identity::signed::Verifier;
use isthmus_registry::Refused;
use isthmus_wire::{Label, proto};

/// Verifies an announcement by what the node's agent has signed: its identity, the gateway and the
/// addresses. The attachment's number is taken from the agent, too.
///
/// # Errors
/// If the gateway says something else than the agent, or shows nothing of the agent.
pub(crate) fn verified(
    verifier: &Verifier,
    (agent, gateway): (&Identity, &Identity),
    up: proto::NodeUp,
    now: SystemTime,
) -> Result<proto::NodeUp, Refused> {
    let Some(signed) = &up.signed else {
        return Err(Refused("its agent hasn't signed where it is".to_owned()));
    };
    let refused = |reason: String| Refused(format!("what its agent has signed is refused: {reason}"));
    let stated = verifier.contact(signed, now).map_err(|error| refused(error.to_string()))?;
    if stated.agent != *agent {
        return Err(refused(format!("it is that of {}, not of {agent}", stated.agent)));
    }
    if stated.gateway != *gateway {
        return Err(refused(format!("it is for {}, not for {gateway}", stated.gateway)));
    }
    let named = [&up.address, &up.outside_address].into_iter().filter(|address| !address.is_empty());
    if let Some(other) = named.into_iter().find(|address| !stated.names(address)) {
        return Err(refused(format!("it names {}, not {other}", stated.addresses.join(", "))));
    }
    Ok(proto::NodeUp { attachment: stated.attachment, ..up })
}

/// The name of the audit log's event for an announcement. `None` if the node has only been
/// announced again, as a gateway does whenever it attaches. `before` is where the node was
/// attached.
pub(crate) fn event(before: Option<&(Label, u64)>, now: (&Label, u64)) -> Option<&'static str> {
    match before {
        Some((gateway, attachment)) if (gateway, *attachment) == now => None,
        Some((gateway, _)) if gateway != now.0 => Some("move"),
        Some(_) | None => Some("node"),
    }
}

#[cfg(test)]
mod tests {
    use isthmus_identity::credentials::SigningRequest;
    use isthmus_identity::peers::Peers;
    use isthmus_identity::signed::contact::sign_contact;
    use isthmus_identity::{Authority, Credentials};

    use super::*;

    fn identity(uri: &str) -> Identity {
        Identity::from_uri(uri).unwrap()
    }

    fn credentials(authority: &Authority, uri: &str, now: SystemTime) -> Credentials {
        let request = SigningRequest::new().unwrap();
        let certificate = authority.sign(&identity(uri), request.public_key(), now).unwrap();
        Credentials::new(&request, &certificate, authority.certificate_pem(), "broker:7700").unwrap()
    }

    #[test]
    fn a_gateway_says_what_the_agent_says() {
        let now = SystemTime::now();
        let authority = Authority::create("demo", now).unwrap();
        let verifier = Verifier::new(authority.certificate(), Peers::default()).unwrap();
        let (n1, n2) = ("isthmus:///agent/alpha/n1/anna", "isthmus:///agent/alpha/n2/anna");
        let (first, second) = ("isthmus:///gateway/alpha/login1/", "isthmus:///gateway/alpha/login2/");
        let sign = |agent: &str, gateway: &str| {
            let addresses = ["10.0.0.1:7730", "192.0.2.1:7730"].map(str::to_owned);
            sign_contact(
                &credentials(&authority, agent, now),
                &identity(gateway),
                (7, [0; 16]),
                addresses.into(),
            )
        };
        let good = sign(n1, first).unwrap();
        let up = proto::NodeUp {
            address: "10.0.0.1:7730".to_owned(),
            outside_address: "192.0.2.1:7730".to_owned(),
            signed: Some(good.clone()),
            // A gateway's word for it.
            attachment: 1 << 62,
            ..proto::NodeUp::default()
        };
        let with = |change: &dyn Fn(&mut proto::NodeUp)| {
            let mut up = up.clone();
            change(&mut up);
            up
        };
        let forged = proto::SignedContact { signature: vec![1; 72], ..good };
        for (what, up, want) in [
            ("as the agent has it", up.clone(), Ok(7)),
            ("not let in", with(&|up| up.outside_address.clear()), Ok(7)),
            ("by its gateway's word", with(&|up| up.signed = None), Err("hasn't signed where it is")),
            ("at another address", with(&|up| up.address = "10.6.6.6:1".to_owned()), Err("not 10.6.6.6:1")),
            (
                "let in at another address",
                with(&|up| up.outside_address = "198.51.100.6:1".to_owned()),
                Err("not 198.51.100.6:1"),
            ),
            (
                "for another gateway",
                with(&|up| up.signed = sign(n1, second).ok()),
                Err("it is for gateway login2"),
            ),
            (
                "another node's",
                with(&|up| up.signed = sign(n2, first).ok()),
                Err("it is that of agent n2.alpha"),
            ),
            ("forged", with(&|up| up.signed = Some(forged.clone())), Err("it is not signed by the key")),
        ] {
            let verified = verified(&verifier, (&identity(n1), &identity(first)), up.clone(), now);
            match (verified, want) {
                (Ok(got), Ok(attachment)) => assert_eq!(got, proto::NodeUp { attachment, ..up }, "{what}"),
                (Err(refused), Err(want)) => assert!(refused.0.contains(want), "{what}: {refused}"),
                (got, want) => panic!("{what}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn attachments_and_moves_are_events_and_repeats_are_none() {
        let (a, b): (Label, Label) = ("a".parse().unwrap(), "b".parse().unwrap());
        for (before, now, want) in [
            (None, (&a, 1), Some("node")),
            (Some((a.clone(), 1)), (&a, 1), None),
            (Some((a.clone(), 1)), (&a, 2), Some("node")),
            (Some((a.clone(), 1)), (&b, 2), Some("move")),
        ] {
            assert_eq!(event(before.as_ref(), now), want, "{before:?} {now:?}");
        }
    }
}
