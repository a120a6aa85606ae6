//! A launcher's command line whose ranks isthmus places by a profile: pure.

use isthmus_profile::Profile;
use isthmus_profile::launch::{self, Got, LaunchError};

use crate::mpi::Launcher;
use crate::programs;

/// Options that say how many ranks there are.
const COUNTS: &[&str] = &["n", "np", "c", "N", "npernode", "npersocket", "pernode", "ppn", "perhost"];
/// Options that hold for the ranks of one context, and so must stand in each.
const OF_CONTEXT: &[&str] =
    &["x", "wd", "wdir", "dir", "path", "prefix", "env", "envlist", "envall", "envnone"];

/// A launcher's command line without the ranks and their nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    launcher: launch::Launcher,
    /// The launcher, as on the command line.
    word: String,
    /// Options of the job.
    of_job: Vec<String>,
    /// Options that each context gets.
    of_context: Vec<String>,
    /// The program and its arguments; empty if the profile names all programs.
    program: Vec<String>,
}

/// Why isthmus places no ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ByUser {
    /// The command is no launcher.
    NoLauncher,
    /// This on the launcher's command line says how many ranks there are, or where.
    Said(String),
    /// Where the program begins isn't known: whether this option has a value.
    Unclear(String),
}

impl Line {
    /// Reads a launcher's command line: its word, and what follows.
    ///
    /// # Errors
    /// If the user has placed the ranks, or the line can't be read.
    pub(crate) fn read(launcher: Launcher, command: &[String]) -> Result<Self, ByUser> {
        let Some((word, arguments)) = command.split_first() else { return Err(ByUser::NoLauncher) };
        let (given, program) = programs::split(arguments);
        if let Some(option) = given.iter().find(|option| COUNTS.contains(&option.name) || option.places()) {
            return Err(ByUser::Said(option.to_string()));
        }
        if program.iter().any(|word| word == ":") {
            return Err(ByUser::Said(":".to_owned()));
        }
        if let Some(last) = given.last().filter(|last| !program.is_empty() && !last.is_known()) {
            return Err(ByUser::Unclear(last.to_string()));
        }
        let (of_context, of_job): (Vec<_>, Vec<_>) =
            given.iter().partition(|option| OF_CONTEXT.contains(&option.name));
        let words = |options: Vec<&programs::Given<'_>>| -> Vec<String> {
            options.into_iter().flat_map(|option| option.words().iter().cloned()).collect()
        };
        Ok(Self {
            launcher: match launcher {
                Launcher::OpenMpi4 | Launcher::OpenMpi5 => launch::Launcher::OpenMpi,
                Launcher::Mpich => launch::Launcher::Mpich,
            },
            word: word.clone(),
            of_job: words(of_job),
            of_context: words(of_context),
            program: program.to_vec(),
        })
    }

    /// The program's name; `None` if the profile names all programs.
    pub(crate) fn program(&self) -> Option<&str> {
        self.program.first().map(String::as_str)
    }

    /// The whole command, with the ranks of each group on the nodes that it got.
    ///
    /// # Errors
    /// As [`launch::words`].
    pub(super) fn command(&self, profile: &Profile, got: &Got) -> Result<Vec<String>, LaunchError> {
        let in_context = |program: &[String]| match program {
            [] => Vec::new(),
            program => [self.of_context.as_slice(), program].concat(),
        };
        let mut profile = profile.clone();
        for group in &mut profile.groups {
            group.command = in_context(&group.command);
        }
        let words = launch::words(self.launcher, &profile, got, &in_context(&self.program))?;
        Ok([std::slice::from_ref(&self.word), self.of_job.as_slice(), words.as_slice()].concat())
    }
}

#[cfg(test)]
mod tests {
    use isthmus_profile::launch::Share;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(ToOwned::to_owned).collect()
    }

    fn share(node: &str, ranks: u32) -> Share {
        Share { node: node.parse().unwrap(), ranks: ranks.try_into().unwrap() }
    }

    #[test]
    fn options_stay_where_they_count() {
        let text = "[[group]]\nname = 'masters'\nranks = 1\ncommand = ['./master']\n\
                    [[group]]\nname = 'workers'\nranks = 4\n";
        let profile = Profile::parse(text, "job.toml").unwrap();
        let got = Got::Nodes(vec![vec![share("n1.a", 1)], vec![share("n1.b", 2), share("n2.b", 2)]]);
        for (launcher, line, want) in [
            (
                Launcher::OpenMpi4,
                "mpirun --mca btl tcp,self -x A ./worker -n 7",
                "mpirun --mca btl tcp,self -np 1 --host n1.a:1 -x A ./master : \
                 -np 4 --host n1.b:2,n2.b:2 -x A ./worker -n 7",
            ),
            (
                Launcher::Mpich,
                "mpiexec -genv A B -wdir /x ./worker",
                "mpiexec -genv A B -hosts n1.a:1,n1.b:2,n2.b:2 -np 1 -wdir /x ./master : -np 4 -wdir /x ./worker",
            ),
        ] {
            let line = Line::read(launcher, &words(line)).unwrap();
            assert_eq!(line.command(&profile, &got).unwrap().join(" "), want);
            assert_eq!(line.program(), Some("./worker"));
        }
        let bare = Line::read(Launcher::OpenMpi5, &words("mpirun --bind-to none")).unwrap();
        assert_eq!(bare.program(), None);
        assert!(bare.command(&profile, &got).unwrap_err().to_string().contains("workers has no program"));
    }

    #[test]
    fn who_places_ranks_is_seen() {
        let said = |text: &str| Some(ByUser::Said(text.to_owned()));
        for (line, want) in [
            ("mpirun ./app", None),
            ("mpirun ./app -n 4 --host x", None),
            ("mpirun --map-by node ./app", None),
            ("mpirun -n 4 ./app", said("-n 4")),
            ("mpirun --np=4 ./app", said("--np=4")),
            ("mpirun --host n1.a ./app", said("--host n1.a")),
            ("mpirun -f hosts ./app", said("-f hosts")),
            ("mpirun ./a : ./b", said(":")),
            ("mpirun --new 3 ./app", Some(ByUser::Unclear("--new".to_owned()))),
            ("mpirun --new=3 ./app", None),
        ] {
            assert_eq!(Line::read(Launcher::OpenMpi4, &words(line)).err(), want, "{line}");
        }
    }
}
