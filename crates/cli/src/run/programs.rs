//! The programs that a launcher's command line names, on which nodes they run, and
//! whether a program that nodes lack is a mistake: pure decisions.

use isthmus_wire::proto::{JobNode, MissingProgram};

/// Options of Open MPI's and Hydra's launchers that take one value. Others count
/// as having none: a word taken for a program does no harm, see [`lacking`].
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
/// Options that take a name and a value.
const TWO_VALUES: &[&str] = &["mca", "gmca", "pmca", "pmixmca", "prtemca", "env", "genv"];
/// Options that name the nodes of one context.
const HOSTS: &[&str] = &["host", "hosts", "H"];
/// Options that place ranks by a file, which isthmus doesn't read.
const PLACED: &[&str] = &["hostfile", "machinefile", "machine", "f", "rankfile", "rf", "configfile", "app"];

/// A program, and the nodes that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The word on the command line.
    pub program: String,
    /// Their names, if the command line has them; all nodes otherwise.
    pub nodes: Option<Vec<String>>,
}

/// The programs of a launcher's command line, one per context
/// (`-n 2 a : -n 4 b`). Ends before a context that is placed by a file.
pub(super) fn wanted(arguments: &[String]) -> Vec<Wanted> {
    arguments.split(|word| word == ":").map_while(context).collect()
}

/// Whether the command line itself names the nodes of a context, or a file with them.
pub(super) fn is_placed(arguments: &[String]) -> bool {
    let is_named = |word: &String| {
        let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
        option.is_some_and(|option| HOSTS.contains(&option) || PLACED.contains(&option))
    };
    arguments.split(|word| word == ":").any(|words| match context(words) {
        Some(wanted) => wanted.nodes.is_some(),
        None => words.iter().any(is_named),
    })
}

/// The program of a command that every node runs.
pub(super) fn everywhere(command: &[String]) -> Vec<Wanted> {
    command.first().map(|program| Wanted { program: program.clone(), nodes: None }).into_iter().collect()
}

fn context(words: &[String]) -> Option<Wanted> {
    let mut nodes = None;
    let mut index = 0;
    loop {
        let word = words.get(index)?;
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            return Some(Wanted { program: word.clone(), nodes });
        };
        let value = words.get(index + 1);
        index += match option {
            _ if PLACED.contains(&option) => return None,
            _ if HOSTS.contains(&option) => {
                let names = value?.split(',').map(|host| host.split(':').next().unwrap_or(host).to_owned());
                nodes = Some(names.collect());
                2
            }
            _ if TWO_VALUES.contains(&option) => 3,
            _ if ONE_VALUE.contains(&option) => 2,
            _ => 1,
        };
    }
}

/// Programs that some of their nodes have and others lack, with the latter. A
/// word that is a program on no node may not be a program at all; the launcher
/// reports that itself.
pub(super) fn lacking(
    wanted: &[Wanted],
    nodes: &[JobNode],
    missing: &[MissingProgram],
) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for Wanted { program, nodes: named } in wanted {
        let meant: Vec<&str> = nodes
            .iter()
            .filter(|node| node.slots > 0)
            .map(|node| node.name.as_str())
            .filter(|name| named.as_ref().is_none_or(|named| named.iter().any(|other| other == name)))
            .collect();
        let lacks =
            |name: &&str| missing.iter().any(|entry| entry.node == *name && entry.program == *program);
        let lacking: Vec<String> =
            meant.iter().copied().filter(|name| lacks(name)).map(str::to_owned).collect();
        if !lacking.is_empty() && lacking.len() < meant.len() {
            all.push((program.clone(), lacking));
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
            ("--version", ""),
        ] {
            let got = wanted(&words(line)).into_iter().map(|Wanted { program, nodes }| match nodes {
                Some(nodes) => format!("{program}@{}", nodes.join(",")),
                None => program,
            });
            assert_eq!(got.collect::<Vec<_>>().join(" "), want, "{line}");
        }
    }

    #[test]
    fn only_what_some_have_and_others_lack_is_a_mistake() {
        let node = |name: &str, slots| JobNode { name: name.to_owned(), virtual_address: 0, slots };
        let nodes = [node("fe.a", 0), node("n1.a", 2), node("n1.b", 2)];
        for (name, line, lacking, want) in [
            ("all have it", "./app", "", ""),
            ("one lacks it", "./app", "n1.b", "./app: n1.b"),
            ("none has it", "./app", "n1.a n1.b", ""),
            ("the head has no rank", "./app", "fe.a", ""),
            ("not meant for that node", "-host n1.a ./app", "n1.b", ""),
        ] {
            let missing: Vec<_> = lacking
                .split_whitespace()
                .map(|node| MissingProgram { node: node.to_owned(), program: "./app".to_owned() })
                .collect();
            let got = super::lacking(&wanted(&words(line)), &nodes, &missing);
            let got: Vec<_> =
                got.into_iter().map(|(program, nodes)| format!("{program}: {}", nodes.join(" "))).collect();
            assert_eq!(got.join("; "), want, "{name}");
        }
    }
}
