//! The `[broker]` section of the configuration.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use isthmus_wire::{Label, NameError};
use serde::Deserialize;

/// Port of brokers by default.
pub const DEFAULT_PORT: u16 = 7700;

/// How a broker is set up. Everything has a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokerConfig {
    /// Where to listen for gateways and relays.
    pub listen: SocketAddr,
    /// Pairs of sites between which data goes unencrypted.
    pub trusted: Vec<[String; 2]>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let listen = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into();
        Self { listen, trusted: Vec::new() }
    }
}

/// Unordered pairs of sites that trust the network between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedPairs(BTreeSet<(Label, Label)>);

impl TrustedPairs {
    /// Reads the pairs of the configuration.
    ///
    /// # Errors
    /// If one isn't a site's name.
    pub fn new(pairs: &[[String; 2]]) -> Result<Self, NameError> {
        let mut trusted = BTreeSet::new();
        for [a, b] in pairs {
            let (a, b): (Label, Label) = (a.parse()?, b.parse()?);
            trusted.insert((a.clone(), b.clone()));
            trusted.insert((b, a));
        }
        Ok(Self(trusted))
    }

    /// Whether two sites trust the network between them.
    pub fn contains(&self, a: &Label, b: &Label) -> bool {
        self.0.contains(&(a.clone(), b.clone()))
    }

    /// The sites that this one trusts the network to.
    pub fn of<'a>(&'a self, site: &'a Label) -> impl Iterator<Item = &'a Label> {
        self.0.iter().filter(move |(a, _)| a == site).map(|(_, b)| b)
    }
}
