//! Where a job goes.

use std::cmp::{Ordering, Reverse};
use std::time::Duration;

use isthmus_wire::Label;

/// Where each group of a profile goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The groups, in the profile's order.
    pub groups: Vec<PlacedGroup>,
    /// How good it is.
    pub score: Score,
    /// Whether nothing better exists. If not, time ran out before that was known.
    pub best: bool,
}

/// What one group gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedGroup {
    /// The group's name.
    pub group: Label,
    /// Its nodes, by the order of sites and classes in the offer.
    pub shares: Vec<Share>,
}

/// Nodes of one class that a group gets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The site's place in the offer.
    pub site: usize,
    /// The class's place at the site.
    pub class: usize,
    /// How many of its nodes, at least one.
    pub nodes: u32,
    /// How many ranks on these together, at least one each. Spread evenly they fit: no node has
    /// room for fewer than `ranks / nodes`, rounded up.
    pub ranks: u32,
}

/// How good a placement is. A better one is less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score {
    /// The estimated traffic between sites, see the [crate's page](crate): the less, the better.
    pub traffic: u64,
    /// Ranks of all groups: among equal traffic, the more, the better.
    pub ranks: u64,
    /// How long until the last of the nodes can be had: among equal traffic and ranks, the
    /// earlier, the better. `None` is later than any time.
    pub start: Option<Duration>,
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |score: &Self| (score.traffic, Reverse(score.ranks), score.start.is_none(), score.start);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_comes_before_ranks_and_ranks_before_the_start() {
        let score = |traffic, ranks, start: Option<u64>| Score {
            traffic,
            ranks,
            start: start.map(Duration::from_secs),
        };
        let in_order = [
            score(0, 4, None),
            score(1, 8, Some(9)),
            score(1, 8, None),
            score(1, 7, Some(0)),
            score(1, 7, Some(1)),
        ];
        assert!(in_order.is_sorted(), "{in_order:?}");
    }
}
