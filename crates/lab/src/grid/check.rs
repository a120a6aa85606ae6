//! From the tables of a grid file to a [`Grid`]: names, addresses and roles
//! that don't fit together are found here, before anything starts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use isthmus_wire::Label;
use toml::Spanned;

use super::file::{GridFile, HostTable, NodeTable, SiteTable};
use super::links::link;
use super::{Grid, Host, Node, Role, Site, SiteKind, Wan};

/// Names with a meaning of their own in the lab or the grid.
const RESERVED: [&str; 6] = ["router", "wan", "relay", "gateway", "broker", "admin"];

/// Something wrong at a byte offset of the file.
#[derive(Debug)]
pub(super) struct Fault {
    pub at: usize,
    pub message: String,
}

pub(super) fn fault<T, V>(value: &Spanned<V>, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at: value.span().start, message: message.into() })
}

/// Checks the tables and gives every default its value.
pub(super) fn check(file: GridFile, default_name: &str) -> Result<Grid, Fault> {
    let name = match &file.name {
        Some(name) => label(name, "the lab's name")?,
        None => default_name
            .parse::<Label>()
            .map_err(|error| Fault {
                at: 0,
                message: format!("the file's name gives the lab no name ({error}); add name = \"…\""),
            })?
            .to_string(),
    };
    let mut wan = WanAddresses::new(&file)?;
    let wan_table = Wan { subnet: *file.wan.subnet.get_ref(), router: wan.router };
    let mut names = BTreeSet::new();
    for name in file.hosts.iter().map(|host| &host.name).chain(file.sites.iter().map(|site| &site.name)) {
        if !names.insert(name.get_ref().to_ascii_lowercase()) {
            return fault(name, format!("{:?} is the name of another host or site already", name.get_ref()));
        }
    }
    let hosts = file.hosts.iter().map(|host| check_host(host, &mut wan)).collect::<Result<Vec<_>, _>>()?;
    let sites = file.sites.iter().map(|site| check_site(site, &mut wan)).collect::<Result<Vec<_>, _>>()?;
    if hosts.is_empty() && sites.iter().all(|site| site.nodes.is_empty()) {
        return Err(Fault { at: 0, message: "no nodes: add a [[site]] with nodes, or a [[host]]".into() });
    }
    check_routed_subnets(&file)?;
    check_roles(&file)?;
    let trusted = check_trusted(&file)?;
    for path in &file.share {
        if !path.get_ref().is_absolute() {
            return fault(path, "a shared directory must be an absolute path");
        }
    }
    let share = file.share.into_iter().map(Spanned::into_inner).collect();
    Ok(Grid { name, seed: file.seed, wan: wan_table, hosts, sites, share, trusted })
}

fn label(name: &Spanned<String>, what: &str) -> Result<String, Fault> {
    match name.get_ref().parse::<Label>() {
        Ok(label) => Ok(label.to_string()),
        Err(error) => fault(name, format!("{what}: {error}")),
    }
}

fn free_label(name: &Spanned<String>, what: &str) -> Result<String, Fault> {
    let label = label(name, what)?;
    if RESERVED.contains(&label.as_str()) {
        return fault(name, format!("{what}: {label:?} is reserved, choose another name"));
    }
    Ok(label)
}

fn host_name(given: Option<&Spanned<String>>, default: &str) -> Result<String, Fault> {
    let Some(name) = given else { return Ok(default.to_owned()) };
    let valid =
        name.get_ref().len() <= 63 && name.get_ref().split('.').all(|part| part.parse::<Label>().is_ok());
    if valid {
        Ok(name.get_ref().clone())
    } else {
        fault(name, format!("{:?} is not a host name", name.get_ref()))
    }
}

fn check_host(table: &HostTable, wan: &mut WanAddresses) -> Result<Host, Fault> {
    let name = free_label(&table.name, "host")?;
    Ok(Host {
        host_name: host_name(table.host_name.as_ref(), &name)?,
        address: wan.take(table.address.as_ref(), &table.name, &format!("host {name:?}"))?,
        link: link(&table.link)?,
        roles: roles(&table.roles)?,
        name,
    })
}

fn check_site(table: &SiteTable, wan: &mut WanAddresses) -> Result<Site, Fault> {
    let name = free_label(&table.name, "site")?;
    let subnet = *table.subnet.get_ref();
    let Some(router) = first_address(subnet) else {
        return fault(
            &table.subnet,
            format!("subnet {subnet} has no room for a router and a node: use /30 or larger"),
        );
    };
    if subnet.addr() != subnet.network() {
        return fault(&table.subnet, format!("subnet {subnet} has host bits set: write {}", subnet.trunc()));
    }
    Ok(Site {
        kind: table.kind,
        subnet,
        router,
        outside: wan.take(table.outside.as_ref(), &table.name, &format!("the router of site {name:?}"))?,
        link: link(&table.link)?,
        nodes: check_nodes(table, &name, subnet, router)?,
        name,
    })
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
            name,
        })
    };
    table.nodes.iter().map(node).collect()
}

fn roles(given: &[Spanned<Role>]) -> Result<Vec<Role>, Fault> {
    let mut roles = Vec::new();
    for role in given {
        if roles.contains(role.get_ref()) {
            return fault(role, format!("role {:?} is given twice", role.get_ref()));
        }
        roles.push(*role.get_ref());
    }
    Ok(roles)
}

fn first_address(subnet: Ipv4Net) -> Option<Ipv4Addr> {
    if subnet.prefix_len() > 30 { None } else { subnet.hosts().next() }
}

/// Marks `address` as taken by `who`, or says why it can't be.
fn claim(
    taken: &mut BTreeMap<Ipv4Addr, String>,
    subnet: Ipv4Net,
    address: &Spanned<Ipv4Addr>,
    who: &str,
) -> Result<(), Fault> {
    let value = *address.get_ref();
    if !subnet.contains(&value) || value == subnet.network() || value == subnet.broadcast() {
        return fault(address, format!("{value}, address of {who}, is no host address of {subnet}"));
    }
    if let Some(other) = taken.insert(value, who.to_owned()) {
        return fault(address, format!("{value} is the address of both {other} and {who}"));
    }
    Ok(())
}

/// Addresses of the wide area, given out: those in the file first, the others
/// from the lowest free one.
struct WanAddresses {
    router: Ipv4Addr,
    free: std::vec::IntoIter<Ipv4Addr>,
}

impl WanAddresses {
    fn new(file: &GridFile) -> Result<Self, Fault> {
        let subnet = *file.wan.subnet.get_ref();
        let Some(router) = first_address(subnet) else {
            return fault(&file.wan.subnet, format!("subnet {subnet} has no room: use /30 or larger"));
        };
        if subnet.addr() != subnet.network() {
            return fault(
                &file.wan.subnet,
                format!("subnet {subnet} has host bits set: write {}", subnet.trunc()),
            );
        }
        let mut taken = BTreeMap::from([(router, "the wide area's router".to_owned())]);
        for host in &file.hosts {
            if let Some(address) = &host.address {
                claim(&mut taken, subnet, address, &format!("host {:?}", host.name.get_ref()))?;
            }
        }
        for site in &file.sites {
            if let Some(address) = &site.outside {
                claim(&mut taken, subnet, address, &format!("the router of site {:?}", site.name.get_ref()))?;
            }
        }
        // Never more than the file can ask for: a /8 has 16 million addresses.
        let wanted = file.hosts.len() + file.sites.len();
        let free: Vec<_> =
            subnet.hosts().filter(|address| !taken.contains_key(address)).take(wanted).collect();
        Ok(Self { router, free: free.into_iter() })
    }

    fn take(
        &mut self,
        given: Option<&Spanned<Ipv4Addr>>,
        owner: &Spanned<String>,
        who: &str,
    ) -> Result<Ipv4Addr, Fault> {
        match (given, &mut self.free) {
            (Some(address), _) => Ok(*address.get_ref()),
            (None, free) => match free.next() {
                Some(address) => Ok(address),
                None => fault(owner, format!("no address left on the wide area for {who}")),
            },
        }
    }
}

/// Sites with public addresses are routed on the wide area: their subnets
/// must be their own.
fn check_routed_subnets(file: &GridFile) -> Result<(), Fault> {
    let mut routed = vec![(*file.wan.subnet.get_ref(), "the wide area".to_owned())];
    let overlap = |a: &Ipv4Net, b: &Ipv4Net| a.contains(b) || b.contains(a);
    for site in &file.sites {
        let subnet = *site.subnet.get_ref();
        match site.kind {
            SiteKind::Nat => {
                if overlap(&subnet, file.wan.subnet.get_ref()) {
                    return fault(&site.subnet, format!("subnet {subnet} overlaps with the wide area's"));
                }
            }
            SiteKind::Firewall | SiteKind::Open => {
                if let Some((other, who)) = routed.iter().find(|(other, _)| overlap(other, &subnet)) {
                    let message = format!(
                        "subnet {subnet} overlaps with {other} of {who}: only sites behind NAT may share addresses"
                    );
                    return fault(&site.subnet, message);
                }
                routed.push((subnet, format!("site {:?}", site.name.get_ref())));
            }
        }
    }
    Ok(())
}

/// Pairs that trust each other must be sites.
fn check_trusted(file: &GridFile) -> Result<Vec<[String; 2]>, Fault> {
    let site = |name: &Spanned<String>| {
        let found = file.sites.iter().find(|site| site.name.get_ref().eq_ignore_ascii_case(name.get_ref()));
        match found {
            Some(site) => Ok(site.name.get_ref().to_ascii_lowercase()),
            None => fault(name, format!("{:?} is no site of this grid", name.get_ref())),
        }
    };
    file.trusted.iter().map(|[a, b]| Ok([site(a)?, site(b)?])).collect()
}

/// Every service must find the ones it depends on.
fn check_roles(file: &GridFile) -> Result<(), Fault> {
    let mut brokers = Vec::new();
    let mut dependent = None;
    for host in &file.hosts {
        for role in &host.roles {
            match role.get_ref() {
                Role::Broker => brokers.push(role),
                Role::Relay => dependent = dependent.or(Some(role)),
                Role::Gateway | Role::Agent => {
                    return fault(role, "gateways and agents belong to a site's nodes, not to a public host");
                }
            }
        }
    }
    for site in &file.sites {
        let mut gateways = 0;
        let mut agents = Vec::new();
        for role in site.nodes.iter().flat_map(|node| &node.roles) {
            match role.get_ref() {
                Role::Broker | Role::Relay if site.kind != SiteKind::Open => {
                    return fault(
                        role,
                        "a broker or relay must be reachable: put it on a [[host]] or at an open site",
                    );
                }
                Role::Broker => brokers.push(role),
                Role::Relay => dependent = dependent.or(Some(role)),
                Role::Gateway => {
                    gateways += 1;
                    dependent = dependent.or(Some(role));
                    if gateways > 1 {
                        return fault(role, format!("site {:?} has a gateway already", site.name.get_ref()));
                    }
                }
                Role::Agent => agents.push(role),
            }
        }
        if let (Some(agent), 0) = (agents.first(), gateways) {
            return fault(
                agent,
                format!("site {:?} has agents but no node with the gateway role", site.name.get_ref()),
            );
        }
    }
    match (brokers.as_slice(), dependent) {
        ([], Some(role)) => fault(role, "services need a broker: give a [[host]] the broker role"),
        ([_, second, ..], _) => fault(second, "the grid has a broker already"),
        _ => Ok(()),
    }
}
