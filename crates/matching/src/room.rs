//! How much room a site has for several groups that are there as a whole.

use std::collections::HashMap;

use crate::deadline::Deadline;
use crate::greedy::greedy;
use crate::problem::{Problem, members};
use crate::program::{Aim, Effort, Solved, Use, ranks, solve};

/// What is known of groups at a site, kept since a search asks again and again.
#[derive(Debug, Default)]
pub(crate) struct Room {
    fits: HashMap<(usize, u64), Option<bool>>,
    most: HashMap<(usize, u64), Option<u64>>,
    /// How groups share a site that don't find room in a greedy way.
    shared: HashMap<(usize, u64), Vec<Use>>,
    /// A number of ranks wasn't known in time.
    pub(crate) unsure: bool,
}

impl Room {
    /// Whether the site has room for these groups, none of them split; `None` if that takes too long
    /// to find out.
    pub(crate) fn fits(
        &mut self,
        problem: &Problem,
        site: usize,
        groups: u64,
        deadline: &Deadline,
    ) -> Option<bool> {
        if groups.count_ones() < 2 {
            let fits = |group: usize| problem.groups[group].room[site] >= problem.groups[group].least;
            return Some(members(groups).all(fits));
        }
        if problem.too_many(site, groups) {
            return Some(false);
        }
        if let Some(known) = self.fits.get(&(site, groups)) {
            return *known;
        }
        let fits = if greedy(problem, &[(site, groups)], &Self::default(), |group| group.least).is_some() {
            Some(true)
        } else {
            match solve(problem, &[(site, groups)], Aim::Room, Effort::Little, deadline) {
                Solved::Found { uses, .. } => {
                    self.shared.insert((site, groups), uses);
                    Some(true)
                }
                Solved::NoRoom => Some(false),
                Solved::Unknown => None,
            }
        };
        self.fits.insert((site, groups), fits);
        fits
    }

    /// How these groups share a site, if that took an integer program to find out.
    pub(crate) fn shared(&self, site: usize, groups: u64) -> &[Use] {
        self.shared.get(&(site, groups)).map_or(&[], Vec::as_slice)
    }

    /// How many ranks of these groups, none of them split, the site has room for; `None` if not for
    /// the least of each.
    pub(crate) fn most(
        &mut self,
        problem: &Problem,
        site: usize,
        groups: u64,
        deadline: &Deadline,
    ) -> Option<u64> {
        if groups.count_ones() < 2 {
            return members(groups).next().map_or(Some(0), |group| {
                let (of, room) = (&problem.groups[group], problem.groups[group].room[site]);
                (room >= of.least).then(|| room.min(of.most))
            });
        }
        if let Some(known) = self.most.get(&(site, groups)) {
            return *known;
        }
        if greedy(problem, &[(site, groups)], &Self::default(), |group| group.most).is_some() {
            return Some(members(groups).map(|group| problem.groups[group].most).sum());
        }
        let most = match solve(problem, &[(site, groups)], Aim::MostRanks, Effort::Little, deadline) {
            Solved::Found { uses, best } => {
                self.unsure |= !best;
                Some(ranks(problem, &uses).iter().sum())
            }
            Solved::NoRoom => None,
            Solved::Unknown => {
                self.unsure = true;
                None
            }
        };
        self.most.insert((site, groups), most);
        most
    }
}
