//! A job's profile: the groups of ranks that the user asks for (paper 2, section 3.1), and whether
//! its topologies may be reordered.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use isthmus_wire::Label;
use isthmus_wire::proto::Group;
use isthmus_wire::topology::GROUPS_MAX;
use serde::Deserialize;

/// Longest profile in bytes.
const PROFILE_MAX: u64 = 1 << 20;

/// What a user asks for by a profile.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Profile {
    /// The groups of ranks, in the order of ranks.
    pub(super) groups: Vec<Group>,
    /// Whether topologies of the program may have their ranks in another order.
    pub(super) reorder: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, rename = "group")]
    groups: Vec<Asked>,
    reorder: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    name: String,
    ranks: u32,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// If the file can't be read, or isn't a profile.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot read the job's profile {}", file.display());
        let length = std::fs::metadata(file).with_context(failed)?.len();
        ensure!(length <= PROFILE_MAX, "{}: it has {length} bytes, more than a profile", failed());
        let text = std::fs::read_to_string(file).with_context(failed)?;
        parse(&text).with_context(failed)
    }
}

fn parse(text: &str) -> anyhow::Result<Profile> {
    let Written { groups, reorder } =
        toml::from_str(text).map_err(|error| anyhow::anyhow!("{}", error.to_string().trim_end()))?;
    ensure!(!groups.is_empty() || reorder.is_some(), "it has no [[group]] and no `reorder`");
    ensure!(groups.len() <= GROUPS_MAX, "{} groups are too many, at most {GROUPS_MAX}", groups.len());
    let mut named = Vec::new();
    for Asked { name, ranks } in groups {
        name.parse::<Label>().with_context(|| format!("group {name:?}"))?;
        ensure!(ranks > 0, "group {name:?} has no ranks");
        if named.iter().any(|group: &Group| group.name == name) {
            bail!("there are two groups {name:?}");
        }
        named.push(Group { name, ranks });
    }
    Ok(Profile { groups: named, reorder: reorder.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_checked() {
        let good = "[[group]]\nname = 'masters'\nranks = 2\n[[group]]\nname = 'workers'\nranks = 30\n";
        let profile = parse(good).unwrap();
        let names: Vec<_> = profile.groups.iter().map(|group| (group.name.as_str(), group.ranks)).collect();
        assert_eq!(names, [("masters", 2), ("workers", 30)]);
        assert!(!profile.reorder && parse(&format!("reorder = true\n{good}")).unwrap().reorder);
        assert_eq!(parse("reorder = true").unwrap(), Profile { groups: Vec::new(), reorder: true });
        assert_eq!(parse("reorder = false").unwrap(), Profile::default());
        for (text, want) in [
            ("", "no [[group]]"),
            ("[[group]]\nname = 'a b'\nranks = 1", "\"a b\""),
            ("[[group]]\nname = 'a'\nranks = 0", "no ranks"),
            ("[[group]]\nname = 'a'\nranks = -1", "ranks"),
            ("[[group]]\nname = 'a'\nranks = 1\n[[group]]\nname = 'a'\nranks = 1", "two groups"),
            ("[[group]]\nname = 'a'\nranks = 1\nsite = 'b'", "site"),
            ("groups = 3", "groups"),
            ("reorder = 'yes'", "reorder"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
