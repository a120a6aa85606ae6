//! The dials: their names, their order, and how far a failure of one reaches.

use std::fmt;

use crate::set::Choice;

/// How one socket between two parties is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dial {
    /// The initiator connects to the acceptor's own address and port.
    Direct,
    /// The initiator connects to an address and port that the acceptor's
    /// firewall or NAT lets in for its node.
    PortRange,
    /// The acceptor connects to the initiator, on the broker's order.
    Reverse,
    /// Both connect to each other at once (TCP simultaneous open, RFC 9293
    /// section 3.5). Each side's NAT or firewall then takes the other's segments
    /// for an answer.
    Punch,
    /// The initiator connects to the acceptor's own address. The agents carry its SYN past the
    /// acceptor's firewall (Traversing TCP).
    Traverse,
    /// Both sides dial out to a relay, which splices the two connections.
    Relay,
    /// Over the trunk that the gateways of the two sites keep. Each node dials its gateway.
    Trunk,
}

impl Choice for Dial {
    /// All dials, cheapest first; the trunk of two sites stands apart.
    const ALL: &'static [Self] = &[
        Self::Direct,
        Self::PortRange,
        Self::Reverse,
        Self::Punch,
        Self::Traverse,
        Self::Relay,
        Self::Trunk,
    ];
}

/// Whose word an address is that a party dials between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vouched {
    /// The acceptor's agent must have signed its own address.
    OwnAddress,
    /// The acceptor's agent must have signed the address that its site lets in for it.
    LetIn,
    /// The acceptor itself dials, signs its port for this connection, or the broker chose the relay
    /// or gateway.
    Otherwise,
}

impl Dial {
    /// Whose word the address is that the initiator dials, end to end.
    pub fn vouched(self) -> Vouched {
        match self {
            Self::Direct | Self::Traverse => Vouched::OwnAddress,
            Self::PortRange => Vouched::LetIn,
            Self::Reverse | Self::Punch | Self::Relay | Self::Trunk => Vouched::Otherwise,
        }
    }

    /// Whether the dial depends on the acceptor's own address or port. Its failure
    /// then counts for that party alone; other failures count for the two sites.
    pub(crate) fn depends_on_acceptor(self) -> bool {
        match self {
            Self::Direct | Self::PortRange => true,
            Self::Reverse | Self::Punch | Self::Traverse | Self::Relay | Self::Trunk => false,
        }
    }
}

/// The name in plans, messages and policies. In the protocol it is the same in
/// capitals, with `DIAL_` before it.
impl fmt::Display for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::PortRange => "port-range",
            Self::Reverse => "reverse",
            Self::Punch => "punch",
            Self::Traverse => "traverse",
            Self::Relay => "relay",
            Self::Trunk => "trunk",
        })
    }
}
