//! Branch and bound over which groups are at which sites.
//!
//! Groups are placed one after another. A branch ends where even a lower bound of its traffic, or
//! an upper bound of its ranks ([`bound`](crate::bound)), is no better than what is known.

use std::cmp::Reverse;

use fixedbitset::FixedBitSet;

use crate::above::above;
use crate::deadline::Deadline;
use crate::greedy::greedy;
use crate::moves::Candidate;
use crate::problem::{Group, Problem, members};
use crate::program::{Aim, Cell, Effort, Solved, ranks, solve};
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
///
/// As long as nothing is found, it goes on until the `last` deadline.
pub(crate) fn search(problem: &Problem, want: Want, deadline: &Deadline, last: &Deadline) -> Outcome {
    let mut search = Search::new(problem, want, [deadline, last]);
    if problem.groups.iter().all(|group| !group.sites.is_clear()) {
        search.go();
    }
    let sure = search.is_sure();
    Outcome { found: search.best, sure }
}

pub(crate) struct Search<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) want: Want,
    /// Until when better ones are sought if one is known.
    soon: &'a Deadline,
    pub(crate) deadline: &'a Deadline,
    pub(crate) room: Room,
    pub(crate) best: Option<Found>,
    /// Nothing better can exist.
    done: bool,
    /// Not everything was looked at.
    pub(crate) cut_short: bool,
    steps: u64,
    pub(crate) above: Option<Vec<FixedBitSet>>,
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
    /// The groups, those whose ranks take few cores first.
    pub(crate) by_cores: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, want: Want, [soon, deadline]: [&'a Deadline; 2]) -> Self {
        let (groups, sites) = (problem.groups.len(), problem.sites.len());
        let split = (0..groups).filter(|group| problem.groups[*group].may_split);
        let whole = |group: usize| !problem.groups[group].may_split;
        let pairs = &problem.units.pairs;
        let mut by_cores: Vec<usize> = (0..groups).collect();
        by_cores.sort_by_key(|group| problem.groups[*group].each);
        Self {
            problem,
            want,
            soon,
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
            apart: pairs.iter().map(|(a, b, _)| whole(*a) && whole(*b) && problem.apart(*a, *b)).collect(),
            by_cores,
        }
    }

    /// Whether nothing better exists than what was found, by all that was looked at or by the bounds
    /// of the whole.
    fn is_sure(&mut self) -> bool {
        let complete = !self.cut_short && !self.room.unsure;
        let best = match self.want {
            Want::Any | Want::Enough { .. } => self.best.is_some(),
            Want::LeastTraffic | Want::MostRanks { .. } => {
                self.best.is_some() && self.least_traffic().is_none()
            }
        };
        complete || best
    }

    /// Whether time is up; then the search ends.
    fn is_late(&mut self) -> bool {
        let deadline = if self.best.is_some() { self.soon } else { self.deadline };
        if !self.done && deadline.is_over() {
            (self.done, self.cut_short) = (true, true);
        }
        self.done
    }

    /// Places the groups that aren't yet, in every way that may be better than what is known.
    fn go(&mut self) {
        self.steps += 1;
        if self.is_late() {
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
        if room >= of.least && self.is_enough() {
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
            if self.is_late() || self.is_too_much(least) || with.saturating_add(candidate.behind) < of.least {
                return;
            }
            if !self.open[group].contains(candidate.site) {
                continue;
            }
            let missing = of.least.saturating_sub(with);
            let further = missing.div_ceil(candidate.largest_behind.max(1));
            let before = self.put(group, candidate.site);
            // Each further site is paid for, which the other bounds don't know of.
            let paid = self.problem.units.groups[group].saturating_mul(further);
            if let Some(least) = self.least_traffic().map(|least| least.saturating_add(paid))
                && !self.is_too_much(least)
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

    /// Judges a placement of all groups.
    fn judge(&mut self) {
        // There is room for the least of each: that was asked when they were placed.
        let ranks = match self.want {
            Want::Any | Want::LeastTraffic => 0,
            Want::MostRanks { .. } | Want::Enough { .. } => match self.ranks() {
                Some(ranks) => ranks,
                None => return,
            },
        };
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

    /// Whether the sites with groups that may be split have room for all that is placed there.
    fn is_enough(&mut self) -> bool {
        let shared = self.cells().0;
        if greedy(self.problem, &shared, &self.room, |group| group.least).is_some() {
            return true;
        }
        match solve(self.problem, &shared, Aim::Room, Effort::Little, self.deadline) {
            Solved::Found { .. } => true,
            Solved::NoRoom => false,
            Solved::Unknown => {
                self.cut_short = true;
                false
            }
        }
    }

    /// The sites in use: those with groups that may be split, and the others.
    fn cells(&self) -> (Vec<Cell>, Vec<Cell>) {
        let cells = self.used.ones().map(|site| (site, self.at[site]));
        cells.partition(|(_, groups)| groups & self.split != 0)
    }

    /// How many ranks there is room for; `None` if that isn't known in time.
    fn ranks(&mut self) -> Option<u64> {
        let (shared, whole) = self.cells();
        let mut sum = 0;
        for (site, groups) in whole {
            sum += self.room.most(self.problem, site, groups, self.deadline)?;
        }
        if shared.is_empty() {
            return Some(sum);
        }
        if greedy(self.problem, &shared, &Room::default(), |group| group.most).is_some() {
            let groups = shared.iter().fold(0, |all, (_, groups)| all | groups);
            return Some(members(groups).map(|group| self.problem.groups[group].most).sum::<u64>() + sum);
        }
        match solve(self.problem, &shared, Aim::MostRanks, Effort::Little, self.deadline) {
            Solved::Found { uses, best } => {
                self.cut_short |= !best;
                Some(sum + ranks(self.problem, &uses).iter().sum::<u64>())
            }
            Solved::NoRoom => None,
            Solved::Unknown => {
                self.cut_short = true;
                None
            }
        }
    }
}
