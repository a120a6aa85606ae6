//! What a profile asks for, in words: also what it leaves blank.

use std::fmt;
use std::time::Duration;

use isthmus_common::quantity::{BitRate, ByteSize, Delay};
use serde::Serialize;

use crate::{Architecture, Between, Group, Link, Profile, Ranks};

/// What a profile asks for. As text, or serialised. What is `None` there is left blank in the
/// profile: it asks for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The groups, in the order of ranks.
    pub groups: Vec<GroupExplained>,
    /// What pairs of groups ask for. Other pairs ask for nothing.
    pub between: Vec<BetweenExplained>,
    /// With fewer ranks the job doesn't start.
    pub least_ranks: u64,
    /// More ranks aren't asked for.
    pub most_ranks: u64,
    /// For how long the job needs its nodes.
    pub time_seconds: Option<u64>,
    /// Whether topologies of the program may have their ranks in another order.
    pub reorder: bool,
}

/// What a group asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupExplained {
    /// The group's name.
    pub name: String,
    /// With fewer ranks the job doesn't start.
    pub least_ranks: u32,
    /// More ranks aren't asked for.
    pub most_ranks: u32,
    /// The program and its arguments. `None` if the command line names them.
    pub command: Option<Vec<String>>,
    /// Whether several sites may share the group's ranks.
    pub may_split: bool,
    /// Cores for each rank.
    pub cores: u32,
    /// Bytes of memory for each rank.
    pub memory_bytes: Option<u64>,
    /// The processors' architecture.
    pub architecture: Option<Architecture>,
    /// What the nodes' owners must have called their nodes.
    pub tags: Vec<String>,
    /// What any two ranks of the group need of the network between them.
    #[serde(flatten)]
    pub inside: LinkExplained,
}

/// What the ranks of two groups need of the network between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BetweenExplained {
    /// The two groups.
    pub groups: [String; 2],
    /// What is needed.
    #[serde(flatten)]
    pub link: LinkExplained,
}

/// What is asked of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LinkExplained {
    /// The longest round trip, in microseconds.
    pub round_trip_us: Option<u64>,
    /// The least rate of one connection.
    pub bytes_per_second: Option<u64>,
}

/// Says what a profile asks for.
pub fn explain(profile: &Profile) -> Explanation {
    let sum = |number: fn(&Ranks) -> u32| {
        profile.groups.iter().map(|group| u64::from(number(&group.ranks))).sum::<u64>()
    };
    Explanation {
        groups: profile.groups.iter().map(group).collect(),
        between: profile.between.iter().map(between).collect(),
        least_ranks: sum(|ranks| ranks.least),
        most_ranks: sum(|ranks| ranks.most),
        time_seconds: profile.time.map(|time| time.as_secs()),
        reorder: profile.reorder,
    }
}

fn group(group: &Group) -> GroupExplained {
    GroupExplained {
        name: group.name.to_string(),
        least_ranks: group.ranks.least,
        most_ranks: group.ranks.most,
        command: Some(group.command.clone()).filter(|words| !words.is_empty()),
        may_split: group.may_split,
        cores: group.needs.cores.unwrap_or(1),
        memory_bytes: group.needs.memory_bytes,
        architecture: group.needs.architecture,
        tags: group.needs.tags.iter().map(ToString::to_string).collect(),
        inside: link(&group.inside),
    }
}

fn between(pair: &Between) -> BetweenExplained {
    BetweenExplained { groups: pair.groups.each_ref().map(ToString::to_string), link: link(&pair.link) }
}

fn link(link: &Link) -> LinkExplained {
    let micros = |rtt: Duration| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
    LinkExplained { round_trip_us: link.rtt.map(micros), bytes_per_second: link.bytes_per_second }
}

impl Explanation {
    /// How many ranks and groups there are, in a line.
    pub fn summary(&self) -> String {
        let ranks = ranks(self.least_ranks, self.most_ranks);
        match self.groups.len() {
            0 => "no groups: any number of ranks, anywhere".to_owned(),
            1 => format!("{ranks} in 1 group"),
            groups => format!("{ranks} in {groups} groups"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.len();
        writeln!(f, "{}", self.summary())?;
        match self.time_seconds.map(Duration::from_secs) {
            Some(time) => writeln!(f, "time: {}", humantime::format_duration(time))?,
            None => writeln!(f, "time: what the schedulers give by default")?,
        }
        let order = if self.reorder { "may be changed in topologies" } else { "stays as the MPI has it" };
        writeln!(f, "order of ranks: {order}")?;
        for group in &self.groups {
            write!(f, "\n{group}")?;
        }
        if groups > 1 {
            writeln!(f)?;
        }
        for BetweenExplained { groups: [one, other], link } in &self.between {
            writeln!(f, "{link} between {one} and {other}")?;
        }
        match (groups * groups.saturating_sub(1) / 2, self.between.len()) {
            (0, _) => Ok(()),
            (_, 0) => writeln!(f, "{} between groups", LinkExplained::ANY),
            (pairs, asked) if pairs > asked => writeln!(f, "{} between other groups", LinkExplained::ANY),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for GroupExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.may_split { "at one site or several" } else { "at one site" };
        let ranks = ranks(self.least_ranks.into(), self.most_ranks.into());
        writeln!(f, "{}: {ranks}, {place}", self.name)?;
        match &self.command {
            Some(words) => {
                let words = words.iter().map(|word| readable(word)).collect::<Vec<_>>();
                writeln!(f, "  program: {}", words.join(" "))?;
            }
            None => writeln!(f, "  program: as the command line says")?,
        }
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let memory = match self.memory_bytes {
            Some(bytes) => format!("{} of memory", ByteSize(bytes)),
            None => "any memory".to_owned(),
        };
        let architecture =
            self.architecture.map_or("any architecture".to_owned(), |architecture| architecture.to_string());
        let tags = match self.tags.as_slice() {
            [] => "any tags".to_owned(),
            [tag] => format!("the tag {tag}"),
            tags => format!("the tags {}", tags.join(", ")),
        };
        writeln!(f, "  each rank: {cores}, {memory}, {architecture}, {tags}")?;
        writeln!(f, "  {} between its ranks", self.inside)
    }
}

impl LinkExplained {
    const ANY: Self = Self { round_trip_us: None, bytes_per_second: None };
}

impl fmt::Display for LinkExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.round_trip_us {
            Some(micros) => write!(f, "a round trip of {} or less, ", Delay(micros.saturating_mul(1000)))?,
            None => f.write_str("any round trip, ")?,
        }
        match self.bytes_per_second {
            Some(bytes) => write!(f, "{} or more", BitRate(bytes.saturating_mul(8))),
            None => f.write_str("any rate"),
        }
    }
}

fn ranks(least: u64, most: u64) -> String {
    match (least, most) {
        (1, 1) => "1 rank".to_owned(),
        _ if least == most => format!("{least} ranks"),
        _ => format!("{least} to {most} ranks"),
    }
}

/// A word of a command, quoted if it isn't plain.
fn readable(word: &str) -> String {
    let is_plain = |character: char| !character.is_whitespace() && !matches!(character, '"' | '\'' | '\\');
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("{word:?}") }
}
