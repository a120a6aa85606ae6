//! From whom each member gets its tasks: a tree that follows the places where members run, level by
//! level (Coti, Herault, Cappello: MPI Applications on Grids, Euro-Par 2009, section 3.1).

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::message::{MASTER, MemberId};

/// Below so many members, all get their tasks from the master. Paper 2's figure 3 has bosses ahead above 30
/// processes.
pub const FLAT_BELOW: usize = 30;
/// Fewer members at a place have no boss there: it would save nearly nothing.
const LEAST_OF_A_BOSS: usize = 4;

/// A member, and its parent.
#[derive(Debug)]
struct Entry {
    places: Vec<String>,
    parent: MemberId,
}

/// The members, and who is whose parent. A parent has a lower number than its children, now and at any
/// time before, so that nobody ever gets tasks from below itself.
#[derive(Debug)]
pub(crate) struct Roster {
    /// Where the master runs, from the outermost level to its node.
    master: Vec<String>,
    flat_below: usize,
    members: BTreeMap<MemberId, Entry>,
    /// Members that don't reach another one.
    apart: HashSet<(MemberId, MemberId)>,
}

impl Roster {
    pub(crate) fn new(master: Vec<String>, flat_below: usize) -> Self {
        Self { master, flat_below, members: BTreeMap::new(), apart: HashSet::new() }
    }

    /// Adds a member, whose number is higher than all before. Returns all members with new parents, it
    /// among them.
    pub(crate) fn add(&mut self, member: MemberId, places: Vec<String>) -> Vec<(MemberId, MemberId)> {
        self.members.insert(member, Entry { places, parent: MASTER });
        let mut changes = self.arrange();
        if !changes.iter().any(|(changed, _)| *changed == member) {
            changes.push((member, MASTER));
        }
        changes
    }

    /// Removes a member. Returns all members with new parents.
    pub(crate) fn remove(&mut self, member: MemberId) -> Vec<(MemberId, MemberId)> {
        self.members.remove(&member);
        self.apart.retain(|(child, parent)| *child != member && *parent != member);
        self.arrange()
    }

    /// A member doesn't reach this parent. Returns all members with new parents.
    pub(crate) fn part(&mut self, child: MemberId, parent: MemberId) -> Vec<(MemberId, MemberId)> {
        self.apart.insert((child, parent));
        self.arrange()
    }

    pub(crate) fn children(&self, parent: MemberId) -> impl Iterator<Item = MemberId> {
        self.members.iter().filter(move |(_, entry)| entry.parent == parent).map(|(member, _)| *member)
    }

    fn arrange(&mut self) -> Vec<(MemberId, MemberId)> {
        // The first member at each place, and how many there are.
        let mut bosses: HashMap<&[String], (MemberId, usize)> = HashMap::new();
        if self.members.len() >= self.flat_below {
            for (member, entry) in &self.members {
                for level in 1..=entry.places.len() {
                    bosses.entry(&entry.places[..level]).or_insert((*member, 0)).1 += 1;
                }
            }
        }
        let parent = |member: MemberId, places: &[String]| {
            for level in (1..=places.len()).rev() {
                let place = &places[..level];
                if self.master.starts_with(place) {
                    break;
                }
                match bosses.get(place) {
                    Some((boss, count))
                        if *boss != member
                            && *count >= LEAST_OF_A_BOSS
                            && !self.apart.contains(&(member, *boss)) =>
                    {
                        return *boss;
                    }
                    _ => {}
                }
            }
            MASTER
        };
        let changes: Vec<_> = self
            .members
            .iter()
            .map(|(member, entry)| (*member, parent(*member, &entry.places), entry.parent))
            .filter(|(_, new, old)| new != old)
            .map(|(member, new, _)| (member, new))
            .collect();
        for (member, parent) in &changes {
            if let Some(entry) = self.members.get_mut(member) {
                entry.parent = *parent;
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(of: &str) -> Vec<String> {
        of.split('/').map(str::to_owned).collect()
    }

    /// A roster with members at these places, numbered from 1 on, and the parent of each.
    fn roster(flat_below: usize, members: &[&str]) -> (Roster, Vec<u32>) {
        let mut roster = Roster::new(places("alpha/n1"), flat_below);
        for (number, at) in (1..).zip(members) {
            roster.add(MemberId(number), places(at));
        }
        let parents = roster.members.values().map(|entry| entry.parent.0).collect();
        (roster, parents)
    }

    #[test]
    fn parents_follow_places() {
        let four_far = ["beta/n1", "beta/n1", "beta/n2", "beta/n2"];
        let nodes = ["beta/n1"; 4].into_iter().chain(["beta/n2"; 4]).collect::<Vec<_>>();
        for (flat_below, members, want) in [
            (30, &four_far[..], vec![0, 0, 0, 0]),
            (0, &four_far[..], vec![0, 1, 1, 1]),
            (0, &four_far[..3], vec![0, 0, 0]),
            // The first of a site is its boss, and that of its node. The other node's is below it.
            (0, &nodes[..], vec![0, 1, 1, 1, 1, 5, 5, 5]),
            // The master is the boss of its own site and node.
            (0, &["alpha/n1"; 5][..], vec![0; 5]),
            (0, &["alpha/n2"; 5][..], vec![0, 1, 1, 1, 1]),
            (0, &["x"; 4][..], vec![0, 1, 1, 1]),
        ] {
            assert_eq!(roster(flat_below, members).1, want, "{members:?}");
        }
    }

    #[test]
    fn a_boss_that_is_gone_has_a_successor() {
        let (mut roster, _) = roster(0, &["beta/n1"; 6]);
        let changes = roster.remove(MemberId(1));
        assert_eq!(changes[0], (MemberId(2), MASTER));
        assert_eq!(changes[1..], [3, 4, 5, 6].map(|child| (MemberId(child), MemberId(2))));
        assert_eq!(roster.children(MemberId(2)).count(), 4);
        assert_eq!(roster.remove(MemberId(6)), []);
    }

    #[test]
    fn a_member_that_does_not_reach_its_boss_goes_to_the_next_level() {
        let (mut roster, _) = roster(0, &["beta/n1"; 5]);
        assert_eq!(roster.part(MemberId(3), MemberId(1)), [(MemberId(3), MASTER)]);
        assert!(roster.children(MASTER).any(|member| member == MemberId(3)));
    }

    #[test]
    fn bosses_come_with_the_thirtieth() {
        let mut roster = Roster::new(places("alpha/n1"), FLAT_BELOW);
        for number in 1..30 {
            assert_eq!(roster.add(MemberId(number), places("beta/n1")), [(MemberId(number), MASTER)]);
        }
        assert_eq!(roster.add(MemberId(30), places("beta/n1")).len(), 29);
    }
}
