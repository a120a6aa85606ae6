//! The best placement by trying all, written without anything of what it is compared with.

use std::collections::BTreeSet;
use std::time::Duration;

use isthmus_profile::{Group, Link, Profile};
use isthmus_wire::Label;

use crate::{NodeClass, Offer, Score};

/// The score of the best placement; `None` if there is none.
pub(super) fn best(profile: &Profile, offer: &Offer) -> Option<Score> {
    let mut best = None;
    all(profile, offer, |score| {
        best = Some(best.map_or(score, |best: Score| best.min(score)));
        true
    });
    best
}

/// Whether there is a placement.
pub(super) fn possible(profile: &Profile, offer: &Offer) -> bool {
    let mut found = false;
    all(profile, offer, |_| {
        found = true;
        false
    });
    found
}

/// Calls back for every placement, until that returns false.
fn all(profile: &Profile, offer: &Offer, mut each: impl FnMut(Score) -> bool) {
    let classes: Vec<(usize, &NodeClass)> = offer
        .sites
        .iter()
        .enumerate()
        .flat_map(|(site, of)| of.classes.iter().map(move |class| (site, class)))
        .collect();
    let mut nodes = vec![vec![0; classes.len()]; profile.groups.len()];
    deal(profile, offer, &classes, 0, &mut nodes, &mut each);
}

/// Deals the nodes of the classes from `class` on to the groups in every way.
fn deal(
    profile: &Profile,
    offer: &Offer,
    classes: &[(usize, &NodeClass)],
    class: usize,
    nodes: &mut Vec<Vec<u32>>,
    each: &mut impl FnMut(Score) -> bool,
) -> bool {
    if class == classes.len() {
        return score(profile, offer, classes, nodes).is_none_or(&mut *each);
    }
    deal_class(profile, offer, classes, class, 0, classes[class].1.nodes, nodes, each)
}

#[allow(clippy::too_many_arguments, reason = "a recursion over two indices")]
fn deal_class(
    profile: &Profile,
    offer: &Offer,
    classes: &[(usize, &NodeClass)],
    class: usize,
    group: usize,
    left: u32,
    nodes: &mut Vec<Vec<u32>>,
    each: &mut impl FnMut(Score) -> bool,
) -> bool {
    if group == profile.groups.len() {
        return deal(profile, offer, classes, class + 1, nodes, each);
    }
    let most = if room(&profile.groups[group], classes[class].1) > 0 { left } else { 0 };
    for taken in 0..=most {
        nodes[group][class] = taken;
        if !deal_class(profile, offer, classes, class, group + 1, left - taken, nodes, each) {
            return false;
        }
    }
    nodes[group][class] = 0;
    true
}

/// For how many ranks a node has room.
fn room(group: &Group, class: &NodeClass) -> u32 {
    let needs = &group.needs;
    let mut ranks = 0;
    let known = class.memory_bytes.unwrap_or(0);
    let fits = |ranks: u32| {
        ranks * needs.cores.unwrap_or(1) <= class.cores
            && needs.memory_bytes.is_none_or(|bytes| u64::from(ranks) * bytes <= known)
    };
    let architecture = needs.architecture.is_none() || needs.architecture == class.architecture;
    if architecture && needs.tags.iter().all(|tag| class.tags.contains(tag)) {
        while fits(ranks + 1) {
            ranks += 1;
        }
    }
    ranks
}

fn score(
    profile: &Profile,
    offer: &Offer,
    classes: &[(usize, &NodeClass)],
    nodes: &[Vec<u32>],
) -> Option<Score> {
    let mut total = 0;
    let mut start = Some(Duration::ZERO);
    let mut sites: Vec<BTreeSet<usize>> = Vec::new();
    for (group, taken) in profile.groups.iter().zip(nodes) {
        let used: Vec<(u32, usize, &NodeClass)> = taken
            .iter()
            .zip(classes)
            .filter(|(nodes, _)| **nodes > 0)
            .map(|(nodes, (site, class))| (*nodes, *site, *class))
            .collect();
        let ranks: u32 = used.iter().map(|(nodes, _, class)| nodes * room(group, class)).sum();
        if ranks < group.ranks.least {
            return None;
        }
        total += u64::from(ranks.min(group.ranks.most));
        for (_, _, class) in &used {
            start = start.and_then(|start| class.start.map(|other| start.max(other)));
        }
        // A node without a rank isn't used.
        if used.iter().map(|(nodes, _, _)| nodes).sum::<u32>() > group.ranks.most {
            return None;
        }
        let at: BTreeSet<usize> = used.iter().map(|(_, site, _)| *site).collect();
        if at.len() > 1 && !group.may_split {
            return None;
        }
        sites.push(at);
    }
    near(profile, offer, &sites).then(|| Score { traffic: traffic(profile, &sites), ranks: total, start })
}

fn near(profile: &Profile, offer: &Offer, sites: &[BTreeSet<usize>]) -> bool {
    let met = |asked: Link, a: &BTreeSet<usize>, b: &BTreeSet<usize>| {
        a.iter().all(|a| {
            b.iter().all(|b| {
                let known = if a == b { offer.sites[*a].inside } else { offer.links.between(*a, *b) };
                let rtt = match (asked.rtt, known.rtt) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(asked), Some(known)) => known <= asked,
                };
                let rate = match (asked.bytes_per_second, known.bytes_per_second) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(asked), Some(known)) => known >= asked,
                };
                rtt && rate
            })
        })
    };
    let index = |name: &Label| profile.groups.iter().position(|group| group.name == *name).unwrap();
    profile.groups.iter().zip(sites).all(|(group, at)| met(group.inside, at, at))
        && profile.between.iter().all(|between| {
            let [a, b] = &between.groups;
            met(between.link, &sites[index(a)], &sites[index(b)])
        })
}

fn traffic(profile: &Profile, sites: &[BTreeSet<usize>]) -> u64 {
    let unit = |members: &[usize]| {
        let at: BTreeSet<usize> = members.iter().flat_map(|one| sites[*one].clone()).collect();
        let ranks: u64 = members.iter().map(|one| u64::from(profile.groups[*one].ranks.least)).sum();
        (at.len().max(1) - 1) as u64 * ranks
    };
    let all: Vec<usize> = (0..sites.len()).collect();
    let index = |name: &Label| profile.groups.iter().position(|group| group.name == *name).unwrap();
    let pairs = profile.between.iter().map(|between| between.groups.each_ref().map(index));
    unit(&all) + all.iter().map(|one| unit(&[*one])).sum::<u64>() + pairs.map(|pair| unit(&pair)).sum::<u64>()
}
