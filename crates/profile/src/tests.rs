mod explained;
mod faults;
mod random;

use std::time::Duration;

use isthmus_wire::Label;

use crate::{Architecture, Between, Group, Link, Needs, Profile, Ranks, Tag};

/// A profile with every key.
const FULL: &str = r#"
time = "2h"
reorder = true

[[group]]
name = "masters"
ranks = 1
command = ["./master", "--rays", "1 000"]

[[group]]
name = "workers"
ranks = "8-64"
split = true
cores = 2
memory = "2 GiB"
architecture = "x86-64"
tags = ["gpu", "big", "gpu"]
rtt = "1 ms"
rate = "1 Gbit/s"

[[between]]
groups = ["workers", "masters"]
rtt = "2.5 ms"
"#;

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

fn parse(text: &str) -> Profile {
    Profile::parse(text, "job.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn plain(name: &str, ranks: u32) -> Group {
    Group {
        name: label(name),
        ranks: Ranks { least: ranks, most: ranks },
        command: Vec::new(),
        may_split: false,
        needs: Needs::default(),
        inside: Link::default(),
    }
}

#[test]
fn every_key_is_read() {
    let masters = Group {
        command: ["./master", "--rays", "1 000"].map(ToOwned::to_owned).to_vec(),
        ..plain("masters", 1)
    };
    let workers = Group {
        ranks: Ranks { least: 8, most: 64 },
        may_split: true,
        needs: Needs {
            cores: Some(2),
            memory_bytes: Some(2 << 30),
            architecture: Some(Architecture::X86_64),
            tags: vec![tag("big"), tag("gpu")],
        },
        inside: Link { rtt: Some(Duration::from_millis(1)), bytes_per_second: Some(125_000_000) },
        ..plain("workers", 8)
    };
    let between = Between {
        groups: [label("workers"), label("masters")],
        link: Link { rtt: Some(Duration::from_micros(2500)), bytes_per_second: None },
    };
    let want = Profile {
        groups: vec![masters, workers],
        between: vec![between],
        time: Some(Duration::from_secs(7200)),
        reorder: true,
    };
    assert_eq!(parse(FULL), want);
}

#[test]
fn only_names_and_ranks_are_needed() {
    let two = "[[group]]\nname = 'Masters'\nranks = 2\n[[group]]\nname = 'workers'\nranks = 30\n";
    let want = Profile { groups: vec![plain("masters", 2), plain("workers", 30)], ..Profile::default() };
    assert_eq!(parse(two), want);
    assert_eq!(parse("reorder = true"), Profile { reorder: true, ..Profile::default() });
    assert_eq!(parse("reorder = false"), Profile::default());
}

#[test]
fn numbers_of_ranks() {
    for (written, want) in [
        ("4", (4, 4)),
        ("'4'", (4, 4)),
        ("'4-16'", (4, 16)),
        ("' 4 - 16 '", (4, 16)),
        ("'7-7'", (7, 7)),
        ("1000000", (1_000_000, 1_000_000)),
    ] {
        let profile = parse(&format!("[[group]]\nname = 'a'\nranks = {written}\n"));
        let Ranks { least, most } = profile.groups[0].ranks;
        assert_eq!((least, most), want, "{written}");
    }
}

#[test]
fn architectures() {
    for (written, want) in [
        ("x86-64", Some(Architecture::X86_64)),
        ("x86_64", Some(Architecture::X86_64)),
        ("aarch64", Some(Architecture::Aarch64)),
        ("s390x", Some(Architecture::S390x)),
        ("ppc64le", Some(Architecture::Ppc64le)),
        ("amd64", None),
        ("", None),
    ] {
        assert_eq!(written.parse().ok(), want, "{written}");
    }
    for known in Architecture::ALL {
        assert_eq!(known.to_string().parse(), Ok(known));
    }
}
