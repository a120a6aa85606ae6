//! The party at the other end of a rendezvous.

use std::fmt;
use std::net::Ipv4Addr;

use isthmus_wire::{DecodeError, GridName};

use super::fields::malformed;

/// The party at the other end: a node dials nodes, a gateway dials gateways of other sites.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The node that has this virtual address.
    Node(Ipv4Addr),
    /// The gateway that has this grid name.
    Gateway(GridName),
}

impl Peer {
    /// The virtual address of a node; `None` for a gateway.
    pub fn node(&self) -> Option<Ipv4Addr> {
        match self {
            Self::Node(address) => Some(*address),
            Self::Gateway(_) => None,
        }
    }

    /// Reads a peer, which a message has in one of two fields.
    pub(super) fn read(message: &'static str, node: u32, gateway: &str) -> Result<Self, DecodeError> {
        match (node, gateway) {
            (_, "") => Ok(Self::Node(node.into())),
            (0, gateway) => {
                let name = gateway.parse();
                let name = name.map_err(|_| malformed(message, "a gateway without a grid name"))?;
                Ok(Self::Gateway(name))
            }
            _ => Err(malformed(message, "both a node and a gateway")),
        }
    }

    /// The two fields that a message has for a peer.
    pub(super) fn fields(&self) -> (u32, String) {
        match self {
            Self::Node(address) => ((*address).into(), String::new()),
            Self::Gateway(name) => (0, name.to_string()),
        }
    }
}

impl From<Ipv4Addr> for Peer {
    fn from(address: Ipv4Addr) -> Self {
        Self::Node(address)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(address) => address.fmt(f),
            Self::Gateway(name) => write!(f, "gateway {name}"),
        }
    }
}
