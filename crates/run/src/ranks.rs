//! Where the ranks of a job ran, by what its agents have seen: a pure decision. The
//! launcher's command line doesn't say it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use isthmus_front::format::site;
use isthmus_wire::proto::{self, JobNode, RankSource};
use isthmus_wire::text::first;
use serde::Serialize;

/// Most nodes without ranks that are named.
const NAMES_MAX: usize = 16;

/// How many ranks ran on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NodeRanks {
    /// The node's grid name.
    pub node: String,
    /// How many distinct ranks ran there.
    pub ranks: u64,
}

/// Where all ranks of a job ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The ranks of each node with slots or ranks, in the job's order.
    pub by_node: Vec<NodeRanks>,
    /// The launcher's option that gives each node a rank before any gets a second one.
    spread: &'static str,
}

/// Where the ranks ran; `None` if that isn't known of all of them. A node may not have told it, or
/// the job was shorter than the time between two looks of its agents.
pub(super) fn placement(
    nodes: &[JobNode],
    seen: &[proto::NodeRanks],
    asked: Option<u64>,
) -> Option<Placement> {
    let mut by_name = HashMap::new();
    for report in seen {
        if by_name.insert(report.node.as_str(), report).is_some() {
            return None;
        }
    }
    let reports: Option<Vec<_>> =
        nodes.iter().map(|node| Some((node, *by_name.get(node.name.as_str())?))).collect();
    let reports = reports?;
    let mut worlds: BTreeMap<(&str, u32, i32), u64> = BTreeMap::new();
    for world in reports.iter().flat_map(|(_, report)| &report.worlds) {
        *worlds.entry((world.name.as_str(), world.size, world.source)).or_default() += u64::from(world.ranks);
    }
    let all: u64 = worlds.values().sum();
    let is_whole = |(key, ranks): (&(&str, u32, i32), &u64)| match key.1 {
        // The launcher doesn't tell its ranks how many there are.
        0 => asked == Some(all),
        size => u64::from(size) == *ranks,
    };
    let are_all = all > 0 && asked.is_none_or(|asked| asked <= all) && worlds.iter().all(is_whole);
    if !are_all || reports.iter().any(|(_, report)| report.incomplete) {
        return None;
    }
    let source = reports.iter().flat_map(|(_, report)| &report.worlds).map(proto::RankWorld::source).next();
    let of_node = |(node, report): &(&JobNode, &proto::NodeRanks)| {
        let ranks: u64 = report.worlds.iter().map(|world| u64::from(world.ranks)).sum();
        (node.slots > 0 || ranks > 0).then(|| NodeRanks { node: node.name.clone(), ranks })
    };
    let spread = match source {
        Some(RankSource::Pmi) => "-ppn 1",
        _ => "--map-by node",
    };
    Some(Placement { by_node: reports.iter().filter_map(of_node).collect(), spread })
}

impl Placement {
    /// How many ranks ran in all.
    pub(super) fn ranks(&self) -> u64 {
        self.by_node.iter().map(|node| node.ranks).sum()
    }

    /// What to tell the user of nodes that could have had ranks and had none; `None` if there are
    /// none.
    pub(super) fn idle(&self) -> Option<String> {
        let idle: Vec<&str> =
            self.by_node.iter().filter(|node| node.ranks == 0).map(|node| node.node.as_str()).collect();
        if idle.is_empty() {
            return None;
        }
        let named = first(idle.iter(), 0, NAMES_MAX);
        let too_few =
            if self.ranks() < self.by_node.len() as u64 { "; there are more nodes than ranks" } else { "" };
        Some(format!("{named} had no rank: `{}` spreads them{too_few}", self.spread))
    }
}

/// How many nodes had ranks, and how many sites these are at.
pub(super) fn spread_over(by_node: &[NodeRanks]) -> (u64, u64) {
    let busy = by_node.iter().filter(|node| node.ranks > 0);
    let sites: BTreeSet<&str> = busy.clone().map(|node| site(&node.node)).collect();
    (busy.count() as u64, sites.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI: RankSource = RankSource::OpenMpi;

    /// A node's report: for each world its name, its size, and how many of its ranks ran here.
    fn report(node: &str, source: RankSource, worlds: &[(&str, u32, u32)]) -> proto::NodeRanks {
        let world = |&(name, size, ranks): &(&str, u32, u32)| proto::RankWorld {
            name: name.to_owned(),
            size,
            ranks,
            source: source.into(),
        };
        let worlds = worlds.iter().map(world).collect();
        proto::NodeRanks { node: node.to_owned(), worlds, incomplete: false }
    }

    /// The nodes of a job, whose head has no slots.
    fn nodes() -> Vec<JobNode> {
        [("fe.alpha", 0), ("n1.alpha", 2), ("n1.beta", 2)]
            .map(|(name, slots)| JobNode { name: name.to_owned(), virtual_address: 0, slots })
            .to_vec()
    }

    #[test]
    fn only_what_is_known_of_all_ranks_is_told() {
        for (name, source, asked, alpha, beta, want) in [
            ("spread", OPEN_MPI, Some(4), &[("a", 4, 2)][..], &[("a", 4, 2)][..], Some("2 2")),
            ("all on one node", OPEN_MPI, Some(2), &[("a", 2, 2)], &[], Some("2 0")),
            ("all on the other one", RankSource::Pmi, Some(2), &[], &[("", 2, 2)], Some("0 2")),
            ("no number on the command line", OPEN_MPI, None, &[("a", 2, 1)], &[("a", 2, 1)], Some("1 1")),
            ("too short for a look", OPEN_MPI, Some(2), &[], &[], None),
            ("ended before one node looked", OPEN_MPI, Some(2), &[("a", 2, 1)], &[], None),
            ("one launcher after another", OPEN_MPI, None, &[("a", 2, 2)], &[("b", 1, 1)], Some("2 1")),
            ("spawned ones as well", OPEN_MPI, Some(1), &[("a", 1, 1)], &[("b", 2, 2)], Some("1 2")),
            ("spawned ones not seen by all", OPEN_MPI, Some(1), &[("a", 1, 1)], &[("b", 2, 1)], None),
            ("PMIx names no size", RankSource::Pmix, Some(3), &[("a", 0, 2)], &[("a", 0, 1)], Some("2 1")),
            ("neither does the command line", RankSource::Pmix, None, &[("a", 0, 2)], &[("a", 0, 1)], None),
            ("fewer than were asked for", OPEN_MPI, Some(4), &[("a", 2, 2)], &[], None),
        ] {
            let seen = [
                report("n1.beta", source, beta),
                report("n1.alpha", source, alpha),
                report("fe.alpha", source, &[]),
            ];
            let got = placement(&nodes(), &seen, asked).map(|placement| {
                placement.by_node.iter().map(|node| node.ranks.to_string()).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(got.as_deref(), want, "{name}");
        }
    }

    #[test]
    fn a_node_that_does_not_tell_leaves_all_unknown() {
        let all = [
            report("fe.alpha", OPEN_MPI, &[]),
            report("n1.alpha", OPEN_MPI, &[("a", 2, 2)]),
            report("n1.beta", OPEN_MPI, &[]),
        ];
        assert!(placement(&nodes(), &all, Some(2)).is_some());
        assert_eq!(placement(&nodes(), &all[..2], Some(2)), None, "a lost node");
        let twice = [&all[..], &all[1..2]].concat();
        assert_eq!(placement(&nodes(), &twice, Some(2)), None, "told twice");
        let mut incomplete = all.clone();
        incomplete[2].incomplete = true;
        assert_eq!(placement(&nodes(), &incomplete, Some(2)), None, "more than are counted");
    }

    #[test]
    fn nodes_without_ranks_are_named_with_the_remedy() {
        let idle = |source: RankSource, ranks: &[u32]| {
            let name = |index: usize| format!("n{index}.beta");
            let node = |index| JobNode { name: name(index), virtual_address: 0, slots: 2 };
            let nodes: Vec<_> = (0..ranks.len()).map(node).collect();
            let size: u32 = ranks.iter().sum();
            let seen = ranks.iter().enumerate().map(|(index, ranks)| match ranks {
                0 => report(&name(index), source, &[]),
                _ => report(&name(index), source, &[("", size, *ranks)]),
            });
            placement(&nodes, &seen.collect::<Vec<_>>(), None).unwrap().idle()
        };
        assert_eq!(idle(OPEN_MPI, &[2, 2]), None);
        assert_eq!(idle(OPEN_MPI, &[2, 0]).unwrap(), "n1.beta had no rank: `--map-by node` spreads them");
        assert_eq!(idle(RankSource::Pmi, &[2, 0]).unwrap(), "n1.beta had no rank: `-ppn 1` spreads them");
        assert_eq!(
            idle(OPEN_MPI, &[2, 0, 0]).unwrap(),
            "n1.beta, n2.beta had no rank: `--map-by node` spreads them; there are more nodes than ranks"
        );
        let mut many = vec![0_u32; 30];
        many[0] = 30;
        let text = idle(OPEN_MPI, &many).unwrap();
        assert!(text.contains("n16.beta and 13 more had no rank"), "{text}");
    }

    #[test]
    fn nodes_and_sites_with_ranks_are_counted() {
        let node = |name: &str, ranks| NodeRanks { node: name.to_owned(), ranks };
        let by_node = [node("n1.alpha", 2), node("n2.alpha", 1), node("n1.beta", 0)];
        assert_eq!(spread_over(&by_node), (2, 1));
    }
}
