//! Putting groups at sites, and taking them back.

use std::cmp::Reverse;

use fixedbitset::FixedBitSet;

use crate::greedy::greedy;
use crate::problem::{RESOURCES, members};
use crate::program::Cell;
use crate::search::Search;

/// A site that a group may get.
pub(crate) struct Candidate {
    pub(crate) site: usize,
    more_traffic: u64,
    /// For how many ranks there is room at most.
    pub(crate) room: u64,
    /// For how many ranks the candidates behind it have room together, and the roomiest one.
    pub(crate) behind: u64,
    pub(crate) largest_behind: u64,
}

/// What to put back when a group leaves a site.
pub(crate) struct Before {
    traffic: u64,
    was_used: bool,
    open: Vec<(usize, FixedBitSet)>,
}

impl Search<'_> {
    /// Where the group can be: first where it makes least traffic, then where most is free.
    pub(crate) fn candidates(&mut self, group: usize) -> Vec<Candidate> {
        let of = &self.problem.groups[group];
        let new_sites = self.new_sites();
        let mut candidates = Vec::new();
        let open: Vec<usize> = self.open[group].ones().collect();
        for site in open {
            let there = self.at[site];
            let more_traffic = self.more_traffic(group, site);
            if self.is_over_budget(more_traffic) {
                continue;
            }
            if there == 0 {
                let needed = self.above.as_ref().map_or(0, |above| above[site].difference_count(&self.used));
                if needed >= new_sites {
                    continue;
                }
            } else if !of.may_split {
                let together = (there & !self.split) | 1 << group;
                match self.room.fits(self.problem, site, together, self.deadline) {
                    Some(true) => {}
                    Some(false) => continue,
                    None => {
                        self.cut_short = true;
                        continue;
                    }
                }
            }
            let room = self.room_beside(group, site);
            if room == 0 {
                continue;
            }
            candidates.push(Candidate { site, more_traffic, room, behind: 0, largest_behind: 0 });
        }
        let free = self.free();
        candidates.sort_by_cached_key(|one| {
            (free[one.site] == 0, one.more_traffic, Reverse(free[one.site]), one.site)
        });
        let (mut behind, mut largest) = (0_u64, 0);
        for one in candidates.iter_mut().rev() {
            (one.behind, one.largest_behind) = (behind, largest);
            behind = behind.saturating_add(one.room);
            largest = largest.max(one.room);
        }
        candidates
    }

    /// For how many ranks of the group a site has room at most, beside groups that are there as a
    /// whole.
    fn room_beside(&self, group: usize, site: usize) -> u64 {
        let of = &self.problem.groups[group];
        let whole = members(self.at[site] & !self.split);
        let mut left = self.problem.sites[site].volume;
        for other in whole {
            for (left, taken) in left.iter_mut().zip(self.problem.needed(other, Some(site))) {
                *left = left.saturating_sub(taken);
            }
        }
        let each = self.problem.sites[site].classes.iter().map(|class| class.ranks[group]).max();
        let by_nodes = left[0].saturating_mul(each.unwrap_or(0));
        let by_volume =
            (1..RESOURCES).map(|resource| left[resource].checked_div(of.each[resource]).unwrap_or(u64::MAX));
        by_volume.fold(of.room[site].min(by_nodes), u64::min)
    }

    /// About how many nodes are free at each site. It only decides what is tried first.
    fn free(&self) -> Vec<u64> {
        let mut free: Vec<u64> = self.problem.sites.iter().map(|site| site.nodes()).collect();
        let cells: Vec<Cell> = self.used.ones().map(|site| (site, self.at[site])).collect();
        match greedy(self.problem, &cells, &self.room, |group| group.least) {
            Some(left) => {
                for ((site, _), left) in cells.iter().zip(left) {
                    free[*site] = left.iter().sum();
                }
            }
            None => {
                for (site, groups) in cells {
                    let taken = members(groups & !self.split)
                        .map(|group| self.problem.groups[group].nodes[site])
                        .sum();
                    free[site] = free[site].saturating_sub(taken);
                }
            }
        }
        free
    }

    /// What a further site of a group adds to the traffic.
    fn more_traffic(&self, group: usize, site: usize) -> u64 {
        let units = &self.problem.units;
        let there = self.at[site];
        let mut more = 0;
        if !self.sites[group].is_empty() {
            more += units.groups[group];
        }
        if there == 0 && !self.used.is_clear() {
            more += units.world;
        }
        for (a, b, ranks) in &units.pairs {
            let other = match group {
                group if group == *a => *b,
                group if group == *b => *a,
                _ => continue,
            };
            let first = self.sites[group].is_empty() && self.sites[other].is_empty();
            if !first && there >> other & 1 == 0 {
                more += ranks;
            }
        }
        more
    }

    /// Puts a group at one more site.
    pub(crate) fn put(&mut self, group: usize, site: usize) -> Before {
        let mut before =
            Before { traffic: self.traffic, was_used: self.used.contains(site), open: Vec::new() };
        self.traffic += self.more_traffic(group, site);
        self.sites[group].push(site);
        self.at[site] |= 1 << group;
        self.used.insert(site);
        let of = &self.problem.groups[group];
        let inside = of.inside.map(|asked| (group, asked));
        let near = of.near.iter().copied().filter(|(other, _)| !self.placed[*other]);
        for (other, asked) in near.chain(inside).collect::<Vec<_>>() {
            before.open.push((other, self.open[other].clone()));
            self.open[other].intersect_with(&self.problem.asked[asked][site]);
        }
        before
    }

    /// Takes a group's last site from it.
    pub(crate) fn take_back(&mut self, group: usize, site: usize, before: Before) {
        for (other, open) in before.open.into_iter().rev() {
            self.open[other] = open;
        }
        self.used.set(site, before.was_used);
        self.at[site] &= !(1 << group);
        self.sites[group].pop();
        self.traffic = before.traffic;
    }
}
