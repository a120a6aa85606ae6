//! Rails: further networks of a site, with links of their own if they have
//! them. A socket bound to a node's address on such a rail reaches the
//! internet by the rail's link, and answers come back by it.

use std::net::Ipv4Addr;

use super::Builder;
use super::wan::{NearEnd, WAN};
use crate::grid::{Node, Rail, Site};

/// Number of the routing table of a site's first rail. Those of the other rails follow.
const FIRST_TABLE: u32 = 101;

/// Priority of the first rule: the main table applies, except its default route. The rules of the
/// rails' tables follow, and finally the main table as a whole.
const SPECIFIC_FIRST: u32 = 100;
const RAILS_NEXT: u32 = 200;

/// Name of the router's interface to a rail's own link.
pub(super) fn uplink_interface(rail: &Rail) -> String {
    format!("wan-{}", rail.name)
}

impl Builder<'_> {
    /// Adds the networks of the rails at the router, and the rails' own links.
    pub(super) fn add_rails(&mut self, site: &Site, router: usize) {
        for (rail, table) in site.rails.iter().zip(FIRST_TABLE..) {
            self.add_bridge(router, &rail.name, rail.router, rail.subnet.prefix_len());
            let Some(uplink) = &rail.uplink else { continue };
            let near = NearEnd {
                machine: router,
                interface: &uplink_interface(rail),
                address: uplink.outside,
                table: Some(table),
            };
            let via = self.join_wan(&site.rail_link_name(rail), &uplink.link, near);
            if !site.kind.translates() {
                self.command(WAN, format!("route add {} {via}", rail.subnet));
            }
            self.route_by_source(router, &[rail.subnet.to_string(), uplink.outside.to_string()], table);
        }
    }

    /// Adds routes at a node, so that it leaves by each rail that has a link of its own.
    pub(super) fn route_rails(&mut self, site: &Site, machine: usize, node: &Node) {
        for (rail, table) in site.rails.iter().zip(FIRST_TABLE..) {
            if rail.uplink.is_some() {
                let line = format!("route add default via {} dev {} table {table}", rail.router, rail.name);
                self.command(machine, line);
                self.route_by_source(machine, &[site.address_on(rail, node).to_string()], table);
            }
        }
    }

    /// Routes packets from `sources` by `table`, unless they stay on the machine's own networks.
    fn route_by_source(&mut self, machine: usize, sources: &[String], table: u32) {
        let specific = format!("rule add priority {SPECIFIC_FIRST} lookup main suppress_prefixlength 0");
        if !self.topology.machines[machine].ip_commands.contains(&specific) {
            self.command(machine, specific);
        }
        for source in sources {
            self.command(machine, format!("rule add priority {RAILS_NEXT} from {source} lookup {table}"));
        }
    }

    /// Adds a bridge at the router, which is a local network of the site.
    pub(super) fn add_bridge(&mut self, router: usize, name: &str, address: Ipv4Addr, prefix: u8) {
        self.command(router, format!("link add {name} type bridge"));
        self.command(router, format!("address add {address}/{prefix} dev {name}"));
        self.command(router, format!("link set {name} up"));
    }
}
