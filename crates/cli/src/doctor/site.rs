//! `isthmus doctor site`: what was found out of the nodes of a site.

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use isthmus_net::contact::mapping_from_wire;
use isthmus_net::seen;
use isthmus_plan::Answers;
use isthmus_plan::egress::Egress;
use isthmus_wire::proto::{self, GridReply, Inbound};
use serde::Serialize;

use super::findings::{self, Finding};
use super::{Outcome, ago, milliseconds, print};
use crate::ask::Grid;
use crate::config::StateArgs;
use crate::path::Path;
use crate::run::account;

/// Show what a site lets in and out, as its nodes found out by measurement.
#[derive(Debug, Args)]
pub(crate) struct SiteArgs {
    /// The site; all of them without one.
    site: Option<String>,
    #[command(flatten)]
    state: StateArgs,
    /// For programs to read.
    #[arg(long)]
    json: bool,
}

/// What `--json` gives, one for each site.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    site: String,
    /// Whether its gateway is attached.
    up: bool,
    /// As its gateway says: "open", "closed" or "auto".
    inbound: &'static str,
    /// No problem was found.
    healthy: bool,
    findings: Vec<Finding>,
    nodes: Vec<Node>,
    /// Where other sites reach its gateway, and whether a relay does; absent
    /// where it has no port outside.
    gateway_outside: Option<Reached>,
    /// Ways that were measured because somebody asked.
    paths: Vec<Path>,
    /// The way to each other site, as it was last measured in the background.
    to_sites: Vec<Path>,
    /// Whether ways to this site are measured in the background: "auto", "off".
    measure: &'static str,
}

#[derive(Debug, Serialize)]
struct Node {
    node: String,
    /// Where its agent is in its site.
    address: String,
    /// The address that relays see.
    seen_as: Option<String>,
    /// RFC 4787 section 4.1.
    mapping: String,
    /// RFC 4787 section 5.
    filtering: String,
    /// What becomes of what isn't let in: "dropped", "reset".
    unsolicited: String,
    /// Whether it gets out: "yes", "no", "unknown".
    way_out: String,
    /// Of the ports that are tried, those that are let out and those that aren't,
    /// as far as is known; 61001 stands for all others.
    let_out: Vec<u16>,
    dropped: Vec<u16>,
    /// Whether a relay reached its agent where its site does.
    own: Reached,
    /// Whether one did at the address that is let in or forwarded for it.
    outside: Reached,
    relays: Vec<Relay>,
    /// Gateways of other sites, likewise.
    gateways: Vec<Relay>,
    found_out_unix_ms: u64,
}

#[derive(Debug, Serialize)]
struct Reached {
    result: String,
    address: String,
    relay: String,
    detail: String,
}

#[derive(Debug, Serialize)]
struct Relay {
    relay: String,
    address: String,
    round_trip_ms: Option<f64>,
    failure: Option<String>,
}

pub(super) async fn run(args: SiteArgs) -> anyhow::Result<Outcome> {
    let grid = Grid::find(&args.state).await?.grid().await?;
    let wanted = |site: &&proto::Site| args.site.as_ref().is_none_or(|wanted| *wanted == site.name);
    let sites: Vec<_> = grid.sites.iter().filter(wanted).collect();
    if let (Some(wanted), []) = (&args.site, sites.as_slice()) {
        let known: Vec<_> = grid.sites.iter().map(|site| site.name.as_str()).collect();
        return Ok(Outcome::Unknown(format!(
            "no site {wanted} is in the grid; there are {}",
            known.join(", ")
        )));
    }
    let views: Vec<_> = sites.into_iter().map(|site| View::new(site, &grid)).collect();
    let text: Vec<_> = views.iter().map(View::text).collect();
    print(&views, &text.join("\n"), args.json)?;
    let healthy = views.iter().all(|view| view.healthy);
    Ok(if healthy { Outcome::Healthy } else { Outcome::Ill })
}

impl View {
    fn new(site: &proto::Site, grid: &GridReply) -> Self {
        let own = |name: &str| account::site(name) == site.name;
        let nodes: Vec<_> = grid.nodes.iter().filter(|node| node.up && own(&node.name)).collect();
        let mut findings = findings::of_site(site, &nodes, &grid.relays);
        let others: Vec<_> = grid.nodes.iter().filter(|node| !own(&node.name)).flat_map(answers).collect();
        let nodes: Vec<_> = nodes.into_iter().map(|node| Node::new(node, &others)).collect();
        findings.extend(nodes.iter().filter_map(|node| findings::of_egress(&node.node, &node.egress())));
        let of_this = |path: &&proto::PathReport| own(&path.from) || own(&path.to);
        Self {
            site: site.name.clone(),
            up: site.up,
            inbound: match site.inbound() {
                Inbound::Open => "open",
                Inbound::Closed => "closed",
                Inbound::Auto => "auto",
            },
            healthy: !findings.iter().any(|finding| finding.problem),
            findings,
            nodes,
            gateway_outside: (!site.outside_address.is_empty()).then(|| Reached {
                address: site.outside_address.clone(),
                ..Reached::new(site.outside_reach.as_ref())
            }),
            paths: grid.paths.iter().filter(of_this).map(Path::new).collect(),
            to_sites: grid.site_paths.iter().filter(of_this).map(Path::new).collect(),
            measure: if site.measure_off { "off" } else { "auto" },
        }
    }

    fn text(&self) -> String {
        let gateway = if self.up { "attached" } else { "not attached" };
        let mut text = format!("site {}: gateway {gateway}, inbound {}\n", self.site, self.inbound);
        if let Some(outside) = &self.gateway_outside {
            text.push_str(&format!(" the gateway's port outside, {}: {}\n", outside.address, outside.result));
        }
        let mut table = Table::new();
        table.load_preset(NOTHING);
        let header =
            ["node", "seen as", "mapping", "filtering", "the rest is", "reached from outside", "found out"];
        table.set_header(header);
        for node in &self.nodes {
            table.add_row([
                node.node.clone(),
                node.seen_as.clone().unwrap_or_else(|| "-".to_owned()),
                node.mapping.clone(),
                node.filtering.clone(),
                node.unsolicited.clone(),
                node.reached(),
                ago(node.found_out_unix_ms),
            ]);
        }
        if !self.nodes.is_empty() {
            text.extend(table.lines().map(|line| format!(" {}\n", line.trim_end())));
        }
        for node in &self.nodes {
            let told = |sights: &[Relay]| sights.iter().map(Relay::text).collect::<Vec<_>>().join(", ");
            let relays = if node.relays.is_empty() { "none".to_owned() } else { told(&node.relays) };
            text.push_str(&format!(" {} to relays: {relays}\n", node.node));
            if node.egress() != Egress::default() {
                text.push_str(&format!(" {} is let out to ports: {}\n", node.node, node.egress()));
            }
            if !node.gateways.is_empty() {
                text.push_str(&format!(" {} to gateways: {}\n", node.node, told(&node.gateways)));
            }
        }
        for path in self.to_sites.iter().chain(&self.paths) {
            text.push_str(&format!(" {}\n", path.text()));
        }
        for finding in &self.findings {
            text.push_str(&format!(
                " {} {}\n",
                if finding.problem { "WRONG:" } else { "note:" },
                finding.text
            ));
        }
        text
    }
}

/// What answered a node outside.
fn answers(node: &proto::Node) -> Vec<Answers> {
    seen::answers_from_wire(node.seen.as_ref().map_or(&[], |seen| &seen.egress))
}

impl Node {
    fn new(node: &proto::Node, others: &[Answers]) -> Self {
        let Egress { let_out, dropped } = Egress::of(&answers(node), others);
        let found = node.seen.clone().unwrap_or_default();
        Self {
            node: node.name.clone(),
            address: node.address.clone(),
            seen_as: (!found.address.is_empty()).then(|| found.address.clone()),
            mapping: mapping_from_wire(found.mapping()).to_string(),
            filtering: seen::filtering_from_wire(found.filtering()).to_string(),
            unsolicited: seen::unsolicited_from_wire(found.unsolicited()).to_string(),
            way_out: isthmus_net::contact::way_out_from_wire(found.way_out()).to_string(),
            let_out,
            dropped,
            own: Reached::new(found.own.as_ref()),
            outside: Reached::new(found.outside.as_ref()),
            relays: found.relays.iter().map(Relay::new).collect(),
            gateways: found.gateways.iter().map(Relay::new).collect(),
            found_out_unix_ms: found.measured_unix_ms,
        }
    }

    fn egress(&self) -> Egress {
        Egress { let_out: self.let_out.clone(), dropped: self.dropped.clone() }
    }

    /// Where it was reached, or what was met in vain.
    fn reached(&self) -> String {
        let tried = [&self.own, &self.outside].into_iter().filter(|reached| !reached.address.is_empty());
        let texts: Vec<_> = tried
            .map(|reached| match reached.result.as_str() {
                "reachable" => format!("yes, at {}", reached.address),
                result => format!("no: {} {result}", reached.address),
            })
            .collect();
        if texts.is_empty() { "-".to_owned() } else { texts.join("; ") }
    }
}

impl Reached {
    fn new(reach: Option<&proto::Reach>) -> Self {
        let reach = seen::reach_from_wire(reach);
        let result = reach.result.to_string();
        Self { result, address: reach.address, relay: reach.relay, detail: reach.detail }
    }
}

impl Relay {
    fn new(sight: &proto::RelaySight) -> Self {
        Self {
            relay: sight.relay.clone(),
            address: sight.address.clone(),
            round_trip_ms: (sight.round_trip_us > 0).then(|| milliseconds(sight.round_trip_us)),
            failure: (!sight.failure.is_empty()).then(|| sight.failure.clone()),
        }
    }

    fn text(&self) -> String {
        match (self.round_trip_ms, &self.failure) {
            (Some(round_trip), _) => format!("{} {round_trip:.1} ms", self.relay),
            (None, Some(_)) => format!("{} not reached", self.relay),
            (None, None) => format!("{} not tried", self.relay),
        }
    }
}
