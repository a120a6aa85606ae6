//! The programs that a launcher's command line names, on which nodes they run, and
//! whether a program that nodes lack is a mistake: pure decisions.

use std::fmt;

use isthmus_wire::proto::{JobNode, MissingProgram};

/// Options of Open MPI's and Hydra's launchers that take one value. Options that aren't known count
/// as having none. A word that is taken for a program by mistake does no harm, see [`lacking`].
const ONE_VALUE: &[&str] = &[
    "n",
    "np",
    "c",
    "N",
    "npernode",
    "npersocket",
    "ppn",
    "perhost",
    "map-by",
    "rank-by",
    "bind-to",
    "membind",
    "x",
    "wd",
    "wdir",
    "dir",
    "path",
    "prefix",
    "am",
    "tune",
    "timeout",
    "output-filename",
    "stdin",
    "cpu-set",
    "cpus-per-proc",
    "cpus-per-rank",
    "launcher",
    "launcher-exec",
    "bootstrap",
    "bootstrap-exec",
    "launch-agent",
    "rmk",
    "iface",
    "envlist",
    "genvlist",
    "outfile-pattern",
    "errfile-pattern",
    "prepend-pattern",
    "arch",
    "usize",
    "order-nodes",
    "report-uri",
];
/// Options that take the name of a parameter of Open MPI and a value.
const PARAMETERS: &[&str] = &["mca", "gmca", "omca", "pmca", "pmixmca", "prtemca"];
/// Options that take the name of a variable and a value.
const VARIABLES: &[&str] = &["env", "genv"];
/// Options without a value.
const FLAGS: &[&str] = &[
    "oversubscribe",
    "nooversubscribe",
    "overload-allowed",
    "use-hwthread-cpus",
    "bynode",
    "byslot",
    "bycore",
    "bysocket",
    "pernode",
    "nolocal",
    "novm",
    "no-local",
    "allow-run-as-root",
    "report-bindings",
    "display-map",
    "display-allocation",
    "display-devel-map",
    "tag-output",
    "timestamp-output",
    "merge-stderr-to-stdout",
    "quiet",
    "q",
    "verbose",
    "v",
    "debug",
    "do-not-launch",
    "do-not-resolve",
    "continuous",
    "enable-recovery",
    "disable-auto-cleanup",
    "prepend-rank",
    "l",
    "print-all-exitcodes",
    "enable-x",
    "disable-x",
    "genvall",
    "genvnone",
    "envall",
    "envnone",
    "skip-launch-node",
];
/// Options that change where a program is looked for.
const ELSEWHERE: &[&str] = &["wd", "wdir", "dir", "path", "prefix"];
/// Options that name the nodes of one context.
const HOSTS: &[&str] = &["host", "hosts", "H"];
/// Options that place ranks by a file. isthmus doesn't tell from such a file where each rank is.
const PLACED: &[&str] = &["hostfile", "machinefile", "machine", "f", "rankfile", "rf", "configfile", "app"];
/// Options that name a file with a host in each line.
const HOST_FILES: &[&str] = &["hostfile", "machinefile", "f"];

/// A program, and the nodes that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedProgram {
    /// The program, as the command line names it.
    pub program: String,
    /// The names of the nodes, if the command line has them; `None` for all nodes.
    pub nodes: Option<Vec<String>>,
    /// Whether the word can only be a program, and is looked for where the check looks. Otherwise
    /// it may be the value of an option that isn't known here.
    pub is_certain: bool,
}

/// A program that nodes lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lacking<'a> {
    /// The program, as the command line names it.
    pub program: &'a str,
    /// Whether all nodes that are to run the program lack it.
    pub everywhere: bool,
    pub by: Vec<&'a MissingProgram>,
}

/// The programs of a launcher's command line, one per context (`-n 2 a : -n 4 b`). Ends before a
/// context whose ranks are placed by a file.
pub(super) fn wanted(arguments: &[String]) -> Vec<NamedProgram> {
    arguments.split(|word| word == ":").map_while(context).collect()
}

/// Whether the command line itself names the nodes of a context, or a file with them.
pub(super) fn is_placed(arguments: &[String]) -> bool {
    options(arguments).iter().any(Given::places)
}

/// The program of a command that every node runs.
pub(super) fn everywhere(command: &[String]) -> Vec<NamedProgram> {
    let wanted = |program: &String| NamedProgram { program: program.clone(), nodes: None, is_certain: true };
    command.first().map(wanted).into_iter().collect()
}

/// An option of a launcher, as it was given: `--mca plm rsh`, `-launcher ssh`,
/// `--launcher=ssh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given<'a> {
    /// The option's name without its hyphens.
    pub name: &'a str,
    /// The value within the same word, as in `--launcher=ssh`.
    within: Option<&'a str>,
    /// The words of the option and its values.
    words: &'a [String],
}

impl Given<'_> {
    /// The value at this place, counted from 0; empty if there are fewer.
    pub(super) fn value(&self, place: usize) -> &str {
        match self.within {
            Some(value) if place == 0 => value,
            Some(_) => "",
            None => self.words.get(1 + place).map_or("", String::as_str),
        }
    }

    /// Whether the option names the nodes of a context.
    pub(super) fn names_hosts(&self) -> bool {
        HOSTS.contains(&self.name)
    }

    /// Whether the option names a file with a host in each line.
    pub(super) fn names_host_file(&self) -> bool {
        HOST_FILES.contains(&self.name)
    }

    /// Whether the option names nodes of ranks, or a file that places ranks.
    pub(super) fn places(&self) -> bool {
        HOSTS.contains(&self.name) || PLACED.contains(&self.name)
    }

    /// Whether it is known how many values the option has.
    pub(super) fn is_known(&self) -> bool {
        self.within.is_some() || self.words.len() > 1 || FLAGS.contains(&self.name)
    }

    /// Whether the option changes where a program is looked for.
    pub(super) fn looks_elsewhere(&self) -> bool {
        ELSEWHERE.contains(&self.name)
    }

    /// The words of the option and its values.
    pub(super) fn words(&self) -> &[String] {
        self.words
    }

    /// Whether the option's first value is the name of a parameter of Open MPI.
    pub(super) fn names_parameter(&self) -> bool {
        PARAMETERS.contains(&self.name)
    }
}

impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(" "))
    }
}

/// All options of a launcher, of each context up to its program.
pub(super) fn options(arguments: &[String]) -> Vec<Given<'_>> {
    arguments.split(|word| word == ":").flat_map(|words| split(words).0).collect()
}

/// The options of a context, and what follows: its program with the program's arguments.
pub(super) fn split(words: &[String]) -> (Vec<Given<'_>>, &[String]) {
    let mut given = Vec::new();
    let mut rest = words;
    while let [word, ..] = rest {
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            break;
        };
        let (name, within) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let values = match name {
            _ if within.is_some() => 0,
            _ if PARAMETERS.contains(&name) || VARIABLES.contains(&name) => 2,
            _ if [ONE_VALUE, HOSTS, PLACED].iter().any(|names| names.contains(&name)) => 1,
            _ => 0,
        };
        let (words, behind) = rest.split_at(rest.len().min(1 + values));
        given.push(Given { name, within, words });
        rest = behind;
    }
    (given, rest)
}

fn context(words: &[String]) -> Option<NamedProgram> {
    let (given, program) = split(words);
    if given.iter().any(|option| PLACED.contains(&option.name)) {
        return None;
    }
    let hosts = given.iter().rfind(|option| HOSTS.contains(&option.name));
    let node = |host: &str| host.split(':').next().unwrap_or(host).to_owned();
    let nodes = hosts.map(|option| option.value(0).split(',').map(node).collect());
    let is_elsewhere = given.iter().any(Given::looks_elsewhere);
    let is_certain = given.last().is_none_or(Given::is_known) && !is_elsewhere;
    Some(NamedProgram { program: program.first()?.clone(), nodes, is_certain })
}

/// Programs that all or some of their nodes lack. A word that isn't certain to be a program, and is
/// one on no node, is left out. If it is one, the launcher reports that.
pub(super) fn lacking<'a>(
    wanted: &'a [NamedProgram],
    nodes: &[JobNode],
    missing: &'a [MissingProgram],
) -> Vec<Lacking<'a>> {
    let mut all = Vec::new();
    for NamedProgram { program, nodes: named, is_certain } in wanted {
        let meant: Vec<&str> = nodes
            .iter()
            .filter(|node| node.slots > 0)
            .map(|node| node.name.as_str())
            .filter(|name| named.as_ref().is_none_or(|named| named.iter().any(|other| other == name)))
            .collect();
        let lacks = |name: &str| missing.iter().find(|entry| entry.node == name && entry.program == *program);
        let by: Vec<_> = meant.iter().filter_map(|name| lacks(name)).collect();
        let everywhere = by.len() == meant.len();
        if !by.is_empty() && (!everywhere || *is_certain) {
            all.push(Lacking { program, everywhere, by });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn programs_are_found_behind_options() {
        for (line, want) in [
            ("-n 4 ./app -n x", "./app"),
            ("--mca btl tcp,self --map-by node ./app", "./app"),
            ("-genv A B -ppn 2 app : -n 2 -host n1.a:2,n2.a other", "app other@n1.a,n2.a"),
            ("--oversubscribe app", "app"),
            ("-f hosts app", ""),
            ("--host=n1.a,n2.a -n 2 app", "app@n1.a,n2.a"),
            ("-n", ""),
            ("--version", ""),
        ] {
            let got =
                wanted(&words(line)).into_iter().map(|NamedProgram { program, nodes, .. }| match nodes {
                    Some(nodes) => format!("{program}@{}", nodes.join(",")),
                    None => program,
                });
            assert_eq!(got.collect::<Vec<_>>().join(" "), want, "{line}");
        }
    }

    #[test]
    fn what_may_be_no_program_is_not_certain() {
        for (line, want) in [
            ("./app", true),
            ("-n 4 app", true),
            ("--oversubscribe ./app", true),
            ("--mca btl tcp,self ./app", true),
            ("--new-option ./app", false),
            ("--new-option x ./app", false),
            ("--new-option=x ./app", true),
            ("-wdir /scratch -n 4 ./app", false),
        ] {
            let certain: Vec<_> = wanted(&words(line)).iter().map(|wanted| wanted.is_certain).collect();
            assert_eq!(certain, [want], "{line}");
        }
    }

    #[test]
    fn only_what_some_have_and_others_lack_is_a_mistake() {
        let node = |name: &str, slots| JobNode { name: name.to_owned(), virtual_address: 0, slots };
        let nodes = [node("fe.a", 0), node("n1.a", 2), node("n1.b", 2)];
        for (name, line, lacking, want) in [
            ("all have it", "./app", "", ""),
            ("one lacks it", "./app", "n1.b", "./app: n1.b"),
            ("none has it", "./app", "n1.a n1.b", "./app: n1.a n1.b, all"),
            ("none has what may be no program", "--new-option ./app", "n1.a n1.b", ""),
            ("the only one that is meant", "-host n1.b ./app", "n1.b", "./app: n1.b, all"),
            ("the head has no rank", "./app", "fe.a", ""),
            ("not meant for that node", "-host n1.a ./app", "n1.b", ""),
        ] {
            let missing: Vec<_> = lacking
                .split_whitespace()
                .map(|node| MissingProgram {
                    node: node.to_owned(),
                    program: "./app".to_owned(),
                    directory: String::new(),
                })
                .collect();
            let wanted = wanted(&words(line));
            let text = |Lacking { program, everywhere, by }: Lacking<'_>| {
                let nodes: Vec<_> = by.iter().map(|entry| entry.node.as_str()).collect();
                format!("{program}: {}{}", nodes.join(" "), if everywhere { ", all" } else { "" })
            };
            let got: Vec<_> = super::lacking(&wanted, &nodes, &missing).into_iter().map(text).collect();
            assert_eq!(got.join("; "), want, "{name}");
        }
    }
}
