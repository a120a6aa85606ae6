//! Which sites are never needed while better ones are free.

use fixedbitset::FixedBitSet;

use crate::problem::{Problem, Site};

/// For each site those that can stand in for it: whatever is at the one could be at the other, with
/// no more traffic and as many ranks. If a placement is possible, then also one that uses a site
/// only if it uses all of these: as long as one of them is free, the groups move there. That ends,
/// as each move is to a site with more room or more near sites, or, among equal ones, to an earlier
/// one.
pub(crate) fn above(problem: &Problem) -> Vec<FixedBitSet> {
    let sites = problem.sites.len();
    let better = |low: usize| {
        let mut better = FixedBitSet::with_capacity(sites);
        better.extend((0..sites).filter(|high| {
            low != *high && stands_in(problem, *high, low) && (*high < low || !stands_in(problem, low, *high))
        }));
        better
    };
    (0..sites).map(better).collect()
}

/// Whether `high` can stand in for `low`.
fn stands_in(problem: &Problem, high: usize, low: usize) -> bool {
    has_room_of(&problem.sites[high], &problem.sites[low])
        && problem.asked.iter().all(|rows| {
            let (near_high, near_low) = (&rows[high], &rows[low]);
            // The two trade places: that only one is used is what matters.
            near_low.difference(near_high).all(|site| site == high || site == low)
                && (near_high.contains(high) || !near_low.contains(low))
        })
}

/// Whether each class of `low` has one of its own in `high` with as many nodes, each of them with
/// as much room for any group. A site may also do without that; then nobody learns it here.
fn has_room_of(high: &Site, low: &Site) -> bool {
    if high.nodes() < low.nodes() {
        return false;
    }
    let mut taken = 0_u64;
    low.classes.iter().all(|class| {
        let found = high.classes.iter().enumerate().position(|(index, other)| {
            taken >> index & 1 == 0
                && other.nodes >= class.nodes
                && other.ranks.iter().zip(&class.ranks).all(|(high, low)| high >= low)
        });
        found.inspect(|index| taken |= 1 << index).is_some()
    })
}

#[cfg(test)]
mod tests {
    use isthmus_profile::Profile;

    use super::*;
    use crate::meets::Meets;
    use crate::problem::UNKNOWN_START;
    use crate::testing::{apart, class, group, linked, offer, profile, site, within};

    #[test]
    fn a_site_with_more_of_all_is_above_another() {
        let sites = offer([
            site("a", [class(4, 8)]),
            site("b", [class(3, 8)]),
            site("c", [class(2, 1), class(4, 8)]),
            site("d", [class(4, 8)]),
            site("e", [class(9, 1)]),
        ]);
        let near = [(0, 1, 1), (0, 4, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1)];
        let alone = profile([group("g", 99, 99), group("h", 1, 99)]);
        let pair = Profile { between: vec![apart("g", "h", within(1))], ..profile(alone.groups.clone()) };
        for (name, profile, want) in [
            ("room alone", alone, [vec![2], vec![0, 2, 3], vec![], vec![0, 2], vec![]]),
            // `a` and `d` are near to `e` and to one more each, `c` is near to others.
            ("with networks", pair, [vec![], vec![], vec![], vec![], vec![]]),
        ] {
            let sites = linked(sites.clone(), &near);
            let problem = Problem::new(&profile, &sites, &mut Meets::new(&sites), UNKNOWN_START);
            let above: Vec<Vec<usize>> = above(&problem).iter().map(|above| above.ones().collect()).collect();
            assert_eq!(above, want, "{name}");
        }
    }
}
