//! A launcher's command line whose ranks isthmus places by a profile: pure.

use isthmus_profile::launch::{self, Got, LaunchError, Share};
use isthmus_profile::{Group, Profile};

use crate::mpi::{self, Launcher};
use crate::programs::{self, NamedProgram};

/// Options that say how many ranks there are.
const COUNTS: &[&str] = &["n", "np", "c", "N", "npernode", "npersocket", "pernode", "ppn", "perhost"];
/// Options that hold for the ranks of one context, and so must stand in each.
const OF_CONTEXT: &[&str] =
    &["x", "wd", "wdir", "dir", "path", "prefix", "env", "envlist", "envall", "envnone"];

/// Options that bind ranks to cores.
const BINDING: &[&str] = &["bind-to", "map-by", "rank-by", "cpu-set", "cpus-per-proc", "cpus-per-rank"];
/// Mappings of Open MPI that say how many ranks there are, or where.
const PLACING: &[&str] = &["ppr", "seq", "rankfile"];

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
    /// Whether an option says how ranks are bound to cores.
    binds: bool,
    /// Whether programs are looked for where the check before the start doesn't look.
    is_elsewhere: bool,
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
        let says = |option: &&programs::Given<'_>| {
            let mapping = option.value(0).split(':').next().unwrap_or_default();
            COUNTS.contains(&option.name)
                || option.places()
                || (option.name == "map-by" && PLACING.contains(&mapping))
        };
        if let Some(option) = given.iter().find(says) {
            return Err(ByUser::Said(option.to_string()));
        }
        if program.iter().any(|word| word == ":") {
            return Err(ByUser::Said(":".to_owned()));
        }
        if let Some(last) = given.last().filter(|last| !program.is_empty() && !last.is_known()) {
            return Err(match mpi::ranks(arguments) {
                Some(ranks) => ByUser::Said(format!("the number of ranks, {ranks},")),
                None => ByUser::Unclear(last.to_string()),
            });
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
            binds: given.iter().any(|option| BINDING.contains(&option.name)),
            is_elsewhere: given.iter().any(programs::Given::looks_elsewhere),
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
        let has_threads = profile.groups.iter().any(|group| group.needs.cores.is_some_and(|cores| cores > 1));
        // Open MPI would bind each rank to one core, and its threads with it.
        let unbound = match self.launcher {
            launch::Launcher::OpenMpi if has_threads && !self.binds => {
                vec!["--bind-to".to_owned(), "none".to_owned()]
            }
            _ => Vec::new(),
        };
        let parts = [std::slice::from_ref(&self.word), self.of_job.as_slice(), &unbound, &words];
        Ok(parts.concat())
    }

    /// The program of each group, with the nodes that must have it.
    pub(super) fn programs(&self, profile: &Profile, nodes: &[Vec<Share>]) -> Vec<NamedProgram> {
        let of_group = |(group, shares): (&Group, &Vec<Share>)| {
            let program = group.command.first().or_else(|| self.program.first())?;
            Some(NamedProgram {
                program: program.clone(),
                nodes: Some(shares.iter().map(|share| share.node.to_string()).collect()),
                is_certain: !self.is_elsewhere,
            })
        };
        profile.groups.iter().zip(nodes).filter_map(of_group).collect()
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
        let nodes = vec![vec![share("n1.a", 1)], vec![share("n1.b", 2), share("n2.b", 2)]];
        let line = Line::read(Launcher::Mpich, &words("mpiexec ./worker")).unwrap();
        let programs = line.programs(&profile, &nodes).into_iter();
        let programs: Vec<_> =
            programs.map(|named| (named.program, named.nodes.unwrap().join(" "))).collect();
        let named = |program: &str, nodes: &str| (program.to_owned(), nodes.to_owned());
        assert_eq!(programs, [named("./master", "n1.a"), named("./worker", "n1.b n2.b")]);
        let bare = Line::read(Launcher::OpenMpi5, &words("mpirun --bind-to none")).unwrap();
        assert_eq!(bare.program(), None);
        assert!(bare.command(&profile, &got).unwrap_err().to_string().contains("workers has no program"));
    }

    #[test]
    fn ranks_with_threads_are_not_bound_to_one_core() {
        let text = "[[group]]\nname = 'a'\nranks = 1\ncores = 4\n";
        let profile = Profile::parse(text, "job.toml").unwrap();
        let got = Got::Nodes(vec![vec![share("n1.a", 1)]]);
        for (launcher, line, want) in [
            (Launcher::OpenMpi5, "mpirun ./app", true),
            (Launcher::OpenMpi4, "mpirun --bind-to core ./app", false),
            (Launcher::Mpich, "mpiexec ./app", false),
        ] {
            let command = Line::read(launcher, &words(line)).unwrap().command(&profile, &got).unwrap();
            assert_eq!(command.join(" ").contains("--bind-to none"), want, "{line}");
        }
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
            ("mpirun --new 3 -n 4 ./app", said("the number of ranks, 4,")),
            ("mpirun --map-by ppr:2:node ./app", said("--map-by ppr:2:node")),
            ("mpirun --map-by slot:PE=2 ./app", None),
        ] {
            assert_eq!(Line::read(Launcher::OpenMpi4, &words(line)).err(), want, "{line}");
        }
    }
}
