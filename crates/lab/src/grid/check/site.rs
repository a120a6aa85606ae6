//! One site: its nodes, rails, and what its router lets in and out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use toml::Spanned;

use super::addresses::{WanAddresses, claim, first_address};
use super::roles::{has_way_out, roles};
use super::{free_label, host_name, label};
use crate::grid::error::{Fault, fault};
use crate::grid::file::{NodeTable, RailTable, SiteTable};
use crate::grid::links::{link, rate};
use crate::grid::model::{Forward, Node, Rail, Role, Site, SiteKind, Unsolicited, Uplink};
use crate::grid::ports::PortRange;

/// Longest name of a rail in bytes. The router's interface to the rail's link is called `wan-RAIL`,
/// and an interface's name has at most 15 bytes.
const LONGEST_RAIL: usize = 11;

/// Names of interfaces that each site has already.
const INTERFACES: [&str; 4] = ["lo", "lan", "wan", "eth0"];

pub(super) fn check_site(table: &SiteTable, subnet: Ipv4Net, wan: &mut WanAddresses) -> Result<Site, Fault> {
    let name = free_label(&table.name, "site")?;
    let Some(router) = first_address(subnet) else {
        return fault(&table.name, format!("subnet {subnet} has no room for a router and a node"));
    };
    let outside = wan.take(table.outside.as_ref(), &table.name, &format!("the router of site {name:?}"))?;
    let unsolicited = unsolicited(table)?;
    let nodes = check_nodes(table, &name, subnet, router)?;
    let site = Site {
        kind: table.kind,
        subnet,
        router,
        outside,
        link: link(&table.link)?,
        lan_rate: rate(table.lan_rate.as_ref())?,
        unsolicited,
        forward: forward(table, &nodes)?,
        egress: table.egress.as_ref().map(egress).transpose()?,
        measure: table.measure.unwrap_or(true),
        site_trunk: table.site_trunk,
        bbr: table.bbr.unwrap_or(true),
        clock_ahead_seconds: table.clock_ahead_seconds,
        slurm_confines: slurm_confines(table, &nodes)?,
        rails: check_rails(table, &name, subnet, &nodes, wan)?,
        nodes,
        name,
    };
    Ok(site)
}

fn slurm_confines(table: &SiteTable, nodes: &[Node]) -> Result<bool, Fault> {
    let Some(given) = &table.slurm_confines else { return Ok(false) };
    if *given.get_ref() && !nodes.iter().any(|node| node.roles.contains(&Role::Slurmd)) {
        return fault(
            given,
            "the site has no Slurm: leave `slurm_confines` out, or give a node the slurmd role",
        );
    }
    Ok(*given.get_ref())
}

fn unsolicited(table: &SiteTable) -> Result<Unsolicited, Fault> {
    match &table.unsolicited {
        Some(given) if table.kind == SiteKind::Open => {
            fault(given, "an open site lets everything in: leave `unsolicited` out, or choose another kind")
        }
        Some(given) => Ok(*given.get_ref()),
        None => Ok(Unsolicited::default()),
    }
}

fn forward(table: &SiteTable, nodes: &[Node]) -> Result<Vec<Forward>, Fault> {
    let mut forward: Vec<Forward> = Vec::new();
    for entry in &table.forward {
        match table.kind {
            SiteKind::Open => {
                return fault(
                    entry,
                    "an open site lets everything in: leave `forward` out, or choose another kind",
                );
            }
            SiteKind::CarrierNat => {
                return fault(
                    entry,
                    "behind a carrier's NAT no port can be forwarded: the carrier's router lets nothing in",
                );
            }
            SiteKind::Firewall | SiteKind::StatelessFirewall | SiteKind::Nat | SiteKind::SymmetricNat => {}
        }
        let (ports, to) = (&entry.get_ref().ports, &entry.get_ref().to);
        let Some(node) = nodes.iter().find(|node| node.name.eq_ignore_ascii_case(to.get_ref())) else {
            return fault(to, no_such_node(to.get_ref(), table));
        };
        if !node.way_out {
            return fault(to, format!("node {:?} has no way out, and so none in", node.name));
        }
        // Without translation, each node has an address of its own, so nodes may have the same
        // ports.
        let shares_address = |other: &&Forward| table.kind.translates() || other.to == node.name;
        let clash = |other: &&Forward| shares_address(other) && other.ports.overlaps(*ports.get_ref());
        if let Some(other) = forward.iter().find(clash) {
            return fault(ports, format!("ports {} go to node {:?} already", other.ports, other.to));
        }
        forward.push(Forward { ports: *ports.get_ref(), to: node.name.clone() });
    }
    Ok(forward)
}

fn egress(given: &Spanned<Vec<PortRange>>) -> Result<Vec<PortRange>, Fault> {
    let ports = given.get_ref();
    for (number, range) in ports.iter().enumerate() {
        if let Some(other) = ports[..number].iter().find(|other| other.overlaps(*range)) {
            return fault(given, format!("{range} and {other} have ports in common"));
        }
    }
    Ok(ports.clone())
}

fn no_such_node(name: &str, table: &SiteTable) -> String {
    let known: Vec<_> = table.nodes.iter().map(|node| node.name.get_ref().as_str()).collect();
    match known.as_slice() {
        [] => format!("site {:?} has no nodes", table.name.get_ref()),
        known => {
            format!("site {:?} has no node {name:?}; it has: {}", table.name.get_ref(), known.join(", "))
        }
    }
}

fn check_rails(
    table: &SiteTable,
    site: &str,
    main: Ipv4Net,
    nodes: &[Node],
    wan: &mut WanAddresses,
) -> Result<Vec<Rail>, Fault> {
    let mut rails: Vec<Rail> = Vec::new();
    for rail in &table.rails {
        let name = rail_name(&rail.name)?;
        if rails.iter().any(|other| other.name == name) {
            return fault(&rail.name, format!("site {site:?} has a rail {name:?} already"));
        }
        check_host_numbers(rail, main, nodes)?;
        let Some(router) = first_address(*rail.subnet.get_ref()) else {
            return fault(&rail.subnet, "the subnet has no room for a router and a node");
        };
        let uplink = match (&rail.link, &rail.outside) {
            (Some(given), _) if table.kind == SiteKind::CarrierNat => {
                return fault(given, "at a carrier-nat site a rail can't have a link of its own");
            }
            (Some(given), outside) => {
                let who = format!("rail {name:?} of site {site:?}");
                let outside = wan.take(outside.as_ref(), &rail.name, &who)?;
                Some(Uplink { outside, link: link(given.get_ref())? })
            }
            (None, Some(outside)) => {
                return fault(outside, "an outside address needs a link: add link = {} to the rail");
            }
            (None, None) => None,
        };
        let rate = rate(rail.rate.as_ref())?;
        rails.push(Rail { name, subnet: *rail.subnet.get_ref(), router, rate, uplink });
    }
    Ok(rails)
}

fn rail_name(name: &Spanned<String>) -> Result<String, Fault> {
    let label = label(name, "rail")?;
    // Ports of the router's bridges begin with a number.
    if label.len() > LONGEST_RAIL || !label.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return fault(
            name,
            format!(
                "rail {label:?} names interfaces: begin with a letter and use at most {LONGEST_RAIL} characters"
            ),
        );
    }
    if INTERFACES.contains(&label.as_str()) || label.starts_with("wan-") {
        return fault(name, format!("rail {label:?} is the name of another interface, choose another name"));
    }
    Ok(label)
}

/// Checks that every node's host number exists in the rail's subnet, and isn't the router's.
fn check_host_numbers(rail: &RailTable, main: Ipv4Net, nodes: &[Node]) -> Result<(), Fault> {
    let subnet = *rail.subnet.get_ref();
    for node in nodes {
        let number = node.address.to_bits() & main.hostmask().to_bits();
        if number >= subnet.hostmask().to_bits() {
            return fault(
                &rail.subnet,
                format!(
                    "subnet {subnet} has no host number {number}, which node {:?} has: use a larger one",
                    node.name
                ),
            );
        }
        if number == 1 {
            return fault(
                &rail.subnet,
                format!("node {:?} has host number 1, which is the router's on the rail", node.name),
            );
        }
    }
    Ok(())
}

fn check_nodes(table: &SiteTable, site: &str, subnet: Ipv4Net, router: Ipv4Addr) -> Result<Vec<Node>, Fault> {
    let mut names = BTreeSet::new();
    let mut addresses = BTreeMap::from([(router, "the router".to_owned())]);
    for node in &table.nodes {
        let name = free_label(&node.name, "node")?;
        if !names.insert(name.clone()) {
            return fault(&node.name, format!("site {site:?} has a node {name:?} already"));
        }
        if let Some(address) = &node.address {
            claim(&mut addresses, subnet, address, &format!("node {name:?}"))?;
        }
    }
    let free = subnet.hosts().filter(|address| !addresses.contains_key(address));
    let mut free = free.take(table.nodes.len()).collect::<Vec<_>>().into_iter();
    let node = |node: &NodeTable| {
        let name = label(&node.name, "node")?;
        let address = match &node.address {
            Some(address) => *address.get_ref(),
            None => match free.next() {
                Some(address) => address,
                None => return fault(&node.name, format!("subnet {subnet} of site {site:?} is full")),
            },
        };
        if let Some(slots) = &node.slots
            && *slots.get_ref() == 0
        {
            return fault(
                slots,
                "slots must be at least 1; leave the agent role out for a node without ranks",
            );
        }
        Ok(Node {
            host_name: host_name(node.host_name.as_ref(), &name)?,
            address,
            roles: roles(&node.roles)?,
            slots: node.slots.as_ref().map(|slots| *slots.get_ref()),
            features: features(node)?,
            way_out: has_way_out(node),
            via: node.via.as_ref().map(|via| label(via, "via")).transpose()?,
            name,
        })
    };
    table.nodes.iter().map(node).collect()
}

fn features(node: &NodeTable) -> Result<Vec<String>, Fault> {
    // Others mean something in slurm.conf, or where a job asks for them.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let feature = |feature: &Spanned<String>| {
        let name = feature.get_ref();
        if name.is_empty() || !name.bytes().all(plain) {
            return fault(feature, format!("{name:?} is no feature: use letters, digits and ._-"));
        }
        if !node.roles.iter().any(|role| *role.get_ref() == Role::Slurmd) {
            return fault(feature, "Slurm alone knows features: give the node the slurmd role");
        }
        Ok(name.clone())
    };
    node.features.iter().map(feature).collect()
}
