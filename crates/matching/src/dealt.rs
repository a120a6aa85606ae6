//! How many ranks each class of nodes gets.

use std::cmp::Reverse;

use crate::problem::Problem;
use crate::program::{Use, ranks};

/// Deals each group's ranks to its nodes, and leaves out nodes that it doesn't need. Nodes that can
/// be had late go first, and among these those with room for few ranks.
pub(crate) fn dealt(problem: &Problem, uses: &[Use]) -> Vec<(Use, u32)> {
    let mut dealt = Vec::new();
    for (group, ranks) in ranks(problem, uses).into_iter().enumerate() {
        let class = |of: &Use| &problem.sites[of.site].classes[of.class];
        let each = |of: &Use| class(of).ranks[group].max(1);
        let mut mine: Vec<Use> = uses.iter().copied().filter(|of| of.group == group).collect();
        mine.sort_by_key(|of| (class(of).start, Reverse(each(of)), of.site, of.class));
        let room = |of: &Use| each(of).saturating_mul(u64::from(of.nodes));
        let mut spare = mine.iter().map(room).fold(0, u64::saturating_add).saturating_sub(ranks);
        for of in mine.iter_mut().rev() {
            let dropped = (spare / each(of)).min(u64::from(of.nodes));
            spare -= dropped * each(of);
            // It is no more than the nodes that there are.
            of.nodes -= u32::try_from(dropped).unwrap_or(of.nodes);
        }
        let mut left = ranks;
        for of in mine.into_iter().filter(|of| of.nodes > 0) {
            let here = room(&of).min(left);
            left -= here;
            // A group has no more ranks than a `u32` holds.
            dealt.push((of, u32::try_from(here).unwrap_or(u32::MAX)));
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::meets::Meets;
    use crate::problem::UNKNOWN_START;
    use crate::testing::{class, group, offer, profile, site};

    #[test]
    fn nodes_that_are_not_needed_are_left_out() {
        let offer = offer([site("a", [class(4, 8), class(4, 2)])]);
        let mut meets = Meets::new(&offer);
        // Ranks, nodes that the program took of each class, and what is left of them.
        for (ranks, taken, want) in [
            (16, [2, 4], vec![(2, 16)]),
            (17, [2, 4], vec![(2, 16), (1, 1)]),
            (20, [3, 0], vec![(3, 20)]),
            (3, [1, 2], vec![(1, 3)]),
            (1, [0, 2], vec![(1, 1)]),
        ] {
            let profile = profile([group("g", ranks, ranks)]);
            let problem = Problem::new(&profile, &offer, &mut meets, UNKNOWN_START);
            let uses: Vec<Use> = (0..2)
                .filter(|class| taken[*class] > 0)
                .map(|class| Use { group: 0, site: 0, class, nodes: taken[class] })
                .collect();
            let got: Vec<(u32, u32)> =
                dealt(&problem, &uses).iter().map(|(of, ranks)| (of.nodes, *ranks)).collect();
            assert_eq!(got, want, "{ranks} ranks");
        }
        assert_eq!(offer.sites[0].classes[0].start, Some(Duration::ZERO));
    }
}
