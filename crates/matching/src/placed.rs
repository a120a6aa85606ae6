//! The nodes of a placement of which the sites are known.

use std::time::Duration;

use crate::deadline::Deadline;
use crate::dealt::dealt;
use crate::placement::Share;
use crate::problem::Problem;
use crate::program::{Aim, Cell, Effort, Solved, Use, ranks, solve};
use crate::search::Found;

/// Parts of the time that is left, in hundredths: to find room for most ranks at a site, and to spare
/// nodes.
const RANKS_PART: u32 = 30;
const SPARING_PART: u32 = 10;

/// Nodes of a placement, and by when they can be had.
pub(crate) struct Placed {
    /// Each with its group.
    pub(crate) shares: Vec<(usize, Share)>,
    pub(crate) ranks: u64,
    pub(crate) traffic: u64,
    pub(crate) start: Duration,
}

/// The nodes of what was found: at its sites as few as have room for the most ranks. `None` if
/// there isn't room after all, or wasn't time.
pub(crate) fn placed(problem: &Problem, found: &Found, deadline: &Deadline) -> Option<Placed> {
    let mut uses = Vec::new();
    for part in parts(problem, found) {
        uses.extend(nodes(problem, &part, deadline)?);
    }
    let used = dealt(problem, &uses);
    let mut sites = vec![Vec::new(); problem.groups.len()];
    for (of, _) in &used {
        sites[of.group].push(of.site);
    }
    let class = |of: &Use| &problem.sites[of.site].classes[of.class];
    let share = |(of, ranks): &(Use, u32)| {
        let share = Share { site: of.site, class: class(of).offered, nodes: of.nodes, ranks: *ranks };
        (of.group, share)
    };
    let mut shares: Vec<(usize, Share)> = used.iter().map(share).collect();
    shares.sort_by_key(|(group, share)| (*group, share.site, share.class));
    Some(Placed {
        ranks: used.iter().map(|(_, ranks)| u64::from(*ranks)).sum(),
        traffic: problem.units.traffic(&sites),
        start: used.iter().map(|(of, _)| class(of).start).max().unwrap_or_default(),
        shares,
    })
}

/// Parts that have nothing to do with each other: each site by itself, but sites with groups that
/// may be split together.
fn parts(problem: &Problem, found: &Found) -> Vec<Vec<Cell>> {
    let mut at = vec![0_u64; problem.sites.len()];
    let mut split = 0_u64;
    for (group, sites) in found.sites.iter().enumerate() {
        split |= u64::from(problem.groups[group].may_split) << group;
        for site in sites {
            at[*site] |= 1 << group;
        }
    }
    let cells = at.into_iter().enumerate().filter(|(_, groups)| *groups != 0);
    let (shared, whole): (Vec<Cell>, Vec<Cell>) = cells.partition(|(_, groups)| groups & split != 0);
    let mut parts: Vec<Vec<Cell>> = whole.into_iter().map(|cell| vec![cell]).collect();
    if !shared.is_empty() {
        parts.push(shared);
    }
    parts
}

fn nodes(problem: &Problem, part: &[Cell], deadline: &Deadline) -> Option<Vec<Use>> {
    let solve = |aim, deadline: &Deadline| match solve(problem, part, aim, Effort::All, deadline) {
        Solved::Found { uses, .. } => Some(uses),
        Solved::NoRoom | Solved::Unknown => None,
    };
    let most = solve(Aim::MostRanks, &deadline.part(RANKS_PART)).or_else(|| solve(Aim::Room, deadline))?;
    let count = |uses: &[Use]| ranks(problem, uses).iter().sum::<u64>();
    let aim = Aim::FewestNodes { ranks: count(&most) };
    let fewest = solve(aim, &deadline.part(SPARING_PART));
    Some(fewest.filter(|uses| count(uses) >= count(&most)).unwrap_or(most))
}
