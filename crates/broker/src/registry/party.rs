//! Addressees of effects, independent of the broker that they are attached to.

use std::fmt;

use isthmus_wire::Label;

/// A service that attaches to a broker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Party {
    Gateway { site: Label, name: Label },
    Relay(Label),
}

impl Party {
    pub(crate) fn gateway(site: &Label, name: &Label) -> Self {
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
