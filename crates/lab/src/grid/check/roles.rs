//! Services: each must find the ones it depends on.

use toml::Spanned;

use crate::grid::error::{Fault, fault};
use crate::grid::file::{GridFile, NodeTable, SiteTable};
use crate::grid::model::{Role, SiteKind};

/// A broker of the grid, and the port at which services reach it.
struct Broker<'a> {
    role: &'a Spanned<Role>,
    port: u16,
}

pub(super) fn roles(given: &[Spanned<Role>]) -> Result<Vec<Role>, Fault> {
    let mut roles = Vec::new();
    for role in given {
        if roles.contains(role.get_ref()) {
            return fault(role, format!("role {:?} is given twice", role.get_ref().command()));
        }
        roles.push(*role.get_ref());
    }
    Ok(roles)
}

/// Checks that every service finds the services that it depends on.
pub(super) fn check_roles(file: &GridFile) -> Result<(), Fault> {
    let mut brokers = Vec::new();
    let mut dependent = None;
    for host in &file.hosts {
        for role in &host.roles {
            match role.get_ref() {
                Role::Broker => {
                    let port = host.port.as_ref().map_or(Role::Broker.port(), |port| *port.get_ref());
                    brokers.push(Broker { role, port });
                }
                Role::Relay => dependent = dependent.or(Some(role)),
                Role::Gateway | Role::Agent => {
                    return fault(role, "gateways and agents belong to a site's nodes, not to a public host");
                }
                Role::Munged | Role::Slurmctld | Role::Slurmd | Role::SgeQmaster | Role::SgeExecd => {
                    return fault(role, "a batch system belongs to a site's nodes, not to a public host");
                }
            }
        }
    }
    for site in &file.sites {
        for (node, role) in site.nodes.iter().flat_map(|node| node.roles.iter().map(move |role| (node, role)))
        {
            check_place(site, node, role)?;
            match role.get_ref() {
                Role::Broker => brokers.push(Broker { role, port: Role::Broker.port() }),
                Role::Relay | Role::Gateway => dependent = dependent.or(Some(role)),
                Role::Agent
                | Role::Munged
                | Role::Slurmctld
                | Role::Slurmd
                | Role::SgeQmaster
                | Role::SgeExecd => {}
            }
        }
        check_gateways(site)?;
        check_scheduler(site, (Role::Slurmctld, Role::Slurmd))?;
        check_scheduler(site, (Role::SgeQmaster, Role::SgeExecd))?;
    }
    match (brokers.as_slice(), dependent) {
        ([], Some(role)) => fault(role, "services need a broker: give a [[host]] the broker role"),
        ([_, second, ..], _) => fault(second.role, "the grid has a broker already"),
        ([broker], _) => check_egress(file, broker),
        ([], None) => Ok(()),
    }
}

/// Checks that a service can do its work at this node.
fn check_place(site: &SiteTable, node: &NodeTable, role: &Spanned<Role>) -> Result<(), Fault> {
    let way_out = has_way_out(node);
    match role.get_ref() {
        Role::Broker | Role::Relay if site.kind != SiteKind::Open || !way_out => {
            fault(role, "a broker or relay must be reachable: put it on a [[host]] or at an open site")
        }
        Role::Gateway if !way_out => {
            fault(role, "a gateway must reach the broker: put it on a node that has a way out")
        }
        Role::Munged => fault(role, "munged runs wherever slurmctld or slurmd does: leave it out"),
        Role::SgeQmaster | Role::SgeExecd if site.clock_ahead_seconds != 0 => {
            fault(role, "jobs of Grid Engine have the real machine's clock: leave `clock_ahead_seconds` out")
        }
        Role::Broker
        | Role::Relay
        | Role::Gateway
        | Role::Agent
        | Role::Slurmctld
        | Role::Slurmd
        | Role::SgeQmaster
        | Role::SgeExecd => Ok(()),
    }
}

/// Checks that a site's batch system of these two roles is whole: a controller, and nodes for jobs.
fn check_scheduler(site: &SiteTable, (controller, node): (Role, Role)) -> Result<(), Fault> {
    let with = |wanted: Role| {
        let roles = site.nodes.iter().flat_map(|node| &node.roles);
        roles.filter(move |role| *role.get_ref() == wanted).collect::<Vec<_>>()
    };
    let name = site.name.get_ref();
    let lacks = |role: Role| format!("site {name:?} has no node with the {} role", role.command());
    match (with(controller).as_slice(), with(node).as_slice()) {
        ([_, second, ..], _) => {
            fault(second, format!("site {name:?} has a {} already", controller.command()))
        }
        ([found], []) => fault(found, lacks(node)),
        ([], [found, ..]) => fault(found, lacks(controller)),
        ([_], [..]) | ([], []) => Ok(()),
    }
}

/// Checks that agents find a gateway at their site: if they name a node with `via`, the gateway
/// there.
fn check_gateways(site: &SiteTable) -> Result<(), Fault> {
    let with = |wanted: Role| {
        site.nodes.iter().flat_map(move |node| {
            node.roles.iter().filter(move |role| *role.get_ref() == wanted).map(move |role| (node, role))
        })
    };
    let gateways: Vec<_> = with(Role::Gateway).map(|(node, _)| node.name.get_ref().as_str()).collect();
    if let (Some((_, agent)), []) = (with(Role::Agent).next(), gateways.as_slice()) {
        let message = format!("site {:?} has agents but no node with the gateway role", site.name.get_ref());
        return fault(agent, message);
    }
    for node in &site.nodes {
        let Some(via) = &node.via else { continue };
        if !node.roles.iter().any(|role| *role.get_ref() == Role::Agent) {
            return fault(via, "`via` names the gateway of a node's agent: add the agent role");
        }
        if !gateways.iter().any(|gateway| gateway.eq_ignore_ascii_case(via.get_ref())) {
            let known = gateways.join(", ");
            return fault(
                via,
                format!("{:?} is no node with the gateway role; there is: {known}", via.get_ref()),
            );
        }
    }
    Ok(())
}

/// Checks that each site with egress rules lets its gateways reach the broker.
fn check_egress(file: &GridFile, broker: &Broker<'_>) -> Result<(), Fault> {
    for site in &file.sites {
        let Some(egress) = &site.egress else { continue };
        let has_gateway =
            site.nodes.iter().flat_map(|node| &node.roles).any(|role| *role.get_ref() == Role::Gateway);
        if has_gateway && !egress.get_ref().iter().any(|ports| ports.contains(broker.port)) {
            let port = broker.port;
            return fault(
                egress,
                format!(
                    "the gateway can't reach the broker's port {port}: add it, or give the broker's [[host]] a port of these"
                ),
            );
        }
    }
    Ok(())
}

/// Whether a node has a way out. By default it has.
pub(super) fn has_way_out(node: &NodeTable) -> bool {
    node.way_out.as_ref().is_none_or(|way_out| *way_out.get_ref())
}
