//! From a grid to what must be built: machines, each a set of namespaces,
//! wires between them, and what to configure in each. Pure: the text of every
//! `ip`, `tc` and `nft` command is decided here and only run elsewhere.
//!
//! ```text
//!  n1 ─┐ eth0          lan ┌────────┐ wan       SITE      ┌─────┐ HOST ┌─────┐
//!      ├── veth ── bridge ─┤ router ├─────────────────────┤ wan ├──────┤ hub │
//!  n2 ─┘                   │        ├─────────────────────┤     │      └─────┘
//!   └── RAIL ───── bridge ─┤        │ wan-RAIL  SITE/RAIL └─────┘
//!                     RAIL └────────┘         TUN or veth
//! ```
//! At a site behind a carrier's NAT, the carrier's router stands between the
//! site's and the internet.

mod rails;
mod rate;
mod rules;
mod site;
mod wan;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

pub(crate) use self::wan::WAN;
use crate::grid::{Grid, Link};

/// The grid to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// All machines; the wide area's router is the first.
    pub machines: Vec<Machine>,
    /// veth pairs.
    pub wires: Vec<[Port; 2]>,
    /// Links through the emulator.
    pub links: Vec<EmulatedLink>,
}

/// What a machine is in the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineKind {
    /// The router at which all links end.
    Wan,
    /// A site's router.
    Router,
    /// The router of a site's carrier.
    Carrier,
    /// A public host.
    Host,
    /// A site's node.
    Node,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name in the lab: `wan`, `router.SITE`, `carrier.SITE`, `HOST` or
    /// `NODE.SITE`.
    pub name: String,
    /// What it is.
    pub kind: MachineKind,
    /// The machine's own host name.
    pub host_name: String,
    /// The address its host name stands for.
    pub address: Ipv4Addr,
    /// Kernel settings, relative to `/proc/sys`.
    pub settings: Vec<(&'static str, &'static str)>,
    /// Lines for `ip -batch`, run in the machine once its interfaces exist.
    pub ip_commands: Vec<String>,
    /// Lines for `tc -batch`, run after those.
    pub tc_commands: Vec<String>,
    /// Rules for `nft -f`.
    pub rules: Option<String>,
}

/// An interface of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Index into [`Topology::machines`].
    pub machine: usize,
    /// Name of the interface there.
    pub interface: String,
}

/// A link that packets cross late or at a limited rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulatedLink {
    /// Its name: `HOST`, `SITE` or `SITE/RAIL`.
    pub name: String,
    /// How it treats packets.
    pub link: Link,
    /// End at the host or the site's router.
    pub near: Port,
    /// End at the wide area's router.
    pub far: Port,
}

/// Longest name of an interface in bytes (IFNAMSIZ - 1).
const LONGEST_INTERFACE: usize = 15;

/// The lab speaks IPv4; IPv6 stays on loopback only.
const NO_IPV6: &[(&str, &str)] = &[("net/ipv6/conf/default/disable_ipv6", "1")];

/// Routers forward, also what comes back by another interface than the
/// kernel would send it out by: sites with several links do that.
const FORWARD: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// The whole topology of a grid.
pub fn topology(grid: &Grid) -> Topology {
    let mut builder =
        Builder { grid, topology: Topology { machines: Vec::new(), wires: Vec::new(), links: Vec::new() } };
    builder.add_wan();
    for host in &grid.hosts {
        builder.add_host(host);
    }
    for site in &grid.sites {
        builder.add_site(site);
    }
    builder.topology
}

/// Adds machine after machine.
struct Builder<'a> {
    grid: &'a Grid,
    topology: Topology,
}

impl Builder<'_> {
    fn add(&mut self, machine: Machine) -> usize {
        self.topology.machines.push(machine);
        self.topology.machines.len() - 1
    }

    fn command(&mut self, machine: usize, line: String) {
        self.topology.machines[machine].ip_commands.push(line);
    }
}

impl Machine {
    fn new(name: String, kind: MachineKind, host_name: &str, address: Ipv4Addr) -> Self {
        let settings = match kind {
            MachineKind::Wan | MachineKind::Router | MachineKind::Carrier => [NO_IPV6, FORWARD].concat(),
            MachineKind::Host | MachineKind::Node => NO_IPV6.to_vec(),
        };
        let ip_commands = vec!["link set lo up".into()];
        let host_name = host_name.to_owned();
        Self { name, kind, host_name, address, settings, ip_commands, tc_commands: Vec::new(), rules: None }
    }
}

/// A unique name for an interface that contains its purpose.
fn interface(number: usize, name: &str) -> String {
    let mut interface = format!("{number}-{}", name.replace('/', "."));
    interface.truncate(LONGEST_INTERFACE);
    interface
}

#[cfg(test)]
mod tests;
