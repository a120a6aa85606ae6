//! A site: its router, the carrier's if there is one, its nodes.

use std::net::Ipv4Addr;

use super::wan::{NearEnd, WAN};
use super::{Builder, Machine, MachineKind, Port, interface, rate, rules};
use crate::grid::{BitRate, Node, Rail, Role, Site, SiteKind};

/// Address of the carrier's router towards a site's router. Between them is a network of the space
/// that RFC 6598 keeps for this, the same at every such site.
const CARRIER_INSIDE: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
const CARRIER_SUBSCRIBER: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);
const CARRIER_PREFIX: u8 = 30;

/// A local network of a site: its main network or a rail.
struct Network<'a> {
    /// Name of the router's bridge for the network.
    bridge: &'a str,
    interface: &'a str,
    prefix: u8,
    rate: Option<BitRate>,
    rail: Option<&'a Rail>,
}

impl Builder<'_> {
    pub(super) fn add_site(&mut self, site: &Site) {
        let name = format!("router.{}", site.name);
        let router = self.add(Machine::new(name, MachineKind::Router, "router", site.router));
        self.topology.machines[router].rules = rules::router(site);
        self.add_bridge(router, "lan", site.router, site.subnet.prefix_len());
        if site.kind == SiteKind::CarrierNat {
            self.add_carrier(site, router);
        } else {
            let near = NearEnd { machine: router, interface: "wan", address: site.outside, table: None };
            let via = self.join_wan(&site.name, &site.link, near);
            if !site.kind.translates() {
                self.command(WAN, format!("route add {} {via}", site.subnet));
            }
        }
        self.add_rails(site, router);
        for (number, node) in site.nodes.iter().enumerate() {
            self.add_node(site, router, number, node);
        }
    }

    /// Adds the carrier's router, the second NAT, whose only subscriber is the site.
    fn add_carrier(&mut self, site: &Site, router: usize) {
        let name = format!("carrier.{}", site.name);
        let carrier = self.add(Machine::new(name, MachineKind::Carrier, "carrier", CARRIER_INSIDE));
        self.topology.machines[carrier].rules = Some(rules::carrier(site));
        self.topology.wires.push([
            Port { machine: router, interface: "wan".into() },
            Port { machine: carrier, interface: "lan".into() },
        ]);
        self.configure_interface(router, "wan", CARRIER_SUBSCRIBER, CARRIER_PREFIX);
        self.command(router, format!("route add default via {CARRIER_INSIDE}"));
        self.configure_interface(carrier, "lan", CARRIER_INSIDE, CARRIER_PREFIX);
        let near = NearEnd { machine: carrier, interface: "wan", address: site.outside, table: None };
        self.join_wan(&site.name, &site.link, near);
    }

    fn add_node(&mut self, site: &Site, router: usize, number: usize, node: &Node) {
        let name = format!("{}.{}", node.name, site.name);
        let machine = Machine::new(name, MachineKind::Node, &node.host_name, node.address);
        let has_groups = site.slurm_confines && node.roles.contains(&Role::Slurmd);
        let index = self.add(Machine { has_groups, ..machine });
        let main = Network {
            bridge: "lan",
            interface: "eth0",
            prefix: site.subnet.prefix_len(),
            rate: site.lan_rate,
            rail: None,
        };
        let rails = site.rails.iter().map(|rail| Network {
            bridge: &rail.name,
            interface: &rail.name,
            prefix: rail.subnet.prefix_len(),
            rate: rail.rate,
            rail: Some(rail),
        });
        for (position, network) in std::iter::once(main).chain(rails).enumerate() {
            let port = interface(position * site.nodes.len() + number, &node.name);
            self.command(router, format!("link set {port} master {} up", network.bridge));
            let address = network.rail.map_or(node.address, |rail| site.address_on(rail, node));
            self.configure_interface(index, network.interface, address, network.prefix);
            if let Some(rate) = network.rate {
                let slow = self.grid.slow;
                self.topology.machines[router].tc_commands.push(rate::limit(&port, rate, slow));
                self.topology.machines[index].tc_commands.push(rate::limit(network.interface, rate, slow));
            }
            self.topology.wires.push([
                Port { machine: router, interface: port },
                Port { machine: index, interface: network.interface.to_owned() },
            ]);
        }
        if node.way_out {
            self.command(index, format!("route add default via {}", site.router));
            self.route_rails(site, index, node);
        }
    }

    pub(super) fn configure_interface(&mut self, machine: usize, name: &str, address: Ipv4Addr, prefix: u8) {
        self.command(machine, format!("address add {address}/{prefix} dev {name}"));
        self.command(machine, format!("link set {name} up"));
    }
}
