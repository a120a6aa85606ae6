//! Names of hosts on a launcher's command line, and in the files that it names, under which the
//! launcher doesn't find the job's nodes: a pure decision.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use isthmus_front::format::site;
use isthmus_wire::proto::JobNode;
use isthmus_wire::text::first;

use super::mpi::Launcher;
use super::preflight::{Finding, Weight};
use super::programs::{self, Given};

/// Most names of one place that a message names.
const NAMED: usize = 8;
/// Names that every launcher takes for this node.
const LOCAL: [&str; 2] = ["localhost", "127.0.0.1"];

/// Findings on names that the launcher wouldn't find. `read` gives a file's text, if it can be
/// read.
pub(super) fn findings(
    launcher: Launcher,
    arguments: &[String],
    nodes: &[JobNode],
    read: impl Fn(&str) -> Option<String>,
) -> Vec<Finding> {
    let own = nodes.first().map_or("", |head| site(&head.name));
    let mut found = Vec::new();
    for option in programs::options(arguments) {
        let Some(names) = names(&option, &read) else { continue };
        let (mut short, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for name in names.iter().filter(|name| !is_known(name, nodes)) {
            match nodes.iter().find(|node| node.name.eq_ignore_ascii_case(&format!("{name}.{own}"))) {
                // Hydra's launch for the node is passed on by that name.
                Some(_) if launcher == Launcher::Mpich => {}
                Some(node) => drop(short.insert(format!("{name} is {}", node.name))),
                None => drop(unknown.insert(name.clone())),
            }
        }
        let mut add = |what: String, remedy| {
            found.push(Finding { node: String::new(), what, remedy, weight: Weight::Fatal });
        };
        if !short.is_empty() {
            let names = first(short.iter(), 0, NAMED);
            add(format!("in {option}, {names} to {launcher}"), "name nodes NODE.SITE there");
        }
        if !unknown.is_empty() {
            let names = first(unknown.iter(), 0, NAMED);
            add(
                format!("{option} names no node of this job: {names}"),
                "name nodes NODE.SITE, as `isthmus status` does",
            );
        }
    }
    found
}

/// The hosts that an option names, itself or by a file; `None` if it names none.
fn names(option: &Given<'_>, read: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    if option.names_hosts() {
        return Some(option.value(0).split(',').filter_map(host).collect());
    }
    if !option.names_host_file() {
        return None;
    }
    let text = read(option.value(0))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    Some(lines.filter_map(|line| host(line.split_whitespace().next()?)).collect())
}

/// A host without its slots and user; `None` for a word by which Open MPI means a node by its
/// place, such as `+n0`.
fn host(word: &str) -> Option<String> {
    let word = word.rsplit_once('@').map_or(word, |(_, host)| host);
    let name = word.split(':').next().unwrap_or_default();
    (!name.is_empty() && !name.starts_with('+')).then(|| name.to_owned())
}

fn is_known(name: &str, nodes: &[JobNode]) -> bool {
    let is_node = |node: &JobNode| {
        node.name.eq_ignore_ascii_case(name) || Ipv4Addr::from(node.virtual_address).to_string() == name
    };
    LOCAL.contains(&name) || nodes.iter().any(is_node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_which_no_node_is_found_are_told() {
        use Launcher::{Mpich, OpenMpi4, OpenMpi5};
        let node = |name: &str, last: u32| JobNode {
            name: name.to_owned(),
            virtual_address: 0xf040_0100 + last,
            slots: 2,
        };
        let nodes = [node("n1.alpha", 1), node("n2.alpha", 2), node("n1.beta", 3)];
        let file = |name: &str| {
            let text = "# mine\nn2.alpha slots=2\n\nn1 slots=2 # the head\nada@n9:4\n";
            (name == "mine").then(|| text.to_owned())
        };
        for (launcher, line, want) in [
            (OpenMpi4, "-n 4 ./app", ""),
            (OpenMpi4, "--host n1.alpha,n1.beta:2 ./app", ""),
            (OpenMpi4, "--host N1.Alpha,240.64.1.3,localhost,+n0 ./app", ""),
            (
                OpenMpi4,
                "--host n1,n2:4,n1.beta ./app",
                "in --host n1,n2:4,n1.beta, n1 is n1.alpha, n2 is n2.alpha to Open MPI 4",
            ),
            (OpenMpi5, "-H n2 ./app", "in -H n2, n2 is n2.alpha to Open MPI 5"),
            (OpenMpi4, "-host node17 ./app", "-host node17 names no node of this job: node17"),
            (
                OpenMpi4,
                "--hostfile mine ./app",
                "in --hostfile mine, n1 is n1.alpha to Open MPI 4; --hostfile mine names no node of this job: n9",
            ),
            (OpenMpi4, "--hostfile other ./app", ""),
            (OpenMpi4, "-n 2 ./a : -n 2 --host n2 ./b", "in --host n2, n2 is n2.alpha to Open MPI 4"),
            (Mpich, "-hosts n1,n2 ./app", ""),
            (Mpich, "-f mine ./app", "-f mine names no node of this job: n9"),
            (OpenMpi4, "./app --host n2", ""),
        ] {
            let arguments: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
            let found = findings(launcher, &arguments, &nodes, file);
            let told: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
            assert_eq!(told.join("; "), want, "{launcher}: {line}");
        }
    }
}
