//! The configuration file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use isthmus_agent::config::AgentConfig;
use isthmus_broker::BrokerConfig;
use isthmus_gateway::GatewayConfig;
use isthmus_relay::RelayConfig;
use isthmus_wire::Label;
use serde::Deserialize;

/// Name of the configuration file in a state directory.
pub(crate) const CONFIG_FILE: &str = "isthmus.toml";

/// The configuration file. Each service reads its own section.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Section `[broker]`, for `isthmus broker`.
    pub broker: BrokerConfig,
    /// Section `[gateway]`, for `isthmus gateway`.
    pub gateway: GatewayConfig,
    /// Section `[agent]`, for `isthmus agent`.
    pub agent: AgentConfig,
    /// Section `[metrics]`, for every service.
    pub metrics: MetricsConfig,
    /// Section `[relay]`, for `isthmus relay`.
    pub relay: RelayConfig,
}

/// The `[metrics]` section: where services write their counters.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MetricsConfig {
    /// Directory for a file of counters per service; if not set, nothing is counted.
    pub(crate) directory: Option<PathBuf>,
}

impl Config {
    /// Reads a configuration file. Without `file`, reads that of the state directory, if there is
    /// one.
    ///
    /// # Errors If the file can't be read; the message names the line.
    pub(crate) fn load(file: Option<&Path>, state: &Path) -> anyhow::Result<Self> {
        let in_state = state.join(CONFIG_FILE);
        let path = match file {
            Some(path) => path,
            None if in_state.exists() => &in_state,
            None => return Ok(Self::default()),
        };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot use {}", path.display()))
    }
}

/// An address as `HOST:PORT`; a text without a port gets this one.
pub(crate) fn with_port(address: &str, port: u16) -> String {
    // An IPv6 address has colons of its own, and brackets where a port follows.
    let has_port = match address.rsplit_once(':') {
        Some((host, _)) => !host.contains(':') || host.ends_with(']'),
        None => false,
    };
    if has_port { address.to_owned() } else { format!("{address}:{port}") }
}

/// The first label of this machine's host name.
///
/// # Errors If a node may not have that name.
pub(crate) fn host_label() -> anyhow::Result<Label> {
    let name = nix::unistd::gethostname().context("cannot read the host name")?;
    let name = name.to_string_lossy();
    let first = name.split('.').next().unwrap_or_default();
    first.parse().with_context(|| format!("the host name {name} is no node name; give one with --name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_configuration() {
        let text = include_str!("../../../docs/isthmus.example.toml");
        let config: Config = toml::from_str(text).unwrap();
        let defaults = Config::default();
        assert_eq!(config.broker.listen, defaults.broker.listen, "the example shows defaults");
        assert_eq!(config.gateway.listen, defaults.gateway.listen);
        assert_eq!(config.relay.listen, defaults.relay.listen);

        // The commented lines must be valid, too.
        let commented: String = text
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        let config: Config = toml::from_str(&commented).unwrap();
        assert!(config.agent.slots.is_some() && config.relay.workers.is_some());
        assert_eq!(config.broker.trusted.len(), 1);
    }

    #[test]
    fn ports_have_defaults() {
        for (address, want) in [
            ("login1", "login1:7710"),
            ("login1:7711", "login1:7711"),
            ("192.0.2.1", "192.0.2.1:7710"),
            ("[2001:db8::1]", "[2001:db8::1]:7710"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ] {
            assert_eq!(with_port(address, 7710), want);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let load = |text: &str| {
            std::fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
            format!("{:#}", Config::load(None, directory.path()).unwrap_err())
        };
        for (text, want) in [
            ("[gateway]\ninbuond = \"open\"", "unknown field `inbuond`"),
            ("[gateway]\ninbound = \"ajar\"", "unknown variant `ajar`"),
            ("[gate]", "unknown field `gate`"),
            ("[broker]\nlisten = \"somewhere\"", "line 2"),
        ] {
            let message = load(text);
            assert!(message.contains(want) && message.contains("isthmus.toml"), "{message}");
        }
        let missing = Config::load(Some(Path::new("no/such/file")), directory.path()).unwrap_err();
        assert!(missing.to_string().contains("no/such/file"));
        assert!(Config::load(None, Path::new("/nonexistent")).is_ok(), "a file is optional");
    }
}
