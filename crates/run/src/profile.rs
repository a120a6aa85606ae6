//! A job's profile, as far as `isthmus run` keeps it: groups of ranks, and whether topologies may be
//! reordered. What asks for more is refused, not left out.

use std::path::Path;

use anyhow::{Context as _, bail};
use isthmus_common::text_file;
use isthmus_profile::limits::FILE_MAX;
use isthmus_profile::{Group, Link, Profile};
use isthmus_wire::proto;
use isthmus_wire::text::first;

/// Most keys that a message names.
const NAMED: usize = 8;

/// Reads a profile.
///
/// # Errors
/// If the file can't be read, isn't a profile, or asks for what `isthmus run` can't give.
pub(super) fn read(file: &Path) -> anyhow::Result<Profile> {
    let name = file.display();
    let text =
        text_file::read(file, FILE_MAX).with_context(|| format!("cannot read the job's profile {name}"))?;
    let profile = Profile::parse(&text, &name.to_string())?;
    let asked = not_kept(&profile);
    if !asked.is_empty() {
        let asked = first(asked.iter(), 0, NAMED);
        bail!(
            "{name}: `isthmus run` can't obtain or choose nodes by a profile yet, nor start a program for each group; leave out {asked}"
        );
    }
    Ok(profile)
}

/// The groups with their ranks, as the job's topology has them.
pub(super) fn groups(profile: &Profile) -> Vec<proto::Group> {
    let group = |group: &Group| proto::Group { name: group.name.to_string(), ranks: group.ranks.most };
    profile.groups.iter().map(group).collect()
}

/// What a profile asks for that `isthmus run` doesn't keep. `split` isn't among it: ranks are where
/// the launcher places them.
fn not_kept(profile: &Profile) -> Vec<String> {
    let mut asked = Vec::new();
    for group in &profile.groups {
        let (needs, Link { rtt, bytes_per_second }) = (&group.needs, group.inside);
        for (is_asked, key) in [
            (group.ranks.least < group.ranks.most, "a range of `ranks`"),
            (!group.command.is_empty(), "`command`"),
            (needs.cores.is_some_and(|cores| cores > 1), "`cores`"),
            (needs.memory_bytes.is_some(), "`memory`"),
            (needs.architecture.is_some(), "`architecture`"),
            (!needs.tags.is_empty(), "`tags`"),
            (rtt.is_some(), "`rtt`"),
            (bytes_per_second.is_some(), "`rate`"),
        ] {
            if is_asked {
                asked.push(format!("{key} of group {}", group.name));
            }
        }
    }
    let between = profile
        .between
        .iter()
        .map(|pair| format!("[[between]] of {} and {}", pair.groups[0], pair.groups[1]));
    asked.extend(between);
    asked.extend(profile.time.map(|_| "`time`".to_owned()));
    asked
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn read_text(text: &str) -> anyhow::Result<Profile> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        read(file.path())
    }

    #[test]
    fn groups_and_reorder_are_kept() {
        let good = "[[group]]\nname = 'masters'\nranks = 2\n[[group]]\nname = 'workers'\nranks = '30'\n\
                    split = true\ncores = 1\n";
        let profile = read_text(good).unwrap();
        let groups = groups(&profile);
        let names: Vec<_> = groups.iter().map(|group| (group.name.as_str(), group.ranks)).collect();
        assert_eq!(names, [("masters", 2), ("workers", 30)]);
        assert!(!profile.reorder && read_text(&format!("reorder = true\n{good}")).unwrap().reorder);
        assert_eq!(read_text("reorder = true").unwrap(), Profile { reorder: true, ..Profile::default() });
    }

    #[test]
    fn what_is_not_kept_is_refused() {
        let group = "[[group]]\nname = 'a'\nranks = 2\n";
        for (text, want) in [
            ("[[group]]\nname = 'a'\nranks = '2-4'\n".to_owned(), "a range of `ranks` of group a"),
            (format!("{group}command = ['./a']"), "`command` of group a"),
            (format!("{group}cores = 2"), "`cores` of group a"),
            (
                format!("{group}memory = '2 GiB'\ntags = ['gpu']"),
                "leave out `memory` of group a, `tags` of group a",
            ),
            (format!("{group}architecture = 'x86_64'"), "`architecture` of group a"),
            (format!("{group}rtt = '1 ms'\nrate = '1 Gbit/s'"), "`rtt` of group a, `rate` of group a"),
            (
                format!(
                    "{group}[[group]]\nname = 'b'\nranks = 1\n[[between]]\ngroups = ['a', 'b']\nrtt = '1 ms'"
                ),
                "[[between]] of a and b",
            ),
            (format!("time = '2h'\n{group}"), "leave out `time`"),
        ] {
            let error = format!("{:#}", read_text(&text).unwrap_err());
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_profile_is_told_with_its_place() {
        let error = format!("{:#}", read_text("[[group]]\nname = 'a'\nranks = 0").unwrap_err());
        assert!(error.contains(":3:9: a group has at least 1 rank"), "{error}");
        let error = format!("{:#}", read(Path::new("/nonexistent")).unwrap_err());
        assert!(error.contains("cannot read the job's profile /nonexistent: No such file"), "{error}");
    }
}
