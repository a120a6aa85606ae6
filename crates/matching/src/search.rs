//! Branch and bound over which groups are at which sites.
//!
//! Groups are placed one after another. A branch ends where even a lower bound of its traffic, or
//! an upper bound of its ranks ([`bound`](crate::bound)), is no better than what is known.

use std::cmp::Reverse;

use fixedbitset::FixedBitSet;

use crate::above::above;
use crate::deadline::Deadline;
use crate::problem::{Group, Problem, members};
use crate::program::{Aim, Cell, Solved, ranks, solve};
use crate::room::Room;

/// The groups of a placement are at so many sites at most, each group's counted by itself. It bounds
/// the search's depth.
const MOST_PLACES: usize = 1000;
/// After so many steps for each site, it pays to compare all sites with each other.
const STEPS_BEFORE_COMPARING: u64 = 4;

/// What is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Any placement.
    Any,
    /// One with the least traffic.
    LeastTraffic,
    /// Among those with at most this traffic, one with the most ranks.
    MostRanks { traffic: u64 },
    /// Any with at most this traffic and at least so many ranks.
    Enough { traffic: u64, ranks: u64 },
}

/// A placement: for each group its sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) sites: Vec<Vec<usize>>,
    pub(crate) traffic: u64,
    /// Ranks of all groups; 0 if they don't matter.
    pub(crate) ranks: u64,
}

/// What came out, and whether nothing better exists.
pub(crate) struct Outcome {
    pub(crate) found: Option<Found>,
    pub(crate) sure: bool,
}

/// Searches until the deadline.
pub(crate) fn search(problem: &Problem, want: Want, deadline: &Deadline) -> Outcome {
    let mut search = Search::new(problem, want, deadline);
    if problem.groups.iter().all(|group| !group.sites.is_clear()) {
        search.go();
    }
    let sure = !search.cut_short && !search.room.unsure;
    Outcome { found: search.best, sure }
}

pub(crate) struct Search<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) want: Want,
    pub(crate) deadline: &'a Deadline,
    pub(crate) room: Room,
    pub(crate) best: Option<Found>,
    /// Nothing better can exist.
    done: bool,
    /// Not everything was looked at.
    cut_short: bool,
    steps: u64,
    above: Option<Vec<FixedBitSet>>,
    /// Bits of the groups that may be split.
    pub(crate) split: u64,
    // What is placed so far.
    pub(crate) placed: Vec<bool>,
    pub(crate) sites: Vec<Vec<usize>>,
    /// For each site the groups' bits.
    pub(crate) at: Vec<u64>,
    pub(crate) used: FixedBitSet,
    pub(crate) traffic: u64,
    /// For each group the sites that are near enough to what is placed.
    pub(crate) open: Vec<FixedBitSet>,
    // What doesn't change.
    /// For how many ranks of each group there is room, wherever it is.
    pub(crate) most_room: Vec<u64>,
    /// Pairs of `units` that can't be at one site.
    pub(crate) apart: Vec<bool>,
}

/// A site that a group may get.
struct Candidate {
    site: usize,
    more_traffic: u64,
    room: u64,
    /// For how many ranks the candidates behind it have room together, and the roomiest one.
    behind: u64,
    largest_behind: u64,
}

/// What to put back when a group leaves a site.
struct Before {
    traffic: u64,
    was_used: bool,
    open: Vec<(usize, FixedBitSet)>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, want: Want, deadline: &'a Deadline) -> Self {
        let (groups, sites) = (problem.groups.len(), problem.sites.len());
        let split = (0..groups).filter(|group| problem.groups[*group].may_split);
        let whole = |group: usize| !problem.groups[group].may_split;
        let pairs = &problem.units.pairs;
        Self {
            problem,
            want,
            deadline,
            room: Room::default(),
            best: None,
            done: false,
            cut_short: false,
            steps: 0,
            above: None,
            split: split.fold(0, |bits, group| bits | 1 << group),
            placed: vec![false; groups],
            sites: vec![Vec::new(); groups],
            at: vec![0; sites],
            used: FixedBitSet::with_capacity(sites),
            traffic: 0,
            open: problem.groups.iter().map(|group| group.sites.clone()).collect(),
            most_room: problem.groups.iter().map(Group::most_room).collect(),
            apart: pairs
                .iter()
                .map(|(a, b, _)| whole(*a) && whole(*b) && problem.apart(*a, *b))
                .collect(),
        }
    }

    /// Places the groups that aren't yet, in every way that may be better than what is known.
    fn go(&mut self) {
        self.steps += 1;
        if self.deadline.is_over() {
            (self.done, self.cut_short) = (true, true);
        }
        if self.done {
            return;
        }
        let Some(least) = self.least_traffic() else { return };
        if self.above.is_none()
            && self.want != Want::Any
            && self.steps > STEPS_BEFORE_COMPARING * self.problem.sites.len() as u64
        {
            self.above = Some(above(self.problem));
        }
        let Some(group) = self.next() else { return self.judge() };
        let candidates = self.candidates(group);
        if self.problem.groups[group].may_split {
            self.placed[group] = true;
            self.spread(group, &candidates, 0, least);
            self.placed[group] = false;
            return;
        }
        for candidate in &candidates {
            if self.done || self.is_too_much(least) {
                break;
            }
            self.placed[group] = true;
            let before = self.put(group, candidate.site);
            self.go();
            self.take_back(group, candidate.site, before);
            self.placed[group] = false;
        }
    }

    /// Places a group at some of the candidates, beside where it is with so much room. `least` is
    /// the least traffic that can come of it.
    fn spread(&mut self, group: usize, candidates: &[Candidate], room: u64, least: u64) {
        let of = &self.problem.groups[group];
        if room >= of.least {
            self.go();
        }
        if self.sites[group].len() as u64 >= of.most {
            return;
        }
        if self.sites.iter().map(Vec::len).sum::<usize>() >= MOST_PLACES {
            self.cut_short = true;
            return;
        }
        for (index, candidate) in candidates.iter().enumerate() {
            let with = room.saturating_add(candidate.room);
            if self.done
                || self.is_too_much(least)
                || with.saturating_add(candidate.behind) < of.least
            {
                return;
            }
            if !self.open[group].contains(candidate.site) {
                continue;
            }
            let missing = of.least.saturating_sub(with);
            let further = missing.div_ceil(candidate.largest_behind.max(1));
            let before = self.put(group, candidate.site);
            // Each further site is paid for.
            let paid = self.problem.units.groups[group].saturating_mul(further);
            if !self.is_too_much(self.traffic.saturating_add(paid))
                && let Some(least) = self.least_traffic()
            {
                self.spread(group, &candidates[index + 1..], with, least);
            }
            self.take_back(group, candidate.site, before);
        }
    }

    /// The group with the fewest sites to choose from, and of these the one that needs most nodes.
    fn next(&self) -> Option<usize> {
        (0..self.placed.len()).filter(|group| !self.placed[*group]).min_by_key(|group| {
            let of = &self.problem.groups[*group];
            (of.may_split, self.open[*group].count_ones(..), Reverse(of.fewest_nodes))
        })
    }

    /// Where the group can be, first where it makes least traffic, then where there is most room.
    fn candidates(&mut self, group: usize) -> Vec<Candidate> {
        let of = &self.problem.groups[group];
        let bit = 1 << group;
        let new_sites = self.new_sites();
        let mut candidates = Vec::new();
        let open: Vec<usize> = self.open[group].ones().collect();
        for site in open {
            let there = self.at[site];
            if there == 0 {
                let needed = self.above.as_ref().map_or(0, |above| {
                    above[site].difference_count(&self.used)
                });
                if needed >= new_sites {
                    continue;
                }
            } else if !of.may_split {
                let together = (there & !self.split) | bit;
                if !self.room.fits(self.problem, site, together, self.deadline) {
                    continue;
                }
            }
            candidates.push(Candidate {
                site,
                more_traffic: self.more_traffic(group, site),
                room: of.room[site],
                behind: 0,
                largest_behind: 0,
            });
        }
        let free = |site: usize| {
            let taken: u64 = members(self.at[site] & !self.split)
                .map(|other| self.problem.groups[other].nodes[site])
                .sum();
            self.problem.sites[site].nodes.saturating_sub(taken)
        };
        candidates.sort_by_cached_key(|one| (one.more_traffic, Reverse(free(one.site)), one.site));
        let (mut behind, mut largest) = (0_u64, 0);
        for one in candidates.iter_mut().rev() {
            (one.behind, one.largest_behind) = (behind, largest);
            behind = behind.saturating_add(one.room);
            largest = largest.max(one.room);
        }
        candidates
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

    fn put(&mut self, group: usize, site: usize) -> Before {
        let mut before = Before {
            traffic: self.traffic,
            was_used: self.used.contains(site),
            open: Vec::new(),
        };
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

    fn take_back(&mut self, group: usize, site: usize, before: Before) {
        for (other, open) in before.open.into_iter().rev() {
            self.open[other] = open;
        }
        self.used.set(site, before.was_used);
        self.at[site] &= !(1 << group);
        self.sites[group].pop();
        self.traffic = before.traffic;
    }

    /// Judges a placement of all groups.
    fn judge(&mut self) {
        let count = matches!(self.want, Want::MostRanks { .. } | Want::Enough { .. });
        let Some(ranks) = self.ranks(count) else { return };
        let better = match self.want {
            Want::Any | Want::LeastTraffic => true,
            Want::MostRanks { .. } => self.best.as_ref().is_none_or(|best| ranks > best.ranks),
            Want::Enough { ranks: enough, .. } => ranks >= enough,
        };
        if !better {
            return;
        }
        self.best = Some(Found { sites: self.sites.clone(), traffic: self.traffic, ranks });
        self.done = match self.want {
            Want::Any | Want::Enough { .. } => true,
            Want::LeastTraffic => self.traffic == 0,
            Want::MostRanks { .. } => {
                ranks == self.problem.groups.iter().map(|group| group.most).sum::<u64>()
            }
        };
    }

    /// How many ranks there is room for; `None` if there isn't for the least of each. If they needn't
    /// be counted, 0.
    fn ranks(&mut self, count: bool) -> Option<u64> {
        let (shared, whole): (Vec<Cell>, Vec<Cell>) = self
            .used
            .ones()
            .map(|site| (site, self.at[site]))
            .partition(|(_, groups)| groups & self.split != 0);
        let mut sum = 0;
        if count {
            for (site, groups) in whole {
                sum += self.room.most(self.problem, site, groups, self.deadline)?;
            }
        }
        if shared.is_empty() {
            return Some(sum);
        }
        let aim = if count { Aim::MostRanks } else { Aim::Room };
        match solve(self.problem, &shared, aim, self.deadline) {
            Solved::Found { uses, best } => {
                self.cut_short |= !best;
                sum += if count { ranks(self.problem, &uses).iter().sum() } else { 0 };
                Some(sum)
            }
            Solved::NoRoom => None,
            Solved::Unknown => {
                self.cut_short = true;
                None
            }
        }
    }
}
