//! What a person can mend, among the reasons why there is no way to another node. A reason that a
//! person can mend is worth reading first.

use std::fmt;

use crate::Reason;

/// What a person can do so that there is a way. The most telling comes first: without a relay most
/// ways are left out, and a site without its gateway can't be reached at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// Start a relay.
    StartRelay,
    /// Start a site's gateway.
    StartGateway,
    /// Allow the way in the broker's configuration. While this comes first, another try has no other
    /// result. If a relay or a gateway is missing, that isn't known: more ways are left out then.
    AllowWay,
    /// Let connections in to a site that is declared open, or declare it otherwise.
    OpenSite,
    /// Let connections in to a node's port.
    OpenPort,
    /// Let connections in to a gateway's port outside.
    OpenGatewayPort,
    /// Give the gateways of two sites a way to each other.
    JoinGateways,
    /// Give an agent the right to raw packets.
    AllowRawPackets,
}

/// A reason in the words that users read, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The words.
    pub text: String,
    /// What a person can do; `None` if that isn't known, or if no person can mend it within the
    /// grid, such as the way of a NAT.
    pub remedy: Option<Remedy>,
}

impl Told {
    /// The same reason, with other words around it.
    pub fn within(self, words: impl FnOnce(String) -> String) -> Self {
        Self { text: words(self.text), remedy: self.remedy }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T: Into<String>> From<T> for Told {
    fn from(text: T) -> Self {
        Self { text: text.into(), remedy: None }
    }
}

impl From<&Reason> for Told {
    fn from(reason: &Reason) -> Self {
        Self { text: reason.to_string(), remedy: reason.remedy() }
    }
}

impl Reason {
    /// What a person can do about it, as [`Told::remedy`] has it.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::NoRelay
            | Self::RelayFull { .. }
            | Self::GatewaysJoinNone
            | Self::NoRelayForBoth
            | Self::NoRelayForInitiator => Some(Remedy::StartRelay),
            Self::Detached { .. } => Some(Remedy::StartGateway),
            Self::Forbidden { .. } => Some(Remedy::AllowWay),
            Self::DeclaredOpen { .. } => Some(Remedy::OpenSite),
            Self::PortNotReached { .. } => Some(Remedy::OpenPort),
            Self::GatewayNotReached { .. } => Some(Remedy::OpenGatewayPort),
            Self::NoCarrier { .. } => Some(Remedy::JoinGateways),
            Self::NoRawPackets { .. } => Some(Remedy::AllowRawPackets),
            Self::Measured { why, .. } | Self::NotLetOut { why, .. } | Self::FailedBefore { why, .. } => {
                why.remedy()
            }
            Self::Received(told) => told.remedy,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reach;

    #[test]
    fn reasons_that_a_person_can_mend_have_remedies() {
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
        let before =
            |why: Reason| Reason::FailedBefore { why: Box::new(why), failure: "no answer".to_owned() };
        let received = |remedy| Reason::Received(Told { text: "no relay".to_owned(), remedy });
        for (reason, want) in [
            (Reason::NoRelay, Some(Remedy::StartRelay)),
            (Reason::GatewaysJoinNone, Some(Remedy::StartRelay)),
            (Reason::NoRelayForBoth, Some(Remedy::StartRelay)),
            (Reason::NoRelayForInitiator, Some(Remedy::StartRelay)),
            (Reason::Detached { site: beta() }, Some(Remedy::StartGateway)),
            (forbidden(), Some(Remedy::AllowWay)),
            (Reason::DeclaredOpen { site: beta(), found: Reach::default() }, Some(Remedy::OpenSite)),
            (Reason::PortNotReached { found: Reach::default() }, Some(Remedy::OpenPort)),
            (
                Reason::GatewayNotReached { site: beta(), found: Reach::default() },
                Some(Remedy::OpenGatewayPort),
            ),
            (no_carrier(), Some(Remedy::JoinGateways)),
            (Reason::NoRawPackets { site: beta() }, Some(Remedy::AllowRawPackets)),
            (Reason::LetsNothingIn { site: beta() }, None),
            (Reason::PortPerDestination { site: beta() }, None),
            (Reason::EverythingLetIn { site: beta() }, None),
            (before(forbidden()), Some(Remedy::AllowWay)),
            (received(Some(Remedy::StartRelay)), Some(Remedy::StartRelay)),
            (received(None), None),
        ] {
            assert_eq!(reason.remedy(), want, "{reason}");
            assert_eq!(Told::from(&reason), Told { text: reason.to_string(), remedy: want });
        }
    }

    /// What is only forbidden stays so. Otherwise another try may have another result.
    #[test]
    fn a_missing_relay_or_gateway_is_told_before_what_is_forbidden() {
        use Remedy::{AllowRawPackets, AllowWay, OpenSite, StartGateway, StartRelay};
        for (remedies, want) in [
            (vec![AllowRawPackets, AllowWay, OpenSite], AllowWay),
            (vec![AllowWay, StartGateway], StartGateway),
            (vec![AllowWay, StartGateway, StartRelay], StartRelay),
        ] {
            assert_eq!(remedies.iter().min(), Some(&want), "{remedies:?}");
        }
    }
}
