//! What a person can mend, among the reasons why there is no way to another node: such a
//! reason is worth reading first. Reasons arrive as texts from other processes, so texts
//! are judged.

/// What the texts of such reasons have, the most telling first: without a relay most ways
/// are left out; a site without its gateway can't be reached at all.
const MENDED_BY_A_PERSON: [&str; 8] = [
    "no relay is attached to the broker",
    "is not attached to the broker",
    "by the broker's configuration",
    "is declared open, but",
    "is declared as let in for the node, but",
    "is not reached at its port outside",
    "can't reach each other",
    "may not send raw packets",
];

/// The place of a reason among others: small ones first. None if no person can mend it
/// within the grid, such as the way of a NAT, or if it isn't known.
pub fn place(reason: &str) -> Option<usize> {
    MENDED_BY_A_PERSON.iter().position(|words| reason.contains(words))
}

/// Whether there is no way by the broker's configuration, so that another try has no other
/// result. Without a relay or a gateway, nobody knows: more ways are left out then.
pub fn is_forbidden(reasons: &str) -> bool {
    let [no_relay, no_gateway, forbidden, ..] = MENDED_BY_A_PERSON;
    reasons.contains(forbidden) && !reasons.contains(no_relay) && !reasons.contains(no_gateway)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reach, Reason};

    #[test]
    fn what_is_forbidden_stays_so() {
        let (initiator, acceptor) = ("alpha".to_owned(), "beta".to_owned());
        let forbidden = Reason::Forbidden { initiator, acceptor }.to_string();
        let (no_relay, closed) = (Reason::NoRelay, Reason::LetsNothingIn { site: "beta".to_owned() });
        for (reasons, want) in [
            (forbidden.clone(), true),
            (format!("{forbidden} (left out: punch); direct left out: {closed}"), true),
            (format!("{no_relay}; {forbidden}"), false),
            (format!("direct: no answer; {closed}"), false),
        ] {
            assert_eq!(is_forbidden(&reasons), want, "{reasons}");
        }
    }

    /// Each text is that of a reason: a reason whose words change must change here.
    #[test]
    fn reasons_that_a_person_can_mend_have_places() {
        let (alpha, beta) = (|| "alpha".to_owned(), || "beta".to_owned());
        let both = || (alpha(), beta());
        let forbidden = || {
            let (initiator, acceptor) = both();
            Reason::Forbidden { initiator, acceptor }
        };
        let no_carrier = || {
            let (initiator, acceptor) = both();
            Reason::NoCarrier { initiator, acceptor }
        };
        for (reason, want) in [
            (Reason::NoRelay, Some(0)),
            (Reason::NoRelayForBoth, Some(0)),
            (Reason::NoRelayForInitiator, Some(0)),
            (Reason::Detached { site: beta() }, Some(1)),
            (forbidden(), Some(2)),
            (Reason::DeclaredOpen { site: beta(), found: Reach::default() }, Some(3)),
            (Reason::PortNotReached { found: Reach::default() }, Some(4)),
            (Reason::GatewayNotReached { site: beta(), found: Reach::default() }, Some(5)),
            (no_carrier(), Some(6)),
            (Reason::NoRawPackets { site: beta() }, Some(7)),
            (Reason::LetsNothingIn { site: beta() }, None),
            (Reason::PortPerDestination { site: beta() }, None),
            (Reason::EverythingLetIn { site: beta() }, None),
            (Reason::Received("the relay answers: no relay is attached to the broker".to_owned()), Some(0)),
        ] {
            assert_eq!(place(&reason.to_string()), want, "{reason}");
        }
    }
}
