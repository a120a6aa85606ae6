//! isthmus's own services in the lab, set up exactly as a user would: the
//! grid made on the broker's machine, every service invited and joined with a
//! token of its own, then started. Here is decided what; [`run`] does it.

pub mod run;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::grid::{Grid, Role, SiteKind};

/// A service to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// What it is.
    pub role: Role,
    /// Where it runs.
    pub machine: String,
    /// How it becomes a member of the grid.
    pub membership: Membership,
    /// Its configuration file.
    pub configuration: String,
}

/// How a service gets its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// It makes the grid: arguments of `isthmus grid init` after `--state`.
    Found(Vec<String>),
    /// It is invited: arguments of `isthmus grid invite`, and of
    /// `isthmus join`, after `--state` each.
    Join {
        /// For the inviting end.
        invite: Vec<String>,
        /// For the joining end.
        join: Vec<String>,
    },
}

/// A service that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// What it is.
    pub role: Role,
    /// Where it runs.
    pub machine: String,
    /// The process of the real machine that stands for it: killed, it takes
    /// the service along.
    pub process: crate::process::ProcessId,
}

/// Ports of the services.
const BROKER_PORT: u16 = 7700;
const GATEWAY_PORT: u16 = 7710;
const RELAY_PORT: u16 = 7720;
const AGENT_PORT: u16 = 7730;

/// Directory of a service's identity and keys in its machine.
pub fn state_directory(role: Role) -> String {
    format!("/var/lib/isthmus/{}", role.command())
}

/// Which services to start, in stages: those of a stage need the ones before.
pub fn stages(grid: &Grid) -> Vec<Vec<Service>> {
    let places = places(grid);
    let Some(broker) = places.iter().find(|place| place.role == Role::Broker) else { return Vec::new() };
    let of = |wanted: &[Role]| {
        let chosen = places.iter().filter(|place| wanted.contains(&place.role));
        chosen.map(|place| place.service(grid, broker.address)).collect::<Vec<_>>()
    };
    let stages = [of(&[Role::Broker]), of(&[Role::Relay, Role::Gateway]), of(&[Role::Agent])];
    stages.into_iter().filter(|stage| !stage.is_empty()).collect()
}

/// One role of one machine.
struct Place<'a> {
    role: Role,
    machine: String,
    address: Ipv4Addr,
    /// Site, what it lets in, and the address of its gateway's machine.
    site: Option<(&'a str, SiteKind, Option<Ipv4Addr>)>,
    node: &'a str,
    slots: Option<u32>,
}

fn places(grid: &Grid) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    for host in &grid.hosts {
        let (machine, address) = (host.name.clone(), host.address);
        places.extend(host.roles.iter().map(|role| Place {
            role: *role,
            machine: machine.clone(),
            address,
            site: None,
            node: &host.name,
            slots: None,
        }));
    }
    for site in &grid.sites {
        let gateway = site.nodes.iter().find(|node| node.roles.contains(&Role::Gateway));
        let gateway = gateway.map(|node| node.address);
        for node in &site.nodes {
            places.extend(node.roles.iter().map(|role| Place {
                role: *role,
                machine: format!("{}.{}", node.name, site.name),
                address: node.address,
                site: Some((&site.name, site.kind, gateway)),
                node: &node.name,
                slots: node.slots,
            }));
        }
    }
    places
}

impl Place<'_> {
    fn service(&self, grid: &Grid, broker: Ipv4Addr) -> Service {
        let Self { role, address, .. } = self;
        let mut configuration = format!("[{}]\n", role.command());
        let mut set = |name: &str, value: String| configuration.push_str(&format!("{name} = {value}\n"));
        match role {
            Role::Broker => {
                set("listen", format!("\"{address}:{BROKER_PORT}\""));
                if !grid.trusted.is_empty() {
                    set("trusted", format!("{:?}", grid.trusted));
                }
            }
            Role::Relay => {
                set("listen", format!("\"{address}:{RELAY_PORT}\""));
            }
            Role::Gateway => {
                set("listen", format!("\"{address}:{GATEWAY_PORT}\""));
                let open = self.site.is_some_and(|(_, kind, _)| kind == SiteKind::Open);
                set("inbound", format!("{:?}", if open { "open" } else { "closed" }));
            }
            Role::Agent => {
                set("listen", format!("\"{address}:{AGENT_PORT}\""));
                if let Some(slots) = self.slots {
                    set("slots", slots.to_string());
                }
            }
        }
        let membership = self.membership(grid, broker);
        Service { role: *role, machine: self.machine.clone(), membership, configuration }
    }

    fn membership(&self, grid: &Grid, broker: Ipv4Addr) -> Membership {
        if self.role == Role::Broker {
            let address = format!("{broker}:{BROKER_PORT}");
            return Membership::Found(words(&["--name", &grid.name, "--address", &address]));
        }
        let mut invite = words(&["--role", self.role.command()]);
        let mut join = Vec::new();
        match (self.role, self.site) {
            (Role::Relay, Some((site, ..))) => {
                invite.extend(words(&["--name", &format!("{}-{site}", self.node)]))
            }
            (Role::Relay, None) => invite.extend(words(&["--name", self.node])),
            (Role::Gateway, Some((site, ..))) => invite.extend(words(&["--site", site])),
            (Role::Agent, Some((site, _, gateway))) => {
                invite.extend(words(&["--site", site, "--name", self.node]));
                if let Some(gateway) = gateway {
                    join.extend(words(&["--via", &format!("{gateway}:{GATEWAY_PORT}")]));
                }
            }
            // The grid file allows neither without a site.
            (Role::Gateway | Role::Agent, None) | (Role::Broker, _) => {}
        }
        Membership::Join { invite, join }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(text: &str) -> Vec<Vec<Service>> {
        stages(&Grid::parse(text, "test", "test").unwrap())
    }

    const GRID: &str = r#"
        trusted = [["alpha", "beta"]]
        [[host]]
        name = "hub"
        address = "198.51.100.10"
        roles = ["relay", "broker"]
        [[site]]
        name = "alpha"
        kind = "nat"
        subnet = "192.168.1.0/24"
        nodes = [{ name = "n1", roles = ["agent", "gateway"] }, { name = "n2", roles = ["agent"], slots = 2 }]
        [[site]]
        name = "beta"
        kind = "open"
        subnet = "203.0.113.0/26"
        nodes = [{ name = "front", roles = ["gateway"] }, { name = "n1", roles = ["agent"] }]
    "#;

    #[test]
    fn what_others_need_starts_first() {
        let stages = planned(GRID);
        let names: Vec<Vec<String>> = stages
            .iter()
            .map(|stage| stage.iter().map(|s| format!("{} {}", s.role.command(), s.machine)).collect())
            .collect();
        assert_eq!(names[0], ["broker hub"]);
        assert_eq!(names[1], ["relay hub", "gateway n1.alpha", "gateway front.beta"]);
        assert_eq!(names[2], ["agent n1.alpha", "agent n2.alpha", "agent n1.beta"]);
    }

    #[test]
    fn everyone_joins_by_an_own_invitation() {
        let stages = planned(GRID);
        let found = words(&["--name", "test", "--address", "198.51.100.10:7700"]);
        assert_eq!(stages[0][0].membership, Membership::Found(found));
        for (service, invite, join) in [
            (&stages[1][0], "--role relay --name hub", ""),
            (&stages[1][1], "--role gateway --site alpha", ""),
            (&stages[2][1], "--role agent --site alpha --name n2", "--via 192.168.1.2:7710"),
            (&stages[2][2], "--role agent --site beta --name n1", "--via 203.0.113.2:7710"),
        ] {
            let Membership::Join { invite: got_invite, join: got_join } = &service.membership else {
                panic!("{service:?}")
            };
            assert_eq!((got_invite.join(" ").as_str(), got_join.join(" ").as_str()), (invite, join));
        }
    }

    #[test]
    fn configurations_are_tables_of_their_role() {
        for service in planned(GRID).into_iter().flatten() {
            let table: toml::Table = service.configuration.parse().unwrap();
            let section = table[service.role.command()].as_table().unwrap();
            assert_eq!(table.len(), 1);
            let listen = section["listen"].as_str().unwrap();
            assert!(listen.parse::<std::net::SocketAddr>().is_ok(), "{listen}");
            match (service.role, service.machine.as_str()) {
                (Role::Broker, _) => assert_eq!(section["trusted"].to_string(), r#"[["alpha", "beta"]]"#),
                (Role::Gateway, "front.beta") => assert_eq!(section["inbound"].as_str(), Some("open")),
                (Role::Gateway, _) => assert_eq!(section["inbound"].as_str(), Some("closed")),
                (Role::Agent, machine) => assert_eq!(section.contains_key("slots"), machine == "n2.alpha"),
                (Role::Relay, _) => {}
            }
        }
    }

    #[test]
    fn a_grid_without_roles_has_no_services() {
        assert_eq!(planned("[[host]]\nname = \"hub\""), Vec::<Vec<Service>>::new());
    }
}
