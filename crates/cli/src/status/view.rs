//! The grid as `isthmus status --json` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use isthmus_front::{format, picture, without_broker};
use isthmus_rpc::enums::inbound_from_wire;
use isthmus_wire::proto::{self, ListReply};
use serde::Serialize;

use crate::jobs::Job;
use crate::path::Path;

#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) grid: String,
    pub(super) sites: Vec<Site>,
    pub(super) nodes: Vec<Node>,
    pub(super) relays: Vec<Relay>,
    pub(super) jobs: Vec<Job>,
    /// The last measurement between each two of the sites.
    pub(super) site_paths: Vec<Path>,
    /// What a gateway told of itself if it answered, because it doesn't reach the broker.
    pub(super) without_broker: Option<without_broker::View>,
}

#[derive(Debug, Serialize)]
pub(super) struct Site {
    pub(super) name: String,
    /// Whether one of the site's gateways is attached to the broker.
    pub(super) up: bool,
    pub(super) gateways: Vec<Gateway>,
    /// What the site lets in, declared by its gateways: "open", "closed", or "auto" for as
    /// measured.
    pub(super) inbound: &'static str,
    /// Sites that this one exchanges unencrypted data with.
    pub(super) trusted: Vec<String>,
    pub(super) nodes_up: u32,
    /// How many of the site's nodes are not attached.
    pub(super) nodes_down: u32,
    /// The slots of the site's nodes that are up.
    pub(super) slots: u64,
    /// How many running jobs have their head at the site.
    pub(super) jobs: u32,
    /// Addresses at which other sites reach the site's gateways, joined by ", "; may be empty.
    pub(super) outside_address: String,
    pub(super) version: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Gateway {
    /// The gateway's name; "gateway" if the site has only one.
    pub(super) name: String,
    /// Whether the gateway is attached to the broker.
    pub(super) up: bool,
    /// What the gateway declares that its site lets in. The strictest of a site's gateways holds.
    pub(super) inbound: &'static str,
    /// How many nodes are attached to the gateway.
    pub(super) nodes_up: u32,
    /// Address at which other sites reach the gateway; may be empty.
    pub(super) outside_address: String,
    pub(super) version: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Node {
    /// The node's grid name, `node.site`.
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) virtual_address: Ipv4Addr,
    pub(super) address: String,
    pub(super) host_name: String,
    pub(super) owner: String,
    pub(super) slots: u32,
    pub(super) architecture: String,
    pub(super) version: String,
    /// The batch scheduler at which the node's agent submits batch jobs; empty: at none.
    pub(super) submits: String,
    /// The id of the pilot that the node is of, in hexadecimal digits; empty: of none.
    pub(super) pilot: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Relay {
    pub(super) name: String,
    pub(super) up: bool,
    /// Whether the relay takes no further connection at present.
    pub(super) full: bool,
    pub(super) address: String,
    /// Connections that the relay has spliced since it started.
    pub(super) connections: u64,
    /// Bytes that the relay has carried since it started, in both directions.
    pub(super) bytes: u64,
    /// Each two sites that the relay joins: those of the running jobs that the user may see, and those
    /// whose way was measured over it last. In alphabetical order.
    pub(super) joins: Vec<[String; 2]>,
    pub(super) version: String,
}

impl Gateway {
    fn new(gateway: &proto::SiteGateway) -> Self {
        Self {
            name: gateway.name.clone(),
            up: gateway.up,
            inbound: inbound_from_wire(gateway.inbound()).name(),
            nodes_up: gateway.nodes,
            outside_address: gateway.outside_address.clone(),
            version: gateway.version.clone(),
        }
    }
}

impl View {
    /// A picture (SVG) of the sites, and of what was measured between each two.
    pub(super) fn picture(&self) -> String {
        let at = |name: &str| self.sites.iter().position(|site| site.name == name);
        let sites: Vec<_> = self
            .sites
            .iter()
            .map(|site| picture::Site {
                name: site.name.clone(),
                lines: vec![
                    format!(
                        "{} up, {} down",
                        format::count(u64::from(site.nodes_up), "node"),
                        site.nodes_down
                    ),
                    format!(
                        "{}, {}",
                        format::count(site.slots, "slot"),
                        format::count(u64::from(site.jobs), "job")
                    ),
                ],
                is_up: site.up,
            })
            .collect();
        let links: Vec<_> = self
            .site_paths
            .iter()
            .filter_map(|path| {
                let [from, to] = path.sites();
                Some(picture::Edge { ends: [at(from)?, at(to)?], lines: path.summary(), bytes: None })
            })
            .collect();
        picture::draw(&format!("grid {}", self.grid), &sites, &links)
    }
}

/// Each two sites that relays join, by the relay's name.
fn joins(jobs: &[Job], paths: &[Path]) -> BTreeMap<String, BTreeSet<[String; 2]>> {
    let mut joins: BTreeMap<String, BTreeSet<[String; 2]>> = BTreeMap::new();
    let mut add = |relay: &str, mut sites: [String; 2]| {
        sites.sort_unstable();
        joins.entry(relay.to_owned()).or_default().insert(sites);
    };
    for (relay, sites) in jobs.iter().flat_map(Job::relayed) {
        add(relay, sites.clone());
    }
    for path in paths {
        if let Some(relay) = path.relay() {
            add(relay, path.sites().map(str::to_owned));
        }
    }
    joins
}

impl View {
    pub(super) fn new(reply: &ListReply) -> Self {
        let jobs: Vec<Job> = reply.jobs.iter().map(Job::new).collect();
        let site_paths: Vec<Path> = reply.paths.iter().map(Path::new).collect();
        let mut joins = joins(&jobs, &site_paths);
        let sites = reply.sites.iter().map(|site| Site {
            name: site.name.clone(),
            up: site.up,
            gateways: site.gateways.iter().map(Gateway::new).collect(),
            inbound: inbound_from_wire(site.inbound()).name(),
            trusted: site.trusted.clone(),
            nodes_up: site.nodes_up,
            nodes_down: site.nodes_down,
            slots: site.slots,
            jobs: site.jobs,
            outside_address: site.outside_address.clone(),
            version: site.version.clone(),
        });
        let nodes = reply.nodes.iter().map(|node| Node {
            name: node.name.clone(),
            up: node.up,
            virtual_address: node.virtual_address.into(),
            address: node.address.clone(),
            host_name: node.host_name.clone(),
            owner: node.owner.clone(),
            slots: node.slots,
            architecture: node.architecture.clone(),
            version: node.version.clone(),
            submits: node.submits.clone(),
            pilot: node.pilot.iter().map(|byte| format!("{byte:02x}")).collect(),
        });
        let relays = reply.relays.iter().map(|relay| Relay {
            name: relay.name.clone(),
            up: relay.up,
            full: relay.full,
            address: relay.address.clone(),
            connections: relay.connections,
            bytes: relay.bytes,
            joins: joins.remove(&relay.name).unwrap_or_default().into_iter().collect(),
            version: relay.version.clone(),
        });
        Self {
            grid: reply.grid.clone(),
            sites: sites.collect(),
            nodes: nodes.collect(),
            relays: relays.collect(),
            jobs,
            site_paths,
            without_broker: reply.without_broker.as_ref().map(without_broker::View::new),
        }
    }
}
