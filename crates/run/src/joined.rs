//! How sites or nodes were joined: sums of connections, one for each way.

use std::collections::BTreeMap;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use isthmus_front::format::{bytes, count, milliseconds, site};
use isthmus_rpc::enums::{dial_name, encryption_from_wire, route_name};
use isthmus_wire::proto::{Dial, Encryption, Joined, Route};
use serde::Serialize;

/// One way by which two sites, or two nodes, were joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The names of the two sites or nodes, in alphabetical order.
    pub ends: [String; 2],
    /// The name of the dial by which they were joined.
    pub dial: String,
    /// The name of the route: which parties dialed which.
    pub route: String,
    /// The sites whose gateways stand between the nodes, the initiator's first.
    pub gateways: Vec<String>,
    /// The relay that spliced the connections; `None` if there was none.
    pub relay: Option<String>,
    /// Whether the data was encrypted.
    pub encrypted: bool,
    /// Who encrypted the data: "agents" of the nodes, "gateways" of the sites, which saw the
    /// plaintext, or "none".
    pub encryption: String,
    /// How many connections were made by this way. A trunk's connections may have gone on by
    /// another way.
    pub connections: u64,
    /// Mean time to set up a connection, in microseconds.
    pub setup_mean_us: u64,
    /// Longest time to set up a connection, in microseconds.
    pub setup_max_us: u64,
    /// Bytes from the first end to the second, and back; `None` if the party that carried them has
    /// not told.
    pub bytes: Option<[u64; 2]>,
    /// Whether there may have been more bytes: those of raw connections that are not over, or were
    /// missed.
    pub bytes_least: bool,
    /// Microseconds in which data was under way between the ends, estimated, by whichever way; `None`
    /// if nobody has told. Of sites it is that of the two nodes with the longest time.
    pub under_way_us: Option<u64>,
}

impl Pair {
    /// Lines for a picture: the way, and what it carried.
    pub fn summary(&self) -> Vec<String> {
        let relay = self.relay.as_ref().map_or_else(String::new, |relay| format!(" {relay}"));
        let secrecy = if self.encrypted { "encrypted" } else { "raw" };
        let setup = || {
            format!("{}, {:.1} ms", count(self.connections, "connection"), milliseconds(self.setup_mean_us))
        };
        let setup = (self.connections > 0).then(setup);
        let way = format!("{}{relay}, {secrecy}", self.dial);
        [Some(way), setup, Some(volume(self))].into_iter().flatten().collect()
    }

    /// The way in words: "relay r1, end-to-end, encrypted".
    pub fn way(&self) -> String {
        let relay = self.relay.as_ref().map_or_else(String::new, |relay| format!(" {relay}"));
        let secrecy = match self.encryption.as_str() {
            "agents" => "encrypted",
            "gateways" => "encrypted gateway to gateway",
            _ => "raw, trusted",
        };
        let gateways = match self.gateways.as_slice() {
            [] => String::new(),
            sites => format!(" at {}", sites.join(" and ")),
        };
        format!("{}{relay}, {}{gateways}, {secrecy}", self.dial, self.route)
    }
}

/// Adds up connections whose ends have the same names; `name` makes them of grid
/// names.
pub fn pairs(joined: &[&Joined], name: fn(&str) -> &str) -> Vec<Pair> {
    let mut totals: BTreeMap<_, Totals> = BTreeMap::new();
    for entry in joined {
        let (from, to) = (name(&entry.initiator), name(&entry.acceptor));
        let forward = from < to;
        let ends = if forward { [from, to] } else { [to, from] };
        let way = (entry.route, gateways(entry), entry.dial);
        let total = totals.entry((ends, way, entry.relay.as_str(), entry.encryption)).or_default();
        total.connections += entry.connections;
        total.setup_total_us += entry.setup_total_us;
        total.setup_max_us = total.setup_max_us.max(entry.setup_max_us);
        total.unknown |= !entry.bytes_known;
        total.least |= entry.bytes_least;
        total.under_way_us = total.under_way_us.max(entry.under_way_us);
        // Gateways of other owners tell only some of the bytes.
        for (way, bytes) in [(!forward, entry.bytes_sent), (forward, entry.bytes_received)] {
            let sum = &mut total.bytes[usize::from(way)];
            *sum = sum.saturating_add(bytes);
        }
    }
    totals
        .into_iter()
        .map(|((ends, (route, gateways, dial), relay, by), total)| Pair {
            ends: ends.map(str::to_owned),
            dial: dial_name(Dial::try_from(dial).unwrap_or(Dial::Unknown)),
            route: route_name(Route::try_from(route).unwrap_or(Route::Unknown)),
            gateways,
            relay: (!relay.is_empty()).then(|| relay.to_owned()),
            encrypted: by != i32::from(Encryption::None),
            encryption: encryption_from_wire(Encryption::try_from(by).unwrap_or(Encryption::None))
                .to_string(),
            connections: total.connections,
            setup_mean_us: total.setup_total_us / total.connections.max(1),
            setup_max_us: total.setup_max_us,
            bytes: (!total.unknown).then_some(total.bytes),
            bytes_least: !total.unknown && total.least,
            under_way_us: (total.under_way_us > 0).then_some(total.under_way_us),
        })
        .collect()
}

/// The sites whose gateways stand between the ends of these connections, the initiator's first.
fn gateways(joined: &Joined) -> Vec<String> {
    let (near, far) = (site(&joined.initiator).to_owned(), site(&joined.acceptor).to_owned());
    match joined.route() {
        Route::Unknown | Route::EndToEnd => Vec::new(),
        Route::OneGateway => vec![far],
        Route::GatewayOut => vec![near],
        Route::TwoGateway => vec![near, far],
    }
}

/// A table of pairs, indented; empty if there are none.
pub fn table(what: &str, pairs: &[Pair]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header([what, "joined by", "connections", "set-up mean / max", "bytes → / ←"]);
    for pair in pairs {
        let (mean, most) = (milliseconds(pair.setup_mean_us), milliseconds(pair.setup_max_us));
        // A trunk that stood before has gone on by another way, and made no connection by this one.
        let (connections, setup) = match pair.connections {
            0 => ("–".to_owned(), "–".to_owned()),
            number => (number.to_string(), format!("{mean:.1} ms / {most:.1} ms")),
        };
        table.add_row([pair.ends.join(" – "), pair.way(), connections, setup, volume(pair)]);
    }
    for index in 2..5 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}

/// The bytes there and back, "4.0 MB / 7 B", as far as they are known.
fn volume(pair: &Pair) -> String {
    let least = if pair.bytes_least { "at least " } else { "" };
    match pair.bytes {
        // The kernel tells the bytes at the end of a connection.
        Some([0, 0]) if pair.bytes_least => "not counted yet (raw socket)".to_owned(),
        Some([there, back]) => format!("{least}{} / {}", bytes(there), bytes(back)),
        None if pair.encryption == "gateways" => "not counted (by gateways)".to_owned(),
        None => "not counted (raw socket)".to_owned(),
    }
}

#[derive(Default)]
struct Totals {
    connections: u64,
    setup_total_us: u64,
    setup_max_us: u64,
    bytes: [u64; 2],
    unknown: bool,
    least: bool,
    under_way_us: u64,
}
