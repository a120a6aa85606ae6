//! How much room a site has for several groups that are there as a whole.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::deadline::Deadline;
use crate::problem::{Group, Problem, members};
use crate::program::{Aim, Solved, ranks, solve};

/// What is known of groups at a site, kept since a search asks again and again.
#[derive(Debug, Default)]
pub(crate) struct Room {
    fits: HashMap<(usize, u64), bool>,
    most: HashMap<(usize, u64), Option<u64>>,
    /// Something wasn't known in time.
    pub(crate) unsure: bool,
}

impl Room {
    /// Whether the site has room for these groups, none of them split. If that isn't known in
    /// time, it has.
    pub(crate) fn fits(
        &mut self,
        problem: &Problem,
        site: usize,
        groups: u64,
        deadline: &Deadline,
    ) -> bool {
        if groups.count_ones() < 2 {
            return members(groups)
                .all(|group| problem.groups[group].room[site] >= problem.groups[group].least);
        }
        if problem.too_many(site, groups) {
            return false;
        }
        if let Some(known) = self.fits.get(&(site, groups)) {
            return *known;
        }
        let fits = greedy(problem, site, groups, |group| group.least)
            || match solve(problem, &[(site, groups)], Aim::Room, deadline) {
                Solved::Found { .. } => true,
                Solved::NoRoom => false,
                Solved::Unknown => {
                    self.unsure = true;
                    true
                }
            };
        self.fits.insert((site, groups), fits);
        fits
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
        if greedy(problem, site, groups, |group| group.most) {
            return Some(members(groups).map(|group| problem.groups[group].most).sum());
        }
        let most = match solve(problem, &[(site, groups)], Aim::MostRanks, deadline) {
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

/// Whether the groups find room for so many ranks if each takes what suits it best of what is left,
/// the group that needs most nodes first. If not, they may find room in another way.
fn greedy(problem: &Problem, site: usize, groups: u64, ranks: impl Fn(&Group) -> u64) -> bool {
    let classes = &problem.sites[site].classes;
    let mut free: Vec<u64> = classes.iter().map(|class| u64::from(class.nodes)).collect();
    let mut order: Vec<usize> = members(groups).collect();
    order.sort_by_key(|group| Reverse(problem.groups[*group].nodes[site]));
    order.into_iter().all(|group| {
        let mut left = ranks(&problem.groups[group]);
        let mut by_size: Vec<usize> = (0..classes.len()).collect();
        by_size.sort_by_key(|class| Reverse(classes[*class].ranks[group]));
        for class in by_size {
            let each = classes[class].ranks[group];
            if left == 0 || each == 0 {
                break;
            }
            let take = left.div_ceil(each).min(free[class]);
            free[class] -= take;
            left = left.saturating_sub(take.saturating_mul(each));
        }
        left == 0
    })
}
