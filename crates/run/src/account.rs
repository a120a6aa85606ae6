//! The account at the end of a job: how sites were joined, and what the
//! connections carried.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isthmus_front::format::{bytes, count, site};
use isthmus_front::picture;
use isthmus_service::clock::micros;
use isthmus_wire::proto::{JobNode, Joined};
use serde::Serialize;

use super::bypass::Bypass;
use super::collectives::Collectives;
use super::pauses::Pauses;
use super::pilots::Cost;
use super::placing::GroupGot;
use super::ranks::{NodeRanks, Placement, spread_over};
use super::timing::Timing;
use crate::joined::{Pair, pairs, table};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Account {
    pub job: String,
    /// The command's exit status.
    pub status: i32,
    /// Seconds from the start of the command to its end.
    pub seconds: f64,
    /// Seconds from the start of the command to the last connection of the start; absent if there
    /// was no connection.
    pub wire_up_seconds: Option<f64>,
    /// How many ranks ran, or else how many were asked for; absent if the command line doesn't give
    /// their number either.
    pub ranks: Option<u64>,
    /// How many ranks ran on each node; absent unless all are known.
    pub ranks_by_node: Option<Vec<NodeRanks>>,
    /// What to tell the user of nodes without ranks.
    #[serde(skip)]
    idle: Option<String>,
    /// How many nodes ranks could run on.
    pub nodes: usize,
    /// The sites of these nodes.
    pub sites: Vec<String>,
    /// How many processes had to be killed at the end.
    pub processes_killed: u32,
    /// How sites were joined; without connections within one site.
    pub pairs: Vec<Pair>,
    /// How each two nodes of different sites were joined.
    pub node_pairs: Vec<Pair>,
    /// How many connections there were within sites.
    pub connections_within_sites: u64,
    /// Bytes of the connections within sites, both ways together; absent if the kernel has not
    /// told.
    pub bytes_within_sites: Option<u64>,
    /// Whether there may have been more bytes within sites than are counted.
    pub bytes_within_sites_least: bool,
    /// What ended the job, if it wasn't the command itself.
    pub ended_by: Option<String>,
    /// Connections of nodes past isthmus.
    pub bypasses: Vec<Bypass>,
    /// Sites that were cut off for a while.
    pub pauses: Vec<Pauses>,
    /// What the MPI library has done; absent for a job without it.
    pub collectives: Option<Collectives>,
    /// The groups of the job's profile, and what they got.
    pub groups: Vec<GroupGot>,
    /// Batch jobs that were submitted for this run, with the time until its end.
    pub batch_jobs: Vec<Cost>,
    /// How long each phase of the job's start took.
    pub timing: Timing,
}

/// How a job ended: all that the account needs but for the connections.
#[derive(Debug, Clone)]
pub(crate) struct Outcome<'a> {
    pub job: String,
    /// The command's exit status.
    pub status: i32,
    /// Time from the start of the command to its end.
    pub took: Duration,
    /// Time from the start of the command to the last connection of the start; `None` if there was
    /// no connection.
    pub wire_up: Option<Duration>,
    /// How many ranks the command line asks for, if it gives their number.
    pub ranks: Option<u64>,
    /// Where the ranks ran, if that is known.
    pub placement: Option<Placement>,
    /// Whether the user has named the launcher's nodes: those without ranks are meant to have none.
    pub is_placed: bool,
    /// The job's nodes, the head first.
    pub nodes: &'a [JobNode],
    /// How many processes had to be killed at the end.
    pub processes_killed: u32,
    /// What ended the job, if it wasn't the command itself.
    pub ended_by: Option<String>,
    /// Connections of nodes past isthmus.
    pub bypasses: Vec<Bypass>,
    /// Sites that were cut off for a while.
    pub pauses: Vec<Pauses>,
    /// What the MPI library has done; `None` for a job without it.
    pub collectives: Option<Collectives>,
    /// The groups of the job's profile, and what they got.
    pub groups: Vec<GroupGot>,
    /// Batch jobs that were submitted for this run, with the time until its end.
    pub batch_jobs: Vec<Cost>,
}

impl Account {
    pub(crate) fn new(outcome: &Outcome<'_>, joined: &[Joined], timing: Timing) -> Self {
        let working: Vec<_> = outcome.nodes.iter().filter(|node| node.slots > 0).collect();
        let sites: BTreeSet<_> = working.iter().map(|node| site(&node.name).to_owned()).collect();
        let (within, between): (Vec<_>, Vec<_>) =
            joined.iter().partition(|entry| site(&entry.initiator) == site(&entry.acceptor));
        let inside = pairs(&within, |_| "");
        Self {
            job: outcome.job.clone(),
            status: outcome.status,
            seconds: outcome.took.as_secs_f64(),
            wire_up_seconds: outcome.wire_up.map(|wire_up| wire_up.as_secs_f64()),
            ranks: outcome.placement.as_ref().map(Placement::ranks).or(outcome.ranks),
            idle: outcome.placement.as_ref().filter(|_| !outcome.is_placed).and_then(Placement::idle),
            ranks_by_node: outcome.placement.as_ref().map(|placement| placement.by_node.clone()),
            nodes: working.len(),
            sites: sites.into_iter().collect(),
            processes_killed: outcome.processes_killed,
            pairs: pairs(&between, site),
            node_pairs: pairs(&between, |name| name),
            ended_by: outcome.ended_by.clone(),
            bypasses: outcome.bypasses.clone(),
            pauses: outcome.pauses.clone(),
            collectives: outcome.collectives.clone(),
            groups: outcome.groups.clone(),
            batch_jobs: outcome.batch_jobs.clone(),
            timing,
            connections_within_sites: inside.iter().map(|pair| pair.connections).sum(),
            bytes_within_sites: inside
                .iter()
                .map(|pair| pair.bytes.map(|[there, back]| there.saturating_add(back)))
                .try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?))),
            bytes_within_sites_least: inside.iter().any(|pair| pair.bytes_least),
        }
    }

    /// What share of the job's time the wide area took, of the two sites with the largest share.
    fn under_way(&self) -> Option<String> {
        let told = self.pairs.iter().filter_map(|pair| Some((pair.under_way_us?, &pair.ends)));
        let (under_way_us, [one, other]) = told.max()?;
        let all_us = micros(Duration::from_secs_f64(self.seconds)).max(1);
        let percent = under_way_us.saturating_mul(100).checked_div(all_us)?.min(100);
        Some(format!("  data was under way between {one} and {other} for {percent} % of the time\n"))
    }

    /// A picture (SVG) of the sites, and of how each two of them were joined.
    pub(crate) fn picture(&self, title: &str) -> String {
        let at = |name: &str| self.sites.iter().position(|site| site == name);
        let ranks = |name: &str| -> Option<u64> {
            let here = self.ranks_by_node.as_ref()?.iter().filter(|node| site(&node.node) == name);
            Some(here.map(|node| node.ranks).sum())
        };
        let drawn = |name: &String| picture::Site {
            name: name.clone(),
            lines: ranks(name).map(|ranks| count(ranks, "rank")).into_iter().collect(),
            is_up: true,
        };
        // One line for each two sites, with all ways between them.
        let mut links: BTreeMap<[usize; 2], picture::Edge> = BTreeMap::new();
        for pair in &self.pairs {
            let [Some(from), Some(to)] = [at(&pair.ends[0]), at(&pair.ends[1])] else { continue };
            let link = links.entry([from, to]).or_insert_with(|| picture::Edge {
                ends: [from, to],
                lines: Vec::new(),
                bytes: None,
            });
            link.lines.extend(pair.summary());
            let bytes = pair.bytes.map(|[there, back]| there.saturating_add(back));
            link.bytes = bytes.map(|bytes| bytes.saturating_add(link.bytes.unwrap_or(0))).or(link.bytes);
        }
        let links: Vec<_> = links.into_values().collect();
        picture::draw(title, &self.sites.iter().map(drawn).collect::<Vec<_>>(), &links)
    }

    /// The account for people; with `verbose`, it has every pair of nodes.
    pub(crate) fn text(&self, verbose: bool) -> String {
        let all = (self.nodes as u64, self.sites.len() as u64);
        let (nodes, sites) = self.ranks_by_node.as_deref().map_or(all, spread_over);
        let ranks = match (&self.ranks_by_node, self.ranks) {
            (Some(_), Some(ranks)) => format!("{} on ", count(ranks, "rank")),
            // The launcher may have started ranks anywhere.
            (None, Some(ranks)) => format!("{} asked for; ", count(ranks, "rank")),
            (_, None) => String::new(),
        };
        let wired = match self.wire_up_seconds {
            Some(seconds) => format!(", wired up in {seconds:.1} s"),
            None => String::new(),
        };
        let mut text = format!(
            "isthmus: {ranks}{} at {}{wired}; ended with status {} after {:.1} s\n",
            count(nodes, "node"),
            count(sites, "site"),
            self.status,
            self.seconds
        );
        if let Some(cause) = &self.ended_by {
            text.push_str(&format!("  cause: {cause}\n"));
        }
        if let Some(idle) = &self.idle {
            text.push_str(&format!("  {idle}\n"));
        }
        for pauses in &self.pauses {
            text.push_str(&format!("  {pauses}\n"));
        }
        text.push_str(&table("sites", &self.pairs));
        if verbose {
            text.push_str(&table("nodes", &self.node_pairs));
        }
        text.extend(self.under_way());
        if self.connections_within_sites > 0 {
            let least = if self.bytes_within_sites_least { "at least " } else { "" };
            let volume = self.bytes_within_sites.map(|volume| format!(", {least}{}", bytes(volume)));
            text.push_str(&format!(
                "  within sites: {}, direct{}\n",
                count(self.connections_within_sites, "connection"),
                volume.unwrap_or_default()
            ));
        }
        let have_run = self.status == 0 && sites > 1 && self.ranks_by_node.is_some();
        if let Some(collectives) = &self.collectives {
            text.push_str(&collectives.text(have_run));
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

#[cfg(test)]
mod tests {
    use isthmus_wire::proto::{self, Dial, Encryption, Route};

    use super::*;
    use crate::{ranks, timing};

    fn joined(initiator: &str, acceptor: &str, sent: u64, received: u64) -> Joined {
        Joined {
            initiator: initiator.to_owned(),
            acceptor: acceptor.to_owned(),
            route: Route::EndToEnd.into(),
            dial: Dial::Relay.into(),
            relay: "r1".to_owned(),
            encryption: Encryption::Agents.into(),
            connections: 1,
            bytes_sent: sent,
            bytes_received: received,
            bytes_known: true,
            setup_total_us: 30_000,
            setup_max_us: 30_000,
            bytes_least: false,
            under_way_us: 0,
        }
    }

    fn account(entries: &[Joined]) -> Account {
        with_ranks(entries, None)
    }

    fn with_ranks(entries: &[Joined], placement: Option<Placement>) -> Account {
        placed(entries, placement, false)
    }

    fn placed(entries: &[Joined], placement: Option<Placement>, is_placed: bool) -> Account {
        let node = |name: &str, slots| JobNode { name: name.to_owned(), virtual_address: 0, slots };
        let nodes = [node("fe.alpha", 0), node("n1.alpha", 2), node("n1.beta", 2)];
        let outcome = Outcome {
            job: "j".to_owned(),
            status: 0,
            took: Duration::from_millis(4200),
            wire_up: Some(Duration::from_millis(1300)),
            ranks: Some(4),
            placement,
            is_placed,
            nodes: &nodes,
            processes_killed: 0,
            ended_by: None,
            bypasses: Vec::new(),
            collectives: None,
            groups: Vec::new(),
            batch_jobs: Vec::new(),
            pauses: vec![Pauses { node: "n1.beta".to_owned(), pauses: 1, seconds: 21.44 }],
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
        let first = "isthmus: 4 ranks asked for; 2 nodes at 2 sites, wired up in 1.3 s; ended with status 0 after 4.2 s\n";
        assert!(text.starts_with(first), "{text}");
        assert!(account.text(false).contains("relay r1, end-to-end, encrypted"), "{}", account.text(false));
        assert!(account.text(false).contains("4.0 MB / 7 B"), "{}", account.text(false));
        assert!(account.text(false).contains("\n  waited 21.4 s for n1.beta"), "{}", account.text(false));
    }

    #[test]
    fn the_share_of_the_wide_area_is_that_of_the_busiest_sites() {
        let under_way =
            |initiator, acceptor, under_way_us| Joined { under_way_us, ..joined(initiator, acceptor, 1, 1) };
        assert!(!account(&[joined("n1.alpha", "n1.beta", 1, 1)]).text(false).contains("under way"));
        // The job took 4.2 s.
        let account = account(&[
            under_way("n1.alpha", "n1.beta", 420_000),
            under_way("n1.beta", "n2.alpha", 1_050_000),
            under_way("n1.alpha", "n1.gamma", 840_000),
        ]);
        let want = "\n  data was under way between alpha and beta for 25 % of the time\n";
        assert!(account.text(false).contains(want), "{}", account.text(false));
    }

    #[test]
    fn ranks_are_told_where_they_ran() {
        let nodes = [("n1.alpha", 4), ("n1.beta", 0)].map(|(name, ranks)| proto::NodeRanks {
            node: name.to_owned(),
            worlds: (ranks > 0)
                .then(|| proto::RankWorld { size: ranks, ranks, ..proto::RankWorld::default() })
                .into_iter()
                .collect(),
            incomplete: false,
        });
        let node = |name: &str| JobNode { name: name.to_owned(), virtual_address: 0, slots: 2 };
        let placement = ranks::placement(&[node("n1.alpha"), node("n1.beta")], &nodes, Some(4));
        let account = with_ranks(&[], placement.clone());
        assert!(!placed(&[], placement, true).text(false).contains("had no rank"), "the user's choice");
        let text = account.text(false);
        assert!(text.starts_with("isthmus: 4 ranks on 1 node at 1 site, wired up"), "{text}");
        assert!(text.contains("\n  n1.beta had no rank: `--map-by node` spreads them\n"), "{text}");
        let json = serde_json::to_value(&account).unwrap();
        assert_eq!(json["ranks_by_node"][1]["ranks"], 0);
        assert_eq!(serde_json::to_value(with_ranks(&[], None)).unwrap()["ranks_by_node"].as_array(), None);
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
            Joined {
                dial: Dial::Trunk.into(),
                encryption: Encryption::Gateways.into(),
                ..over(Route::TwoGateway, "n1.alpha", "n1.beta")
            },
        ]);
        let ways: Vec<_> = account.pairs.iter().map(Pair::way).collect();
        let want = [
            "direct, one-gateway at beta, encrypted",
            "direct, gateway-out at beta, encrypted",
            "direct, two-gateway at alpha and beta, encrypted",
            "trunk, two-gateway at alpha and beta, encrypted gateway to gateway",
        ];
        assert_eq!(ways, want);
    }

    #[test]
    fn bytes_of_raw_connections_are_as_the_kernel_tells() {
        let raw = |acceptor: &str, bytes_known, bytes_least, sent| Joined {
            bytes_known,
            bytes_least,
            encryption: Encryption::None.into(),
            ..joined("n1.alpha", acceptor, sent, 0)
        };
        for (known, least, sent, want, within) in [
            (false, false, 0, "not counted (raw socket)", "1 connection, direct\n"),
            (true, false, 7000, "  7.0 kB / 0 B", "1 connection, direct, 7.0 kB\n"),
            (true, true, 7000, "at least 7.0 kB / 0 B", "1 connection, direct, at least 7.0 kB\n"),
            (true, true, 0, "not counted yet (raw socket)", "1 connection, direct, at least 0 B\n"),
        ] {
            let entries = ["n1.beta", "n2.alpha"].map(|acceptor| raw(acceptor, known, least, sent));
            let text = account(&entries).text(false);
            assert!(text.contains(want) && text.contains(within), "{text}");
        }
    }
}
