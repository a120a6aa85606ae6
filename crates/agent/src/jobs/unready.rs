//! Why nodes can't take part in a job. However many there are, the message stays small: the
//! nodes of one reason stand together.

use std::collections::{BTreeMap, BTreeSet};

use isthmus_wire::proto;

/// Most reasons that are kept.
const REASONS_MAX: usize = 64;
/// Most nodes of one reason that are named.
const NAMED_MAX: usize = 16;
/// Most characters of a reason that are kept.
const REASON_CHARS_MAX: usize = 1000;

/// The nodes that can't take part for one reason.
#[derive(Debug, Default)]
struct Nodes {
    /// The names of the first nodes in alphabetical order, at most [`NAMED_MAX`].
    named: BTreeSet<String>,
    /// How many further nodes have this reason.
    more: u32,
    /// Whether another try may have another result for each of the nodes.
    may_pass: bool,
}

/// Nodes that can't take part, by reason.
#[derive(Debug, Default)]
pub(crate) struct Unready {
    by_reason: BTreeMap<String, Nodes>,
    /// How many nodes have reasons that aren't kept.
    left_out: u32,
}

impl Unready {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_reason.is_empty() && self.left_out == 0
    }

    /// Adds a node that can't take part. `may_pass` is whether another try may have another result.
    pub(crate) fn add(&mut self, node: String, reason: &str, may_pass: bool) {
        self.put([node], 0, (reason, may_pass));
    }

    /// Adds the nodes that another agent has found. Its message is bounded anew.
    pub(crate) fn merge(&mut self, other: proto::Unready) {
        self.left_out = self.left_out.saturating_add(other.left_out);
        for proto::Unfit { nodes, more, reason, may_pass } in other.unfit {
            self.put(nodes, more, (&reason, may_pass));
        }
    }

    fn put(&mut self, nodes: impl IntoIterator<Item = String>, more: u32, (reason, may_pass): (&str, bool)) {
        let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
        let is_kept = self.by_reason.len() < REASONS_MAX || self.by_reason.contains_key(&reason);
        if !is_kept {
            let count = u32::try_from(nodes.into_iter().count()).unwrap_or(u32::MAX);
            self.left_out = self.left_out.saturating_add(count).saturating_add(more);
            return;
        }
        let new = || Nodes { may_pass: true, ..Nodes::default() };
        let known = self.by_reason.entry(reason).or_insert_with(new);
        known.may_pass &= may_pass;
        known.more = known.more.saturating_add(more);
        for node in nodes {
            // A node that is named twice is one.
            if known.named.insert(node) && known.named.len() > NAMED_MAX {
                known.named.pop_last();
                known.more = known.more.saturating_add(1);
            }
        }
    }

    /// The message for the head, with the reasons of most nodes first.
    pub(crate) fn message(self) -> proto::Unready {
        let mut unfit: Vec<_> = self
            .by_reason
            .into_iter()
            .map(|(reason, Nodes { named, more, may_pass })| proto::Unfit {
                nodes: named.into_iter().collect(),
                more,
                reason,
                may_pass,
            })
            .collect();
        unfit.sort_by_key(|unfit| std::cmp::Reverse((unfit.more, unfit.nodes.len())));
        proto::Unready { unfit, left_out: self.left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(unfit: &proto::Unfit) -> String {
        unfit.nodes.join(" ")
    }

    #[test]
    fn a_thousand_nodes_of_one_reason_are_counted_and_the_first_named() {
        let mut unready = Unready::default();
        for number in (0..1000).rev() {
            unready.add(format!("n{number:04}.beta"), "its agent is not attached", number != 7);
        }
        unready.add("n1.gamma".to_owned(), "no answer within 30 s", true);
        let message = unready.message();
        let [many, one] = message.unfit.as_slice() else { panic!("{message:?}") };
        assert_eq!((many.nodes.len(), many.more, many.may_pass), (NAMED_MAX, 984, false));
        assert!(names(many).starts_with("n0000.beta n0001.beta"), "{many:?}");
        assert_eq!((names(one).as_str(), one.more, one.may_pass), ("n1.gamma", 0, true));
    }

    #[test]
    fn a_thousand_reasons_are_bounded_and_no_node_is_forgotten() {
        let mut unready = Unready::default();
        for number in 0..1000 {
            unready.add(
                format!("n{number}.beta"),
                &format!("refused by 10.0.0.{number}, {}", "x".repeat(2000)),
                true,
            );
        }
        let message = unready.message();
        assert_eq!((message.unfit.len(), message.left_out), (REASONS_MAX, 936));
        let longest = message.unfit.iter().map(|unfit| unfit.reason.len()).max();
        assert_eq!(longest, Some(REASON_CHARS_MAX));
    }

    #[test]
    fn what_two_sites_have_found_is_one() {
        let mut unready = Unready::default();
        unready.add("n1.alpha".to_owned(), "late", true);
        for site in ["beta", "gamma"] {
            let nodes = (0..NAMED_MAX).map(|number| format!("n{number}.{site}")).collect();
            let unfit = vec![proto::Unfit { nodes, more: 100, reason: "late".to_owned(), may_pass: true }];
            unready.merge(proto::Unready { unfit, left_out: 3 });
        }
        assert!(!unready.is_empty());
        let message = unready.message();
        let [late] = message.unfit.as_slice() else { panic!("{message:?}") };
        assert_eq!((late.nodes.len(), late.more, message.left_out), (NAMED_MAX, 217, 6));
        assert!(Unready::default().is_empty());
    }
}
