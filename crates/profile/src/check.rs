//! From the tables of a file to a [`Profile`]: what doesn't fit together is found here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isthmus_common::fault::{Fault, fault};
use isthmus_common::quantity::{BitRate, Delay};
use isthmus_wire::Label;
use isthmus_wire::text::first;
use toml::Spanned;

use crate::command::command;
use crate::limits::{BETWEEN_MAX, CORES_MAX, GROUPS_MAX, RANKS_MAX, RTT_MIN, TAGS_MAX, TIME_MAX};
use crate::written::{BetweenTable, GroupTable, ProfileTable, Time};
use crate::{Between, Group, Link, Needs, Profile, ProfileError, Tag};

/// Most groups that a message names.
const NAMED: usize = 8;

impl Profile {
    /// Reads a profile of a file's text. Messages call the file `origin`. The file has at most
    /// [`FILE_MAX`](crate::limits::FILE_MAX) bytes: whoever reads it sees to that.
    ///
    /// # Errors
    /// What is wrong, where, and what would be right.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        toml::from_str(text)
            .map_err(|error| Fault::of_syntax(&error))
            .and_then(check)
            .map_err(|fault| ProfileError::of(fault, origin, text))
    }
}

fn check(file: ProfileTable) -> Result<Profile, Fault> {
    let ProfileTable { groups, between, time, reorder } = file;
    if groups.is_empty() && (reorder.is_none() || time.is_some()) {
        let message = "no [[group]] and no `reorder`: add a [[group]] with `name` and `ranks`";
        return Err(Fault { at: 0..0, message: message.to_owned() });
    }
    if let Some(group) = groups.get(GROUPS_MAX) {
        return fault(&group.name, format!("{} groups are too many, at most {GROUPS_MAX}", groups.len()));
    }
    if let Some(pair) = between.get(BETWEEN_MAX) {
        let message = format!("{} [[between]] are too many, at most {BETWEEN_MAX}", between.len());
        return fault(&pair.groups, message);
    }
    let (mut named, mut checked, mut ranks) = (BTreeMap::new(), Vec::new(), 0_u64);
    for table in groups {
        ranks += u64::from(table.ranks.get_ref().most);
        if ranks > u64::from(RANKS_MAX) {
            let message = format!("with this group there are {ranks} ranks, at most {RANKS_MAX} can be");
            return fault(&table.ranks, message);
        }
        let name = label(&table.name)?;
        if named.insert(name.clone(), checked.len()).is_some() {
            let message = format!("there are two groups {:?}: give this one another name", name.as_str());
            return fault(&table.name, message);
        }
        checked.push(group(name, table)?);
    }
    let mut pairs = BTreeSet::new();
    let pair = |table| pair(table, &named, &mut pairs);
    let between = between.into_iter().map(pair).collect::<Result<_, _>>()?;
    let (time, reorder) = (time.map(duration).transpose()?, reorder.unwrap_or_default());
    Ok(Profile { groups: checked, between, time, reorder })
}

fn label(name: &Spanned<String>) -> Result<Label, Fault> {
    name.get_ref().parse().or_else(|error| fault(name, format!("{error}")))
}

fn tag(word: &Spanned<String>) -> Result<Tag, Fault> {
    word.get_ref().parse().or_else(|error| fault(word, format!("{error}")))
}

fn group(name: Label, table: GroupTable) -> Result<Group, Fault> {
    if let Some(cores) = table.cores.as_ref().filter(|cores| !(1..=CORES_MAX).contains(cores.get_ref())) {
        return fault(cores, format!("a rank needs 1 to {CORES_MAX} cores"));
    }
    if let Some(memory) = table.memory.as_ref().filter(|memory| memory.get_ref().0 == 0) {
        return fault(memory, "a rank needs some memory: leave `memory` out if any is enough");
    }
    if let Some(tag) = table.tags.get(TAGS_MAX) {
        return fault(tag, format!("{} tags are too many, at most {TAGS_MAX}", table.tags.len()));
    }
    let tags = table.tags.iter().map(tag).collect::<Result<BTreeSet<_>, _>>()?;
    Ok(Group {
        name,
        ranks: table.ranks.into_inner(),
        command: table.command.map(command).transpose()?.unwrap_or_default(),
        may_split: table.split,
        needs: Needs {
            cores: table.cores.map(Spanned::into_inner),
            memory_bytes: table.memory.map(|memory| memory.into_inner().0),
            architecture: table.architecture,
            tags: tags.into_iter().collect(),
        },
        inside: link(table.rtt, table.rate)?,
    })
}

fn link(rtt: Option<Spanned<Delay>>, rate: Option<Spanned<BitRate>>) -> Result<Link, Fault> {
    if let Some(rtt) = rtt.as_ref().filter(|rtt| rtt.get_ref().duration() < RTT_MIN) {
        return fault(rtt, "no network has so short a round trip: give at least 1 us, or leave `rtt` out");
    }
    if let Some(rate) = rate.as_ref().filter(|rate| rate.get_ref().0 == 0) {
        return fault(rate, "this asks for nothing: leave `rate` out if any is enough");
    }
    Ok(Link {
        rtt: rtt.map(|rtt| rtt.into_inner().duration()),
        bytes_per_second: rate.map(|rate| rate.into_inner().bits_per_second().div_ceil(8)),
    })
}

/// Checks what a pair asks for. `pairs` has the places of the groups of those before it.
fn pair(
    table: BetweenTable,
    named: &BTreeMap<Label, usize>,
    pairs: &mut BTreeSet<[usize; 2]>,
) -> Result<Between, Fault> {
    let [one, other] = table.groups.get_ref().as_slice() else {
        return fault(&table.groups, "name two groups, such as [\"masters\", \"workers\"]");
    };
    let found = |name: &Spanned<String>| {
        let label = label(name)?;
        match named.get(&label) {
            Some(place) => Ok((*place, label)),
            None => {
                let known = first(named.keys(), 0, NAMED);
                let known = if known.is_empty() { "none".to_owned() } else { known };
                fault(name, format!("{:?} is no group of this profile, which has {known}", name.get_ref()))
            }
        }
    };
    let [(a, one), (b, other)] = [found(one)?, found(other)?];
    if a == b {
        let message = "a group and itself: write `rtt` and `rate` for its ranks into its [[group]]";
        return fault(&table.groups, message);
    }
    if !pairs.insert([a.min(b), a.max(b)]) {
        let message = format!("there is a [[between]] for {one} and {other} already: write all into one");
        return fault(&table.groups, message);
    }
    let link = link(table.rtt, table.rate)?;
    if link == Link::default() {
        return fault(&table.groups, "this asks for nothing: add `rtt` or `rate`, or leave it out");
    }
    Ok(Between { groups: [one, other], link })
}

fn duration(time: Spanned<Time>) -> Result<Duration, Fault> {
    let Time(asked) = *time.get_ref();
    match asked {
        Duration::ZERO => fault(&time, "a job needs some time: leave `time` out for the scheduler's default"),
        _ if asked > TIME_MAX => fault(&time, "a job has a year at most"),
        _ => Ok(asked),
    }
}
