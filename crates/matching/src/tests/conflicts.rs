//! Sets of requirements that can't be met together, compared with brute force, and their words.

use std::time::Duration;

use isthmus_profile::{Architecture, Group, Link, Needs, Profile};

use super::{brute, random};
use crate::requirement::{Requirement, asking, listed};
use crate::testing::{apart, class, group, linked, offer, profile, site, split, tag, within};
use crate::{Impossible, NodeClass, Offer, Refusal, Remedy, place};

const LONG: Duration = Duration::from_secs(600);

fn impossible(profile: &Profile, offer: &Offer) -> Option<Impossible> {
    match place(profile, offer, LONG) {
        Ok(_) => None,
        Err(Refusal::Impossible(why)) => Some(why),
        Err(other) => panic!("{other}"),
    }
}

/// Calls back for each choice of so many of these, until it returns false.
fn choices<'a>(
    of: &'a [Requirement],
    count: usize,
    chosen: &mut Vec<&'a Requirement>,
    each: &mut impl FnMut(&[&Requirement]) -> bool,
) -> bool {
    if count == 0 {
        return each(chosen);
    }
    for (index, one) in of.iter().enumerate() {
        chosen.push(one);
        let more = choices(&of[index + 1..], count - 1, chosen, each);
        chosen.pop();
        if !more {
            return false;
        }
    }
    true
}

#[test]
fn conflicts_are_the_smallest() {
    let mut sizes = [0; 8];
    for seed in 0..600 {
        let (profile, offer) = random::case(seed);
        let Some(why) = impossible(&profile, &offer) else { continue };
        let met = |requirements: &[&Requirement]| {
            brute::possible(&asking(&profile, requirements.iter().copied()), &offer)
        };
        let conflict: Vec<&Requirement> = why.conflicts.iter().map(|one| &one.requirement).collect();
        assert!(why.smallest && !met(&conflict), "seed {seed}: {why}");
        let all = listed(&profile);
        let smaller = choices(&all, conflict.len() - 1, &mut Vec::new(), &mut |some| met(some));
        assert!(smaller, "seed {seed}: {why}");
        for (index, one) in why.conflicts.iter().enumerate() {
            let others: Vec<&Requirement> =
                conflict.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, c)| *c).collect();
            let with = |instead| met(&[others.as_slice(), &[instead]].concat());
            match &one.remedy {
                Remedy::Weaker(weaker) => {
                    assert!(with(weaker), "seed {seed}: {weaker} {why}");
                    if let Some(more) = stricter(weaker) {
                        assert!(!with(&more), "seed {seed}: {more} {why}");
                    }
                }
                Remedy::Without => {
                    assert!(met(&others), "seed {seed}: {why}");
                    if let Requirement::Ranks { group, .. } = &one.requirement {
                        let least = Requirement::Ranks { group: group.clone(), least: 1 };
                        assert!(!with(&least), "seed {seed}: {why}");
                    }
                }
                Remedy::Unknown => panic!("seed {seed}: {why}"),
            }
        }
        sizes[conflict.len().min(7)] += 1;
    }
    assert!(sizes[1..5].iter().all(|cases| *cases > 0), "sets of each size: {sizes:?}");
}

/// The next that asks more.
fn stricter(of: &Requirement) -> Option<Requirement> {
    let mut more = of.clone();
    match &mut more {
        Requirement::Ranks { least, .. } => *least += 1,
        Requirement::Cores { each, .. } => *each += 1,
        Requirement::Memory { bytes, .. } => *bytes += 1,
        Requirement::Rtt { most, .. } => *most = most.checked_sub(Duration::from_millis(1))?,
        Requirement::Rate { bytes_per_second, .. } => *bytes_per_second += 1,
        Requirement::OneSite { .. } | Requirement::Architecture { .. } | Requirement::Tag { .. } => {
            return None;
        }
    }
    Some(more)
}

fn needing(needs: Needs, group: Group) -> Group {
    Group { needs, ..group }
}

fn two() -> Offer {
    offer([site("alpha", [class(3, 16)]), site("beta", [class(2, 16)])])
}

fn told(name: &str, profile: &Profile, offer: &Offer, want: &str) {
    let why = impossible(profile, offer).map(|why| why.to_string());
    assert_eq!(why.as_deref(), Some(want), "{name}");
}

#[test]
fn what_nodes_lack_is_told_in_words() {
    let gib = 1 << 30;
    let rich =
        NodeClass { memory_bytes: Some(64 * gib), architecture: Some(Architecture::X86_64), ..class(4, 16) };
    for (name, profile, offer, want) in [
        (
            "too many ranks",
            profile([split(group("masters", 81, 90))]),
            two(),
            "the 2 sites on offer can't meet this: masters needs 81 ranks; there is room for 80 at most",
        ),
        (
            "too many for one site",
            profile([group("masters", 64, 64)]),
            two(),
            "the 2 sites on offer can't meet these 2 together:
- masters needs 64 ranks; there is room for 48 at most with the rest
- masters must be at one site; split over sites it has room
Change one of them as it says, or find another site",
        ),
        (
            "cores",
            profile([needing(Needs { cores: Some(17), ..Needs::default() }, group("a", 1, 1))]),
            two(),
            "the 2 sites on offer can't meet these 2 together:
- a needs 1 rank; there is room for none with the rest
- each rank of a needs 17 cores; 16 would do with the rest
Change one of them as it says, or find another site",
        ),
        (
            "memory, where the cores would do",
            profile([needing(
                Needs { memory_bytes: Some(16 * gib), ..Needs::default() },
                group("a", 20, 20),
            )]),
            offer([site("alpha", [rich.clone()])]),
            "the 1 site on offer can't meet these 2 together:
- a needs 20 ranks; there is room for 16 at most with the rest
- each rank of a needs 16 GiB of memory; 12.799 GiB at most would do with the rest
Change one of them as it says, or find another site",
        ),
        (
            "a tag",
            profile([needing(Needs { tags: vec![tag("gpu")], ..Needs::default() }, group("a", 1, 1))]),
            offer([site("alpha", [rich.clone()])]),
            "the 1 site on offer can't meet these 2 together:
- a needs 1 rank; there is room for none with the rest
- a needs nodes with the tag gpu; others would do with the rest
Change one of them as it says, or find another site",
        ),
        (
            "an architecture",
            profile([needing(
                Needs { architecture: Some(Architecture::S390x), ..Needs::default() },
                group("a", 1, 1),
            )]),
            offer([site("alpha", [rich])]),
            "the 1 site on offer can't meet these 2 together:
- a needs 1 rank; there is room for none with the rest
- a needs nodes of architecture s390x; others would do with the rest
Change one of them as it says, or find another site",
        ),
    ] {
        told(name, &profile, &offer, want);
    }
}

#[test]
fn what_networks_lack_is_told_in_words() {
    let between = |link| Profile {
        between: vec![apart("a", "b", link)],
        ..profile([group("a", 48, 48), group("b", 32, 32)])
    };
    let rate = |mb: u64| Link { rtt: None, bytes_per_second: Some(mb * 1_000_000) };
    for (name, profile, offer, want) in [
        (
            "two groups that are too far apart",
            between(within(2)),
            linked(two(), &[(0, 1, 8)]),
            "the 2 sites on offer can't meet these 3 together:
- a needs 48 ranks; there is room for 16 at most with the rest
- b needs 32 ranks; there is room for none with the rest
- the round trip between a and b must be 2 ms at most; the shortest that goes with the rest is 8 ms
Change one of them as it says, or find another site",
        ),
        (
            "two groups between which nothing was measured",
            between(rate(1250)),
            two(),
            "the 2 sites on offer can't meet these 3 together:
- a needs 48 ranks; there is room for none with the rest
- b needs 32 ranks; there is room for none with the rest
- the rate between a and b must be 1.25 GB/s at least; no pair of sites that goes with the rest was measured
Change one of them as it says, or find another site",
        ),
    ] {
        told(name, &profile, &offer, want);
    }
}
