//! A job's profile, as `isthmus run` reads it: whether isthmus places the ranks of its groups, or the
//! launcher. Where the launcher does, what only isthmus can see to is refused, not left out.

use std::path::Path;

use anyhow::{Context as _, bail};
use isthmus_common::text_file;
use isthmus_profile::limits::FILE_MAX;
use isthmus_profile::{Link, Profile};
use isthmus_wire::text::first;

use crate::mpi::Launcher;
use crate::placing::{ByUser, Line};

/// Most keys that a message names.
const NAMED: usize = 8;

/// A profile, and who places the ranks of its groups.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// What the job asks for; nothing if there is no profile.
    pub profile: Profile,
    /// The launcher's command line, if isthmus places the ranks.
    pub line: Option<Line>,
}

impl Asked {
    /// Reads a profile for a command. Without a profile nothing is asked for.
    ///
    /// # Errors
    /// If the file can't be read, isn't a profile, or asks for what this command can't be given.
    pub(super) fn read(
        file: Option<&Path>,
        (command, launcher): (&[String], Option<Launcher>),
    ) -> anyhow::Result<Self> {
        let Some(file) = file else { return Ok(Self::default()) };
        let name = file.display();
        let profile = read(file)?;
        if profile.groups.is_empty() {
            return Ok(Self { profile, line: None });
        }
        let line = match launcher {
            Some(launcher) => Line::read(launcher, command),
            None => Err(ByUser::NoLauncher),
        };
        let by_user = match line {
            Ok(line) => {
                let bare = profile.groups.iter().find(|group| group.command.is_empty());
                match (bare, line.program()) {
                    (None, Some(program)) => {
                        bail!(
                            "{name} has a `command` for each group, and none would run {program}: leave it out"
                        )
                    }
                    (Some(group), None) => bail!(
                        "{name} has no `command` for group {}, and the command line names no program",
                        group.name
                    ),
                    _ => {}
                }
                return Ok(Self { profile, line: Some(line) });
            }
            Err(by_user) => by_user,
        };
        let asked = not_kept(&profile);
        if matches!(by_user, ByUser::Unclear(_)) {
            bail!("{name} says how many ranks there are: {}", reason(&by_user));
        }
        if !asked.is_empty() {
            let asked = first(asked.iter(), 0, NAMED);
            bail!("{name} has {asked}, and isthmus doesn't place the ranks: {}", reason(&by_user));
        }
        Ok(Self { profile, line: None })
    }
}

/// Reads a profile.
///
/// # Errors
/// If the file can't be read, or isn't a profile.
pub(super) fn read(file: &Path) -> anyhow::Result<Profile> {
    let name = file.display().to_string();
    let text =
        text_file::read(file, FILE_MAX).with_context(|| format!("cannot read the job's profile {name}"))?;
    Ok(Profile::parse(&text, &name)?)
}

/// Why isthmus doesn't place the ranks, and what to do.
fn reason(by_user: &ByUser) -> String {
    match by_user {
        ByUser::NoLauncher => "the command is no launcher of an MPI, such as mpirun".to_owned(),
        ByUser::Said(what) => {
            format!(
                "the command line says how many there are, or where; leave {what} out, or those of the profile"
            )
        }
        ByUser::Unclear(option) => format!(
            "{option} isn't known here, nor whether a value follows, and so not where the program begins; write it \
             as {option}=VALUE, or in the environment"
        ),
    }
}

/// What a profile asks for that only isthmus sees to. `split` isn't among it: it is the default.
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

    fn read_for(text: &str, command: &str, launcher: Option<Launcher>) -> anyhow::Result<Asked> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let command: Vec<String> = command.split_whitespace().map(ToOwned::to_owned).collect();
        Asked::read(Some(file.path()), (&command, launcher))
    }

    fn read(text: &str) -> anyhow::Result<Asked> {
        read_for(text, "./script", None)
    }

    #[test]
    fn a_profile_without_needs_is_for_any_command() {
        let good = "[[group]]\nname = 'masters'\nranks = 2\n[[group]]\nname = 'workers'\nranks = '30'\n\
                    split = true\ncores = 1\n";
        let asked = read(good).unwrap();
        assert_eq!((asked.profile.groups.len(), asked.profile.reorder, asked.line), (2, false, None));
        assert!(read(&format!("reorder = true\n{good}")).unwrap().profile.reorder);
        let alone = read("reorder = true").unwrap().profile;
        assert_eq!(alone, Profile { reorder: true, ..Profile::default() });
        assert_eq!(Asked::read(None, (&[], None)).unwrap().profile, Profile::default());
    }

    #[test]
    fn what_is_not_kept_is_refused() {
        let group = "[[group]]\nname = 'a'\nranks = 2\n";
        for (text, want) in [
            ("[[group]]\nname = 'a'\nranks = '2-4'\n".to_owned(), "a range of `ranks` of group a"),
            (format!("{group}command = ['./a']"), "`command` of group a"),
            (format!("{group}cores = 2"), "`cores` of group a"),
            (format!("{group}memory = '2 GiB'\ntags = ['gpu']"), "`memory` of group a, `tags` of group a"),
            (format!("{group}architecture = 'x86_64'"), "`architecture` of group a"),
            (format!("{group}rtt = '1 ms'\nrate = '1 Gbit/s'"), "`rtt` of group a, `rate` of group a"),
            (
                format!(
                    "{group}[[group]]\nname = 'b'\nranks = 1\n[[between]]\ngroups = ['a', 'b']\nrtt = '1 ms'"
                ),
                "[[between]] of a and b",
            ),
            (format!("time = '2h'\n{group}"), "has `time`, and isthmus"),
        ] {
            let error = format!("{:#}", read(&text).unwrap_err());
            assert!(error.contains(want) && error.contains("no launcher"), "{text}: {error}");
        }
    }

    #[test]
    fn isthmus_places_ranks_that_nobody_else_does() {
        let group = "[[group]]\nname = 'a'\nranks = '2-4'\n";
        let by = |text: &str, command| read_for(text, command, Some(Launcher::OpenMpi4));
        assert!(by(group, "mpirun ./app").unwrap().line.is_some());
        let error = by(group, "mpirun -n 4 ./app").unwrap_err().to_string();
        assert!(
            error.contains("a range of `ranks` of group a, and isthmus") && error.contains("leave -n 4 out"),
            "{error}"
        );
        let plain = "[[group]]\nname = 'a'\nranks = 2\n";
        assert!(by(plain, "mpirun -n 4 ./app").unwrap().line.is_none());
        let named = format!("{group}command = ['./a']");
        assert!(by(&named, "mpirun").unwrap().line.is_some());
        for (text, command, want) in [
            (named.as_str(), "mpirun ./app", "none would run ./app"),
            (group, "mpirun", "no `command` for group a"),
            (plain, "mpirun --new 3 ./app", "write it as --new=VALUE"),
        ] {
            let error = by(text, command).unwrap_err().to_string();
            assert!(error.contains(want), "{command}: {error}");
        }
    }

    #[test]
    fn what_to_do_is_said() {
        for (by_user, want) in [
            (ByUser::Said("-n 4".to_owned()), "leave -n 4 out"),
            (ByUser::Unclear("--new".to_owned()), "write it as --new=VALUE"),
        ] {
            assert!(reason(&by_user).contains(want), "{by_user:?}: {}", reason(&by_user));
        }
    }

    #[test]
    fn what_is_no_profile_is_told_with_its_place() {
        let error = format!("{:#}", read("[[group]]\nname = 'a'\nranks = 0").unwrap_err());
        assert!(error.contains(":3:9: a group has at least 1 rank"), "{error}");
        let error = format!("{:#}", Asked::read(Some(Path::new("/nonexistent")), (&[], None)).unwrap_err());
        assert!(error.contains("cannot read the job's profile /nonexistent: No such file"), "{error}");
    }
}
