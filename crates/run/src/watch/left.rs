//! Whether any ranks of a job are left.

use std::collections::HashSet;
use std::time::Instant;

use isthmus_wire::proto::RanksLive;

/// The nodes on which ranks run.
#[derive(Debug, Default)]
pub(super) struct RanksLeft {
    nodes: HashSet<String>,
    /// When the last rank ended; `None` while ranks run, or before any did.
    none: Option<Instant>,
}

impl RanksLeft {
    /// Notes a node's word that it has ranks, or has none any more.
    pub(super) fn told(&mut self, RanksLive { node, any }: RanksLive, now: Instant) {
        if any {
            self.nodes.insert(node);
            self.none = None;
        } else if self.nodes.remove(&node) && self.nodes.is_empty() {
            self.none = Some(now);
        }
    }

    /// When the last rank ended; `None` while ranks run, or before any did.
    pub(super) fn none_since(&self) -> Option<Instant> {
        self.none
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn none_is_left_once_the_last_node_has_none() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut left = RanksLeft::default();
        assert_eq!(left.none_since(), None, "before there were any");
        for (second, node, any, want) in [
            (1, "n1.a", true, None),
            (2, "n1.b", true, None),
            (3, "n1.a", false, None),
            (4, "n1.c", false, None),
            (5, "n1.b", false, Some(5)),
            (6, "n1.b", false, Some(5)),
            (7, "n1.a", true, None),
            (8, "n1.a", false, Some(8)),
        ] {
            left.told(RanksLive { node: node.to_owned(), any }, at(second));
            assert_eq!(left.none_since(), want.map(at), "{second}");
        }
    }
}
