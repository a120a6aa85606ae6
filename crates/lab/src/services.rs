//! isthmus's own services in the lab, set up exactly as a user would: the
//! grid made on the broker's machine, every service invited and joined with a
//! token of its own, then started. Here is decided what; [`run`] does it.

pub(crate) mod daemon;
pub(crate) mod grid_engine;
pub(crate) mod run;
pub(crate) mod slurm;

use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use crate::grid::{Grid, Node, PortRange, Role, Site, SiteKind};
use crate::mounts::runtime_directory;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    /// The role that the service has in the grid.
    pub role: Role,
    /// Name of the machine that the service runs on.
    pub machine: String,
    /// How the service becomes a member of the grid.
    pub membership: Membership,
    /// Text of the service's configuration file.
    pub configuration: String,
}

/// How a service gets its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Membership {
    /// The service makes the grid. These are the arguments of `isthmus grid init` after `--state`.
    Found(Vec<String>),
    /// The service is invited. These are the arguments of `isthmus grid invite` and of `isthmus
    /// join`, each without `--state`.
    Join { invite: Vec<String>, join: Vec<String> },
}

/// A service that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// The role that the service has in the grid.
    pub role: Role,
    /// Name of the machine that the service runs on.
    pub machine: String,
    /// The process of the real machine that stands for the service. When it is killed, the service
    /// ends, too.
    pub process: crate::process::ProcessId,
}

/// The directory, in its machine, of a service's identity and keys.
pub(crate) fn state_directory(role: Role) -> String {
    format!("/var/lib/isthmus/{}", role.command())
}

/// The services to start, in stages. The services of a stage need those of the stages before.
pub(crate) fn stages(grid: &Grid) -> Vec<Vec<Service>> {
    let roles = roles(grid);
    let Some(broker) = roles.iter().find(|placed| placed.role == Role::Broker) else { return Vec::new() };
    let broker = SocketAddrV4::new(broker.address, broker.port);
    let of = |wanted: &[Role]| {
        let chosen = roles.iter().filter(|placed| wanted.contains(&placed.role));
        chosen.map(|placed| placed.service(grid, broker)).collect::<Vec<_>>()
    };
    let stages = [of(&[Role::Broker]), of(&[Role::Relay, Role::Gateway]), of(&[Role::Agent])];
    stages.into_iter().filter(|stage| !stage.is_empty()).collect()
}

/// A role of a machine, and what its service's configuration depends on.
struct PlacedRole<'a> {
    role: Role,
    machine: String,
    address: Ipv4Addr,
    port: u16,
    site: Option<&'a Site>,
    /// Addresses of the gateways that the machine's agent may use. Empty at public hosts.
    gateways: Vec<Ipv4Addr>,
    node: &'a str,
    slots: Option<u32>,
}

fn roles(grid: &Grid) -> Vec<PlacedRole<'_>> {
    let mut roles = Vec::new();
    for host in &grid.hosts {
        let (machine, address) = (host.name.clone(), host.address);
        roles.extend(host.roles.iter().map(|role| PlacedRole {
            role: *role,
            machine: machine.clone(),
            address,
            port: host.port.unwrap_or(role.port()),
            site: None,
            gateways: Vec::new(),
            node: &host.name,
            slots: None,
        }));
    }
    for site in &grid.sites {
        for node in &site.nodes {
            let own = node.roles.iter().filter(|role| !role.is_of_slurm() && !role.is_of_grid_engine());
            roles.extend(own.map(|role| PlacedRole {
                role: *role,
                machine: format!("{}.{}", node.name, site.name),
                address: node.address,
                port: role.port(),
                site: Some(site),
                gateways: gateways(site, node).iter().map(|gateway| gateway.address).collect(),
                node: &node.name,
                slots: node.slots,
            }));
        }
    }
    roles
}

/// The nodes whose gateways an agent may use: the node that it names, else its own node, else all
/// gateways of the site.
fn gateways<'a>(site: &'a Site, node: &'a Node) -> Vec<&'a Node> {
    match &node.via {
        Some(via) => site.node(via).into_iter().collect(),
        None if node.roles.contains(&Role::Gateway) => vec![node],
        None => site.nodes.iter().filter(|node| node.roles.contains(&Role::Gateway)).collect(),
    }
}

/// Whether other sites' agents reach all agents of a site.
fn lets_in(site: &Site) -> bool {
    let agents = site.nodes.iter().filter(|node| node.roles.contains(&Role::Agent));
    site.kind == SiteKind::Open && agents.into_iter().all(|node| node.way_out)
}

impl PlacedRole<'_> {
    fn service(&self, grid: &Grid, broker: SocketAddrV4) -> Service {
        let Self { role, address, port, .. } = self;
        let mut configuration = format!("[{}]\nlisten = \"{address}:{port}\"\n", role.command());
        let mut set = |name: &str, value: String| configuration.push_str(&format!("{name} = {value}\n"));
        match role {
            Role::Broker => {
                if !grid.trusted.is_empty() {
                    set("trusted", format!("{:?}", grid.trusted));
                }
                if !grid.measure {
                    set("measure", "\"off\"".to_owned());
                }
                for pair in &grid.pairs {
                    set("[[broker.pairs]]\nsites", format!("{:?}", pair.sites));
                    set("never", format!("{:?}", pair.never));
                    if let Some(only) = &pair.only {
                        set("only", format!("{only:?}"));
                    }
                    if let Some(trunk) = &pair.trunk {
                        set("trunk", format!("{trunk:?}"));
                    }
                }
            }
            Role::Relay => {}
            Role::Munged | Role::Slurmctld | Role::Slurmd | Role::SgeQmaster | Role::SgeExecd => {}
            Role::Gateway => {
                let open = self.site.is_some_and(lets_in);
                set("inbound", format!("{:?}", if open { "open" } else { "auto" }));
                if self.site.is_some_and(|site| !site.measure) {
                    set("measure", "\"off\"".to_owned());
                }
                if self.site.is_some_and(|site| site.site_trunk) {
                    set("site_trunk", "true".to_owned());
                }
                if self.site.is_some_and(|site| !site.bbr) {
                    set("bbr", "\"off\"".to_owned());
                }
                let relays = self.relays_of_site();
                if !relays.is_empty() {
                    set("relay_networks", format!("{relays:?}"));
                }
                if let Some((port, outside)) = self.outside_port() {
                    // Rails end at other addresses of the node.
                    let listen = if self.rails().is_empty() { *address } else { Ipv4Addr::UNSPECIFIED };
                    set("outside", format!("\"{listen}:{port}\""));
                    set("outside_address", format!("\"{outside}:{port}\""));
                }
                if self.site.is_some_and(|site| site.site_trunk) {
                    let port = self.outside_port().map(|(port, _)| port);
                    self.rails().iter().for_each(|rail| rail.set("gateway", port, &mut set));
                }
            }
            Role::Agent => {
                if self.gateways.len() > 1 {
                    set("gateway", format!("{:?}", self.gateways.iter().map(gateway_at).collect::<Vec<_>>()));
                }
                if let Some(seconds) = grid.return_seconds {
                    set("return_seconds", seconds.to_string());
                }
                // An ordinary user's agents would be below its home, which the machines of
                // all labs share.
                if let Some(directory) = runtime_directory() {
                    set("runtime_directory", format!("{:?}", directory.join("isthmus")));
                }
                if let Some(slots) = self.slots {
                    set("slots", slots.to_string());
                }
                if self.site.is_some_and(|site| !site.bbr) {
                    set("bbr", "\"off\"".to_owned());
                }
                if let Some((ports, outside)) = self.let_in() {
                    set("port_range", format!("{:?}", ports.to_string()));
                    if outside != self.address {
                        set("outside_host", format!("{:?}", outside.to_string()));
                    }
                }
                self.rails().iter().for_each(|rail| rail.set("agent", None, &mut set));
            }
        }
        let membership = self.membership(grid, broker);
        Service { role: *role, machine: self.machine.clone(), membership, configuration }
    }

    /// The relays on machines of the gateway's own site, each as a network of a single address.
    fn relays_of_site(&self) -> Vec<String> {
        let nodes = self.site.iter().flat_map(|site| &site.nodes);
        let relays = nodes.filter(|node| node.roles.contains(&Role::Relay));
        relays.map(|node| format!("{}/32", node.address)).collect()
    }

    /// The rails with links of their own that the role's node uses.
    fn rails(&self) -> Vec<OwnRail> {
        let Some((site, node)) = self.site.and_then(|site| Some((site, site.node(self.node)?))) else {
            return Vec::new();
        };
        let linked = site.rails.iter().filter(|_| node.way_out);
        let own = linked.filter_map(|rail| {
            let (uplink, source) = (rail.uplink.as_ref()?, site.address_on(rail, node));
            Some(OwnRail { source, outside: if site.kind.translates() { uplink.outside } else { source } })
        });
        own.collect()
    }

    /// Port and address at which other sites reach this gateway: the first port that is let in for
    /// its node. `None` if no port is, or if the node's agent uses the ports.
    fn outside_port(&self) -> Option<(u16, Ipv4Addr)> {
        let node = self.site?.node(self.node)?;
        let (ports, outside) = self.let_in().filter(|_| !node.roles.contains(&Role::Agent))?;
        Some((ports.first(), outside))
    }

    /// The ports that the site lets in for this node, and their address outside. `None` if it lets
    /// in none.
    fn let_in(&self) -> Option<(PortRange, Ipv4Addr)> {
        let site = self.site?;
        let forward = site.forward.iter().find(|forward| forward.to == self.node)?;
        Some((forward.ports, if site.kind.translates() { site.outside } else { self.address }))
    }

    fn membership(&self, grid: &Grid, broker: SocketAddrV4) -> Membership {
        if self.role == Role::Broker {
            return Membership::Found(words(&["--name", &grid.name, "--address", &broker.to_string()]));
        }
        let mut invite = words(&["--role", self.role.command()]);
        let mut join = Vec::new();
        match (self.role, self.site) {
            (Role::Relay, Some(site)) => {
                invite.extend(words(&["--name", &format!("{}-{}", self.node, site.name)]))
            }
            (Role::Relay, None) => invite.extend(words(&["--name", self.node])),
            (Role::Gateway, Some(site)) => {
                invite.extend(words(&["--site", &site.name]));
                if site.nodes.iter().filter(|node| node.roles.contains(&Role::Gateway)).count() > 1 {
                    invite.extend(words(&["--name", self.node]));
                }
            }
            (Role::Agent, Some(site)) => {
                invite.extend(words(&["--site", &site.name, "--name", self.node]));
                if let Some(gateway) = self.gateways.first() {
                    join.extend(words(&["--via", &gateway_at(gateway)]));
                }
            }
            // The grid file allows neither without a site.
            (Role::Gateway | Role::Agent, None) | (Role::Broker, _) => {}
            (Role::Munged | Role::Slurmctld | Role::Slurmd | Role::SgeQmaster | Role::SgeExecd, _) => {}
        }
        Membership::Join { invite, join }
    }
}

/// A rail of a node with its own link to other sites.
struct OwnRail {
    /// The node's address on the rail.
    source: Ipv4Addr,
    /// The address at which other sites reach the ports that are let in.
    outside: Ipv4Addr,
}

impl OwnRail {
    /// Adds the rail to the configuration of `service`. `port` is the service's port that is let in
    /// from other sites.
    fn set(&self, service: &str, port: Option<u16>, set: &mut impl FnMut(&str, String)) {
        let Self { source, outside } = self;
        set(&format!("[[{service}.rails]]\nsource"), format!("\"{source}\""));
        if let Some(port) = port {
            set("address", format!("\"{outside}:{port}\""));
        }
    }
}

/// Address and port at which a site's agents find a gateway.
fn gateway_at(address: &Ipv4Addr) -> String {
    format!("{address}:{}", Role::Gateway.port())
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
        pairs = [{ sites = ["alpha", "beta"], only = ["relay"], trunk = "never" }]
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
                (Role::Broker, _) => {
                    assert_eq!(section["trusted"].to_string(), r#"[["alpha", "beta"]]"#);
                    assert_eq!(section["measure"].as_str(), Some("off"));
                    assert_eq!(section["pairs"][0]["trunk"].as_str(), Some("never"));
                    assert_eq!(section["pairs"][0]["only"].to_string(), r#"["relay"]"#);
                }
                (Role::Gateway, "front.beta") => assert_eq!(section["inbound"].as_str(), Some("open")),
                (Role::Gateway, _) => assert_eq!(section["inbound"].as_str(), Some("auto")),
                (Role::Agent, machine) => assert_eq!(section.contains_key("slots"), machine == "n2.alpha"),
                (Role::Relay, _) => {}
                (role, _) => panic!("{role:?} is no service of isthmus"),
            }
        }
    }

    #[test]
    fn gateways_know_the_relays_of_their_site() {
        let stages = planned(
            r#"
            [[host]]
            name = "hub"
            roles = ["broker", "relay"]
            [[site]]
            name = "alpha"
            kind = "open"
            subnet = "203.0.113.0/26"
            nodes = [{ name = "front", roles = ["gateway"] }, { name = "n1", roles = ["agent", "relay"] }]
            [[site]]
            name = "beta"
            kind = "nat"
            subnet = "192.168.1.0/24"
            nodes = [{ name = "n1", roles = ["agent", "gateway"] }]
        "#,
        );
        let gateways = stages.iter().flatten().filter(|service| service.role == Role::Gateway);
        let networks = gateways.map(|gateway| {
            let table: toml::Table = gateway.configuration.parse().unwrap();
            (gateway.machine.clone(), table["gateway"].get("relay_networks").map(ToString::to_string))
        });
        let own = Some(r#"["203.0.113.3/32"]"#.to_owned());
        let expected = [("front.alpha".to_owned(), own), ("n1.beta".to_owned(), None)];
        assert_eq!(networks.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn agents_of_several_gateways_know_all_of_them() {
        let stages = planned(
            r#"
            [[host]]
            name = "hub"
            roles = ["broker"]
            port = 443
            [[site]]
            name = "alpha"
            kind = "open"
            subnet = "203.0.113.0/26"
            nodes = [
                { name = "front1", roles = ["gateway"] },
                { name = "front2", roles = ["gateway", "agent"] },
                { name = "n1", roles = ["agent"], via = "front2" },
                { name = "n2", roles = ["agent"], way_out = false },
                { name = "n3", roles = ["agent"] },
            ]
        "#,
        );
        let [brokers, gateways, agents] = stages.as_slice() else { panic!("three stages") };
        assert_eq!(brokers[0].configuration, "[broker]\nlisten = \"198.51.100.2:443\"\nmeasure = \"off\"\n");
        assert!(
            gateways.iter().all(|gateway| gateway.configuration.contains("\"auto\"")),
            "n2 is out of reach"
        );
        let via: Vec<_> = agents
            .iter()
            .map(|agent| match &agent.membership {
                Membership::Join { join, .. } => (agent.machine.as_str(), join.join(" ")),
                Membership::Found(_) => panic!("{agent:?}"),
            })
            .collect();
        let both = "gateway = [\"203.0.113.2:7710\", \"203.0.113.3:7710\"]";
        let expected = [
            ("front2.alpha", 3, false),
            ("n1.alpha", 3, false),
            ("n2.alpha", 2, true),
            ("n3.alpha", 2, true),
        ];
        for (((machine, join), agent), (expected, host, several)) in via.iter().zip(agents).zip(expected) {
            assert_eq!(
                (*machine, join.as_str()),
                (expected, format!("--via 203.0.113.{host}:7710").as_str())
            );
            assert_eq!(agent.configuration.contains(both), several, "{}", agent.configuration);
        }
        for (gateway, name) in gateways.iter().zip(["front1", "front2"]) {
            let Membership::Join { invite, .. } = &gateway.membership else { panic!("{gateway:?}") };
            assert_eq!(invite.join(" "), format!("--role gateway --site alpha --name {name}"));
        }
    }

    #[test]
    fn a_grid_without_roles_has_no_services() {
        assert_eq!(planned("[[host]]\nname = \"hub\""), Vec::<Vec<Service>>::new());
    }
}
