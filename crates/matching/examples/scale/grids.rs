//! Random grids and jobs of the scale that matching is made for: 1,000 sites with 100,000 nodes, and
//! 20 groups. The same seed makes the same ones.

use std::time::Duration;

use fastrand::Rng;
use isthmus_matching::{Links, NodeClass, Offer, Site};
use isthmus_profile::{Architecture, Between, Group, Link, Needs, Profile, Ranks, Tag};
use isthmus_wire::Label;

const SITES: usize = 1000;
const GROUPS: usize = 20;
const NODES: u32 = 100_000;
const GIB: u64 = 1 << 30;

/// Makes a job.
pub(crate) type Job = fn(&mut Rng) -> Profile;

/// The kinds of jobs, by name.
pub(crate) const KINDS: [(&str, Job); 8] = [
    ("all at one site", small),
    ("several groups a site", medium),
    ("a site for each two groups", large),
    ("as many ranks as there are", ranges),
    ("neighbours near each other", chain),
    ("all near one group", star),
    ("groups that may be split", split),
    ("nowhere near enough", too_near),
];

/// Sites with one to three classes of nodes each, somewhere on a square of 100 ms. One pair of sites
/// in 20 wasn't measured.
pub(crate) fn offer(random: &mut Rng) -> Offer {
    let places: Vec<(f64, f64)> = (0..SITES).map(|_| (random.f64() * 100.0, random.f64() * 100.0)).collect();
    let mut left = NODES;
    let sites: Vec<Site> = (0..SITES)
        .map(|index| {
            let rest = u32::try_from(SITES - index).unwrap_or(1);
            let nodes = if rest == 1 { left } else { random.u32(1..=2 * (left / rest) - 1) };
            left -= nodes;
            Site {
                name: label(&format!("site{index}")),
                inside: link(random, 0.1),
                classes: classes(random, nodes),
            }
        })
        .collect();
    let mut links = Links::unknown(SITES);
    for (a, here) in places.iter().enumerate() {
        for (b, there) in places.iter().enumerate().take(a) {
            if random.u32(0..20) > 0 {
                let ms = (here.0 - there.0).hypot(here.1 - there.1) + 0.5;
                links.set(a, b, link(random, ms));
            }
        }
    }
    Offer { sites, links }
}

fn classes(random: &mut Rng, nodes: u32) -> Vec<NodeClass> {
    let count = random.u32(1..=3).min(nodes);
    let mut left = nodes;
    (0..count)
        .map(|index| {
            let nodes = if index + 1 == count { left } else { left / (count - index) };
            left -= nodes;
            let cores = random.choice([16, 32, 48, 64, 96, 128]).unwrap_or(16);
            let tags = ["gpu", "ib"].map(|tag| (random.u32(0..3) == 0).then(|| tagged(tag)));
            NodeClass {
                nodes,
                cores,
                memory_bytes: Some(u64::from(cores) * random.u64(1..=8) * GIB),
                tags: tags.into_iter().flatten().collect(),
                architecture: Some(match random.u32(0..10) {
                    0 => Architecture::Aarch64,
                    _ => Architecture::X86_64,
                }),
                start: (random.u32(0..10) > 0).then(|| Duration::from_secs(60 * random.u64(0..600))),
            }
        })
        .collect()
}

fn link(random: &mut Rng, ms: f64) -> Link {
    Link {
        rtt: Some(Duration::from_secs_f64(ms / 1000.0)),
        bytes_per_second: Some(random.u64(10..=1250) * 1_000_000),
    }
}

fn label(name: &str) -> Label {
    name.parse().expect("a label")
}

fn tagged(word: &str) -> Tag {
    word.parse().expect("a tag")
}

fn groups(random: &mut Rng, least: (u32, u32), more: u32) -> Profile {
    let group = |index| {
        let least = random.u32(least.0..=least.1);
        let tag = (random.u32(0..6) == 0).then(|| tagged("ib"));
        Group {
            name: label(&format!("group{index}")),
            ranks: Ranks { least, most: least + least / 100 * more },
            command: Vec::new(),
            may_split: false,
            needs: Needs {
                cores: Some(random.u32(1..=2)),
                memory_bytes: (random.u32(0..2) == 0).then(|| random.u64(1..=4) * GIB),
                architecture: (random.u32(0..2) == 0).then_some(Architecture::X86_64),
                tags: tag.into_iter().collect(),
            },
            inside: Link::default(),
        }
    };
    Profile { groups: (0..GROUPS).map(group).collect(), ..Profile::default() }
}

fn small(random: &mut Rng) -> Profile {
    groups(random, (10, 100), 0)
}

fn medium(random: &mut Rng) -> Profile {
    groups(random, (300, 1200), 0)
}

fn large(random: &mut Rng) -> Profile {
    groups(random, (1500, 3000), 0)
}

fn ranges(random: &mut Rng) -> Profile {
    groups(random, (200, 1000), 100)
}

fn pair(profile: &Profile, a: usize, b: usize, rtt: f64, mb: u64) -> Between {
    Between {
        groups: [a, b].map(|index| profile.groups[index].name.clone()),
        link: Link {
            rtt: Some(Duration::from_secs_f64(rtt / 1000.0)),
            bytes_per_second: Some(mb * 1_000_000),
        },
    }
}

fn chain(random: &mut Rng) -> Profile {
    let mut profile = groups(random, (1000, 3000), 0);
    profile.between = (1..GROUPS).map(|index| pair(&profile, index - 1, index, 10.0, 100)).collect();
    profile
}

fn star(random: &mut Rng) -> Profile {
    let mut profile = groups(random, (500, 2000), 0);
    profile.between = (1..GROUPS).map(|index| pair(&profile, 0, index, 20.0, 50)).collect();
    profile
}

fn split(random: &mut Rng) -> Profile {
    let mut profile = groups(random, (1000, 3000), 10);
    for group in profile.groups.iter_mut().step_by(4) {
        group.may_split = true;
        group.ranks = Ranks { least: 30_000, most: 40_000 };
    }
    profile
}

fn too_near(random: &mut Rng) -> Profile {
    let mut profile = groups(random, (2000, 4000), 0);
    profile.between = (1..GROUPS).map(|index| pair(&profile, 0, index, 1.0, 1000)).collect();
    profile
}
