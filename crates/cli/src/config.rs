//! The configuration file, and the state directory.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use isthmus_agent::config::AgentConfig;
use isthmus_agent::runtime_directory;
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

/// Environment variable that names the state directory.
const VARIABLE: &str = "ISTHMUS_STATE";

/// The state directory of a command without `--state`.
pub(crate) fn state_without_option() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(default_state, PathBuf::from)
}

/// The state directory by default. Machines of a cluster may share a home, so each has a state
/// directory of its own below it.
pub(crate) fn default_state() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return "/var/lib/isthmus".into();
    }
    // Not below /tmp: another user could make it first.
    let shared = state_home().unwrap_or_else(|| "/".into()).join("isthmus");
    // Made by a release that had one for all.
    if ["identity.pem", "grid.toml"].iter().any(|file| shared.join(file).exists()) {
        return shared;
    }
    shared.join(host_directory(&nix::unistd::gethostname().unwrap_or_default().to_string_lossy()))
}

/// The name of a host's directory among those of other hosts. It is the host name's first label, or
/// if that is invalid, a name that no other host has.
pub(crate) fn host_directory(host: &str) -> String {
    let first = host.split('.').next().unwrap_or_default();
    first.parse::<Label>().map_or_else(|_| runtime_directory::file_name(host), |label| label.to_string())
}

/// The directory of lasting records of all programs of this user; `None` for a user without a home.
fn state_home() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let below_home = || Some(variable("HOME").or_else(home)?.join(".local/state"));
    variable("XDG_STATE_HOME").or_else(below_home)
}

/// This user's home in the user database; `None` if it has no entry.
fn home() -> Option<PathBuf> {
    Some(nix::unistd::User::from_uid(nix::unistd::geteuid()).ok()??.dir)
}

/// The `--state` option of a command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StateArgs {
    /// Directory of identity, keys and lasting records; by default
    /// /var/lib/isthmus for root, ~/.local/state/isthmus/HOST for others.
    #[arg(long, env = VARIABLE, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl StateArgs {
    /// The state directory: the given one, or the default.
    pub(crate) fn directory(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(default_state)
    }

    /// The state directory, for a command that makes it.
    ///
    /// # Errors If none is given, and this user has no home.
    pub(crate) fn directory_to_make(&self) -> anyhow::Result<PathBuf> {
        let user = nix::unistd::geteuid();
        if self.state.is_none() && !user.is_root() && state_home().is_none() {
            bail!(
                "HOME is not set, and the user database has no home of user {user}: set it, or give --state DIR"
            );
        }
        Ok(self.directory())
    }

    /// ` --state DIR` for the command lines that a message names; empty if the default is used.
    pub(crate) fn option(&self) -> String {
        self.state.as_ref().map_or_else(String::new, |directory| format!(" --state {}", directory.display()))
    }

    /// Whether the command line or the environment names the state directory.
    pub(crate) fn is_given(&self) -> bool {
        self.state.is_some()
    }
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
    fn each_host_has_a_directory() {
        for (host, want) in [("login1", "login1"), ("Login1.example.org", "login1")] {
            assert_eq!(host_directory(host), want);
        }
        let odd = ["My_Host.example", "my_host.example", "My_Host.other", "", "-x", "a b", "../..", "é"];
        let names: std::collections::BTreeSet<_> = odd.iter().map(|host| host_directory(host)).collect();
        assert_eq!(names.len(), odd.len(), "{names:?}");
        for name in names {
            let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            assert!(!name.is_empty() && !name.starts_with('.') && name.bytes().all(safe), "{name:?}");
            assert!(name.parse::<Label>().is_err() || name.contains('-'), "{name:?} may be another host's");
        }
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
