//! Properties of all texts and all profiles.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use isthmus_common::quantity::{BitRate, ByteSize, Delay};
use proptest::prelude::*;

use super::{FULL, label, tag};
use crate::explain::explain;
use crate::launch::{Got, Launcher, words};
use crate::limits::CORES_MAX;
use crate::{Architecture, Between, Group, Link, Needs, Profile, Ranks};

fn links() -> impl Strategy<Value = Link> {
    let micros = proptest::option::of(1..60_000_000_u64);
    let bytes = proptest::option::of(1..=1_250_000_000_000_u64);
    (micros, bytes)
        .prop_map(|(micros, bytes)| Link { rtt: micros.map(Duration::from_micros), bytes_per_second: bytes })
}

fn needs() -> impl Strategy<Value = Needs> {
    let cores = proptest::option::of(1..=CORES_MAX);
    let memory = proptest::option::of(1..=1_000_000_000_000_u64);
    let architecture = proptest::option::of(proptest::sample::select(&Architecture::ALL[..]));
    let tags = proptest::collection::btree_set("[A-Za-z0-9_][A-Za-z0-9._+@:-]{0,9}", 0..4);
    (cores, memory, architecture, tags).prop_map(|(cores, memory_bytes, architecture, tags)| Needs {
        cores,
        memory_bytes,
        architecture,
        tags: tags.iter().map(|word| tag(word)).collect(),
    })
}

fn commands() -> impl Strategy<Value = Vec<String>> {
    let word = "[^\u{0}]{0,12}".prop_filter("not the end of a command", |word| word != ":");
    let some = ("[^\u{0}:-][^\u{0}]{0,12}", proptest::collection::vec(word, 0..4));
    let some = some.prop_map(|(program, words)| std::iter::once(program).chain(words).collect());
    prop_oneof![Just(Vec::new()), some]
}

fn groups() -> impl Strategy<Value = Vec<Group>> {
    let ranks = (1..5000_u32, 0..5000_u32).prop_map(|(least, more)| Ranks { least, most: least + more });
    let group = (ranks, commands(), any::<bool>(), needs(), links());
    proptest::collection::vec(group, 1..6).prop_map(|groups| {
        let named = |(place, (ranks, command, may_split, needs, inside))| {
            let name = label(&format!("group-{place}"));
            Group { name, ranks, command, may_split, needs, inside }
        };
        groups.into_iter().enumerate().map(named).collect()
    })
}

fn profiles() -> impl Strategy<Value = Profile> {
    let pair = ((0..6_usize, 0..6_usize), links());
    let pairs = proptest::collection::vec(pair, 0..6);
    let time = proptest::option::of((1..=31_536_000_u64).prop_map(Duration::from_secs));
    (groups(), pairs, time, any::<bool>()).prop_map(|(groups, pairs, time, reorder)| {
        let mut seen = BTreeSet::new();
        let mut between = Vec::new();
        for ((one, other), link) in pairs {
            let names = [one, other].map(|place| groups.get(place).map(|group| group.name.clone()));
            let is_new =
                one != other && link != Link::default() && seen.insert([one.min(other), one.max(other)]);
            if let ([Some(one), Some(other)], true) = (names, is_new) {
                between.push(Between { groups: [one, other], link });
            }
        }
        Profile { groups, between, time, reorder }
    })
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list(words: impl Iterator<Item = String>) -> String {
    format!("[{}]", words.map(|word| quoted(&word)).collect::<Vec<_>>().join(", "))
}

/// The profile as a file.
fn written(profile: &Profile) -> String {
    let mut text = format!("reorder = {}\n", profile.reorder);
    let mut line = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            writeln!(text, "{key} = {value}").unwrap();
        }
    };
    let link = |line: &mut dyn FnMut(&str, Option<String>), link: &Link| {
        line("rtt", link.rtt.map(|rtt| quoted(&Delay(rtt.as_nanos().try_into().unwrap()).to_string())));
        line("rate", link.bytes_per_second.map(|bytes| quoted(&BitRate(8 * bytes).to_string())));
    };
    line("time", profile.time.map(|time| quoted(&humantime::format_duration(time).to_string())));
    for group in &profile.groups {
        line("[[group]]\nname", Some(quoted(group.name.as_str())));
        line("ranks", Some(quoted(&group.ranks.to_string())));
        line("command", (!group.command.is_empty()).then(|| list(group.command.iter().cloned())));
        line("split", Some(group.may_split.to_string()));
        line("cores", group.needs.cores.map(|cores| cores.to_string()));
        line("memory", group.needs.memory_bytes.map(|bytes| quoted(&ByteSize(bytes).to_string())));
        line("architecture", group.needs.architecture.map(|known| quoted(known.name())));
        line("tags", Some(list(group.needs.tags.iter().map(ToString::to_string))));
        link(&mut line, &group.inside);
    }
    for pair in &profile.between {
        line("[[between]]\ngroups", Some(list(pair.groups.iter().map(ToString::to_string))));
        link(&mut line, &pair.link);
    }
    text
}

proptest! {
    #[test]
    fn what_is_written_is_read(profile in profiles()) {
        let text = written(&profile);
        let read = Profile::parse(&text, "job.toml").map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(read, profile);
    }

    #[test]
    fn every_profile_is_explained(profile in profiles()) {
        let explanation = explain(&profile);
        let text = explanation.to_string();
        for group in &profile.groups {
            let name = format!("\n{}: ", group.name);
            prop_assert!(text.contains(&name), "{}", text);
        }
        prop_assert!(serde_json::to_string(&explanation).is_ok());
    }

    #[test]
    fn each_group_is_a_context(profile in profiles()) {
        let program = ["./app".to_owned()];
        let got = Got::Ranks(profile.groups.iter().map(|group| group.ranks.least).collect());
        for launcher in [Launcher::OpenMpi, Launcher::Mpich] {
            let line = words(launcher, &profile, &got, &program).unwrap();
            let contexts: Vec<_> = line.split(|word| word == ":").collect();
            prop_assert_eq!(contexts.len(), profile.groups.len());
            for (context, group) in contexts.iter().zip(&profile.groups) {
                prop_assert_eq!(&context[..2], ["-np".to_owned(), group.ranks.least.to_string()]);
                let command = if group.command.is_empty() { &program[..] } else { &group.command };
                prop_assert_eq!(&context[2..], command);
            }
        }
    }

    #[test]
    fn no_text_is_fatal(text in "\\PC{0,200}") {
        let _ = Profile::parse(&text, "job.toml");
    }

    #[test]
    fn a_changed_file_is_read_or_refused_with_its_place(at in 0..FULL.len(), with in "\\PC{0,3}") {
        // FULL is ASCII.
        let text = format!("{}{with}{}", &FULL[..at], &FULL[at + 1..]);
        match Profile::parse(&text, "job.toml") {
            Ok(profile) => prop_assert!(explain(&profile).to_string().contains("ranks")),
            Err(error) => {
                prop_assert!(error.line >= 1 && error.line <= text.split('\n').count(), "{}", error);
                prop_assert!(error.column >= 1, "{}", error);
            }
        }
    }
}
