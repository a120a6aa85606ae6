//! From a grid to what must be built: machines, each a set of namespaces,
//! wires between them, and what to configure in each. Pure: the text of every
//! `ip` and `nft` command is decided here and only run elsewhere.
//!
//! ```text
//!  n1 ─┐ eth0          lan ┌────────┐ wan   link   ┌─────┐      ┌─────┐
//!      ├── veth ── bridge ─┤ router ├───────────────┤ wan ├──────┤ hub │
//!  n2 ─┘                   └────────┘  TUN or veth  └─────┘      └─────┘
//! ```

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::grid::{Grid, Link, Site, SiteKind};

/// What to build.
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
    /// A public host.
    Host,
    /// A site's node.
    Node,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name in the lab: `wan`, `router.SITE`, `HOST` or `NODE.SITE`.
    pub name: String,
    /// What it is.
    pub kind: MachineKind,
    /// What `hostname` says there.
    pub host_name: String,
    /// The address its host name stands for.
    pub address: Ipv4Addr,
    /// Kernel settings, relative to `/proc/sys`.
    pub settings: Vec<(&'static str, &'static str)>,
    /// Lines for `ip -batch`, run in the machine once its interfaces exist.
    pub ip_commands: Vec<String>,
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
    /// Name of the host or site at its near end.
    pub name: String,
    /// What it does to packets.
    pub link: Link,
    /// End at the host or the site's router.
    pub near: Port,
    /// End at the wide area's router.
    pub far: Port,
}

/// Longest name of an interface in bytes (IFNAMSIZ - 1).
const LONGEST_INTERFACE: usize = 15;

/// Length of an emulated link's transmit queue in packets, on the kernel's
/// side of the TUN device: room for what a busy sender produces while the
/// emulator has no processor.
const DEVICE_QUEUE: u32 = 10_000;

/// The whole topology of a grid.
pub fn topology(grid: &Grid) -> Topology {
    let wan = Machine {
        name: "wan".into(),
        kind: MachineKind::Wan,
        host_name: "wan".into(),
        address: grid.wan.router,
        settings: [NO_IPV6, FORWARD].concat(),
        ip_commands: vec!["link set lo up".into(), format!("address add {}/32 dev lo", grid.wan.router)],
        rules: None,
    };
    let mut builder =
        Builder { grid, topology: Topology { machines: vec![wan], wires: Vec::new(), links: Vec::new() } };
    for host in &grid.hosts {
        let machine = Machine {
            name: host.name.clone(),
            kind: MachineKind::Host,
            host_name: host.host_name.clone(),
            address: host.address,
            settings: NO_IPV6.to_vec(),
            ip_commands: vec!["link set lo up".into()],
            rules: None,
        };
        let index = builder.add(machine);
        builder.join_wan(&host.name, &host.link, index, "eth0", host.address);
    }
    for site in &grid.sites {
        builder.add_site(site);
    }
    builder.topology
}

/// The lab speaks IPv4; IPv6 stays on loopback only.
const NO_IPV6: &[(&str, &str)] = &[("net/ipv6/conf/default/disable_ipv6", "1")];

const FORWARD: &[(&str, &str)] = &[("net/ipv4/ip_forward", "1")];

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

    fn add_site(&mut self, site: &Site) {
        let router = self.add(Machine {
            name: format!("router.{}", site.name),
            kind: MachineKind::Router,
            host_name: "router".into(),
            address: site.router,
            settings: [NO_IPV6, FORWARD].concat(),
            ip_commands: vec![
                "link set lo up".into(),
                "link add lan type bridge".into(),
                format!("address add {}/{} dev lan", site.router, site.subnet.prefix_len()),
                "link set lan up".into(),
            ],
            rules: rules(site.kind),
        });
        let via = self.join_wan(&site.name, &site.link, router, "wan", site.outside);
        if site.kind != SiteKind::Nat {
            self.command(0, format!("route add {} {via}", site.subnet));
        }
        for (number, node) in site.nodes.iter().enumerate() {
            let index = self.add(Machine {
                name: format!("{}.{}", node.name, site.name),
                kind: MachineKind::Node,
                host_name: node.host_name.clone(),
                address: node.address,
                settings: NO_IPV6.to_vec(),
                ip_commands: vec![
                    "link set lo up".into(),
                    format!("address add {}/{} dev eth0", node.address, site.subnet.prefix_len()),
                    "link set eth0 up".into(),
                    format!("route add default via {}", site.router),
                ],
                rules: None,
            });
            let port = interface(number, &node.name);
            self.command(router, format!("link set {port} master lan up"));
            self.topology.wires.push([
                Port { machine: router, interface: port },
                Port { machine: index, interface: "eth0".into() },
            ]);
        }
    }

    /// Joins a machine to the wide area's router; how the router reaches what
    /// is behind it.
    fn join_wan(
        &mut self,
        name: &str,
        link: &Link,
        machine: usize,
        inside: &str,
        address: Ipv4Addr,
    ) -> String {
        let router = self.grid.wan.router;
        let wires_to_wan = self.topology.wires.iter().filter(|[_, far]| far.machine == 0).count();
        let far = interface(self.topology.links.len() + wires_to_wan, name);
        let near_port = Port { machine, interface: inside.to_owned() };
        let far_port = Port { machine: 0, interface: far.clone() };
        self.command(machine, format!("address add {address}/32 dev {inside}"));
        let via = if link.is_plain() {
            self.topology.wires.push([near_port, far_port]);
            self.command(machine, format!("link set {inside} up"));
            self.command(machine, format!("route add default via {router} dev {inside} onlink"));
            self.command(0, format!("link set {far} up"));
            format!("via {address} dev {far} onlink")
        } else {
            let (name, link) = (name.to_owned(), *link);
            self.topology.links.push(EmulatedLink { name, link, near: near_port, far: far_port });
            self.command(machine, format!("link set {inside} txqueuelen {DEVICE_QUEUE} arp off up"));
            self.command(machine, format!("route add default dev {inside}"));
            self.command(0, format!("link set {far} txqueuelen {DEVICE_QUEUE} arp off up"));
            format!("dev {far}")
        };
        self.command(0, format!("route add {address}/32 dev {far} src {router}"));
        via
    }
}

/// A unique and telling name for an interface.
fn interface(number: usize, name: &str) -> String {
    let mut interface = format!("{number}-{name}");
    interface.truncate(LONGEST_INTERFACE);
    interface
}

/// What a site's router lets through.
fn rules(kind: SiteKind) -> Option<String> {
    let filter = "
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    iifname \"lan\" accept
  }
  chain input {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname { \"lo\", \"lan\" } accept
  }";
    let masquerade = "
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    oifname \"wan\" masquerade
  }";
    match kind {
        SiteKind::Nat => Some(format!("table ip lab {{{filter}{masquerade}\n}}\n")),
        SiteKind::Firewall => Some(format!("table ip lab {{{filter}\n}}\n")),
        SiteKind::Open => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(text: &str) -> Topology {
        topology(&Grid::parse(text, "test", "test").unwrap())
    }

    const GRID: &str = r#"
        [[host]]
        name = "hub"
        [[site]]
        name = "alpha"
        kind = "nat"
        subnet = "192.168.1.0/24"
        link = { delay = "2.5 ms" }
        nodes = [{ name = "n1", host_name = "node1" }, { name = "a-very-long-name-of-a-node" }]
        [[site]]
        name = "gamma"
        kind = "firewall"
        subnet = "203.0.113.0/26"
        nodes = [{ name = "n1" }]
        [[site]]
        name = "delta"
        kind = "open"
        subnet = "203.0.113.64/26"
        link = { rate = "1 Gbit/s" }
    "#;

    #[test]
    fn every_machine_is_there_once() {
        let topology = built(GRID);
        let names: Vec<_> = topology.machines.iter().map(|machine| machine.name.as_str()).collect();
        let expected = [
            "wan",
            "hub",
            "router.alpha",
            "n1.alpha",
            "a-very-long-name-of-a-node.alpha",
            "router.gamma",
            "n1.gamma",
            "router.delta",
        ];
        assert_eq!(names, expected);
        assert_eq!(topology.machines[3].host_name, "node1");
    }

    #[test]
    fn only_links_that_do_something_are_emulated() {
        let topology = built(GRID);
        let emulated: Vec<_> = topology.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(emulated, ["alpha", "delta"]);
        assert_eq!(topology.wires.len(), 5, "hub, two nodes of alpha, router and node of gamma");
        for port in topology.wires.iter().flatten() {
            assert!(port.interface.len() <= LONGEST_INTERFACE, "{}", port.interface);
        }
    }

    #[test]
    fn the_wide_area_knows_no_private_address() {
        let topology = built(GRID);
        let wan = topology.machines[0].ip_commands.join("\n");
        assert!(!wan.contains("192.168"), "{wan}");
        assert!(wan.contains("route add 203.0.113.0/26 via 198.51.100.4 dev 2-gamma onlink"), "{wan}");
        assert!(wan.contains("route add 203.0.113.64/26 dev 3-delta"), "{wan}");
        assert!(wan.contains("route add 198.51.100.3/32 dev 1-alpha src 198.51.100.1"), "{wan}");
    }

    #[test]
    fn each_kind_of_site_has_its_rules() {
        for (kind, translates, filters) in
            [(SiteKind::Nat, true, true), (SiteKind::Firewall, false, true), (SiteKind::Open, false, false)]
        {
            let rules = rules(kind).unwrap_or_default();
            assert_eq!(rules.contains("masquerade"), translates, "{kind:?}");
            assert_eq!(rules.contains("policy drop"), filters, "{kind:?}");
        }
    }
}
