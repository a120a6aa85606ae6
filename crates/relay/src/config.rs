//! The `[relay]` section of the configuration.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroUsize;

use serde::Deserialize;

/// Port of relays by default.
pub const DEFAULT_PORT: u16 = 7720;

/// How a relay is set up. Everything has a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayConfig {
    /// Where to listen for agents.
    pub listen: SocketAddr,
    /// `HOST:PORT` at which agents of all sites reach the relay. By default, the address is
    /// `listen`. If `listen` is unspecified, it is the address from which the relay reaches the
    /// broker.
    pub address: Option<String>,
    /// How many threads the data plane has; `None` is one per core.
    pub workers: Option<NonZeroUsize>,
}

impl Default for RelayConfig {
    fn default() -> Self {
        let listen = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into();
        Self { listen, address: None, workers: None }
    }
}
