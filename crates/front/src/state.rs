//! The state directory of a machine's part of the grid: identity, keys, lasting records.

use std::path::PathBuf;

use anyhow::bail;
use isthmus_agent::runtime_directory;
use isthmus_wire::Label;

/// Name of the directory of a front-end's node, within the front-end's state directory.
pub const NODE_DIRECTORY: &str = "node";

/// Environment variable that names the state directory.
const VARIABLE: &str = "ISTHMUS_STATE";

/// The state directory of a command without `--state`.
pub fn state_without_option() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(default_state, PathBuf::from)
}

/// The state directory by default. Machines of a cluster may share a home, so each has a state
/// directory of its own below it.
pub fn default_state() -> PathBuf {
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
pub fn host_directory(host: &str) -> String {
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
pub struct StateArgs {
    /// Directory of identity, keys and lasting records; by default
    /// /var/lib/isthmus for root, ~/.local/state/isthmus/HOST for others.
    #[arg(long, env = VARIABLE, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl StateArgs {
    /// The state directory: the given one, or the default.
    pub fn directory(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(default_state)
    }

    /// The state directory, for a command that makes it.
    ///
    /// # Errors If none is given, and this user has no home.
    pub fn directory_to_make(&self) -> anyhow::Result<PathBuf> {
        let user = nix::unistd::geteuid();
        if self.state.is_none() && !user.is_root() && state_home().is_none() {
            bail!(
                "HOME is not set, and the user database has no home of user {user}: set it, or give --state DIR"
            );
        }
        Ok(self.directory())
    }

    /// ` --state DIR` for the command lines that a message names; empty if the default is used.
    pub fn option(&self) -> String {
        self.state.as_ref().map_or_else(String::new, |directory| format!(" --state {}", directory.display()))
    }

    /// Whether the command line or the environment names the state directory.
    pub fn is_given(&self) -> bool {
        self.state.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
