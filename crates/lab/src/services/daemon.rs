//! What the batch systems of sites have in common.

use crate::grid::Role;

/// A daemon of a site's batch system on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Daemon {
    /// The daemon's service.
    pub role: Role,
    /// The machine that the daemon runs on.
    pub machine: String,
    /// The daemon's arguments.
    pub arguments: Vec<String>,
    /// Variables of its environment beside those that every program has there.
    pub variables: &'static [(&'static str, &'static str)],
}

/// What of the real machine goes into the configuration of batch systems.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RealMachine {
    /// The id of the user whom the daemons run as, and whose jobs they run.
    pub user: u32,
    /// The number of cores that a node has, unless the grid gives it slots.
    pub cores: u32,
}

/// The first label of a host name, by which batch systems know a machine.
pub(super) fn short(host_name: &str) -> &str {
    host_name.split('.').next().unwrap_or(host_name)
}
