//! What a grid has to offer to a job, as plain data.

use std::time::Duration;

use isthmus_profile::{Architecture, Link, Tag};
use isthmus_wire::Label;

/// At most so many sites may be offered.
pub const MOST_SITES: usize = 4096;
/// At most so many classes of nodes may a site have.
pub const MOST_CLASSES: usize = 64;

/// Sites with their nodes, and the network between the sites.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// The sites, at most [`MOST_SITES`]. Their names differ.
    pub sites: Vec<Site>,
    /// What was measured between two sites, by their places in `sites`.
    pub links: Links,
}

/// What one site offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The site's name.
    pub name: Label,
    /// What was measured between nodes of the site.
    pub inside: Link,
    /// Its nodes: at most [`MOST_CLASSES`] classes of equal ones.
    pub classes: Vec<NodeClass>,
}

/// Nodes that are equal in everything that a profile can ask for. What isn't known of them meets no
/// requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClass {
    /// How many such nodes are free or can be had.
    pub nodes: u32,
    /// Cores of each node.
    pub cores: u32,
    /// Bytes of memory of each node, if known.
    pub memory_bytes: Option<u64>,
    /// The processor's architecture, if known.
    pub architecture: Option<Architecture>,
    /// Their features.
    pub tags: Vec<Tag>,
    /// How long until such nodes can be had: zero for nodes that are free. `None` if nobody knows;
    /// that counts as later than any time.
    pub start: Option<Duration>,
}

/// What was measured between each two sites. It is the same in both directions: where the
/// directions differ, what is set is the worse of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    sites: usize,
    /// For each pair `a < b` at `b (b - 1) / 2 + a`.
    known: Vec<Link>,
}

impl Links {
    /// Nothing is known yet between so many sites (at most [`MOST_SITES`]).
    pub fn unknown(sites: usize) -> Self {
        let sites = sites.min(MOST_SITES);
        Self { sites, known: vec![Link::default(); sites * sites.saturating_sub(1) / 2] }
    }

    /// Notes what was measured between the sites `a` and `b`. Nothing happens if there is no such
    /// pair.
    pub fn set(&mut self, a: usize, b: usize, link: Link) {
        if let Some(index) = self.index(a, b)
            && let Some(known) = self.known.get_mut(index)
        {
            *known = link;
        }
    }

    /// What is known between the sites `a` and `b`; nothing if there is no such pair.
    pub fn between(&self, a: usize, b: usize) -> Link {
        self.index(a, b).and_then(|index| self.known.get(index)).copied().unwrap_or_default()
    }

    fn index(&self, a: usize, b: usize) -> Option<usize> {
        let (low, high) = (a.min(b), a.max(b));
        (low < high && high < self.sites).then(|| high * (high - 1) / 2 + low)
    }
}

impl Offer {
    /// What is known of the network between a node of site `a` and one of site `b`, which may be
    /// the same.
    pub(crate) fn link(&self, a: usize, b: usize) -> Link {
        if a == b {
            self.sites.get(a).map(|site| site.inside).unwrap_or_default()
        } else {
            self.links.between(a, b)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_the_same_in_both_directions() {
        let mut links = Links::unknown(3);
        let link = |ms| Link { rtt: Some(Duration::from_millis(ms)), bytes_per_second: None };
        for (a, b, ms) in [(0, 1, 1), (2, 0, 2), (1, 2, 3)] {
            links.set(a, b, link(ms));
        }
        links.set(1, 1, link(9));
        links.set(0, 3, link(9));
        for (a, b, ms) in [(0, 1, 1), (0, 2, 2), (1, 2, 3)] {
            assert_eq!([links.between(a, b), links.between(b, a)], [link(ms); 2]);
        }
        for (a, b) in [(0, 0), (1, 1), (0, 3), (7, 8)] {
            assert_eq!(links.between(a, b), Link::default());
        }
    }
}
