//! Bounds of what a branch of the search can lead to.

use fixedbitset::FixedBitSet;

use crate::problem::{RESOURCES, members};
use crate::search::{Search, Want};

impl Search<'_> {
    /// The least traffic that can come of what is placed; `None` if nothing that is wanted can.
    pub(crate) fn least_traffic(&mut self) -> Option<u64> {
        let nowhere = |open: &FixedBitSet, placed: &bool| !*placed && open.is_clear();
        if self.open.iter().zip(&self.placed).any(|(open, placed)| nowhere(open, placed)) {
            return None;
        }
        let least = self.traffic.saturating_add(self.least_more_traffic()?);
        (!self.is_too_much(least)).then_some(least)
    }

    /// Whether where that is the least traffic nothing that is wanted can be, with what is placed.
    pub(crate) fn is_too_much(&self, traffic: u64) -> bool {
        self.budget().is_some_and(|budget| traffic > budget) || self.too_few_ranks()
    }

    /// Whether so much traffic beside that of what is placed is more than is wanted.
    pub(crate) fn is_over_budget(&self, more: u64) -> bool {
        self.budget().is_some_and(|budget| self.traffic.saturating_add(more) > budget)
    }

    /// The most traffic that is of interest; `None` for any.
    fn budget(&self) -> Option<u64> {
        match self.want {
            Want::Any => None,
            Want::LeastTraffic => self.best.as_ref().map(|best| best.traffic.saturating_sub(1)),
            Want::MostRanks { traffic } | Want::Enough { traffic, .. } => Some(traffic),
        }
    }

    /// How many further sites may be used at most.
    pub(crate) fn new_sites(&self) -> usize {
        let most = if self.split == 0 { self.placed.len() } else { self.at.len() };
        let used = self.used.count_ones(..);
        let budget = self.budget().map_or(usize::MAX, |budget| {
            let left = budget.saturating_sub(self.traffic);
            let further = left / self.problem.units.world.max(1);
            usize::try_from(further).unwrap_or(usize::MAX).saturating_add(usize::from(used == 0))
        });
        most.saturating_sub(used).min(budget)
    }

    /// What the groups that aren't placed add to the traffic at least; `None` if they don't find
    /// room.
    fn least_more_traffic(&mut self) -> Option<u64> {
        let problem = self.problem;
        let further = self.further_sites()?;
        let counted = further.saturating_sub(u64::from(self.used.is_clear()));
        let mut more = problem.units.world.saturating_mul(counted);
        for (group, of) in problem.groups.iter().enumerate() {
            if !self.placed[group] {
                more += problem.units.groups[group].saturating_mul(of.fewest_sites - 1);
            }
        }
        for (index, (a, b, ranks)) in problem.units.pairs.iter().enumerate() {
            let sites = match (self.placed[*a], self.placed[*b]) {
                (true, true) => continue,
                (false, false) => {
                    let fewest = |group: usize| problem.groups[group].fewest_sites - 1;
                    fewest(*a).max(fewest(*b)).max(u64::from(self.apart[index]))
                }
                (true, false) => self.sites_beside(*a, *b),
                (false, true) => self.sites_beside(*b, *a),
            };
            more = more.saturating_add(ranks.saturating_mul(sites));
        }
        Some(more)
    }

    /// How many sites a group adds at least to those of one that is placed.
    fn sites_beside(&mut self, placed: usize, group: usize) -> u64 {
        let fewest = self.problem.groups[group].fewest_sites;
        let there = self.sites[placed].clone();
        if there.iter().any(|site| self.has_room_beside(group, *site)) {
            fewest.saturating_sub(there.len() as u64)
        } else {
            fewest
        }
    }

    fn has_room_beside(&mut self, group: usize, site: usize) -> bool {
        let together = (self.at[site] & !self.split) | 1 << group;
        self.open[group].contains(site)
            && (self.problem.groups[group].may_split
                || self.room.fits(self.problem, site, together, self.deadline) != Some(false))
    }

    /// How many sites must be used beside those that are, by what is needed of each resource;
    /// `None` if there isn't enough.
    fn further_sites(&self) -> Option<u64> {
        let problem = self.problem;
        let (mut needed, mut further) = ([0_u64; RESOURCES], 0);
        for (group, of) in problem.groups.iter().enumerate() {
            if !self.placed[group] || of.may_split {
                for (sum, more) in needed.iter_mut().zip(problem.needed(group, None)) {
                    *sum = sum.saturating_add(more);
                }
            }
            if !self.placed[group] && self.open[group].is_disjoint(&self.used) {
                further = 1;
            }
        }
        for site in self.used.ones() {
            let mut free = problem.sites[site].volume;
            for group in members(self.at[site] & !self.split) {
                for (free, taken) in free.iter_mut().zip(problem.needed(group, Some(site))) {
                    *free = free.saturating_sub(taken);
                }
            }
            for (needed, free) in needed.iter_mut().zip(free) {
                *needed = needed.saturating_sub(free);
            }
        }
        for (needed, largest) in needed.into_iter().zip(&problem.largest) {
            if needed > 0 {
                let sites = largest.partition_point(|volume| *volume < needed);
                if sites == largest.len() {
                    return None;
                }
                further = further.max(sites as u64 + 1);
            }
        }
        Some(further)
    }

    /// Whether there is room for fewer ranks than are wanted.
    fn too_few_ranks(&self) -> bool {
        let wanted = match self.want {
            Want::Any | Want::LeastTraffic => return false,
            Want::MostRanks { .. } => match &self.best {
                Some(best) => best.ranks.saturating_add(1),
                None => return false,
            },
            Want::Enough { ranks, .. } => ranks,
        };
        self.most_ranks().min(self.most_ranks_by_cores()) < wanted
    }

    /// For how many ranks there is room at most.
    fn most_ranks(&self) -> u64 {
        let problem = self.problem;
        let mut sum = 0_u64;
        for (group, of) in problem.groups.iter().enumerate() {
            let whole = self.placed[group] && !of.may_split;
            if !whole {
                sum = sum.saturating_add(of.most.min(self.most_room[group]));
            }
        }
        for site in self.used.ones() {
            let whole = self.at[site] & !self.split;
            let alone: u64 = members(whole)
                .map(|group| problem.groups[group].room[site].min(problem.groups[group].most))
                .sum();
            let nodes = problem.sites[site].classes.iter().map(|class| {
                let most = members(whole).map(|group| class.ranks[group]).max().unwrap_or(0);
                most.saturating_mul(u64::from(class.nodes))
            });
            sum = sum.saturating_add(alone.min(nodes.fold(0, u64::saturating_add)));
        }
        sum
    }

    /// For how many ranks there are cores at most, at the sites that are used and the largest that
    /// may be: the least of each group, and what is left for those that take fewest cores.
    fn most_ranks_by_cores(&self) -> u64 {
        const CORES: usize = 1;
        let problem = self.problem;
        let used = self.used.ones().map(|site| problem.sites[site].volume[CORES]);
        let new = match self.new_sites().min(problem.sites.len()) {
            0 => 0,
            sites => problem.largest[CORES][sites - 1],
        };
        let mut left = used.fold(new, u64::saturating_add);
        let mut ranks = 0_u64;
        for of in &problem.groups {
            left = left.saturating_sub(of.least.saturating_mul(of.each[CORES]));
            ranks = ranks.saturating_add(of.least);
        }
        for group in &self.by_cores {
            let of = &problem.groups[*group];
            let more = (left / of.each[CORES]).min(of.most - of.least);
            left -= more * of.each[CORES];
            ranks = ranks.saturating_add(more);
        }
        ranks
    }
}
