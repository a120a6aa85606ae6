//! The `[gateway]` section of the configuration.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroUsize;

use isthmus_wire::proto;
use serde::Deserialize;

/// Port of gateways by default.
pub const DEFAULT_PORT: u16 = 7710;

/// How a gateway is set up. Everything has a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Where to listen for the site's agents. On a front-end with a foot
    /// outside, give the address of the inside interface.
    pub listen: SocketAddr,
    /// `HOST:PORT` at which the site's nodes reach it, where the site has several
    /// gateways; by default the address that it listens on, and if that is
    /// unspecified, the one to which its first agent came.
    pub address: Option<String>,
    /// What the site lets in; of several gateways that don't say the same, the
    /// strictest holds.
    pub inbound: Inbound,
    /// Where to listen for other sites' agents and gateways; without it nowhere.
    pub outside: Option<SocketAddr>,
    /// `HOST:PORT` at which they reach that port; by default the address that it
    /// listens on, and if that is unspecified, the one from which the gateway
    /// reaches the broker.
    pub outside_address: Option<String>,
    /// Whether the site's nodes can dial out themselves; by default they find
    /// out.
    pub nodes_dial_out: Option<bool>,
    /// Threads that carry data; without a number, one per core.
    pub workers: Option<NonZeroUsize>,
    /// Whether ways between this site and others are measured unasked.
    pub measure: Measure,
}

/// Whether ways between this site and others are measured unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// They are, unless the broker or the other site is against it.
    #[default]
    Auto,
    /// Only when somebody asks.
    Off,
}

/// What a site lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inbound {
    /// What measurement shows: relays try to reach the nodes.
    #[default]
    Auto,
    /// Nothing: it is behind a NAT or a firewall, or nothing is to come in.
    Closed,
    /// Every node's agent port can be reached from anywhere, unless measurement
    /// has shown that it can't.
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
        }
    }
}
