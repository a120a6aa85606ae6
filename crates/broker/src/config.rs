//! The `[broker]` section of the configuration.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use isthmus_identity::audit;
use serde::Deserialize;

pub use isthmus_registry::{Measure, PairConfig, RelayChoice, TrunkUse};

/// Port of brokers by default.
pub const DEFAULT_PORT: u16 = 7700;

/// How a broker is set up. Everything has a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokerConfig {
    /// The address at which the broker listens for gateways and relays.
    pub listen: SocketAddr,
    /// Pairs of sites between which data goes unencrypted.
    pub trusted: Vec<[String; 2]>,
    /// Dials and routes that some pairs of sites may or may not use.
    pub pairs: Vec<PairConfig>,
    /// Named levels between the grid and its sites, the widest first.
    pub levels: Vec<String>,
    /// The place of each site at each level.
    pub places: BTreeMap<String, BTreeMap<String, String>>,
    /// How the relay for two nodes is chosen.
    pub relays: RelayChoice,
    /// Whether gateways that offer it relay for other sites.
    pub gateways_relay: bool,
    /// Whether round trips and bandwidths between sites are measured in the background.
    pub measure: Measure,
    /// The path of the audit log, or "off". By default it is audit.log in the state directory.
    pub audit_log: Option<PathBuf>,
    /// The format of the audit log's lines.
    pub audit_format: audit::Format,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let listen = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into();
        Self {
            listen,
            trusted: Vec::new(),
            pairs: Vec::new(),
            levels: Vec::new(),
            places: BTreeMap::new(),
            relays: RelayChoice::default(),
            gateways_relay: true,
            measure: Measure::default(),
            audit_log: None,
            audit_format: audit::Format::default(),
        }
    }
}
