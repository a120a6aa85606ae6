//! Profiles and offers for tests, in few words.

use std::time::Duration;

use isthmus_profile::{Between, Group, Link, Needs, Profile, Ranks, Tag};
use isthmus_wire::Label;

use crate::{Links, NodeClass, Offer, Site};

pub(crate) fn label(name: &str) -> Label {
    name.parse().unwrap()
}

pub(crate) fn tag(word: &str) -> Tag {
    word.parse().unwrap()
}

/// A group that isn't split and needs nothing.
pub(crate) fn group(name: &str, least: u32, most: u32) -> Group {
    Group {
        name: label(name),
        ranks: Ranks { least, most },
        command: Vec::new(),
        may_split: false,
        needs: Needs::default(),
        inside: Link::default(),
    }
}

/// The same group, which may be split.
pub(crate) fn split(group: Group) -> Group {
    Group { may_split: true, ..group }
}

pub(crate) fn profile(groups: impl IntoIterator<Item = Group>) -> Profile {
    Profile { groups: groups.into_iter().collect(), ..Profile::default() }
}

/// A round trip of so many milliseconds.
pub(crate) fn within(ms: u64) -> Link {
    Link { rtt: Some(Duration::from_millis(ms)), bytes_per_second: None }
}

pub(crate) fn apart(a: &str, b: &str, link: Link) -> Between {
    Between { groups: [label(a), label(b)], link }
}

/// Free nodes.
pub(crate) fn class(nodes: u32, cores: u32) -> NodeClass {
    NodeClass {
        nodes,
        cores,
        memory_bytes: None,
        architecture: None,
        tags: Vec::new(),
        start: Some(Duration::ZERO),
    }
}

/// The same nodes, so many minutes later.
pub(crate) fn later(minutes: u64, class: NodeClass) -> NodeClass {
    NodeClass { start: Some(Duration::from_secs(60 * minutes)), ..class }
}

pub(crate) fn site(name: &str, classes: impl IntoIterator<Item = NodeClass>) -> Site {
    Site { name: label(name), inside: within(0), classes: classes.into_iter().collect() }
}

/// Sites between which nothing is known.
pub(crate) fn offer(sites: impl IntoIterator<Item = Site>) -> Offer {
    let sites: Vec<Site> = sites.into_iter().collect();
    Offer { links: Links::unknown(sites.len()), sites }
}

/// The same sites, with these round trips in milliseconds.
pub(crate) fn linked(mut offer: Offer, rtts: &[(usize, usize, u64)]) -> Offer {
    for (a, b, ms) in rtts {
        offer.links.set(*a, *b, within(*ms));
    }
    offer
}
