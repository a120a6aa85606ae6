//! `isthmus doctor site`: what the nodes of a site found out of its network.

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use isthmus_front::ask::Grid;
use isthmus_front::format::{ago, milliseconds};
use isthmus_front::output::print;
use isthmus_front::state::StateArgs;
use isthmus_plan::Answers;
use isthmus_plan::egress::Egress;
use isthmus_rpc::enums::inbound_from_wire;
use isthmus_rpc::enums::{filtering_from_wire, mapping_from_wire, unsolicited_from_wire, way_out_from_wire};
use isthmus_rpc::seen;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{self, NodeFilter, PathFilter, RelayFilter, SiteFilter};
use serde::Serialize;

use super::Outcome;
use super::findings::{self, Finding};
use crate::path::Path;

/// Show what a site lets in and out, by measurements of its nodes.
#[derive(Debug, Args)]
pub(crate) struct SiteArgs {
    /// The site; all sites by default.
    site: Option<String>,
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The output of `isthmus doctor site --json` for one site.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    site: String,
    /// Whether the site's gateway is attached to the broker.
    up: bool,
    /// What the site lets in, declared by its gateway: "open", "closed" or "auto".
    inbound: &'static str,
    /// Whether the site has no problem.
    healthy: bool,
    findings: Vec<Finding>,
    nodes: Vec<Node>,
    /// The address at which other sites reach the site's gateway, and whether a relay reaches it.
    /// Absent if the gateway has no port outside.
    gateway_outside: Option<Reached>,
    /// Measurements of ways that users have asked for.
    paths: Vec<Path>,
    /// The last background measurement to each other site.
    to_sites: Vec<Path>,
    /// Whether ways to this site are measured in the background: "auto", "off".
    measure: &'static str,
}

#[derive(Debug, Serialize)]
struct Node {
    node: String,
    /// The address of the node's agent in the site.
    address: String,
    /// The node's address as relays see it; absent if no relay has seen it.
    seen_as: Option<String>,
    /// How the node's ports are mapped on the way out (RFC 4787 section 4.1).
    mapping: String,
    /// What is let in to a port that the node connects from (RFC 4787 section 5).
    filtering: String,
    /// What happens to packets that aren't let in: "dropped", "reset".
    unsolicited: String,
    /// Whether the node gets out: "yes", "no", "unknown".
    way_out: String,
    /// Of the ports outside that are tried: those that the node is let out to, as far as known.
    /// Port 61001 stands for all others.
    let_out: Vec<u16>,
    /// Of the ports outside that are tried: those that the node isn't let out to, as far as known.
    dropped: Vec<u16>,
    /// Whether a relay reached the node's agent at its address in the site.
    own: Reached,
    /// Whether a relay reached the node's agent at the address that is let in or forwarded.
    outside: Reached,
    relays: Vec<Relay>,
    /// Gateways of other sites, in the same form as relays.
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
    let grid = Grid::find(&args.state).await?;
    let (views, ()) = tokio::try_join!(views(&grid, args.site.as_deref()), grid.no_black_hole())?;
    let views = match views {
        Ok(views) => views,
        Err(unknown) => return Ok(Outcome::Unknown(unknown)),
    };
    let text: Vec<_> = views.iter().map(View::text).collect();
    print(&views, &text.join("\n"), args.json)?;
    let healthy = views.iter().all(|view| view.healthy);
    Ok(if healthy { Outcome::Healthy } else { Outcome::Ill })
}

/// The views of all sites of the grid.
pub(super) async fn all(grid: &Grid) -> anyhow::Result<Vec<View>> {
    views(grid, None).await?.map_err(anyhow::Error::msg)
}

/// The view of the wanted site, or those of all sites. The inner error tells that there is no site
/// of this name.
async fn views(grid: &Grid, wanted: Option<&str>) -> anyhow::Result<Result<Vec<View>, String>> {
    let names = wanted.into_iter().map(str::to_owned).collect();
    let sites = grid.list(Records::Sites(SiteFilter { names })).await?.sites;
    if let (Some(wanted), []) = (wanted, sites.as_slice()) {
        return Ok(Err(grid.no_site(wanted).await?));
    }
    let mut views = Vec::new();
    for site in &sites {
        views.push(View::new(site, &Known::of(site, grid).await?));
    }
    Ok(Ok(views))
}

/// The broker's records from which a site's view is made.
struct Known {
    /// The site's nodes that are up, with what they have found out.
    nodes: Vec<proto::Node>,
    /// All relays, with the ports of their hosts that have answered nodes of other sites.
    relays: Vec<proto::Relay>,
    paths: Vec<proto::PathReport>,
    to_sites: Vec<proto::PathReport>,
}

impl Known {
    async fn of(site: &proto::Site, grid: &Grid) -> anyhow::Result<Self> {
        let name = || site.name.clone();
        let nodes = NodeFilter { sites: vec![name()], up: true, seen: true, ..NodeFilter::default() };
        let paths = |between_sites| Records::Paths(PathFilter { site: name(), between_sites });
        Ok(Self {
            nodes: grid.list(Records::Nodes(nodes)).await?.nodes,
            relays: grid.list(Records::Relays(RelayFilter { asking_site: name() })).await?.relays,
            paths: grid.list(paths(false)).await?.paths,
            to_sites: grid.list(paths(true)).await?.paths,
        })
    }
}

impl View {
    fn new(site: &proto::Site, known: &Known) -> Self {
        let nodes: Vec<_> = known.nodes.iter().collect();
        let mut findings = findings::of_site(site, &nodes, &known.relays);
        let others: Vec<_> = known.relays.iter().map(answered_others).collect();
        let nodes: Vec<_> = nodes.into_iter().map(|node| Node::new(node, &others)).collect();
        findings.extend(nodes.iter().filter_map(|node| findings::of_egress(&node.node, &node.egress())));
        Self {
            site: site.name.clone(),
            up: site.up,
            inbound: inbound_from_wire(site.inbound()).name(),
            healthy: !findings.iter().any(|finding| finding.problem),
            findings,
            nodes,
            gateway_outside: (!site.outside_address.is_empty()).then(|| Reached {
                address: site.outside_address.clone(),
                ..Reached::new(site.outside_reach.as_ref())
            }),
            paths: known.paths.iter().map(Path::new).collect(),
            to_sites: known.to_sites.iter().map(Path::new).collect(),
            measure: if site.measure_off { "off" } else { "auto" },
        }
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = &str> {
        self.findings.iter().filter(|finding| finding.problem).map(|finding| finding.text.as_str())
    }

    pub(super) fn hints(&self) -> usize {
        self.findings.iter().filter(|finding| !finding.problem).count()
    }

    pub(super) fn nodes_up(&self) -> usize {
        self.nodes.len()
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
            let list = |sights: &[Relay]| sights.iter().map(Relay::text).collect::<Vec<_>>().join(", ");
            let relays = if node.relays.is_empty() { "none".to_owned() } else { list(&node.relays) };
            text.push_str(&format!(" {} to relays: {relays}\n", node.node));
            if node.egress() != Egress::default() {
                text.push_str(&format!(" {} is let out to ports: {}\n", node.node, node.egress()));
            }
            if !node.gateways.is_empty() {
                text.push_str(&format!(" {} to gateways: {}\n", node.node, list(&node.gateways)));
            }
        }
        // One measurement may be in both lists.
        let mut paths: Vec<_> = self.to_sites.iter().chain(&self.paths).map(Path::text).collect();
        paths.sort();
        paths.dedup();
        text.extend(paths.iter().map(|path| format!(" {path}\n")));
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

/// The ports of a relay's host that answered nodes of other sites.
fn answered_others(relay: &proto::Relay) -> Answers {
    let answered = relay.answered.iter().filter_map(|port| u16::try_from(*port).ok());
    Answers { relay: relay.name.clone(), answered: answered.collect(), silent: Vec::new() }
}

/// The ports outside that have answered a node, and those that haven't.
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
            filtering: filtering_from_wire(found.filtering()).to_string(),
            unsolicited: unsolicited_from_wire(found.unsolicited()).to_string(),
            way_out: way_out_from_wire(found.way_out()).to_string(),
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

    /// The addresses at which the node was reached, or the failures; "-" if none was tried.
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
