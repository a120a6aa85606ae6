//! What a person can mend, among the reasons why there is no way to another node. A reason that a
//! person can mend is worth reading first. Reasons arrive as texts from other processes, so texts
//! are judged.

/// Words by which the texts of reasons are known that a person can mend, the most telling first.
/// Without a relay most ways are left out. A site without its gateway can't be reached at all.
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

/// The place of a reason among those to be told; the reason with the smallest place comes first.
/// `None` if the reason isn't known, or if no person can mend it within the grid, such as the way
/// of a NAT.
pub fn place(reason: &str) -> Option<usize> {
    MENDED_BY_A_PERSON.iter().position(|words| reason.contains(words))
}

/// Whether the broker's configuration alone leaves no way, so that another try has no other result.
/// If a relay or a gateway is missing, that isn't known: more ways are left out then.
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

    /// Each text must be that of a reason, so a reason whose words change must change here, too.
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
