//! From a placement to batch jobs and nodes: pure.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use isthmus_matching::{Placement, Share};
use isthmus_profile::launch;
use isthmus_profile::{Group, Profile};
use isthmus_wire::GridName;
use isthmus_wire::proto::NodesWanted;

use super::offered::{Alike, Offered};

/// Nodes that a scheduler is to give to one group.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    /// The scheduler's place in the list.
    pub scheduler: usize,
    pub nodes: NodesWanted,
}

/// Ranks of a group on nodes that are alike.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// On these nodes, which have agents.
    Standing { nodes: Vec<String>, ranks: u32 },
    /// On the nodes of the order at this place of the list.
    Ordered { order: usize, ranks: u32 },
}

/// Where the groups go, in the profile's order, and what schedulers must give for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parts {
    pub orders: Vec<Wanted>,
    pub groups: Vec<Vec<Part>>,
}

impl Parts {
    /// Chooses nodes for a placement. Each node belongs to one group.
    pub(super) fn new(
        placement: &Placement,
        offered: &Offered,
        profile: &Profile,
        time: Option<Duration>,
    ) -> Self {
        let mut left = offered.alike.clone();
        let mut parts = Self { orders: Vec::new(), groups: Vec::new() };
        for (placed, group) in placement.groups.iter().zip(&profile.groups) {
            let mut of_group = Vec::new();
            for share in &placed.shares {
                let alike = left.get_mut(share.site).and_then(|classes| classes.get_mut(share.class));
                let ranks = share.ranks;
                match alike {
                    Some(Alike::Standing(nodes)) => {
                        let count = nodes.len().min(share.nodes as usize);
                        let nodes = nodes.drain(..count).map(|node| node.name).collect();
                        of_group.push(Part::Standing { nodes, ranks });
                    }
                    Some(Alike::Scheduler(scheduler)) => {
                        let nodes = wanted(group, share, time);
                        of_group.push(Part::Ordered { order: parts.orders.len(), ranks });
                        parts.orders.push(Wanted { scheduler: *scheduler, nodes });
                    }
                    None => {}
                }
            }
            parts.groups.push(of_group);
        }
        parts
    }

    /// The nodes with agents that are used.
    pub(super) fn standing(&self) -> Vec<String> {
        let nodes = self.groups.iter().flatten().flat_map(|part| match part {
            Part::Standing { nodes, .. } => nodes.as_slice(),
            Part::Ordered { .. } => &[][..],
        });
        nodes.cloned().collect()
    }

    /// How many bytes of memory the ranks of each node with an agent need together.
    pub(super) fn memory(&self, profile: &Profile) -> BTreeMap<String, u64> {
        let mut needed = BTreeMap::new();
        for (parts, group) in self.groups.iter().zip(&profile.groups) {
            let Some(each) = group.needs.memory_bytes else { continue };
            for part in parts {
                let Part::Standing { nodes, ranks } = part else { continue };
                let shares = spread(nodes, *ranks);
                let bytes = |share: &launch::Share| each.saturating_mul(share.ranks.get().into());
                needed.extend(shares.iter().map(|share| (share.node.to_string(), bytes(share))));
            }
        }
        needed
    }

    /// How many ranks of each group are on which node. `given` has the nodes of each order.
    pub(super) fn shares(&self, given: &[Vec<String>]) -> Vec<Vec<launch::Share>> {
        let of_part = |part: &Part| match part {
            Part::Standing { nodes, ranks } => spread(nodes, *ranks),
            Part::Ordered { order, ranks } => {
                spread(given.get(*order).map_or(&[][..], Vec::as_slice), *ranks)
            }
        };
        self.groups.iter().map(|parts| parts.iter().flat_map(of_part).collect()).collect()
    }
}

/// What a scheduler is asked for.
fn wanted(group: &Group, share: &Share, time: Option<Duration>) -> NodesWanted {
    let of_node = share.ranks.div_ceil(share.nodes.max(1));
    let memory = group.needs.memory_bytes.unwrap_or_default();
    NodesWanted {
        nodes: share.nodes,
        time_seconds: time.map_or(0, isthmus_service::clock::seconds),
        cores: of_node.saturating_mul(group.needs.cores.unwrap_or(1)),
        memory_bytes: memory.saturating_mul(of_node.into()),
        tags: group.needs.tags.iter().map(ToString::to_string).collect(),
        ..NodesWanted::default()
    }
}

/// Spreads ranks over nodes, evenly. The first nodes have one more where that doesn't go.
fn spread(nodes: &[String], ranks: u32) -> Vec<launch::Share> {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
    let (each, more) = (ranks / count, ranks % count);
    let shares = nodes.iter().zip(0_u32..).filter_map(|(name, place)| {
        let ranks = NonZeroU32::new(each + u32::from(place < more))?;
        Some(launch::Share { node: name.parse::<GridName>().ok()?, ranks })
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use isthmus_matching::{Offer, PlacedGroup, Score};
    use isthmus_wire::proto::JobNode;

    use super::*;

    fn nodes(names: &[&str]) -> Alike {
        let node = |name: &&str| JobNode { name: (*name).to_owned(), ..JobNode::default() };
        Alike::Standing(names.iter().map(node).collect())
    }

    #[test]
    fn groups_get_nodes_of_their_own() {
        let text = "[[group]]\nname = 'a'\nranks = 3\n\
                    [[group]]\nname = 'b'\nranks = 7\ncores = 2\nmemory = '1 GiB'\ntags = ['gpu']\n";
        let profile = Profile::parse(text, "job.toml").unwrap();
        let share = |site, class, nodes, ranks| Share { site, class, nodes, ranks };
        let placed = |name: &str, shares| PlacedGroup { group: name.parse().unwrap(), shares };
        let placement = Placement {
            groups: vec![
                placed("a", vec![share(0, 0, 2, 3)]),
                placed("b", vec![share(0, 0, 1, 2), share(1, 0, 2, 5)]),
            ],
            score: Score { traffic: 0, ranks: 10, start: None },
            best: true,
        };
        let alike = vec![vec![nodes(&["n1.a", "n2.a", "n3.a"])], vec![Alike::Scheduler(4)]];
        let offered = Offered { offer: Offer::default(), alike };
        let parts = Parts::new(&placement, &offered, &profile, Some(Duration::from_secs(60)));
        assert_eq!(parts.standing(), ["n1.a", "n2.a", "n3.a"]);
        let nodes = NodesWanted {
            nodes: 2,
            time_seconds: 60,
            cores: 6,
            memory_bytes: 3 << 30,
            tags: vec!["gpu".to_owned()],
            ..NodesWanted::default()
        };
        assert_eq!(parts.orders, [Wanted { scheduler: 4, nodes }]);
        let given = ["p1.b", "p2.b"].map(str::to_owned).to_vec();
        let text = |shares: &Vec<launch::Share>| {
            let one = |share: &launch::Share| format!("{}:{}", share.node, share.ranks);
            shares.iter().map(one).collect::<Vec<_>>().join(" ")
        };
        let shares: Vec<_> = parts.shares(&[given]).iter().map(text).collect();
        assert_eq!(shares, ["n1.a:2 n2.a:1", "n3.a:2 p1.b:3 p2.b:2"]);
        assert_eq!(parts.memory(&profile), [("n3.a".to_owned(), 2 << 30)].into());
    }
}
