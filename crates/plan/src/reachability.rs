//! Whether a node's agent can be reached from outside its site, by a relay's
//! attempt.

use std::fmt;

/// The result of a relay's attempt to reach an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reachability {
    /// No relay has tried, or no relay could try.
    #[default]
    Unknown,
    /// The relay reached the agent.
    Reachable,
    /// Nothing came back from the agent's address.
    Filtered,
    /// A reset came back from the agent's address.
    Refused,
    /// Another service answered at the agent's address.
    Misdirected,
}

/// Whether an agent can be reached at an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Reach {
    /// What the relay's attempt showed.
    pub result: Reachability,
    /// The address that was tried, `HOST:PORT`; empty if none was tried.
    pub address: String,
    /// The name of the relay that tried.
    pub relay: String,
    /// The cause of the result, for messages.
    pub detail: String,
}

impl Reach {
    /// Whether an attempt has shown that the agent isn't reached at the address.
    pub fn failed(&self) -> bool {
        match self.result {
            Reachability::Unknown | Reachability::Reachable => false,
            Reachability::Filtered | Reachability::Refused | Reachability::Misdirected => true,
        }
    }

    /// The result as a clause, for messages.
    pub fn clause(&self) -> String {
        let Self { address, relay, detail, .. } = self;
        match self.result {
            Reachability::Unknown if detail.is_empty() => "no relay has tried to reach it yet".to_owned(),
            Reachability::Unknown => format!("no relay could try to reach it: {detail}"),
            Reachability::Reachable => format!("relay {relay} reached {address}"),
            Reachability::Filtered | Reachability::Refused | Reachability::Misdirected => {
                format!("relay {relay} could not reach {address}: {detail}")
            }
        }
    }
}

impl fmt::Display for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "unknown",
            Self::Reachable => "reachable",
            Self::Filtered => "filtered",
            Self::Refused => "refused",
            Self::Misdirected => "misdirected",
        })
    }
}
