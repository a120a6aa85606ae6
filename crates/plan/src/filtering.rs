//! Which SYNs a NAT or firewall lets in (RFC 4787 section 5, RFC 5382
//! section 4.3).

use std::fmt;

/// Which peers may connect to a port from which a node has connected, or has tried to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Filtering {
    /// The filtering was not measured, or the measurements don't show it.
    #[default]
    Unknown,
    /// Endpoint-independent filtering, or none: every peer.
    EndpointIndependent,
    /// Address-dependent filtering: peers at the address that the node sent to.
    AddressDependent,
    /// Address- and port-dependent filtering: peers at the address and port that
    /// the node sent to.
    PortDependent,
    /// No peer: the filter keeps no state and drops segments with SYN and without
    /// ACK.
    Stateless,
}

impl Filtering {
    /// All kinds of filtering.
    pub const ALL: [Self; 5] = [
        Self::Unknown,
        Self::EndpointIndependent,
        Self::AddressDependent,
        Self::PortDependent,
        Self::Stateless,
    ];
}

/// What a filter does with a SYN that it doesn't let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unsolicited {
    /// The filter was not measured, or lets every SYN in.
    #[default]
    Unknown,
    /// The filter drops the SYN without an answer.
    Dropped,
    /// The SYN is answered by a reset.
    Reset,
}

/// What a simultaneous open between a node and a relay showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Simultaneous {
    /// The relay's SYN was let in.
    LetIn,
    /// The relay's SYN was dropped more than once. Its answer to the node's own
    /// SYN, from the same address and port, was let in.
    OnlyAnswered,
}

/// Results of SYNs that were sent to a port from which the node had connected to a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Observed {
    /// Whether there is a NAT. A NAT keeps state, however it filters.
    pub translated: bool,
    /// Whether another relay's SYN was let in; `None` if no other relay tried.
    pub from_other_address: Option<bool>,
    /// Whether a SYN was let in that the relay sent from another port; `None` if it sent none.
    pub from_other_port: Option<bool>,
    /// What a simultaneous open with the relay showed; `None` if none was tried.
    pub simultaneous: Option<Simultaneous>,
}

impl Filtering {
    /// Concludes the kind of filtering from the results of SYNs.
    pub fn of(observed: &Observed) -> Self {
        match (observed.from_other_address, observed.from_other_port, observed.simultaneous) {
            (Some(true), ..) => Self::EndpointIndependent,
            (Some(false), Some(true), _) => Self::AddressDependent,
            (_, Some(false), Some(Simultaneous::LetIn)) => Self::PortDependent,
            (_, Some(false), None) if observed.translated => Self::PortDependent,
            (_, Some(false), Some(Simultaneous::OnlyAnswered)) => Self::Stateless,
            // With one relay alone it is unknown whether another relay would be let in.
            (None, Some(true), _) | (_, Some(false), None) | (_, None, _) => Self::Unknown,
        }
    }
}

impl fmt::Display for Filtering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "unknown",
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressDependent => "address-dependent",
            Self::PortDependent => "address- and port-dependent",
            Self::Stateless => "stateless",
        })
    }
}

impl fmt::Display for Unsolicited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "unknown",
            Self::Dropped => "dropped",
            Self::Reset => "reset",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filtering_follows_from_observations() {
        use Simultaneous::{LetIn, OnlyAnswered};
        let (yes, no) = (Some(true), Some(false));
        for (name, translated, from_other_address, from_other_port, simultaneous, want) in [
            ("nothing tried", false, None, None, None, Filtering::Unknown),
            ("every peer", false, yes, yes, None, Filtering::EndpointIndependent),
            ("a full-cone NAT", true, yes, yes, None, Filtering::EndpointIndependent),
            ("the address sent to, from any port", true, no, yes, None, Filtering::AddressDependent),
            ("one relay only, let in", false, None, yes, None, Filtering::Unknown),
            ("one relay only, kept out by a NAT", true, None, no, None, Filtering::PortDependent),
            ("a NAT", true, no, no, None, Filtering::PortDependent),
            ("a stateful firewall", false, no, no, Some(LetIn), Filtering::PortDependent),
            ("a stateless firewall", false, no, no, Some(OnlyAnswered), Filtering::Stateless),
            ("a stateless firewall, one relay", false, None, no, Some(OnlyAnswered), Filtering::Stateless),
            ("a firewall, not tried at once", false, no, no, None, Filtering::Unknown),
            ("the same relay couldn't try", true, no, None, None, Filtering::Unknown),
        ] {
            let observed = Observed { translated, from_other_address, from_other_port, simultaneous };
            assert_eq!(Filtering::of(&observed), want, "{name}");
        }
    }
}
