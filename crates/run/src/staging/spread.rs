//! Who gets the files from whom: a pure decision.
//!
//! They cross to each site once. Within a site each node that has them gives them to others, so that
//! their number doubles each time.

/// Most sites that the head sends to at once.
const SITES_AT_ONCE: usize = 8;
/// Most nodes of its site that a node sends to at once.
const NODES_AT_ONCE: usize = 2;

/// The nodes of a job, by their index. Node 0 has the files at the beginning.
#[derive(Debug)]
pub(super) struct Spread<'a> {
    nodes: Vec<Node<'a>>,
}

#[derive(Debug)]
struct Node<'a> {
    site: &'a str,
    state: State,
    /// How many nodes of its own site it sends to at the moment.
    serving: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    Takes { from: usize },
    Has,
}

impl<'a> Spread<'a> {
    /// Of nodes at these sites.
    pub(super) fn new(sites: impl IntoIterator<Item = &'a str>) -> Self {
        let node = |(index, site)| {
            let state = if index == 0 { State::Has } else { State::Waits };
            Node { site, state, serving: 0 }
        };
        Self { nodes: sites.into_iter().enumerate().map(node).collect() }
    }

    /// A node that is to begin now, and the one that it takes the files from: `(from, to)`.
    pub(super) fn next(&mut self) -> Option<(usize, usize)> {
        let (from, to) = (0..self.nodes.len()).find_map(|to| Some((self.source(to)?, to)))?;
        if self.nodes[from].site == self.nodes[to].site {
            self.nodes[from].serving += 1;
        }
        self.nodes[to].state = State::Takes { from };
        Some((from, to))
    }

    /// Where a node can take the files from now.
    fn source(&self, to: usize) -> Option<usize> {
        let site = self.nodes[to].site;
        if self.nodes[to].state != State::Waits {
            return None;
        }
        let mut same = self.nodes.iter().filter(|node| node.site == site);
        if same.all(|node| node.state == State::Waits) {
            let is_remote = |node: &&Node<'_>| {
                matches!(node.state, State::Takes { from: 0 }) && node.site != self.nodes[0].site
            };
            return (self.nodes.iter().filter(is_remote).count() < SITES_AT_ONCE).then_some(0);
        }
        self.nodes
            .iter()
            .position(|node| node.site == site && node.state == State::Has && node.serving < NODES_AT_ONCE)
    }

    /// A node has the files now.
    pub(super) fn has(&mut self, index: usize) {
        if let State::Takes { from } = self.nodes[index].state
            && self.nodes[from].site == self.nodes[index].site
        {
            self.nodes[from].serving -= 1;
        }
        self.nodes[index].state = State::Has;
    }

    /// Whether all nodes have the files.
    pub(super) fn is_over(&self) -> bool {
        self.nodes.iter().all(|node| node.state == State::Has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has all nodes that have begun finish together, and returns who took from whom in each turn.
    fn turns(sites: &[&str]) -> Vec<Vec<(usize, usize)>> {
        let mut spread = Spread::new(sites.iter().copied());
        let mut turns = Vec::new();
        while !spread.is_over() {
            let begun: Vec<_> = std::iter::from_fn(|| spread.next()).collect();
            assert!(!begun.is_empty(), "nothing goes on: {spread:?}");
            begun.iter().for_each(|(_, to)| spread.has(*to));
            turns.push(begun);
        }
        assert!(spread.nodes.iter().all(|node| node.serving == 0));
        turns
    }

    #[test]
    fn the_files_cross_to_each_site_once() {
        for (name, sites, want) in [
            ("the head alone", &["a"][..], vec![]),
            ("two sites", &["a", "b"], vec![vec![(0, 1)]]),
            (
                "several nodes of each",
                &["a", "a", "b", "b", "b", "b"],
                vec![vec![(0, 1), (0, 2)], vec![(2, 3), (2, 4)], vec![(2, 5)]],
            ),
        ] {
            assert_eq!(turns(sites), want, "{name}");
        }
        let many: Vec<&str> = std::iter::once("a").chain(std::iter::repeat_n("b", 64)).collect();
        let turns = turns(&many);
        assert_eq!(turns[0], [(0, 1)]);
        assert!(turns.iter().skip(1).flatten().all(|(from, _)| *from != 0));
        // 1, 3, 9, 27, 64: each node that has them sends to two others.
        assert_eq!(turns.len(), 5);
    }

    #[test]
    fn the_head_sends_to_a_few_sites_at_once() {
        let names: Vec<String> = (0..20).map(|index| format!("s{index}")).collect();
        let turns = turns(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(turns.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 3]);
    }
}
