//! Whether groups find room in the first way that one would try.

use std::cmp::Reverse;

use crate::problem::{Group, Problem, members};
use crate::program::Cell;
use crate::room::Room;

/// Lets each group take what suits it best of what is left: first those that aren't split, of these
/// the one that needs most nodes; where `room` knows how they share a site, so they do. Returns the nodes that are left, for each cell and class; `None`
/// if a group doesn't find room for so many ranks. It may find room in another way.
pub(crate) fn greedy(
    problem: &Problem,
    cells: &[Cell],
    room: &Room,
    ranks: impl Fn(&Group) -> u64,
) -> Option<Vec<Vec<u64>>> {
    let classes = |cell: usize| &problem.sites[cells[cell].0].classes;
    let mut free: Vec<Vec<u64>> = (0..cells.len())
        .map(|cell| classes(cell).iter().map(|class| u64::from(class.nodes)).collect())
        .collect();
    let mut done = 0_u64;
    for (cell, (site, groups)) in cells.iter().enumerate() {
        let whole = members(*groups).filter(|group| !problem.groups[*group].may_split);
        let whole = whole.fold(0, |bits, group| bits | 1 << group);
        for of in room.shared(*site, whole) {
            free[cell][of.class] = free[cell][of.class].saturating_sub(u64::from(of.nodes));
            done |= 1 << of.group;
        }
    }
    for group in in_order(problem, cells).into_iter().filter(|group| done >> group & 1 == 0) {
        let here: Vec<(usize, usize)> = (0..cells.len())
            .filter(|cell| cells[*cell].1 >> group & 1 == 1)
            .flat_map(|cell| (0..classes(cell).len()).map(move |class| (cell, class)))
            .collect();
        let each = |(cell, class): &(usize, usize)| classes(*cell)[*class].ranks[group];
        let mut left = ranks(&problem.groups[group]);
        while left > 0 {
            let of_use = here.iter().copied().filter(|of| free[of.0][of.1] > 0 && each(of) > 0);
            // Full nodes, the largest first; and for the rest the smallest that will do.
            let (full, rest): (Vec<_>, Vec<_>) = of_use.partition(|of| each(of) <= left);
            // Rather at sites where few others are.
            let others = |cell: usize| cells[cell].1.count_ones();
            let full = full.into_iter().max_by_key(|of| (Reverse(others(of.0)), each(of)));
            let of = full.or_else(|| rest.into_iter().min_by_key(each))?;
            let take = (left / each(&of)).clamp(1, free[of.0][of.1]);
            free[of.0][of.1] -= take;
            left = left.saturating_sub(take.saturating_mul(each(&of)));
        }
    }
    Some(free)
}

fn in_order(problem: &Problem, cells: &[Cell]) -> Vec<usize> {
    let all = cells.iter().fold(0, |all, (_, groups)| all | groups);
    let mut order: Vec<usize> = members(all).collect();
    order.sort_by_key(|group| {
        let of = &problem.groups[*group];
        let cell = cells.iter().find(|(_, groups)| groups >> group & 1 == 1);
        let nodes = match cell {
            Some((site, _)) if !of.may_split => of.nodes[*site],
            _ => of.fewest_nodes,
        };
        (of.may_split, Reverse(nodes))
    });
    order
}
