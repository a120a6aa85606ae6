//! How long a collective over sites must take, from the sites' links alone. Pure.
//!
//! A crossing takes the delay of the sender's link and that of the receiver's. All bytes that leave
//! a site share its link up, and all that enter it share its link down. Ranks of a site share what
//! they have at no cost. Nothing is lost or compressed. Headers aren't counted: those of TCP and IP
//! add 3.6 % to the bytes.
//!
//! Below, S is the number of sites, d a crossing, and N the time in which a link carries the bytes
//! of one rank. The formulas are those of sites that are alike. Of sites that differ, the shortest
//! ways count, and the mean rate where all sites share the bytes.

use std::ops::Range;
use std::time::Duration;

use anyhow::ensure;
use isthmus_lab::Grid;
use isthmus_lab::grid::{Link, LinkShape};

/// A collective that is measured. Its root, if it has one, is a rank of the site that
/// [`Sites::bound`] is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    Gather,
    Scatter,
    Allgather,
}

impl Operation {
    pub(crate) const ALL: [Self; 7] = [
        Self::Barrier,
        Self::Bcast,
        Self::Reduce,
        Self::Allreduce,
        Self::Gather,
        Self::Scatter,
        Self::Allgather,
    ];

    /// The operation's name in rows, and as an argument of the program that times calls.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Allgather => "allgather",
        }
    }
}

/// Times of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    /// The crossings that are needed, one after the other, and the bytes of the busiest link. All
    /// bytes take equally many crossings, and the number of crossings is the one that takes least.
    pub needed: Duration,
    /// What no schedule goes below. It is less than `needed` where a link can carry other bytes
    /// while some cross, or where some bytes cross once and others twice.
    pub least: Duration,
}

impl Bound {
    fn of(needed: f64, least: f64) -> Self {
        // What is needed by sites that differ counts fewer links than what is the least.
        Self { needed: Duration::from_secs_f64(needed.max(least)), least: Duration::from_secs_f64(least) }
    }

    fn same(seconds: f64) -> Self {
        Self::of(seconds, seconds)
    }
}

/// A site that takes part.
#[derive(Debug, Clone, Copy)]
struct Site {
    link: Link,
    ranks: u32,
}

/// The sites that take part, at least two.
#[derive(Debug, Clone)]
pub(crate) struct Sites(Vec<Site>);

impl Sites {
    /// The first sites of a grid, with so many ranks each.
    ///
    /// # Errors
    /// There are fewer sites, or fewer than two. Or there is more than a site's link to it: a rail
    /// with a link of its own, or jitter.
    pub(crate) fn of(grid: &Grid, sites: usize, ranks: u32) -> anyhow::Result<Self> {
        ensure!(
            (2..=grid.sites.len()).contains(&sites),
            "{} has no {sites} sites to cross between",
            grid.name
        );
        let taken = &grid.sites[..sites];
        let has_one_way = |site: &isthmus_lab::grid::Site| {
            site.rails.iter().all(|rail| rail.uplink.is_none())
                && [site.link.up, site.link.down].iter().all(|shape| shape.jitter.duration().is_zero())
        };
        ensure!(taken.iter().all(has_one_way), "a site of {} has several links, or jitter", grid.name);
        Ok(Self(taken.iter().map(|site| Site { link: site.link, ranks }).collect()))
    }

    /// The time of one call, in which each rank contributes `bytes` (a `Bcast`: the root). `root` is
    /// the index of the root's site.
    pub(crate) fn bound(&self, operation: Operation, root: usize, bytes: u64) -> Bound {
        let bytes = bytes as f64;
        match operation {
            Operation::Barrier => Bound::same(self.pairs(|_| 0.0)),
            Operation::Bcast => self.bcast(root, bytes),
            Operation::Reduce => self.reversed().bcast(root, bytes),
            Operation::Allreduce => self.allreduce(bytes),
            Operation::Scatter => self.scatter(root, bytes),
            Operation::Gather => self.reversed().scatter(root, bytes),
            Operation::Allgather => self.allgather(bytes),
        }
    }

    /// `Bcast`, and backwards in time `Reduce`, whose parts are combined on the way.
    ///
    /// Each other site needs all bytes. In one crossing the root's link carries them to each:
    /// d + (S - 1) N. In two it carries them once, and the others pass them on as they come, each an
    /// equal share: 2 d + N.
    ///
    /// **Least:** what leaves the root's site within the last 2 d can't be passed on any more. So a
    /// byte leaves before that, or the root's link carries it to each of the S - 1 others within the
    /// d seconds that are left for it: bytes ≤ (T - 2 d) rate + d rate / (S - 1). That gives
    /// T ≥ 2 d + N - d / (S - 1), and d + (S - 1) N if that needs less than two crossings.
    fn bcast(&self, root: usize, bytes: f64) -> Bound {
        let receivers = (self.0.len() - 1) as f64;
        let (out, hop) = (self.way_out(root), self.hop_without(root));
        let once = bytes / rate(self.0[root].link.up);
        let (direct, passed_on) = (out + receivers * once, out + hop + once);
        let mixed = if receivers * once <= hop { direct } else { passed_on - hop / receivers };
        let each = most(self.others(root).map(|site| self.pair(root, site, bytes)));
        Bound::of(direct.min(passed_on), mixed.max(each))
    }

    /// `Allreduce`.
    ///
    /// In one crossing each site sends all bytes to each other: d + (S - 1) N. In two, each site
    /// combines a share of the bytes and sends the result to all others: a link carries a share's
    /// parts out, and then its result, S - 1 times each: 2 d + 2 (S - 1) / S N.
    ///
    /// **Least:** for each byte at least 2 (S - 1) messages cross, as for any gossip by one-way
    /// messages (Harary and Schwenk, *Efficiency of dissemination of information in one-way and
    /// two-way communication networks*, 1974). The S links up share them, so T ≥ d + 2 (S - 1) / S N:
    /// parts of some bytes can cross while results of others do. An `Allreduce` also takes no less
    /// than a `Reduce` to any site, and a `Bcast` from any.
    fn allreduce(&self, bytes: f64) -> Bound {
        let sites = self.0.len() as f64;
        let way = least(self.sites().map(|site| self.way_out(site)));
        let sum = |shape: fn(&Site) -> LinkShape| self.0.iter().map(|site| rate(shape(site))).sum::<f64>();
        let once = bytes * sites / sum(|site| site.link.up).min(sum(|site| site.link.down));
        let shared = 2.0 * (sites - 1.0) / sites * once;
        let reversed = self.reversed();
        let rooted =
            |site: usize| [self, &reversed].map(|sites| sites.bcast(site, bytes).least.as_secs_f64());
        let rooted = most(self.sites().flat_map(rooted));
        let (direct, shares) = (way + (sites - 1.0) * once, 2.0 * way + shared);
        Bound::of(direct.min(shares), rooted.max(way + shared))
    }

    /// `Scatter`, and backwards in time `Gather`: one crossing, and the root's link carries what all
    /// ranks of other sites get: d + (ranks elsewhere) N.
    fn scatter(&self, root: usize, bytes: f64) -> Bound {
        let link = self.way_out(root) + bytes * self.ranks_elsewhere(root) / rate(self.0[root].link.up);
        let each = most(self.others(root).map(|site| self.pair(root, site, bytes * self.ranks(site))));
        Bound::same(link.max(each))
    }

    /// `Allgather`: one crossing, and each site's link down carries what all ranks of other sites
    /// have: d + (ranks elsewhere) N. What a site has leaves it at least once.
    fn allgather(&self, bytes: f64) -> Bound {
        let reversed = self.reversed();
        let into = |site: usize| {
            reversed.way_out(site) + bytes * self.ranks_elsewhere(site) / rate(self.0[site].link.down)
        };
        Bound::same(most(self.sites().map(into)).max(self.pairs(|from| bytes * self.ranks(from))))
    }

    /// The same sites with all messages backwards.
    fn reversed(&self) -> Self {
        let turned = |site: &Site| Site { link: Link { up: site.link.down, down: site.link.up }, ..*site };
        Self(self.0.iter().map(turned).collect())
    }

    fn sites(&self) -> Range<usize> {
        0..self.0.len()
    }

    fn others(&self, site: usize) -> impl Iterator<Item = usize> {
        self.sites().filter(move |other| *other != site)
    }

    fn ranks(&self, site: usize) -> f64 {
        f64::from(self.0[site].ranks)
    }

    fn ranks_elsewhere(&self, site: usize) -> f64 {
        self.others(site).map(|other| self.ranks(other)).sum()
    }

    /// Seconds of a crossing.
    fn way(&self, from: usize, to: usize) -> f64 {
        (self.0[from].link.up.delay.duration() + self.0[to].link.down.delay.duration()).as_secs_f64()
    }

    /// Seconds of the shortest crossing out of a site.
    fn way_out(&self, site: usize) -> f64 {
        least(self.others(site).map(|other| self.way(site, other)))
    }

    /// Seconds of the shortest crossing between other sites than this one. Endless if there is only
    /// one other.
    fn hop_without(&self, site: usize) -> f64 {
        let hops =
            |from: usize| self.others(from).filter(move |to| *to != site).map(move |to| self.way(from, to));
        least(self.others(site).flat_map(hops))
    }

    /// Seconds in which bytes of one site reach another, if both links carry nothing else.
    fn pair(&self, from: usize, to: usize, bytes: f64) -> f64 {
        self.way(from, to) + bytes / rate(self.0[from].link.up).min(rate(self.0[to].link.down))
    }

    /// Seconds in which so many bytes of each site reach each other.
    fn pairs(&self, bytes: impl Fn(usize) -> f64) -> f64 {
        let farthest = |from| most(self.others(from).map(|to| self.pair(from, to, bytes(from))));
        most(self.sites().map(farthest))
    }
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Bytes that a direction of a link carries in a second. Endless without a rate.
fn rate(shape: LinkShape) -> f64 {
    shape.rate.map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64 / 8.0)
}

#[cfg(test)]
#[path = "bound/tests.rs"]
mod tests;
