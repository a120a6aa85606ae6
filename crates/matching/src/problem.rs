//! A profile and an offer as numbers: what the search looks at.

use std::rc::Rc;
use std::time::Duration;

use fixedbitset::FixedBitSet;
use isthmus_profile::{Link, Needs, Profile};

use crate::meets::{Meets, Rows};
use crate::offer::{NodeClass, Offer};
use crate::traffic::Units;

/// When nodes can be had of which nobody knows when.
pub(crate) const UNKNOWN_START: Duration = Duration::MAX;

/// What there is a bounded number of: nodes, cores, bytes of memory.
pub(crate) const RESOURCES: usize = 3;

/// Everything by which a placement is judged.
pub(crate) struct Problem {
    pub(crate) groups: Vec<Group>,
    pub(crate) sites: Vec<Site>,
    pub(crate) units: Units,
    /// What is asked of the network, each once.
    pub(crate) asked: Vec<Rc<Rows>>,
    /// What the sites have of each resource, added up from the site with the most on.
    pub(crate) largest: [Vec<u64>; RESOURCES],
}

/// What is asked for a group.
pub(crate) struct Group {
    pub(crate) least: u64,
    pub(crate) most: u64,
    pub(crate) may_split: bool,
    /// The sites that come into question.
    pub(crate) sites: FixedBitSet,
    /// How many ranks each site has room for if the group is there alone.
    pub(crate) room: Vec<u64>,
    /// How many of each site's nodes it takes at least; of all nodes, if the group isn't there as
    /// a whole.
    pub(crate) nodes: Vec<u64>,
    /// What is asked of the network among its ranks: a place in `asked`.
    pub(crate) inside: Option<usize>,
    /// Other groups, and what is asked of the network to them.
    pub(crate) near: Vec<(usize, usize)>,
    /// On so many sites it is at least.
    pub(crate) fewest_sites: u64,
    /// So many nodes it takes at least, wherever it is.
    pub(crate) fewest_nodes: u64,
    /// What a rank takes of each resource; of nodes, nothing.
    pub(crate) each: [u64; RESOURCES],
}

/// A site's nodes that are of use to some group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Site {
    /// What it has of each resource.
    pub(crate) volume: [u64; RESOURCES],
    /// Those with the most room for the first groups first.
    pub(crate) classes: Vec<Class>,
}

/// Nodes that are equal.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    /// Its place in the offer.
    pub(crate) offered: usize,
    pub(crate) nodes: u32,
    pub(crate) start: Duration,
    /// How many ranks of each group a node has room for; not more than the group has.
    pub(crate) ranks: Vec<u64>,
}

impl Problem {
    /// What is asked, of nodes that can be had `by` then. Group names in `between` that no group
    /// has are passed over.
    pub(crate) fn new(profile: &Profile, offer: &Offer, meets: &mut Meets<'_>, by: Duration) -> Self {
        let sites: Vec<Site> = offer.sites.iter().map(|of| site(profile, of, by)).collect();
        let mut asked = Vec::new();
        let mut groups: Vec<Group> = profile
            .groups
            .iter()
            .enumerate()
            .map(|(index, of)| {
                let mut group = group(index, of, &sites);
                group.inside = place(&mut asked, meets, of.inside);
                group
            })
            .collect();
        for between in &profile.between {
            let position = |name| profile.groups.iter().position(|group| &group.name == name);
            let [a, b] = &between.groups;
            if let (Some(a), Some(b)) = (position(a), position(b))
                && let Some(asked) = place(&mut asked, meets, between.link)
            {
                groups[a].near.push((b, asked));
                groups[b].near.push((a, asked));
            }
        }
        let largest = std::array::from_fn(|resource| {
            let mut largest: Vec<u64> = sites.iter().map(|site| site.volume[resource]).collect();
            largest.sort_unstable_by(|a, b| b.cmp(a));
            let mut sum = 0_u64;
            for volume in &mut largest {
                sum = sum.saturating_add(*volume);
                *volume = sum;
            }
            largest
        });
        let mut problem = Self { groups, sites, units: Units::of(profile), asked, largest };
        problem.narrow();
        problem
    }

    /// Whether the groups with these bits can't be together at the site, at a glance.
    pub(crate) fn too_many(&self, site: usize, groups: u64) -> bool {
        let mut needed = [0_u64; RESOURCES];
        for group in members(groups) {
            for (sum, more) in needed.iter_mut().zip(self.needed(group, Some(site))) {
                *sum = sum.saturating_add(more);
            }
        }
        needed.iter().zip(&self.sites[site].volume).any(|(needed, there)| needed > there)
    }

    /// What a group's least takes of each resource at least: at a site where it is as a whole, or
    /// wherever it is.
    pub(crate) fn needed(&self, group: usize, site: Option<usize>) -> [u64; RESOURCES] {
        let of = &self.groups[group];
        let mut needed = of.each.map(|each| of.least.saturating_mul(each));
        needed[0] = site.map_or(of.fewest_nodes, |site| of.nodes[site]);
        needed
    }

    /// Whether the network within the site is as asked between two groups.
    fn near_within(&self, a: usize, b: usize, site: usize) -> bool {
        self.groups[a]
            .near
            .iter()
            .all(|(other, asked)| *other != b || self.asked[*asked][site].contains(site))
    }

    /// Whether no site comes into question for both groups together.
    pub(crate) fn apart(&self, a: usize, b: usize) -> bool {
        self.groups[a]
            .sites
            .intersection(&self.groups[b].sites)
            .all(|site| self.too_many(site, (1 << a) | (1 << b)) || !self.near_within(a, b, site))
    }

    /// Leaves out sites that can't be a group's, and counts how many sites and nodes each group
    /// takes at least.
    fn narrow(&mut self) {
        for group in &mut self.groups {
            if let Some(asked) = group.inside {
                let rows = &self.asked[asked];
                let met: Vec<usize> = group.sites.ones().filter(|site| rows[*site].contains(*site)).collect();
                group.sites.clear();
                group.sites.extend(met);
            }
        }
        // A site with no site near enough for another group is none. That changes which sites are
        // near enough for others, until nothing changes.
        let mut changed = true;
        while changed {
            changed = false;
            for index in 0..self.groups.len() {
                for (other, asked) in self.groups[index].near.clone() {
                    let theirs = &self.groups[other].sites;
                    let far: Vec<usize> = self.groups[index]
                        .sites
                        .ones()
                        .filter(|site| self.asked[asked][*site].is_disjoint(theirs))
                        .collect();
                    changed |= !far.is_empty();
                    for site in far {
                        self.groups[index].sites.remove(site);
                    }
                }
            }
        }
        for group in &mut self.groups {
            group.count();
        }
    }
}

impl Site {
    pub(crate) fn nodes(&self) -> u64 {
        self.volume[0]
    }
}

impl Group {
    /// For how many ranks there is room, wherever the group is.
    pub(crate) fn most_room(&self) -> u64 {
        let room = self.sites.ones().map(|site| self.room[site]);
        if self.may_split { room.fold(0, u64::saturating_add) } else { room.max().unwrap_or(0) }
    }

    fn count(&mut self) {
        if !self.may_split {
            self.fewest_sites = 1;
            self.fewest_nodes = self.sites.ones().map(|site| self.nodes[site]).min().unwrap_or(u64::MAX);
            return;
        }
        let mut room: Vec<u64> = self.sites.ones().map(|site| self.room[site]).collect();
        room.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0_u64;
        self.fewest_sites = 0;
        for ranks in room {
            if sum >= self.least {
                break;
            }
            sum = sum.saturating_add(ranks);
            self.fewest_sites += 1;
        }
        if sum < self.least {
            self.sites.clear();
            self.fewest_nodes = u64::MAX;
        }
    }
}

/// The groups that have a bit.
pub(crate) fn members(groups: u64) -> impl Iterator<Item = usize> {
    (0..u64::BITS as usize).filter(move |group| groups >> group & 1 == 1)
}

/// The place of what is asked among all that is; `None` if nothing is.
fn place(asked: &mut Vec<Rc<Rows>>, meets: &mut Meets<'_>, link: Link) -> Option<usize> {
    let rows = meets.rows(link)?;
    Some(asked.iter().position(|known| Rc::ptr_eq(known, &rows)).unwrap_or_else(|| {
        asked.push(rows);
        asked.len() - 1
    }))
}

fn site(profile: &Profile, offered: &crate::Site, by: Duration) -> Site {
    let mut classes: Vec<Class> = offered
        .classes
        .iter()
        .enumerate()
        .filter_map(|(index, class)| {
            let start = class.start.unwrap_or(UNKNOWN_START);
            let ranks: Vec<u64> = profile
                .groups
                .iter()
                .map(|group| ranks(&group.needs, class).min(u64::from(group.ranks.most)))
                .collect();
            let of_use = class.nodes > 0 && start <= by && ranks.iter().any(|ranks| *ranks > 0);
            of_use.then_some(Class { offered: index, nodes: class.nodes, start, ranks })
        })
        .collect();
    // Equal sites have them in the same order.
    classes.sort_by(|a, b| b.ranks.cmp(&a.ranks).then(b.nodes.cmp(&a.nodes)));
    let mut volume = [0_u64; RESOURCES];
    for class in &classes {
        let of = &offered.classes[class.offered];
        let each = [1, u64::from(of.cores), of.memory_bytes.unwrap_or(0)];
        for (sum, each) in volume.iter_mut().zip(each) {
            *sum = sum.saturating_add(each.saturating_mul(u64::from(class.nodes)));
        }
    }
    Site { volume, classes }
}

/// How many ranks with these needs a node of the class has room for.
fn ranks(needs: &Needs, class: &NodeClass) -> u64 {
    let fit = needs.architecture.is_none_or(|asked| class.architecture == Some(asked))
        && needs.tags.iter().all(|tag| class.tags.contains(tag));
    let cores = u64::from(class.cores / needs.cores.unwrap_or(1).max(1));
    let memory = match needs.memory_bytes {
        None | Some(0) => u64::MAX,
        Some(each) => class.memory_bytes.unwrap_or(0) / each,
    };
    if fit { cores.min(memory) } else { 0 }
}

fn group(index: usize, of: &isthmus_profile::Group, sites: &[Site]) -> Group {
    let (least, most) = (u64::from(of.ranks.least), u64::from(of.ranks.most));
    let room: Vec<u64> = sites
        .iter()
        .map(|site| {
            let room = |class: &Class| class.ranks[index].saturating_mul(u64::from(class.nodes));
            site.classes.iter().map(room).fold(0, u64::saturating_add)
        })
        .collect();
    let needed = if of.may_split { 1 } else { least };
    let mut in_question = FixedBitSet::with_capacity(sites.len());
    in_question.extend((0..sites.len()).filter(|site| room[*site] >= needed));
    let largest_node = sites.iter().flat_map(|site| &site.classes).map(|class| class.ranks[index]).max();
    Group {
        least,
        most,
        may_split: of.may_split,
        sites: in_question,
        nodes: sites.iter().map(|site| fewest_nodes(index, least, site)).collect(),
        room,
        inside: None,
        near: Vec::new(),
        fewest_sites: 1,
        fewest_nodes: least.div_ceil(largest_node.unwrap_or(0).max(1)),
        each: [0, u64::from(of.needs.cores.unwrap_or(1).max(1)), of.needs.memory_bytes.unwrap_or(0)],
    }
}

/// How few of the site's nodes have room for so many ranks of the group, if it has them; else all.
fn fewest_nodes(group: usize, ranks: u64, site: &Site) -> u64 {
    let mut classes: Vec<(u64, u64)> =
        site.classes.iter().map(|class| (class.ranks[group], u64::from(class.nodes))).collect();
    classes.sort_unstable_by(|a, b| b.cmp(a));
    let (mut left, mut taken) = (ranks, 0);
    for (each, nodes) in classes {
        if left == 0 || each == 0 {
            break;
        }
        let take = left.div_ceil(each).min(nodes);
        taken += take;
        left = left.saturating_sub(take * each);
    }
    taken
}
