//! The `[gateway]` section of the configuration.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroUsize;

use isthmus_carry::trunk::Bbr;
use isthmus_net::rails::{self, Rail};
use isthmus_net::relay_places::Network;
use isthmus_wire::proto;
use serde::Deserialize;

use crate::error::GatewayError;

/// Port of gateways by default.
pub const DEFAULT_PORT: u16 = 7710;

/// How a gateway is set up. Everything has a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// The address at which to listen for the site's agents. On a front-end with an outside
    /// interface, give the address of the inside interface.
    pub listen: SocketAddr,
    /// `HOST:PORT` at which the site's nodes reach this gateway, for a site with several gateways.
    /// The default is `listen`. If `listen` is unspecified, it is the address that the first agent
    /// connected to.
    pub address: Option<String>,
    /// What the site lets in. If several gateways declare different values, the
    /// strictest holds.
    pub inbound: Inbound,
    /// The address at which to listen for other sites' agents and gateways; `None` for nowhere.
    pub outside: Option<SocketAddr>,
    /// `HOST:PORT` at which other sites reach the port of `outside`. The default is `outside`. If
    /// `outside` is unspecified, it is the address from which the gateway reaches the broker.
    pub outside_address: Option<String>,
    /// Whether the site's nodes can dial out; `None` lets them measure it.
    pub nodes_dial_out: Option<bool>,
    /// How many threads carry data; `None` is one per core.
    pub workers: Option<NonZeroUsize>,
    /// Whether connections between this site and others are measured regularly.
    pub measure: Measure,
    /// Whether this site's gateways keep trunks with the gateways of other sites that keep some,
    /// too. The gateways then encrypt the data of their nodes, and see the plaintext. All gateways
    /// of the site must agree.
    pub site_trunk: bool,
    /// Further links of this machine to other sites. The trunks with other sites use all of them.
    pub rails: Vec<Rail>,
    /// Whether trunks with other sites use BBR for bulk.
    pub bbr: Bbr,
    /// Networks with private addresses, or of this site, in which relays may be. The broker's
    /// host may be private in any case.
    pub relay_networks: Vec<Network>,
    /// What this gateway relays for other sites, if it has a port outside.
    pub relay: RelayConfig,
    /// How many streams a trunk with another site takes before a further trunk is made; `None` is
    /// the default. Tests set fewer.
    #[serde(skip)]
    pub streams_per_trunk: Option<u32>,
}

impl GatewayConfig {
    /// The addresses at which the gateway listens.
    pub fn listening(&self) -> impl Iterator<Item = SocketAddr> {
        [Some(self.listen), self.outside].into_iter().flatten()
    }

    /// Checks that the settings go together.
    ///
    /// # Errors
    /// The first conflict between settings.
    pub fn check(&self) -> Result<(), GatewayError> {
        rails::check(&self.rails).map_err(GatewayError::Rails)?;
        if self.relay.offer && self.relay.connections == 0 {
            return Err(GatewayError::RelaysNothing);
        }
        if !self.rails.is_empty() && !self.site_trunk {
            return Err(GatewayError::Rails("only trunks use them: set `site_trunk = true`".to_owned()));
        }
        match self.outside {
            None if self.outside_address.is_some() => Err(GatewayError::NothingOutside),
            None if rails::addresses(&self.rails).next().is_some() => {
                Err(GatewayError::Rails("one has an `address`, and `outside` is not set".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// What a gateway with a port outside relays for sites that can't reach each other. It carries their
/// encrypted connections only.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayConfig {
    /// Whether it offers itself.
    pub offer: bool,
    /// Most connections at once. Two nodes have three or so between them.
    pub connections: u32,
    /// Most megabits per second in each direction, of all connections together; 0 for no bound.
    pub megabits_per_second: u32,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self { offer: true, connections: 1024, megabits_per_second: 100 }
    }
}

/// Whether connections between this site and others are measured regularly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// They are, unless the broker or the other site has switched measurements off.
    #[default]
    Auto,
    /// They are measured on request only.
    Off,
}

/// What a site lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inbound {
    /// What measurements show: relays try to reach the nodes.
    #[default]
    Auto,
    /// No connections from outside.
    Closed,
    /// Every node's agent port can be reached from anywhere, unless a measurement
    /// shows that it can't.
    Open,
}

impl From<Inbound> for proto::Inbound {
    fn from(inbound: Inbound) -> Self {
        match inbound {
            Inbound::Auto => Self::Auto,
            Inbound::Closed => Self::Closed,
            Inbound::Open => Self::Open,
        }
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        let listen = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into();
        Self {
            listen,
            address: None,
            inbound: Inbound::default(),
            outside: None,
            outside_address: None,
            nodes_dial_out: None,
            workers: None,
            measure: Measure::default(),
            site_trunk: false,
            rails: Vec::new(),
            bbr: Bbr::default(),
            relay_networks: Vec::new(),
            relay: RelayConfig::default(),
            streams_per_trunk: None,
        }
    }
}
