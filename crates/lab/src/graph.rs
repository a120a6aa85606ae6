//! A picture of a grid, as SVG: the internet in the middle, hosts and sites
//! around it, every link with what it does. Pure: from a grid and its faults
//! to text.

mod layout;
mod page;
mod text;

use crate::faults::FaultRecord;
use crate::grid::{Grid, Host, Link, LinkShape, Node, Share, Site, SiteKind};
use layout::{Card, CardLink, Row};

/// The style sheet of a picture's text.
const FONT_STYLE: &str =
    "text { font-family: 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif; }";

/// The picture of a grid as SVG. Links and machines that are cut or frozen are marked.
pub(crate) fn svg(grid: &Grid, faults: &FaultRecord) -> String {
    let hosts = grid.hosts.iter().map(|host| host_card(host, faults));
    let sites = grid.sites.iter().map(|site| site_card(site, faults));
    let internet = format!("internet · {}", grid.wan.subnet);
    page::draw(&grid.name, &internet, &layout::arrange(hosts.collect(), sites.collect()))
}

/// Most rows that show a site's nodes. Of a site with more nodes, similar neighbours share a row.
const MOST_ROWS: usize = 6;

fn host_card(host: &Host, faults: &FaultRecord) -> Card {
    let mut row = Row::new("address", host.address.to_string(), roles(&host.roles));
    row.mark = mark(faults, &host.name, false);
    Card {
        title: host.name.clone(),
        kind: "host".to_owned(),
        tint: Tint::Host,
        lines: Vec::new(),
        rows: vec![row],
        links: vec![card_link(None, &host.name, &host.link, faults)],
    }
}

fn site_card(site: &Site, faults: &FaultRecord) -> Card {
    let (kind, tint) = match site.kind {
        SiteKind::Nat => ("NAT", Tint::Nat),
        SiteKind::SymmetricNat => ("symmetric NAT", Tint::Nat),
        SiteKind::CarrierNat => ("carrier's NAT", Tint::Nat),
        SiteKind::Firewall => ("firewall", Tint::Firewall),
        SiteKind::StatelessFirewall => ("stateless firewall", Tint::Firewall),
        SiteKind::Open => ("open", Tint::Open),
    };
    let line = |name: &str, value: String| (name.to_owned(), value);
    let mut lines = vec![
        line("outside", site.outside.to_string()),
        line("router", site.router.to_string()),
        line("subnet", site.subnet.to_string()),
    ];
    lines.extend(site.rails.iter().map(|rail| line(&format!("rail {}", rail.name), rail.subnet.to_string())));
    if let Some(ports) = &site.egress {
        let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
        let ports = if ports.is_empty() { "none".to_owned() } else { format!("TCP {}", ports.join(", ")) };
        lines.push(line("ports out", ports));
    }
    lines.extend(
        site.forward.iter().map(|forward| line("ports in", format!("{} to {}", forward.ports, forward.to))),
    );
    let mut links = vec![card_link(None, &site.name, &site.link, faults)];
    links.extend(site.rails.iter().filter_map(|rail| {
        let uplink = rail.uplink.as_ref()?;
        Some(card_link(Some(&rail.name), &site.rail_link_name(rail), &uplink.link, faults))
    }));
    Card { title: site.name.clone(), kind: kind.to_owned(), tint, lines, rows: rows(site, faults), links }
}

fn card_link(rail: Option<&str>, name: &str, link: &Link, faults: &FaultRecord) -> CardLink {
    CardLink { labels: labels(rail, link), cut: faults.cut.contains(name) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tint {
    Host,
    Nat,
    Firewall,
    Open,
}

/// The rows that show a site's nodes: each node has its own. If that makes more than [`MOST_ROWS`],
/// neighbours with the same roles and faults share a row.
fn rows(site: &Site, faults: &FaultRecord) -> Vec<Row> {
    let row_of = |node: &Node| {
        let mut row = Row::new(&node.name, node.address.to_string(), roles(&node.roles));
        row.mark = mark(faults, &format!("{}.{}", node.name, site.name), true);
        row
    };
    let all: Vec<Row> = site.nodes.iter().map(row_of).collect();
    if all.len() <= MOST_ROWS {
        return all;
    }
    let mut groups: Vec<Vec<Row>> = Vec::new();
    for row in all {
        match groups.last_mut() {
            Some(group) if group[0].roles == row.roles && group[0].mark == row.mark => group.push(row),
            _ => groups.push(vec![row]),
        }
    }
    let mut rows: Vec<Row> = groups.iter().map(|group| together(group)).collect();
    if rows.len() > MOST_ROWS {
        let shown = MOST_ROWS - 1;
        let left: usize = groups[shown..].iter().map(Vec::len).sum();
        rows.truncate(shown);
        rows.push(Row::new(&format!("and {left} more"), String::new(), String::new()));
    }
    rows
}

fn together(group: &[Row]) -> Row {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return Row::new("", String::new(), String::new());
    };
    if group.len() == 1 {
        return first.clone();
    }
    let name = format!("{} – {} ({})", first.name, last.name, group.len());
    // The first three parts of an address are the same for both.
    let tail = match (first.address.rsplit_once('.'), last.address.rsplit_once('.')) {
        (Some((a, _)), Some((b, end))) if a == b => format!(".{end}"),
        _ => last.address.clone(),
    };
    Row { name, address: format!("{} – {tail}", first.address), ..first.clone() }
}

fn roles(roles: &[crate::grid::Role]) -> String {
    roles.iter().map(|role| role.command()).collect::<Vec<_>>().join(", ")
}

/// The faults of a machine. Without `cuttable`, cuts are left out, as those of a host are shown at
/// its link.
fn mark(faults: &FaultRecord, machine: &str, cuttable: bool) -> Option<&'static str> {
    let of_machine = |line: &String| line.split('/').next() == Some(machine);
    match (cuttable && faults.cut.iter().any(of_machine), faults.frozen.contains(machine)) {
        (true, true) => Some("cut, frozen"),
        (true, false) => Some("cut"),
        (false, true) => Some("frozen"),
        (false, false) => None,
    }
}

/// The text beside a link.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Labels {
    /// Text for both directions of a link, as they do the same.
    Both(Vec<String>),
    /// Text for each direction of a link.
    Each {
        /// What the link does on the way to the internet.
        up: Vec<String>,
        down: Vec<String>,
    },
}

fn labels(rail: Option<&str>, link: &Link) -> Labels {
    let (mut up, mut down) = (label(&link.up), label(&link.down));
    if let Some(rail) = rail {
        up.insert(0, rail.to_owned());
        down.insert(0, rail.to_owned());
    }
    if up == down { Labels::Both(up) } else { Labels::Each { up, down } }
}

/// A short line for each thing that a direction does. Empty if it does nothing.
fn label(shape: &LinkShape) -> Vec<String> {
    let mut lines = Vec::new();
    if shape.delay.0 != 0 && shape.jitter.0 != 0 {
        lines.push(format!("{} ± {}", shape.delay, shape.jitter));
    } else if shape.delay.0 != 0 {
        lines.push(shape.delay.to_string());
    }
    lines.extend(shape.rate.map(|rate| rate.to_string()));
    if shape.loss.share != Share(0) {
        lines.push(format!("{} loss", shape.loss.share));
    }
    if shape.loss.burst > 1 {
        lines.push(format!("bursts of {}", shape.loss.burst));
    }
    lines.extend(shape.black_hole.map(|most| format!("swallows above {most} B")));
    lines
}

#[cfg(test)]
mod tests;
