//! Faults in what the nodes report before a job starts: a pure decision.

use std::collections::BTreeMap;
use std::time::Duration;

use isthmus_front::format::{bytes, site};
use isthmus_front::output::one_line;
use isthmus_wire::proto::{JobNode, MissingProgram, NodeReport, Remedy};

use super::programs::{self, Lacking, NamedProgram};

/// Clocks further apart than this are a fault: certificates are valid from the
/// minute of their issue, and logs of two nodes can't be read side by side.
const SKEW_MAX: Duration = Duration::from_secs(30);

/// What to do about a program that a node lacks, or the directory that it is run in.
const NOT_THERE: &str = "bring it there with --stage, or name other nodes with --nodes";
const NO_DIRECTORY: &str =
    "bring the program there with --stage, run from a directory that all nodes have, or name other nodes";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs<'a> {
    /// The launcher, as on the command line; `None` for any other command.
    pub launcher: Option<&'a str>,
    /// The programs that the nodes must have.
    pub wanted: &'a [NamedProgram],
    /// The job's nodes, the head first.
    pub nodes: &'a [JobNode],
    /// Bytes of free memory that each node must have, if the user asks for that.
    pub memory_bytes: Option<u64>,
    /// Bytes of free memory that nodes must have for their ranks, by their names.
    pub memory_of_ranks: &'a BTreeMap<String, u64>,
}

/// A fault that was found before a job's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The node at fault; empty if it isn't a single one.
    pub node: String,
    /// What is wrong, in words for the user.
    pub what: String,
    /// What the user can do about the fault.
    pub remedy: &'static str,
    /// What the fault means for the job.
    pub weight: Weight,
}

/// What a fault means for the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The job would run all the same.
    Light,
    /// The job would fail now. Another try may have another result.
    Passing,
    /// The job would fail at every try.
    Fatal,
}

impl Finding {
    /// Whether the job would fail because of this fault.
    pub(super) fn is_fatal(&self) -> bool {
        self.weight != Weight::Light
    }
}

/// All faults that the nodes' reports show, in the nodes' order.
pub(super) fn findings(
    needs: &Needs<'_>,
    missing: &[MissingProgram],
    reports: &[NodeReport],
) -> Vec<Finding> {
    use Weight::{Fatal, Light, Passing};
    let mut found = Vec::new();
    let mut add = |node: &str, weight, what: String, remedy| {
        let finding = Finding { node: node.to_owned(), what, remedy, weight };
        if !found.contains(&finding) {
            found.push(finding);
        }
    };
    for Lacking { program, everywhere, by } in programs::lacking(needs.wanted, needs.nodes, missing) {
        if everywhere && by.iter().all(|entry| entry.directory.is_empty()) {
            let what = format!("{program} is missing, or not executable, on every node");
            add("", Fatal, what, "check its name, and the directory that you are in");
            continue;
        }
        for MissingProgram { node, directory, .. } in by {
            let (what, remedy) = match directory.as_str() {
                "" => (format!("{program} is missing, or not executable"), NOT_THERE),
                directory => {
                    (format!("the directory {directory} is missing, so {program} is, too"), NO_DIRECTORY)
                }
            };
            add(node, Fatal, what, remedy);
        }
    }
    let head = needs.nodes.first().and_then(|head| reports.iter().find(|report| report.node == head.name));
    let works = |name: &str| needs.nodes.iter().any(|node| node.name == name && node.slots > 0);
    for report in reports {
        let node = report.node.as_str();
        for probe in report.probes.iter().filter(|probe| !probe.failure.is_empty()) {
            let what = format!("cannot reach {}: {}", probe.acceptor, probe.failure);
            let weight = if probe.remedy() == Remedy::AllowWay { Fatal } else { Passing };
            add(node, weight, what, "see \"What runs where\" in docs/operators.md");
        }
        let skew = Duration::from_micros(report.clock_skew_us.unsigned_abs());
        if skew.saturating_sub(Duration::from_micros(report.clock_uncertainty_us)) > SKEW_MAX {
            let way = if report.clock_skew_us > 0 { "ahead of" } else { "behind" };
            let what = format!("its clock is {} s {way} this node's", skew.as_secs());
            add(node, Light, what, "set it, best by NTP");
        }
        if !works(node) {
            continue;
        }
        if let (Some(launcher), Some(head)) = (needs.launcher, head) {
            let (here, there) = (&head.launcher_version, &report.launcher_version);
            let same = "install the same MPI at the same path on all nodes";
            if there.is_empty() {
                add(node, Fatal, format!("{launcher} is missing"), same);
            } else if here != there {
                add(node, Fatal, format!("its {launcher} is of {there}, this node's of {here}"), same);
            }
        }
        for libraries in &report.libraries {
            let program = &libraries.program;
            if !libraries.missing.is_empty() {
                let what = format!("{program} needs {}, not found there", libraries.missing.join(", "));
                add(node, Fatal, what, "install it, or start the agent with LD_LIBRARY_PATH set");
            }
            let of_head = head.and_then(|head| head.libraries.iter().find(|other| other.program == *program));
            if let Some(of_head) = of_head.filter(|head| !head.mpi.is_empty() && !libraries.mpi.is_empty())
                && of_head.mpi != libraries.mpi
            {
                let (there, here) = (libraries.mpi.join(", "), of_head.mpi.join(", "));
                let what = format!("{program} loads {there} there and {here} on this node");
                add(node, Fatal, what, "install the same version of the MPI on all nodes");
            }
        }
        let of_ranks = needs.memory_of_ranks.get(node).copied();
        for (who, wanted) in [("--min-memory wants", needs.memory_bytes), ("its ranks need", of_ranks)] {
            if let Some(wanted) = wanted.filter(|wanted| report.memory_available_bytes < *wanted) {
                let what = format!(
                    "{} of its {} of memory are free, {who} {}",
                    bytes(report.memory_available_bytes),
                    bytes(report.memory_total_bytes),
                    bytes(wanted)
                );
                add(node, Fatal, what, "free some, or name other nodes with --nodes");
            }
        }
    }
    found
}

/// The findings as text, one line for each node.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut order: Vec<&str> = Vec::new();
    let mut by_node: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for finding in findings {
        if !order.contains(&finding.node.as_str()) {
            order.push(&finding.node);
        }
        by_node.entry(&finding.node).or_default().push(format!(
            "{} ({})",
            one_line(&finding.what),
            finding.remedy
        ));
    }
    let line = |node: &str| {
        let what = by_node.get(node).map(|lines| lines.join("; ")).unwrap_or_default();
        if node.is_empty() { format!("  {what}\n") } else { format!("  {node}: {what}\n") }
    };
    order.into_iter().map(line).collect()
}

/// The times of the test connections, slowest pair of sites first; for
/// `--verbose`.
pub(super) fn probes(reports: &[NodeReport]) -> String {
    let mut took: Vec<_> = reports
        .iter()
        .flat_map(|report| report.probes.iter().map(move |probe| (report, probe)))
        .filter(|(_, probe)| probe.failure.is_empty())
        .map(|(report, probe)| (probe.took_us, site(&report.node), site(&probe.acceptor)))
        .collect();
    took.sort_unstable_by(|a, b| b.cmp(a));
    let line = |(micros, from, to): &(u64, &str, &str)| {
        format!("  {from} reached {to} in {:.1} ms\n", *micros as f64 / 1000.0)
    };
    took.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use isthmus_wire::proto::{Probe, ProgramLibraries};

    use super::*;

    fn report(node: &str) -> NodeReport {
        NodeReport {
            node: node.to_owned(),
            memory_available_bytes: 4_000_000_000,
            memory_total_bytes: 8_000_000_000,
            launcher_version: "Open MPI 4.1.4".to_owned(),
            libraries: vec![ProgramLibraries {
                program: "./app".to_owned(),
                missing: Vec::new(),
                mpi: vec!["libmpi.so.40.30.4".to_owned()],
            }],
            ..NodeReport::default()
        }
    }

    /// The report of n1.b with one thing changed.
    fn changed(change: impl FnOnce(&mut NodeReport)) -> NodeReport {
        let mut changed = report("n1.b");
        change(&mut changed);
        changed
    }

    /// One node's report in a job of three nodes, and the text that it gives.
    struct Case {
        name: &'static str,
        missing: Vec<MissingProgram>,
        /// The report of n1.b. The one of n1.a shows no fault.
        report: NodeReport,
        memory_bytes: Option<u64>,
        /// What n1.b's ranks need.
        of_ranks: Option<u64>,
        want: &'static str,
    }

    fn case(name: &'static str, report: NodeReport, want: &'static str) -> Case {
        Case { name, missing: Vec::new(), report, memory_bytes: None, of_ranks: None, want }
    }

    fn check(cases: Vec<Case>) {
        let node = |name: &str, slots| JobNode { name: name.to_owned(), virtual_address: 0, slots };
        let nodes = [node("n1.a", 2), node("n1.b", 2), node("fe.c", 0)];
        let wanted = [NamedProgram { program: "./app".to_owned(), nodes: None, is_certain: true }];
        for Case { name, missing, report: there, memory_bytes, of_ranks, want } in cases {
            let memory_of_ranks = &of_ranks.map(|bytes| ("n1.b".to_owned(), bytes)).into_iter().collect();
            let needs = Needs {
                launcher: Some("mpirun"),
                wanted: &wanted,
                nodes: &nodes,
                memory_bytes,
                memory_of_ranks,
            };
            // A node without ranks may lack anything.
            let bare = NodeReport { node: "fe.c".to_owned(), ..NodeReport::default() };
            let found = findings(&needs, &missing, &[report("n1.a"), there, bare]);
            let fatal = if found.iter().any(|finding| finding.is_fatal()) { "! " } else { "" };
            let got = format!("{fatal}{}", text(&found).trim());
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn faults_of_programs() {
        let lacks = |node: &str, directory: &str| MissingProgram {
            node: node.to_owned(),
            program: "./app".to_owned(),
            directory: directory.to_owned(),
        };
        check(vec![
            case("no fault", report("n1.b"), ""),
            Case {
                missing: vec![lacks("n1.b", "/home/ada/run")],
                ..case(
                    "the directory",
                    report("n1.b"),
                    "! n1.b: the directory /home/ada/run is missing, so ./app is, too (bring the \
                     program there with --stage, run from a directory that all nodes have, or name other nodes)",
                )
            },
            Case {
                missing: vec![lacks("n1.a", ""), lacks("n1.b", "")],
                ..case(
                    "no node has it",
                    report("n1.b"),
                    "! ./app is missing, or not executable, on every node (check its name, and the directory \
                     that you are in)",
                )
            },
            Case {
                missing: vec![lacks("n1.b", "")],
                ..case(
                    "a program",
                    report("n1.b"),
                    "! n1.b: ./app is missing, or not executable (bring it there with --stage, or name other nodes with --nodes)",
                )
            },
            case(
                "a library",
                changed(|report| report.libraries[0].missing.push("libx.so.1".to_owned())),
                "! n1.b: ./app needs libx.so.1, not found there (install it, or start the agent with LD_LIBRARY_PATH set)",
            ),
            case(
                "another MPI library",
                changed(|report| report.libraries[0].mpi = vec!["libmpi.so.40.20.1".to_owned()]),
                "! n1.b: ./app loads libmpi.so.40.20.1 there and libmpi.so.40.30.4 on this node \
                 (install the same version of the MPI on all nodes)",
            ),
            case(
                "another launcher",
                changed(|report| report.launcher_version = "MPICH 4.0.2".to_owned()),
                "! n1.b: its mpirun is of MPICH 4.0.2, this node's of Open MPI 4.1.4 \
                 (install the same MPI at the same path on all nodes)",
            ),
            case(
                "no launcher",
                changed(|report| report.launcher_version.clear()),
                "! n1.b: mpirun is missing (install the same MPI at the same path on all nodes)",
            ),
        ]);
    }

    #[test]
    fn faults_of_nodes() {
        let wanted = Some(4_000_000_000);
        check(vec![
            Case { memory_bytes: wanted, ..case("memory enough", report("n1.b"), "") },
            Case {
                memory_bytes: wanted,
                ..case(
                    "too little memory",
                    changed(|report| report.memory_available_bytes = 1_000_000),
                    "! n1.b: 1.0 MB of its 8.0 GB of memory are free, --min-memory wants 4.0 GB \
                     (free some, or name other nodes with --nodes)",
                )
            },
            Case {
                of_ranks: wanted,
                ..case(
                    "too little memory for its ranks",
                    changed(|report| report.memory_available_bytes = 1_000_000),
                    "! n1.b: 1.0 MB of its 8.0 GB of memory are free, its ranks need 4.0 GB \
                     (free some, or name other nodes with --nodes)",
                )
            },
            case(
                "a clock that may be right",
                changed(|report| {
                    (report.clock_skew_us, report.clock_uncertainty_us) = (-40_000_000, 20_000_000);
                }),
                "",
            ),
            case(
                "a clock behind",
                changed(|report| report.clock_skew_us = -40_000_000),
                "n1.b: its clock is 40 s behind this node's (set it, best by NTP)",
            ),
        ]);
    }

    #[test]
    fn faults_between_nodes() {
        let probe = |failure: &str| Probe {
            acceptor: "n1.c".to_owned(),
            took_us: 1,
            failure: failure.to_owned(),
            ..Probe::default()
        };
        check(vec![
            case("a way that works", changed(|report| report.probes = vec![probe("")]), ""),
            case(
                "no way, and a clock ahead: one line",
                changed(|report| {
                    report.clock_skew_us = 40_000_000;
                    report.probes = vec![probe("relay: refused")];
                }),
                "! n1.b: cannot reach n1.c: relay: refused (see \"What runs where\" in docs/operators.md); \
                 its clock is 40 s ahead of this node's (set it, best by NTP)",
            ),
        ]);
    }

    #[test]
    fn only_a_forbidden_way_fails_at_every_try() {
        for (remedy, want) in [
            (Remedy::None, Weight::Passing),
            (Remedy::StartRelay, Weight::Passing),
            (Remedy::AllowWay, Weight::Fatal),
        ] {
            let failure = "relay: refused".to_owned();
            let probe = Probe { failure, remedy: remedy.into(), ..Probe::default() };
            let memory_of_ranks = &BTreeMap::new();
            let needs =
                Needs { launcher: None, wanted: &[], nodes: &[], memory_bytes: None, memory_of_ranks };
            let found = findings(&needs, &[], &[NodeReport { probes: vec![probe], ..report("n1.b") }]);
            assert_eq!(found.iter().map(|finding| finding.weight).collect::<Vec<_>>(), [want], "{remedy:?}");
        }
    }

    #[test]
    fn the_slowest_way_comes_first() {
        let probe =
            |acceptor: &str, took_us| Probe { acceptor: acceptor.to_owned(), took_us, ..Probe::default() };
        let report =
            NodeReport { probes: vec![probe("n1.c", 1500), probe("n1.d", 20_000)], ..report("n1.b") };
        assert_eq!(probes(&[report]), "  b reached d in 20.0 ms\n  b reached c in 1.5 ms\n");
    }
}
