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
use crate::grid::{Grid, Link, Slow};

/// The machines of a grid and what joins them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// All machines. The wide area's router is the first.
    pub machines: Vec<Machine>,
    /// The veth pairs that join two machines.
    pub wires: Vec<[Port; 2]>,
    /// The links through the emulator.
    pub links: Vec<EmulatedLink>,
}

/// The part that a machine plays in the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineKind {
    /// The wide area's router, at which all links end.
    Wan,
    /// The router of a site.
    Router,
    /// The router of a site's carrier.
    Carrier,
    /// A host directly on the internet.
    Host,
    /// A node of a site.
    Node,
}

/// A machine to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name of the machine in the lab: `wan`, `router.SITE`, `carrier.SITE`, `HOST` or `NODE.SITE`.
    pub name: String,
    /// The part that the machine plays in the lab.
    pub kind: MachineKind,
    /// The machine's own host name.
    pub host_name: String,
    /// The address that the machine's host name stands for.
    pub address: Ipv4Addr,
    /// The machine's kernel settings, with paths relative to `/proc/sys`.
    pub settings: Vec<(&'static str, &'static str)>,
    /// How many times longer than usual the kernel's times are.
    pub slow: Slow,
    /// Whether the machine has control groups of its own.
    pub has_groups: bool,
    /// Lines for `ip -batch`, run in the machine once its interfaces exist.
    pub ip_commands: Vec<String>,
    /// Lines for `tc -batch`, run in the machine after `ip_commands`.
    pub tc_commands: Vec<String>,
    /// Rules for `nft -f`, run in the machine. `None` if it filters nothing.
    pub rules: Option<String>,
}

/// An interface of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The machine, as its index in [`Topology::machines`].
    pub machine: usize,
    /// Name of the machine's interface.
    pub interface: String,
}

/// A link that carries packets through the emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulatedLink {
    /// Name of the link: `HOST`, `SITE` or `SITE/RAIL`.
    pub name: String,
    /// What the link does to packets.
    pub link: Link,
    /// The end at the host or the site's router.
    pub near: Port,
    /// The end at the wide area's router.
    pub far: Port,
}

/// Longest name of an interface in bytes (IFNAMSIZ - 1).
const LONGEST_INTERFACE: usize = 15;

/// The setting that keeps IPv6 to the loopback interface, as the lab speaks IPv4.
const NO_IPV6: &[(&str, &str)] = &[("net/ipv6/conf/default/disable_ipv6", "1")];

/// The settings with which routers forward packets. They accept also what comes in by another
/// interface than the kernel would answer by: sites with several links do that.
const FORWARD: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// The topology of a grid.
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

/// Builds a topology by adding machine after machine.
struct Builder<'a> {
    grid: &'a Grid,
    topology: Topology,
}

impl Builder<'_> {
    fn add(&mut self, machine: Machine) -> usize {
        self.topology.machines.push(Machine { slow: self.grid.slow, ..machine });
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
        let (slow, has_groups, tc_commands, rules) = (Slow::NONE, false, Vec::new(), None);
        Self { name, kind, host_name, address, settings, slow, has_groups, ip_commands, tc_commands, rules }
    }
}

/// A name for an interface of a router. It begins with `number`, which makes it unique, and goes on
/// with as much of `name` as there is room for.
fn interface(number: usize, name: &str) -> String {
    let mut interface = format!("{number}-{}", name.replace('/', "."));
    interface.truncate(LONGEST_INTERFACE);
    interface
}

#[cfg(test)]
mod tests;
