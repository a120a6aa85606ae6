//! The grid as `isthmus status` shows it, to people and to programs.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use isthmus_net::enums::inbound_from_wire;
use isthmus_wire::proto::{self, ListReply};
use serde::Serialize;

use crate::path::Path;
use crate::run::account::{self, Pair};

/// Everything; this is the JSON of `isthmus status --json`.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    grid: String,
    sites: Vec<Site>,
    nodes: Vec<Node>,
    relays: Vec<Relay>,
    jobs: Vec<Job>,
    /// The way between each two sites, as it was last measured.
    site_paths: Vec<Path>,
}

#[derive(Debug, Serialize)]
struct Site {
    name: String,
    /// Whether a gateway of its is attached to the broker.
    up: bool,
    gateways: Vec<Gateway>,
    /// As its gateways say: "open", "closed" or "auto", what measurement shows.
    inbound: &'static str,
    /// Sites that it exchanges unencrypted data with.
    trusted: Vec<String>,
    nodes_up: u32,
    /// Known, and not attached.
    nodes_down: u32,
    /// Of the nodes that are up.
    slots: u64,
    /// Running ones with their head there.
    jobs: u32,
    /// Where other sites reach its gateways, joined by ", "; empty for nowhere.
    outside_address: String,
    version: String,
}

#[derive(Debug, Serialize)]
struct Gateway {
    /// "gateway" where it needs none.
    name: String,
    /// Whether it is attached to the broker.
    up: bool,
    /// As it says; of several, the strictest holds.
    inbound: &'static str,
    /// Nodes that are attached to it.
    nodes_up: u32,
    /// Where other sites reach it; empty for nowhere.
    outside_address: String,
    version: String,
}

#[derive(Debug, Serialize)]
struct Node {
    /// Grid name, `node.site`.
    name: String,
    up: bool,
    virtual_address: Ipv4Addr,
    address: String,
    host_name: String,
    owner: String,
    slots: u32,
    architecture: String,
    version: String,
}

#[derive(Debug, Serialize)]
struct Relay {
    name: String,
    up: bool,
    address: String,
    /// Joined since it started.
    connections: u64,
    /// Carried since it started, both directions.
    bytes: u64,
    version: String,
}

#[derive(Debug, Serialize)]
struct Job {
    id: String,
    owner: String,
    program: String,
    /// Grid names, the head first; of very many, not all.
    nodes: Vec<String>,
    /// With those that are not listed.
    node_count: u32,
    started_unix_ms: u64,
    /// How each pair of nodes is joined; of very many, not all.
    joined: Vec<Pair>,
    /// Joints of two nodes that are not listed.
    joined_left_out: u32,
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
    /// Makes it of the broker's answer.
    pub(super) fn new(reply: &ListReply) -> Self {
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
        });
        let relays = reply.relays.iter().map(|relay| Relay {
            name: relay.name.clone(),
            up: relay.up,
            address: relay.address.clone(),
            connections: relay.connections,
            bytes: relay.bytes,
            version: relay.version.clone(),
        });
        let jobs = reply.jobs.iter().map(|job| Job {
            id: job.job.clone(),
            owner: job.owner.clone(),
            program: job.program.clone(),
            nodes: job.nodes.clone(),
            node_count: job.node_count.max(count(job.nodes.len())),
            joined_left_out: job.joined_count.saturating_sub(count(job.joined.len())),
            started_unix_ms: job.started_unix_ms,
            joined: account::pairs(&job.joined.iter().collect::<Vec<_>>(), |name| name),
        });
        Self {
            grid: reply.grid.clone(),
            sites: sites.collect(),
            nodes: nodes.collect(),
            relays: relays.collect(),
            jobs: jobs.collect(),
            site_paths: reply.paths.iter().map(Path::new).collect(),
        }
    }

    /// For people; `verbose` with nodes that are down and each pair of nodes.
    pub(super) fn text(&self, reply: &ListReply, verbose: bool) -> String {
        let sum = |of: fn(&Site) -> u32| self.sites.iter().map(|site| u64::from(of(site))).sum::<u64>();
        let (up, down) = (sum(|site| site.nodes_up), sum(|site| site.nodes_down));
        let mut text = format!(
            "grid {}: {}, {} up{}, {}, {}\n",
            self.grid,
            account::count(self.sites.len() as u64, "site"),
            account::count(up, "node"),
            if down > 0 { format!(" ({down} down)") } else { String::new() },
            account::count(self.relays.len() as u64, "relay"),
            account::count(self.jobs.len() as u64, "job"),
        );
        text.push_str(&self.sites_table());
        text.push_str(&self.gateways_table());
        text.push_str(&self.nodes_table(verbose));
        if self.nodes.is_empty() && up + down > 0 {
            text.push_str(
                "\n Nodes: `isthmus status SITE` lists those of a site, `isthmus status --nodes` all.\n",
            );
        }
        text.push_str(&self.relays_table());
        let header = ["between sites", "by", "round trip", "there", "back", "measured"];
        let shown = if verbose { self.site_paths.len() } else { FEW_PATHS };
        text.push_str(&table(&header, &[2, 3, 4], self.site_paths.iter().take(shown).map(Path::row)));
        if self.site_paths.len() > shown {
            let left_out = self.site_paths.len() - shown;
            text.push_str(&format!(
                " and {left_out} more: `isthmus status SITE` lists those of a site, -v all\n"
            ));
        }
        for (job, report) in self.jobs.iter().zip(&reply.jobs) {
            text.push_str(&job.text(report, verbose));
        }
        text
    }

    fn sites_table(&self) -> String {
        let rows = self.sites.iter().map(|site| {
            vec![
                site.name.clone(),
                match site.gateways.as_slice() {
                    [] | [_] => state(site.up),
                    several => {
                        format!("{} of {} up", several.iter().filter(|one| one.up).count(), several.len())
                    }
                },
                match (site.inbound, site.outside_address.as_str()) {
                    ("open", _) => "everything".to_owned(),
                    ("auto", "") => "as measured".to_owned(),
                    (_, "") => "nothing".to_owned(),
                    ("auto", outside) => format!("as measured, gateway at {outside}"),
                    (_, outside) => format!("gateway at {outside}"),
                },
                site.nodes_up.to_string(),
                site.nodes_down.to_string(),
                site.slots.to_string(),
                site.jobs.to_string(),
                if site.trusted.is_empty() { "-".to_owned() } else { site.trusted.join(", ") },
                site.version.clone(),
            ]
        });
        let header = ["site", "gateway", "lets in", "nodes up", "down", "slots", "jobs", "trusts", "version"];
        table(&header, &[3, 4, 5, 6], rows)
    }

    /// The gateways of sites that have several.
    fn gateways_table(&self) -> String {
        let several = self.sites.iter().filter(|site| site.gateways.len() > 1);
        let gateways = several.flat_map(|site| site.gateways.iter().map(move |gateway| (site, gateway)));
        let rows: Vec<_> = gateways
            .map(|(site, gateway)| {
                let outside = gateway.outside_address.as_str();
                vec![
                    format!("{}.{}", gateway.name, site.name),
                    state(gateway.up),
                    gateway.nodes_up.to_string(),
                    gateway.inbound.to_owned(),
                    if outside.is_empty() { "-".to_owned() } else { outside.to_owned() },
                    gateway.version.clone(),
                ]
            })
            .collect();
        let headers = ["gateway", "state", "nodes up", "inbound", "outside", "version"];
        table(&headers, &[2], rows.into_iter())
    }

    fn nodes_table(&self, verbose: bool) -> String {
        let rows = self.nodes.iter().filter(|node| node.up || verbose).map(|node| {
            vec![
                node.name.clone(),
                state(node.up),
                node.virtual_address.to_string(),
                node.address.clone(),
                node.host_name.clone(),
                node.owner.clone(),
                node.slots.to_string(),
                node.architecture.clone(),
            ]
        });
        table(
            &[
                "node",
                "agent",
                "virtual address",
                "address in its site",
                "host name",
                "owner",
                "slots",
                "machine",
            ],
            &[6],
            rows,
        )
    }

    fn relays_table(&self) -> String {
        let rows = self.relays.iter().map(|relay| {
            vec![
                relay.name.clone(),
                state(relay.up),
                relay.address.clone(),
                relay.connections.to_string(),
                account::bytes(relay.bytes),
                relay.version.clone(),
            ]
        });
        table(&["relay", "state", "address", "connections", "carried", "version"], &[3, 4], rows)
    }
}

impl Job {
    fn text(&self, report: &proto::JobReport, verbose: bool) -> String {
        let running = SystemTime::now()
            .duration_since(UNIX_EPOCH + Duration::from_millis(self.started_unix_ms))
            .map_or(0, |running| running.as_secs());
        let mut text = format!(
            "\njob {}: {} of {}, {} from {}, for {}\n",
            self.id.get(..8).unwrap_or(&self.id),
            self.program,
            if self.owner.is_empty() { "somebody" } else { &self.owner },
            account::count(self.node_count.into(), "node"),
            self.nodes.first().map_or("nowhere", String::as_str),
            humantime::format_duration(Duration::from_secs(running)),
        );
        if verbose {
            text.push_str(&account::table("nodes", &self.joined));
        } else {
            let between: Vec<_> = report
                .joined
                .iter()
                .filter(|entry| account::site(&entry.initiator) != account::site(&entry.acceptor))
                .collect();
            text.push_str(&account::table("sites", &account::pairs(&between, account::site)));
        }
        if self.joined_left_out > 0 {
            text.push_str(&format!(" and {} more pairs of nodes\n", self.joined_left_out));
        }
        text
    }
}

/// Pairs of sites that are listed unasked.
const FEW_PATHS: usize = 64;

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

fn state(up: bool) -> String {
    if up { "up" } else { "down" }.to_owned()
}

/// A table with an empty line above; nothing without rows.
fn table(header: &[&str], right: &[usize], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    if table.row_count() == 0 {
        return String::new();
    }
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: String = table.lines().map(|line| format!(" {}\n", line.trim_end())).collect();
    format!("\n{lines}")
}

#[cfg(test)]
mod tests {
    use isthmus_wire::proto::Inbound;

    use super::*;

    fn reply() -> ListReply {
        let node = |name: &str, up| proto::Node {
            name: name.to_owned(),
            virtual_address: 0xf040_0101,
            address: "10.0.0.1:7730".to_owned(),
            host_name: "node1".to_owned(),
            owner: "anna".to_owned(),
            slots: 4,
            architecture: "x86_64".to_owned(),
            up,
            ..proto::Node::default()
        };
        let gateway = |name: &str, up| proto::SiteGateway {
            name: name.to_owned(),
            up,
            nodes: 1,
            inbound: Inbound::Open.into(),
            ..proto::SiteGateway::default()
        };
        let site = |name: &str, inbound: Inbound, trusted: &[&str]| proto::Site {
            name: name.to_owned(),
            inbound: inbound.into(),
            up: true,
            trusted: trusted.iter().map(|site| (*site).to_owned()).collect(),
            version: "1.2.3".to_owned(),
            nodes_up: 1,
            nodes_down: trusted.iter().filter(|site| **site == "beta").count() as u32,
            slots: 4,
            jobs: trusted.iter().filter(|site| **site == "beta").count() as u32,
            outside_address: String::new(),
            gateways: match inbound {
                Inbound::Open => vec![gateway("login1", true), gateway("login2", false)],
                Inbound::Auto | Inbound::Closed => vec![gateway("gateway", true)],
            },
            ..proto::Site::default()
        };
        let joined = |initiator: &str, acceptor: &str| proto::Joined {
            initiator: initiator.to_owned(),
            acceptor: acceptor.to_owned(),
            route: proto::Route::EndToEnd.into(),
            dial: proto::Dial::Relay.into(),
            relay: "r1".to_owned(),
            encrypted: true,
            connections: 2,
            bytes_sent: 1000,
            bytes_received: 2000,
            bytes_known: true,
            ..proto::Joined::default()
        };
        let measured = proto::PathReport {
            from: "n1.alpha".to_owned(),
            to: "n1.beta".to_owned(),
            route: proto::Route::EndToEnd.into(),
            dial: proto::Dial::Punch.into(),
            round_trip_us: 12_000,
            ..proto::PathReport::default()
        };
        ListReply {
            paths: vec![measured],
            grid: "demo".to_owned(),
            sites: vec![site("alpha", Inbound::Closed, &["beta"]), site("beta", Inbound::Open, &["alpha"])],
            nodes: vec![node("n1.alpha", true), node("n2.alpha", false), node("n1.beta", true)],
            relays: vec![proto::Relay {
                name: "r1".to_owned(),
                up: true,
                bytes: 5000,
                ..proto::Relay::default()
            }],
            jobs: vec![proto::JobReport {
                job: "ab".repeat(16),
                program: "mpirun".to_owned(),
                nodes: vec!["n1.alpha".to_owned(), "n1.beta".to_owned()],
                joined: vec![joined("n1.alpha", "n1.beta"), joined("n2.alpha", "n1.alpha")],
                ..proto::JobReport::default()
            }],
            ..ListReply::default()
        }
    }

    #[test]
    fn people_read_what_is_up_and_joined() {
        let reply = reply();
        let text = View::new(&reply).text(&reply, false);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = text.lines().map(words).collect();
        for want in [
            "grid demo: 2 sites, 2 nodes up (1 down), 1 relay, 1 job",
            "alpha up nothing 1 1 4 1 beta 1.2.3",
            "beta 1 of 2 up everything 1 0 4 0 alpha 1.2.3",
            "login2.beta down 1 open -",
            "n1.alpha up 240.64.1.1 10.0.0.1:7730 node1 anna 4 x86_64",
            "r1 up 0 5.0 kB",
            "alpha – beta punch 12.0 ms - - -",
        ] {
            assert!(lines.iter().any(|line| line == want), "{want} is not in\n{text}");
        }
        assert!(text.contains("job abababab: mpirun of somebody, 2 nodes from n1.alpha"), "{text}");
        assert!(text.contains("alpha – beta"), "{text}");
        assert!(!text.contains("n2.alpha"), "{text}");
        assert!(View::new(&reply).text(&reply, true).contains("n1.alpha – n2.alpha"));
    }

    #[test]
    fn many_nodes_are_not_listed_unasked_but_counted() {
        let reply = ListReply { nodes: Vec::new(), ..reply() };
        let text = View::new(&reply).text(&reply, false);
        assert!(text.starts_with("grid demo: 2 sites, 2 nodes up (1 down), 1 relay, 1 job"), "{text}");
        assert!(text.contains("`isthmus status --nodes` all"), "{text}");
        let path = reply.paths[0].clone();
        let reply = ListReply { paths: vec![path; 100], ..reply };
        assert!(View::new(&reply).text(&reply, false).contains("and 36 more"));
        assert!(!View::new(&reply).text(&reply, true).contains("36 more"));
    }

    #[test]
    fn programs_read_the_same_names_for_ever() {
        let json = serde_json::to_value(View::new(&reply())).unwrap();
        for pointer in [
            "/grid",
            "/sites/0/name",
            "/sites/0/up",
            "/sites/0/inbound",
            "/sites/0/gateways/0/name",
            "/sites/0/gateways/0/up",
            "/sites/0/gateways/0/nodes_up",
            "/sites/0/trusted",
            "/sites/0/nodes_up",
            "/sites/0/nodes_down",
            "/sites/0/slots",
            "/sites/0/jobs",
            "/sites/0/outside_address",
            "/nodes/0/name",
            "/nodes/0/virtual_address",
            "/nodes/0/slots",
            "/relays/0/connections",
            "/relays/0/bytes",
            "/jobs/0/id",
            "/jobs/0/nodes",
            "/jobs/0/node_count",
            "/jobs/0/joined/0/ends",
            "/jobs/0/joined/0/dial",
            "/jobs/0/joined/0/route",
            "/jobs/0/joined/0/gateways",
            "/jobs/0/joined/0/encrypted",
            "/jobs/0/joined/0/bytes",
            "/site_paths/0/from",
            "/site_paths/0/to",
            "/site_paths/0/route",
            "/site_paths/0/dial",
            "/site_paths/0/relay",
            "/site_paths/0/round_trip_ms",
            "/site_paths/0/sent_bytes_per_second",
            "/site_paths/0/received_bytes_per_second",
            "/site_paths/0/transferred_unix_ms",
            "/site_paths/0/measured_unix_ms",
            "/site_paths/0/failure",
        ] {
            assert!(json.pointer(pointer).is_some(), "{pointer} is missing in {json:#}");
        }
        assert_eq!(json["nodes"][0]["virtual_address"], "240.64.1.1");
        assert_eq!(json["jobs"][0]["joined"][0]["ends"], serde_json::json!(["n1.alpha", "n1.beta"]));
    }
}
