//! What a profile asks, in parts that can be taken away.

use std::time::Duration;

use isthmus_profile::{Architecture, Between, Group, Link, Needs, Profile, Tag};
use isthmus_wire::Label;

/// One thing that a profile asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// A group has at least so many ranks. Without that, the group may be left out.
    Ranks {
        /// The group.
        group: Label,
        /// Ranks.
        least: u32,
    },
    /// A group isn't split.
    OneSite {
        /// The group.
        group: Label,
    },
    /// Each rank has so many cores.
    Cores {
        /// The group.
        group: Label,
        /// Cores for each rank.
        each: u32,
    },
    /// Each rank has so much memory.
    Memory {
        /// The group.
        group: Label,
        /// Bytes for each rank.
        bytes: u64,
    },
    /// The nodes have this architecture.
    Architecture {
        /// The group.
        group: Label,
        /// The instruction set.
        architecture: Architecture,
    },
    /// The nodes have a tag.
    Tag {
        /// The group.
        group: Label,
        /// The tag.
        tag: Tag,
    },
    /// The round trip among a group's ranks, or between those of two groups.
    Rtt {
        /// The group, or the two.
        groups: Among,
        /// At most so long.
        most: Duration,
    },
    /// The rate among a group's ranks, or between those of two groups.
    Rate {
        /// The group, or the two.
        groups: Among,
        /// At least so many bytes per second.
        bytes_per_second: u64,
    },
}

/// Whose ranks use a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Among {
    /// Those of one group.
    Inside(Label),
    /// Those of two.
    Between([Label; 2]),
}

/// All that a profile asks.
pub(crate) fn listed(profile: &Profile) -> Vec<Requirement> {
    let mut all: Vec<Requirement> = profile.groups.iter().flat_map(of_group).collect();
    for between in &profile.between {
        all.extend(of_link(&Among::Between(between.groups.clone()), between.link));
    }
    all
}

fn of_group(of: &Group) -> Vec<Requirement> {
    let group = || of.name.clone();
    let mut all = vec![Requirement::Ranks { group: group(), least: of.ranks.least }];
    if !of.may_split && of.ranks.least > 1 {
        all.push(Requirement::OneSite { group: group() });
    }
    if let Some(each) = of.needs.cores.filter(|cores| *cores > 1) {
        all.push(Requirement::Cores { group: group(), each });
    }
    if let Some(bytes) = of.needs.memory_bytes.filter(|bytes| *bytes > 0) {
        all.push(Requirement::Memory { group: group(), bytes });
    }
    if let Some(architecture) = of.needs.architecture {
        all.push(Requirement::Architecture { group: group(), architecture });
    }
    let tags = of.needs.tags.iter();
    all.extend(tags.map(|tag| Requirement::Tag { group: group(), tag: tag.clone() }));
    all.extend(of_link(&Among::Inside(group()), of.inside));
    all
}

fn of_link(groups: &Among, link: Link) -> Vec<Requirement> {
    let rtt = link.rtt.map(|most| Requirement::Rtt { groups: groups.clone(), most });
    let rate = link
        .bytes_per_second
        .map(|bytes_per_second| Requirement::Rate { groups: groups.clone(), bytes_per_second });
    rtt.into_iter().chain(rate).collect()
}

/// The profile that asks this and nothing else. Groups of which no number of ranks is asked aren't
/// there. With a requirement twice, the last one holds.
pub(crate) fn asking<'a>(
    profile: &Profile,
    requirements: impl IntoIterator<Item = &'a Requirement> + Clone,
) -> Profile {
    let mut groups: Vec<Group> = Vec::new();
    for group in &profile.groups {
        let least = requirements.clone().into_iter().filter_map(|one| match one {
            Requirement::Ranks { group: name, least } if *name == group.name => Some(*least),
            _ => None,
        });
        if let Some(least) = least.last() {
            let mut bare =
                Group { may_split: true, needs: Needs::default(), inside: Link::default(), ..group.clone() };
            bare.ranks.least = least;
            groups.push(bare);
        }
    }
    let mut asking = Profile { groups, between: Vec::new(), ..profile.clone() };
    for requirement in requirements {
        ask(&mut asking, requirement);
    }
    asking
}

fn ask(profile: &mut Profile, requirement: &Requirement) {
    match requirement {
        Requirement::Ranks { .. } => {}
        Requirement::OneSite { group } => of(profile, group, |group| group.may_split = false),
        Requirement::Cores { group, each } => {
            of(profile, group, |group| group.needs.cores = Some(*each));
        }
        Requirement::Memory { group, bytes } => {
            of(profile, group, |group| group.needs.memory_bytes = Some(*bytes));
        }
        Requirement::Architecture { group, architecture } => {
            of(profile, group, |group| group.needs.architecture = Some(*architecture));
        }
        Requirement::Tag { group, tag } => {
            of(profile, group, |group| group.needs.tags.push(tag.clone()));
        }
        Requirement::Rtt { groups, most } => {
            link(profile, groups, |link| link.rtt = Some(*most));
        }
        Requirement::Rate { groups, bytes_per_second } => {
            link(profile, groups, |link| link.bytes_per_second = Some(*bytes_per_second));
        }
    }
}

/// Changes a group, if it is there.
fn of(profile: &mut Profile, name: &Label, change: impl FnOnce(&mut Group)) {
    if let Some(group) = profile.groups.iter_mut().find(|group| group.name == *name) {
        change(group);
    }
}

/// Changes what is asked of a network, if its groups are there.
fn link(profile: &mut Profile, groups: &Among, change: impl FnOnce(&mut Link)) {
    match groups {
        Among::Inside(name) => of(profile, name, |group| change(&mut group.inside)),
        Among::Between(names) => {
            if !names.iter().all(|name| profile.groups.iter().any(|group| group.name == *name)) {
                return;
            }
            let known = profile.between.iter().position(|between| between.groups == *names);
            let place = known.unwrap_or_else(|| {
                profile.between.push(Between { groups: names.clone(), link: Link::default() });
                profile.between.len() - 1
            });
            if let Some(between) = profile.between.get_mut(place) {
                change(&mut between.link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apart, group, label, profile, tag, within};

    #[test]
    fn a_profile_asks_what_is_listed_of_it() {
        let mut full =
            profile([group("a", 4, 8), Group { may_split: true, inside: within(2), ..group("b", 1, 1) }]);
        full.groups[0].needs = Needs {
            cores: Some(2),
            memory_bytes: Some(9),
            architecture: Some(Architecture::X86_64),
            tags: vec![tag("gpu"), tag("ib")],
        };
        full.between = vec![apart("a", "b", Link { bytes_per_second: Some(7), ..within(3) })];
        let listed = listed(&full);
        assert_eq!(listed.len(), 11, "{listed:?}");
        assert_eq!(asking(&full, &listed), full);
        let without: Vec<_> = listed
            .iter()
            .filter(|one| !matches!(one, Requirement::Ranks { group, .. } if *group == label("a")))
            .collect();
        let asked = asking(&full, without);
        assert_eq!((asked.groups.len(), asked.between.len()), (1, 0));
    }
}
