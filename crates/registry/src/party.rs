//! Addressees of effects, independent of the broker that they are attached to.

use std::fmt;

use isthmus_wire::{Label, RelayName};

/// A service that attaches to a broker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A gateway, by its site and name.
    Gateway {
        /// The site that the gateway serves.
        site: Label,
        /// The gateway's name, which is unique in its site.
        name: Label,
    },
    /// A relay, or the attachment as such of a gateway that relays, by its name, which is unique in
    /// the grid.
    Relay(RelayName),
}

impl Party {
    /// The gateway of this name at a site.
    pub fn gateway(site: &Label, name: &Label) -> Self {
        Self::Gateway { site: site.clone(), name: name.clone() }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway { site, name } => write!(f, "gateway {name} of site {site}"),
            Self::Relay(name) => write!(f, "relay {name}"),
        }
    }
}
