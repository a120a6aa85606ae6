//! The grid as `isthmus status` shows it to people: tables.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use isthmus_front::format::{bytes, count};
use isthmus_front::output::one_line;
use isthmus_front::without_broker;
use isthmus_wire::proto::ListReply;
use isthmus_wire::text::first;

use super::view::{Relay, Site, View};
use crate::path::Path;

/// The most pairs of sites that are listed without `--verbose`.
const FEW_PATHS: usize = 64;
/// The most pairs of sites that are listed for a relay.
const FEW_JOINED: usize = 16;

impl View {
    /// All tables; with `verbose`, they have nodes that are down, each pair of nodes, and which sites
    /// relays join.
    pub(super) fn text(&self, reply: &ListReply, verbose: bool) -> String {
        let sum = |of: fn(&Site) -> u32| self.sites.iter().map(|site| u64::from(of(site))).sum::<u64>();
        let (up, down) = (sum(|site| site.nodes_up), sum(|site| site.nodes_down));
        let head = reply.without_broker.as_ref().map(|answer| format!("{}\n", without_broker::line(answer)));
        let mut text = head.unwrap_or_default();
        text.push_str(&format!(
            "grid {}: {}, {} up{}, {}, {}\n",
            self.grid,
            count(self.sites.len() as u64, "site"),
            count(up, "node"),
            if down > 0 { format!(" ({down} down)") } else { String::new() },
            count(self.relays.len() as u64, "relay"),
            count(self.jobs.len() as u64, "job"),
        ));
        text.push_str(&self.sites_table());
        text.push_str(&self.gateways_table());
        text.push_str(&self.nodes_table(verbose));
        if self.nodes.is_empty() && up + down > 0 {
            text.push_str(
                "\n Nodes: `isthmus status SITE` lists those of a site, `isthmus status --nodes` all.\n",
            );
        }
        text.push_str(&self.relays_table(verbose));
        let header = ["between sites", "by", "round trip", "there", "back", "measured"];
        let shown = if verbose { self.site_paths.len() } else { FEW_PATHS };
        text.push_str(&table(&header, &[2, 3, 4], self.site_paths.iter().take(shown).map(Path::row)));
        if self.site_paths.len() > shown {
            let left_out = self.site_paths.len() - shown;
            text.push_str(&format!(
                " and {left_out} more: `isthmus status SITE` lists those of a site, -v all\n"
            ));
        }
        for job in &self.jobs {
            text.push('\n');
            text.push_str(&job.text(verbose));
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

    /// The table of gateways, for sites that have several.
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
                slots(node.slots, &node.submits),
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

    fn relays_table(&self, verbose: bool) -> String {
        let joins = |relay: &Relay| match relay.joins.as_slice() {
            [] => "-".to_owned(),
            pairs => first(pairs.iter().map(|pair| pair.join(" – ")), 0, FEW_JOINED),
        };
        let rows = self.relays.iter().map(|relay| {
            let mut row = vec![
                relay.name.clone(),
                if relay.up && relay.full { "full".to_owned() } else { state(relay.up) },
                relay.address.clone(),
                relay.connections.to_string(),
                bytes(relay.bytes),
                relay.version.clone(),
            ];
            row.extend(verbose.then(|| joins(relay)));
            row
        });
        let header = ["relay", "state", "address", "connections", "carried", "version", "joins"];
        table(&header[..if verbose { 7 } else { 6 }], &[3, 4], rows)
    }
}

/// How many ranks a node starts, and where its agent submits batch jobs.
fn slots(slots: u32, submits: &str) -> String {
    if submits.is_empty() { slots.to_string() } else { format!("{slots}, submits to {submits}") }
}

fn state(up: bool) -> String {
    if up { "up" } else { "down" }.to_owned()
}

/// A table with an empty line above it; empty if it has no rows.
pub(crate) fn table(header: &[&str], right: &[usize], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(header);
    table.add_rows(rows.map(|row| row.iter().map(|cell| one_line(cell)).collect::<Vec<_>>()));
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
