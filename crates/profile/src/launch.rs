//! A job of several groups in a launcher's own words: a context for each program, as in
//! `mpirun -np 1 ./master : -np 7 ./worker`.
//!
//! Open MPI takes hosts in each context. A host of several contexts must have all its slots in each
//! of them, and is a context of its own for each group: Open MPI 4 counts the slots of one context,
//! and fills the first host before it takes the next. (Open MPI 5 adds the slots of all contexts up,
//! so that such a host has more than ranks.) Hydra takes one list of hosts for all contexts
//! (`mpiexec -help`: a global option), in the order of ranks; a host that is in it again has further
//! ranks there.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use isthmus_wire::GridName;

use crate::{Group, Profile, Ranks};

/// Longest word that Linux passes to a program, with its NUL (`MAX_ARG_STRLEN`, execve(2)).
const WORD_MAX: usize = 128 << 10;

/// Whose launcher starts the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI's `mpirun`, of version 4 or 5.
    OpenMpi,
    /// MPICH's, which is Hydra's `mpiexec`.
    Mpich,
}

/// Ranks of a group on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The node.
    pub node: GridName,
    /// How many ranks the node has of the group.
    pub ranks: NonZeroU32,
}

/// What the groups of a profile got, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// Each group's number of ranks. The launcher places them on the job's nodes.
    Ranks(Vec<u32>),
    /// Each group's nodes, in the order of its ranks.
    Nodes(Vec<Vec<Share>>),
}

/// Why a launcher can't be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// There are more groups than placements, or fewer.
    #[error("the profile has {asked} groups, and {got} got nodes")]
    Groups {
        /// The profile's groups.
        asked: usize,
        /// Those that got something.
        got: usize,
    },
    /// A group has too few ranks, or too many.
    #[error("group {group} got {got} ranks, where its profile asks for {asked}")]
    Ranks {
        /// The group's name.
        group: String,
        /// What it got.
        got: u64,
        /// What it asked for.
        asked: Ranks,
    },
    /// Nobody names the group's program.
    #[error(
        "group {group} has no program: give it a `command` in the profile, or name a program for all groups on the command line"
    )]
    NoProgram {
        /// The group's name.
        group: String,
    },
    /// There are too many nodes for one word.
    #[error(
        "the names of the nodes have {bytes} bytes, more than one word of a command may have: use fewer nodes"
    )]
    TooLong {
        /// Their length.
        bytes: usize,
    },
}

/// The words behind the launcher and its own options. Groups without a command of their own run
/// `program`, which may be empty if there are none.
///
/// # Errors
/// If what was got isn't what was asked for, a group has no program, or there are too many nodes.
pub fn words(
    launcher: Launcher,
    profile: &Profile,
    got: &Got,
    program: &[String],
) -> Result<Vec<String>, LaunchError> {
    let groups = &profile.groups;
    let placed = match got {
        Got::Ranks(ranks) => ranks.len(),
        Got::Nodes(nodes) => nodes.len(),
    };
    if placed != groups.len() {
        return Err(LaunchError::Groups { asked: groups.len(), got: placed });
    }
    let commands = groups.iter().map(|group| command(group, program)).collect::<Result<Vec<_>, _>>()?;
    let (global, contexts) = match got {
        Got::Ranks(ranks) => {
            let context = |ranks: &u32| vec![Context { ranks: (*ranks).into(), hosts: String::new() }];
            (String::new(), ranks.iter().map(context).collect())
        }
        Got::Nodes(nodes) => match launcher {
            Launcher::OpenMpi => (String::new(), open_mpi(nodes)),
            Launcher::Mpich => (hosts(nodes.iter().flatten()), whole(nodes)),
        },
    };
    let mut line = Vec::new();
    if !global.is_empty() {
        line.extend(["-hosts".to_owned(), global]);
    }
    for (place, (group, (contexts, command))) in groups.iter().zip(contexts.iter().zip(commands)).enumerate()
    {
        let got: u64 = contexts.iter().map(|context: &Context| context.ranks).sum();
        if !u32::try_from(got).is_ok_and(|got| group.ranks.contains(got)) {
            return Err(LaunchError::Ranks { group: group.name.to_string(), got, asked: group.ranks });
        }
        for (part, Context { ranks, hosts }) in contexts.iter().enumerate() {
            if (place, part) != (0, 0) {
                line.push(":".to_owned());
            }
            line.extend(["-np".to_owned(), ranks.to_string()]);
            if !hosts.is_empty() {
                line.extend(["--host".to_owned(), hosts.clone()]);
            }
            line.extend_from_slice(command);
        }
    }
    match line.iter().map(String::len).max() {
        Some(bytes) if bytes >= WORD_MAX => Err(LaunchError::TooLong { bytes }),
        _ => Ok(line),
    }
}

fn command<'a>(group: &'a Group, program: &'a [String]) -> Result<&'a [String], LaunchError> {
    match [group.command.as_slice(), program].into_iter().find(|words| !words.is_empty()) {
        Some(words) => Ok(words),
        None => Err(LaunchError::NoProgram { group: group.name.to_string() }),
    }
}

/// A part of a command line between two colons.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Context {
    ranks: u64,
    /// Hosts with their slots; empty if the context names none.
    hosts: String,
}

/// A context per group.
fn whole(nodes: &[Vec<Share>]) -> Vec<Vec<Context>> {
    let ranks = |shares: &Vec<Share>| shares.iter().map(|share| u64::from(share.ranks.get())).sum();
    nodes.iter().map(|shares| vec![Context { ranks: ranks(shares), hosts: String::new() }]).collect()
}

/// The contexts of each group for Open MPI: one for nodes that follow one another and have one share
/// each, and one for each share of any other node.
fn open_mpi(nodes: &[Vec<Share>]) -> Vec<Vec<Context>> {
    let mut slots: BTreeMap<&GridName, (u64, u32)> = BTreeMap::new();
    for share in nodes.iter().flatten() {
        let (ranks, shares) = slots.entry(&share.node).or_default();
        *ranks += u64::from(share.ranks.get());
        *shares += 1;
    }
    let all_slots = |share: &Share| slots.get(&share.node).map_or(0, |(ranks, _)| *ranks);
    let is_alone = |share: &Share| slots.get(&share.node).is_some_and(|(_, shares)| *shares == 1);
    let contexts = |shares: &Vec<Share>| {
        let parts = shares.chunk_by(|one, next| is_alone(one) && is_alone(next));
        let context = |part: &[Share]| Context {
            ranks: part.iter().map(|share| u64::from(share.ranks.get())).sum(),
            hosts: part.iter().map(|share| slot(share, all_slots(share))).collect::<Vec<_>>().join(","),
        };
        parts.map(context).collect()
    };
    nodes.iter().map(contexts).collect()
}

fn hosts<'a>(shares: impl Iterator<Item = &'a Share>) -> String {
    shares.map(|share| slot(share, share.ranks.get().into())).collect::<Vec<_>>().join(",")
}

fn slot(share: &Share, slots: u64) -> String {
    format!("{}:{slots}", share.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(text: &str) -> Share {
        let (node, ranks) = text.split_once(':').unwrap();
        Share { node: node.parse().unwrap(), ranks: ranks.parse().unwrap() }
    }

    fn nodes(groups: &[&str]) -> Got {
        Got::Nodes(groups.iter().map(|shares| shares.split_whitespace().map(share).collect()).collect())
    }

    fn profile(second: &str) -> Profile {
        let text = format!(
            "[[group]]\nname = 'masters'\nranks = '1-2'\ncommand = ['./master', '-x']\n\
             [[group]]\nname = 'workers'\nranks = '1-9'\n{second}"
        );
        Profile::parse(&text, "job.toml").unwrap()
    }

    // What launchers make of such lines was seen with Open MPI 4.1.4 and 5.0.11 (--display-map), and
    // MPICH 4.0.2 and 5.0.2 (-prepend-pattern).
    #[test]
    fn each_launcher_gets_its_words() {
        use Launcher::{Mpich, OpenMpi};
        let profile = profile("");
        let apart = nodes(&["n1.a:1", "n1.b:4 n2.b:3"]);
        let shared = nodes(&["n1.a:1", "n1.a:3 n1.b:2 n2.b:2"]);
        let twice = nodes(&["n1.a:1 n1.b:1", "n1.a:3 n2.b:2 n1.b:3"]);
        let anywhere = Got::Ranks(vec![1, 7]);
        let without_hosts = "-np 1 ./master -x : -np 7 ./worker";
        for (name, launcher, got, want) in [
            ("ranks", OpenMpi, &anywhere, without_hosts),
            ("ranks", Mpich, &anywhere, without_hosts),
            (
                "apart",
                OpenMpi,
                &apart,
                "-np 1 --host n1.a:1 ./master -x : -np 7 --host n1.b:4,n2.b:3 ./worker",
            ),
            ("apart", Mpich, &apart, "-hosts n1.a:1,n1.b:4,n2.b:3 -np 1 ./master -x : -np 7 ./worker"),
            (
                "shared",
                OpenMpi,
                &shared,
                "-np 1 --host n1.a:4 ./master -x : -np 3 --host n1.a:4 ./worker : \
                 -np 4 --host n1.b:2,n2.b:2 ./worker",
            ),
            (
                "shared",
                Mpich,
                &shared,
                "-hosts n1.a:1,n1.a:3,n1.b:2,n2.b:2 -np 1 ./master -x : -np 7 ./worker",
            ),
            (
                "twice",
                OpenMpi,
                &twice,
                "-np 1 --host n1.a:4 ./master -x : -np 1 --host n1.b:4 ./master -x : -np 3 --host n1.a:4 ./worker : \
                 -np 2 --host n2.b:2 ./worker : -np 3 --host n1.b:4 ./worker",
            ),
            (
                "twice",
                Mpich,
                &twice,
                "-hosts n1.a:1,n1.b:1,n1.a:3,n2.b:2,n1.b:3 -np 2 ./master -x : -np 8 ./worker",
            ),
        ] {
            let line = words(launcher, &profile, got, &["./worker".to_owned()]).unwrap();
            assert_eq!(line.join(" "), want, "{name}, {launcher:?}");
        }
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        let worker = ["./worker".to_owned()];
        let many = |length: usize| {
            let share = |place: usize| share(&format!("{}{place}.{}:1", "n".repeat(50), "s".repeat(60)));
            Got::Nodes(vec![vec![share(0)], (1..=length).map(share).collect()])
        };
        for (got, program, want) in [
            (Got::Ranks(vec![1]), &worker[..], "2 groups, and 1 got"),
            (Got::Ranks(vec![1, 10]), &worker, "workers got 10 ranks, where its profile asks for 1-9"),
            (Got::Ranks(vec![0, 7]), &worker, "masters got 0 ranks"),
            (nodes(&["n1.a:1", ""]), &worker, "workers got 0 ranks"),
            (nodes(&["n1.a:4294967295 n2.a:4294967295", "n1.a:1"]), &worker, "8589934590 ranks"),
            (Got::Ranks(vec![1, 7]), &[], "workers has no program: give it a `command`"),
        ] {
            for launcher in [Launcher::OpenMpi, Launcher::Mpich] {
                let error = words(launcher, &profile(""), &got, program).unwrap_err().to_string();
                assert!(error.contains(want), "{launcher:?}: {error}");
            }
        }
        let mut profile = profile("");
        profile.groups[1].ranks = Ranks::new(1, 2000).unwrap();
        assert!(words(Launcher::Mpich, &profile, &many(900), &worker).is_ok());
        let error = words(Launcher::OpenMpi, &profile, &many(1200), &worker).unwrap_err();
        assert!(matches!(error, LaunchError::TooLong { .. }), "{error}");
    }

    #[test]
    fn a_group_s_own_program_goes_first() {
        let profile = profile("command = ['./own']");
        let line = words(Launcher::OpenMpi, &profile, &Got::Ranks(vec![2, 3]), &["./other".to_owned()]);
        assert_eq!(line.unwrap().join(" "), "-np 2 ./master -x : -np 3 ./own");
    }
}
