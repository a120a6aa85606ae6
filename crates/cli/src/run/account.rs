//! The account at the end of a job: what was joined how, and what it carried.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use isthmus_net::enums::{dial_name, route_name};
use isthmus_wire::proto::{Dial, JobNode, Joined, Route};
use serde::Serialize;

use super::bypass::Bypass;
use super::timing::Timing;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Account {
    /// Its id.
    pub job: String,
    /// The command's exit status.
    pub status: i32,
    /// From the start of the command to its end.
    pub seconds: f64,
    /// Until the first second without a new connection; none without any.
    pub wire_up_seconds: Option<f64>,
    /// Ranks, where the command line says how many.
    pub ranks: Option<u64>,
    /// Nodes that ranks could run on.
    pub nodes: usize,
    /// Their sites.
    pub sites: Vec<String>,
    /// Processes that had to be killed at the end.
    pub processes_killed: u32,
    /// How sites were joined, pairs of nodes of one site left out.
    pub pairs: Vec<Pair>,
    /// How nodes of different sites were joined, one by one.
    pub node_pairs: Vec<Pair>,
    /// Connections within sites.
    pub connections_within_sites: u64,
    /// What ended it, where that wasn't the command itself.
    pub ended_by: Option<String>,
    /// What joined nodes past isthmus.
    pub bypasses: Vec<Bypass>,
    /// Where the time went.
    pub timing: Timing,
}

/// How two sites, or two nodes, were joined, one way of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Pair {
    /// Their names, in alphabetical order.
    pub ends: [String; 2],
    /// The dial's name.
    pub dial: String,
    /// The route's name.
    pub route: String,
    /// The sites whose gateways stand between, the initiator's first.
    pub gateways: Vec<String>,
    /// The relay, where there was one.
    pub relay: Option<String>,
    /// Whether the agents encrypted it.
    pub encrypted: bool,
    /// Number of connections.
    pub connections: u64,
    /// Mean time to set one up.
    pub setup_mean_us: u64,
    /// Longest time to set one up.
    pub setup_max_us: u64,
    /// Bytes from the first to the second and back; none where the
    /// kernel alone carried them.
    pub bytes: Option<[u64; 2]>,
}

/// What the account is made of, but for the connections.
#[derive(Debug, Clone)]
pub(crate) struct Outcome<'a> {
    /// The job's id.
    pub job: String,
    /// The command's exit status.
    pub status: i32,
    /// From start to end.
    pub took: Duration,
    /// Until the connections of the start stood.
    pub wire_up: Option<Duration>,
    /// Ranks asked for.
    pub ranks: Option<u64>,
    /// The job's nodes.
    pub nodes: &'a [JobNode],
    /// Processes killed at the end.
    pub processes_killed: u32,
    /// What ended it, where that wasn't the command itself.
    pub ended_by: Option<String>,
    /// What joined nodes past isthmus.
    pub bypasses: Vec<Bypass>,
}

impl Account {
    pub(crate) fn new(outcome: &Outcome<'_>, joined: &[Joined], timing: Timing) -> Self {
        let working: Vec<_> = outcome.nodes.iter().filter(|node| node.slots > 0).collect();
        let sites: BTreeSet<_> = working.iter().map(|node| site(&node.name).to_owned()).collect();
        let (within, between): (Vec<_>, Vec<_>) =
            joined.iter().partition(|entry| site(&entry.initiator) == site(&entry.acceptor));
        Self {
            job: outcome.job.clone(),
            status: outcome.status,
            seconds: outcome.took.as_secs_f64(),
            wire_up_seconds: outcome.wire_up.map(|wire_up| wire_up.as_secs_f64()),
            ranks: outcome.ranks,
            nodes: working.len(),
            sites: sites.into_iter().collect(),
            processes_killed: outcome.processes_killed,
            pairs: pairs(&between, site),
            node_pairs: pairs(&between, |name| name),
            ended_by: outcome.ended_by.clone(),
            bypasses: outcome.bypasses.clone(),
            timing,
            connections_within_sites: within.iter().map(|entry| entry.connections).sum(),
        }
    }

    /// The account for people; `verbose` with every pair of nodes.
    pub(crate) fn text(&self, verbose: bool) -> String {
        let ranks = self.ranks.map_or_else(String::new, |ranks| format!("{} on ", count(ranks, "rank")));
        let wired = match self.wire_up_seconds {
            Some(seconds) => format!(", wired up in {seconds:.1} s"),
            None => String::new(),
        };
        let mut text = format!(
            "isthmus: {ranks}{} at {}{wired}; ended with status {} after {:.1} s\n",
            count(self.nodes as u64, "node"),
            count(self.sites.len() as u64, "site"),
            self.status,
            self.seconds
        );
        if let Some(cause) = &self.ended_by {
            text.push_str(&format!("  ended by {cause}\n"));
        }
        text.push_str(&table("sites", &self.pairs));
        if verbose {
            text.push_str(&table("nodes", &self.node_pairs));
        }
        if self.connections_within_sites > 0 {
            text.push_str(&format!(
                "  within sites: {}, direct\n",
                count(self.connections_within_sites, "connection")
            ));
        }
        if self.processes_killed > 0 {
            text.push_str(&format!(
                "  {} had to be killed at the end\n",
                count(self.processes_killed.into(), "process")
            ));
        }
        text
    }
}

impl Pair {
    /// How they were joined, in words.
    pub(crate) fn way(&self) -> String {
        let relay = self.relay.as_ref().map_or_else(String::new, |relay| format!(" {relay}"));
        let secrecy = if self.encrypted { "encrypted" } else { "raw, trusted" };
        let gateways = match self.gateways.as_slice() {
            [] => String::new(),
            sites => format!(" at {}", sites.join(" and ")),
        };
        format!("{}{relay}, {}{gateways}, {secrecy}", self.dial, self.route)
    }
}

/// Adds up by what `name` makes of the ends' grid names.
pub(crate) fn pairs(joined: &[&Joined], name: fn(&str) -> &str) -> Vec<Pair> {
    let mut totals: BTreeMap<_, Totals> = BTreeMap::new();
    for entry in joined {
        let (from, to) = (name(&entry.initiator), name(&entry.acceptor));
        let forward = from < to;
        let ends = if forward { [from, to] } else { [to, from] };
        let way = (entry.route, gateways(entry), entry.dial);
        let total = totals.entry((ends, way, entry.relay.as_str(), entry.encrypted)).or_default();
        total.connections += entry.connections;
        total.setup_total_us += entry.setup_total_us;
        total.setup_max_us = total.setup_max_us.max(entry.setup_max_us);
        total.unknown |= !entry.bytes_known;
        total.bytes[usize::from(!forward)] += entry.bytes_sent;
        total.bytes[usize::from(forward)] += entry.bytes_received;
    }
    totals
        .into_iter()
        .map(|((ends, (route, gateways, dial), relay, encrypted), total)| Pair {
            ends: ends.map(str::to_owned),
            dial: dial_name(Dial::try_from(dial).unwrap_or(Dial::Unknown)),
            route: route_name(Route::try_from(route).unwrap_or(Route::Unknown)),
            gateways,
            relay: (!relay.is_empty()).then(|| relay.to_owned()),
            encrypted,
            connections: total.connections,
            setup_mean_us: total.setup_total_us / total.connections.max(1),
            setup_max_us: total.setup_max_us,
            bytes: (!total.unknown).then_some(total.bytes),
        })
        .collect()
}

/// The sites whose gateways stand between.
fn gateways(joined: &Joined) -> Vec<String> {
    let (near, far) = (site(&joined.initiator).to_owned(), site(&joined.acceptor).to_owned());
    match joined.route() {
        Route::Unknown | Route::EndToEnd => Vec::new(),
        Route::OneGateway => vec![far],
        Route::GatewayOut => vec![near],
        Route::TwoGateway => vec![near, far],
    }
}

/// A table of pairs, indented; nothing without any.
pub(crate) fn table(what: &str, pairs: &[Pair]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header([what, "joined by", "connections", "set-up mean / max", "bytes → / ←"]);
    for pair in pairs {
        table.add_row([
            pair.ends.join(" – "),
            pair.way(),
            pair.connections.to_string(),
            format!("{} / {}", millis(pair.setup_mean_us), millis(pair.setup_max_us)),
            pair.bytes.map_or_else(
                || "not counted (raw socket)".to_owned(),
                |[there, back]| format!("{} / {}", bytes(there), bytes(back)),
            ),
        ]);
    }
    for index in 2..5 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}

#[derive(Default)]
struct Totals {
    connections: u64,
    setup_total_us: u64,
    setup_max_us: u64,
    bytes: [u64; 2],
    unknown: bool,
}

pub(crate) fn site(grid_name: &str) -> &str {
    grid_name.split_once('.').map_or(grid_name, |(_, site)| site)
}

/// "1 node", "2 nodes".
pub(crate) fn count(number: u64, what: &str) -> String {
    let plural = match what {
        _ if number == 1 => "",
        "process" => "es",
        _ => "s",
    };
    format!("{number} {what}{plural}")
}

fn millis(micros: u64) -> String {
    format!("{:.1} ms", micros as f64 / 1000.0)
}

/// Bytes in the largest unit that fits, powers of 1000.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timing;

    fn joined(initiator: &str, acceptor: &str, sent: u64, received: u64) -> Joined {
        Joined {
            initiator: initiator.to_owned(),
            acceptor: acceptor.to_owned(),
            route: Route::EndToEnd.into(),
            dial: Dial::Relay.into(),
            relay: "r1".to_owned(),
            encrypted: true,
            connections: 1,
            bytes_sent: sent,
            bytes_received: received,
            bytes_known: true,
            setup_total_us: 30_000,
            setup_max_us: 30_000,
        }
    }

    fn account(entries: &[Joined]) -> Account {
        let node = |name: &str, slots| JobNode { name: name.to_owned(), virtual_address: 0, slots };
        let nodes = [node("fe.alpha", 0), node("n1.alpha", 2), node("n1.beta", 2)];
        let outcome = Outcome {
            job: "j".to_owned(),
            status: 0,
            took: Duration::from_millis(4200),
            wire_up: Some(Duration::from_millis(1300)),
            ranks: Some(4),
            nodes: &nodes,
            processes_killed: 0,
            ended_by: None,
            bypasses: Vec::new(),
        };
        Account::new(&outcome, entries, timing::tests::example())
    }

    #[test]
    fn both_directions_of_a_pair_of_sites_are_one() {
        let account = account(&[
            joined("n1.alpha", "n1.beta", 1000, 2),
            joined("n1.beta", "n2.alpha", 5, 4_000_000),
            joined("n1.alpha", "n2.alpha", 7, 7),
        ]);
        assert_eq!(account.pairs.len(), 1);
        assert_eq!(account.pairs[0].bytes, Some([4_001_000, 7]));
        assert_eq!(account.connections_within_sites, 1);
        assert_eq!(account.node_pairs.len(), 2);
        let text = account.text(false);
        let first =
            "isthmus: 4 ranks on 2 nodes at 2 sites, wired up in 1.3 s; ended with status 0 after 4.2 s\n";
        assert!(text.starts_with(first), "{text}");
        assert!(account.text(false).contains("relay r1, end-to-end, encrypted"), "{}", account.text(false));
        assert!(account.text(false).contains("4.0 MB / 7 B"), "{}", account.text(false));
    }

    #[test]
    fn gateways_on_the_way_are_named() {
        let over = |route: Route, initiator, acceptor| Joined {
            route: route.into(),
            dial: Dial::Direct.into(),
            relay: String::new(),
            ..joined(initiator, acceptor, 0, 0)
        };
        let account = account(&[
            over(Route::OneGateway, "n1.alpha", "n1.beta"),
            over(Route::GatewayOut, "n1.beta", "n1.alpha"),
            over(Route::TwoGateway, "n1.alpha", "n1.beta"),
        ]);
        let ways: Vec<_> = account.pairs.iter().map(Pair::way).collect();
        let want = [
            "direct, one-gateway at beta, encrypted",
            "direct, gateway-out at beta, encrypted",
            "direct, two-gateway at alpha and beta, encrypted",
        ];
        assert_eq!(ways, want);
    }

    #[test]
    fn what_the_kernel_carried_is_not_counted() {
        let raw = Joined { bytes_known: false, encrypted: false, ..joined("n1.alpha", "n1.beta", 0, 0) };
        assert!(account(&[raw]).text(true).contains("not counted"));
    }

    #[test]
    fn sizes() {
        for (number, want) in
            [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_999, "1.0 MB"), (1 << 40, "1.1 TB")]
        {
            assert_eq!(bytes(number), want);
        }
    }
}
