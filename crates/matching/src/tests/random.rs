//! Small random cases, compared with brute force.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use isthmus_profile::{Architecture, Between, Group, Link, Profile};

use super::brute;
use crate::testing::{class, group, offer, site, tag};
use crate::{NodeClass, Offer, Placement, Refusal, Score, place};

const LONG: Duration = Duration::from_secs(600);

/// A random case; the same for the same seed.
pub(super) fn case(seed: u64) -> (Profile, Offer) {
    let mut random = Rng::with_seed(seed);
    let groups = random.usize(1..=3);
    let offer = offered(&mut random, groups);
    (asked(&mut random, groups), offer)
}

fn one_in(random: &mut Rng, many: u32) -> bool {
    random.u32(0..many) == 0
}

/// So few nodes that brute force ends.
fn offered(random: &mut Rng, groups: usize) -> Offer {
    let sites = random.usize(1..=4);
    let mut classes_left = 5;
    let nodes_most = if groups == 3 { 2 } else { 3 };
    let sites: Vec<_> = (0..sites)
        .map(|index| {
            let classes: usize = random.usize(1..=2).min(classes_left);
            classes_left -= classes;
            let classes: Vec<NodeClass> = (0..classes)
                .map(|_| NodeClass {
                    memory_bytes: (!one_in(random, 5)).then(|| random.u64(1..=8)),
                    architecture: match random.u32(0..4) {
                        0 => None,
                        1 => Some(Architecture::Aarch64),
                        _ => Some(Architecture::X86_64),
                    },
                    tags: if one_in(random, 2) { vec![tag("gpu")] } else { Vec::new() },
                    start: (!one_in(random, 6)).then(|| Duration::from_secs(random.u64(0..4))),
                    ..class(random.u32(1..=nodes_most), random.u32(1..=4))
                })
                .collect();
            let mut site = site(&format!("s{index}"), classes);
            site.inside = known(random, 2);
            site
        })
        .collect();
    let mut offer = offer(sites);
    for a in 0..offer.sites.len() {
        for b in 0..a {
            offer.links.set(a, b, known(random, 5));
        }
    }
    offer
}

fn known(random: &mut Rng, most: u64) -> Link {
    Link {
        rtt: (!one_in(random, 8)).then(|| Duration::from_millis(random.u64(0..=most))),
        bytes_per_second: (!one_in(random, 8)).then(|| random.u64(1..=5)),
    }
}

fn asked(random: &mut Rng, groups: usize) -> Profile {
    let mut profile = Profile::default();
    for index in 0..groups {
        let least = random.u32(1..=5);
        let mut of = Group {
            may_split: one_in(random, 2),
            inside: wish(random, 5),
            ..group(&format!("g{index}"), least, least + random.u32(0..=4))
        };
        of.needs.cores = one_in(random, 3).then(|| random.u32(1..=2));
        of.needs.memory_bytes = one_in(random, 3).then(|| random.u64(1..=3));
        of.needs.architecture = one_in(random, 5).then_some(Architecture::X86_64);
        if one_in(random, 5) {
            of.needs.tags.push(tag("gpu"));
        }
        profile.groups.push(of);
    }
    for a in 0..groups {
        for b in 0..a {
            if one_in(random, 2) {
                let groups = [a, b].map(|index| profile.groups[index].name.clone());
                profile.between.push(Between { groups, link: wish(random, 2) });
            }
        }
    }
    profile
}

fn wish(random: &mut Rng, seldom: u32) -> Link {
    Link {
        rtt: one_in(random, seldom).then(|| Duration::from_millis(random.u64(1..=4))),
        bytes_per_second: one_in(random, seldom).then(|| random.u64(1..=3)),
    }
}

/// Judges a placement by itself: what it says of itself, and the rules that its shares keep to.
pub(super) fn judge(profile: &Profile, offer: &Offer, placement: &Placement) -> Score {
    // The nodes that it takes are all that there is, each class for one group only.
    let mut left = offer.clone();
    for site in &mut left.sites {
        for class in &mut site.classes {
            class.nodes = 0;
        }
    }
    let mut taken: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    let mut ranks = 0;
    for (group, placed) in profile.groups.iter().zip(&placement.groups) {
        assert_eq!(group.name, placed.group);
        let mine: u32 = placed.shares.iter().map(|share| share.ranks).sum();
        assert!((group.ranks.least..=group.ranks.most).contains(&mine), "{placed:?}");
        ranks += u64::from(mine);
        for share in &placed.shares {
            assert!(share.nodes > 0 && share.ranks >= share.nodes, "{placed:?}");
            let class = &offer.sites[share.site].classes[share.class];
            let each = share.ranks.div_ceil(share.nodes);
            assert!(each * group.needs.cores.unwrap_or(1) <= class.cores, "{placed:?}");
            let bytes = group.needs.memory_bytes.unwrap_or(0) * u64::from(each);
            assert!(bytes <= class.memory_bytes.unwrap_or(0), "{placed:?}");
            *taken.entry((share.site, share.class)).or_default() += share.nodes;
        }
    }
    for ((site, class), nodes) in taken {
        assert!(nodes <= offer.sites[site].classes[class].nodes, "{placement:?}");
        left.sites[site].classes[class].nodes = nodes;
    }
    assert_eq!(ranks, placement.score.ranks);
    // Nothing of what it took can be used in a better way.
    brute::best(profile, &left).expect("it takes too few nodes")
}

#[test]
fn small_cases_are_as_good_as_brute_force() {
    let (mut possible, mut more_traffic) = (0, 0);
    for seed in 0..1000 {
        let (profile, offer) = case(seed);
        let best = brute::best(&profile, &offer);
        match place(&profile, &offer, LONG) {
            Ok(placement) => {
                assert_eq!(Some(placement.score), best, "seed {seed}: {profile:?} {offer:?}");
                assert!(placement.best, "seed {seed}");
                assert_eq!(judge(&profile, &offer, &placement), placement.score, "seed {seed}");
                possible += 1;
                more_traffic += u32::from(placement.score.traffic > 0);
            }
            Err(Refusal::Impossible(_)) => {
                assert_eq!(best, None, "seed {seed}: {profile:?} {offer:?}");
            }
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    // The cases are of all kinds.
    assert!((200..=800).contains(&possible), "{possible} of 1000 are possible");
    assert!(more_traffic > 50, "{more_traffic} of 1000 have traffic between sites");
}
