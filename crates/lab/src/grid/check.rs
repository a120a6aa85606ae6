//! From the tables of a grid file to a [`Grid`]: names, addresses and roles
//! that don't fit together are found here, before anything starts.

mod addresses;
mod roles;
mod site;

use std::collections::BTreeSet;

use isthmus_wire::Label;
use toml::Spanned;

use self::addresses::{Subnets, WanAddresses};
use self::roles::{check_roles, roles};
use super::error::{Fault, fault};
use super::file::{GridFile, HostTable, PairTable};
use super::links::link;
use super::model::{Grid, Host, Pair, Role, Wan};
use super::slow::Slow;

/// Names that hosts, sites and nodes can't have, as they mean something in the lab or the grid.
const RESERVED: [&str; 7] = ["router", "carrier", "wan", "relay", "gateway", "broker", "admin"];

/// Checks the tables and gives every default its value.
pub(super) fn check(file: GridFile, default_name: &str) -> Result<Grid, Fault> {
    let name = match &file.name {
        Some(name) => label(name, "the lab's name")?,
        None => default_name
            .parse::<Label>()
            .map_err(|error| Fault {
                at: 0..0,
                message: format!("the file's name gives the lab no name ({error}); add name = \"…\""),
            })?
            .to_string(),
    };
    let mut wan = WanAddresses::new(&file)?;
    let wan_table = Wan { subnet: *file.wan.subnet.get_ref(), router: wan.router() };
    let mut names = BTreeSet::new();
    for name in file.hosts.iter().map(|host| &host.name).chain(file.sites.iter().map(|site| &site.name)) {
        if !names.insert(name.get_ref().to_ascii_lowercase()) {
            return fault(name, format!("{:?} is the name of another host or site already", name.get_ref()));
        }
    }
    let subnets = Subnets::of(&file)?;
    let hosts = file.hosts.iter().map(|host| check_host(host, &mut wan)).collect::<Result<Vec<_>, _>>()?;
    let sites = file.sites.iter().zip(subnets.of_sites());
    let sites = sites
        .map(|(site, subnet)| site::check_site(site, *subnet, &mut wan))
        .collect::<Result<Vec<_>, _>>()?;
    if hosts.is_empty() && sites.iter().all(|site| site.nodes.is_empty()) {
        return Err(Fault { at: 0..0, message: "no nodes: add a [[site]] with nodes, or a [[host]]".into() });
    }
    check_roles(&file)?;
    let trusted = file.trusted.iter().map(|pair| check_pair(&file, pair)).collect::<Result<_, _>>()?;
    let pair = |pair: &PairTable| {
        let sites = check_pair(&file, &pair.sites)?;
        Ok(Pair { sites, only: pair.only.clone(), never: pair.never.clone(), trunk: pair.trunk.clone() })
    };
    let pairs = file.pairs.iter().map(pair).collect::<Result<_, _>>()?;
    for path in &file.share {
        if !path.get_ref().is_absolute() {
            return fault(path, "a shared directory must be an absolute path");
        }
    }
    let share = file.share.into_iter().map(Spanned::into_inner).collect();
    let (seed, measure, return_seconds) = (file.seed, file.measure, file.return_seconds);
    let wan = wan_table;
    Ok(Grid {
        name,
        seed,
        wan,
        hosts,
        sites,
        share,
        trusted,
        pairs,
        measure,
        return_seconds,
        slow: Slow::NONE,
    })
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
    if let Some(port) = &table.port {
        if *port.get_ref() == 0 {
            return fault(port, "a port is at least 1");
        }
        if !matches!(table.roles.as_slice(), [role] if matches!(role.get_ref(), Role::Broker | Role::Relay)) {
            return fault(port, "a port belongs to a host with one role, broker or relay");
        }
    }
    Ok(Host {
        host_name: host_name(table.host_name.as_ref(), &name)?,
        address: wan.take(table.address.as_ref(), &table.name, &format!("host {name:?}"))?,
        link: link(&table.link)?,
        roles: roles(&table.roles)?,
        port: table.port.as_ref().map(|port| *port.get_ref()),
        name,
    })
}

/// Checks that both names of a pair are those of sites. Returns them as the grid has them.
fn check_pair(file: &GridFile, [a, b]: &[Spanned<String>; 2]) -> Result<[String; 2], Fault> {
    let site = |name: &Spanned<String>| {
        let found = file.sites.iter().find(|site| site.name.get_ref().eq_ignore_ascii_case(name.get_ref()));
        match found {
            Some(site) => Ok(site.name.get_ref().to_ascii_lowercase()),
            None => fault(name, format!("{:?} is no site of this grid", name.get_ref())),
        }
    };
    Ok([site(a)?, site(b)?])
}
