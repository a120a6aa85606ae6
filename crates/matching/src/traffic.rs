//! The estimate of traffic between sites.

use isthmus_profile::Profile;

/// Who takes part in a collective operation, with what it weighs: the ranks that they have at
/// least.
#[derive(Debug, Clone, Default)]
pub(crate) struct Units {
    /// All groups.
    pub(crate) world: u64,
    /// Each group by itself.
    pub(crate) groups: Vec<u64>,
    /// Pairs of groups between which the profile asks something.
    pub(crate) pairs: Vec<(usize, usize, u64)>,
}

impl Units {
    pub(crate) fn of(profile: &Profile) -> Self {
        let groups: Vec<u64> = profile.groups.iter().map(|group| u64::from(group.ranks.least)).collect();
        let place = |name| profile.groups.iter().position(|group| &group.name == name);
        let pairs = profile
            .between
            .iter()
            .filter_map(|between| {
                let [a, b] = &between.groups;
                let (a, b) = (place(a)?, place(b)?);
                Some((a, b, groups[a] + groups[b]))
            })
            .collect();
        Self { world: groups.iter().sum(), groups, pairs }
    }

    /// The traffic if each group is at these sites. A message to all of a unit crosses to each of
    /// its further sites once.
    pub(crate) fn traffic(&self, sites: &[Vec<usize>]) -> u64 {
        let further = |of: &[usize]| {
            let mut all: Vec<usize> = of.iter().flat_map(|group| sites[*group].iter().copied()).collect();
            all.sort_unstable();
            all.dedup();
            (all.len() as u64).saturating_sub(1)
        };
        let everyone: Vec<usize> = (0..self.groups.len()).collect();
        let groups: u64 =
            self.groups.iter().enumerate().map(|(group, ranks)| ranks * further(&[group])).sum();
        let pairs: u64 = self.pairs.iter().map(|(a, b, ranks)| ranks * further(&[*a, *b])).sum();
        self.world * further(&everyone) + groups + pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_pays_for_each_further_site() {
        let units = Units { world: 16, groups: vec![1, 5, 10], pairs: vec![(0, 2, 11)] };
        for (name, sites, traffic) in [
            ("all at one site", [vec![0], vec![0], vec![0]], 0),
            ("one elsewhere that nobody asks about", [vec![0], vec![1], vec![0]], 16),
            ("a pair is apart", [vec![0], vec![0], vec![1]], 16 + 11),
            ("a split group, once beside the other", [vec![0], vec![0], vec![0, 1]], 16 + 10 + 11),
            ("a split group, apart from the other", [vec![0], vec![0], vec![1, 2]], 32 + 10 + 22),
        ] {
            assert_eq!(units.traffic(&sites), traffic, "{name}");
        }
    }
}
