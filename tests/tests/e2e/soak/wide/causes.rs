//! Who is named as the one that ended a job, and whether that is who did.

use isthmus_e2e::Mpi;

use super::hits::{Hit, Process, site};
use crate::life::daemon;
use crate::soak::faults::What;
use crate::soak::running::Spec;

/// What a job's account says has ended it. `None` if it says nothing about that.
pub(super) fn cause(printed: &str) -> Option<&str> {
    printed.lines().find_map(|line| line.strip_prefix("  cause: "))
}

/// The name by which users know an MPI's launcher.
fn launcher(mpi: Mpi) -> String {
    let path = mpi.launcher();
    path.rsplit('/').next().unwrap_or(&path).to_owned()
}

/// Whether a cause in an account names the hit.
pub(super) fn is_named(hit: &Hit, spec: &Spec, cause: &str) -> bool {
    let (head, daemon) = (spec.head(), daemon(spec.mpi));
    match hit {
        Hit::Process(process, signal) => {
            let ended =
                |what: &str, node: &str| cause == format!("{what} on {node} was ended by SIG{signal}");
            match process {
                Process::Run => cause == format!("SIG{signal} to `isthmus run`"),
                Process::Launcher => ended(&launcher(spec.mpi), head),
                Process::Launch => {
                    spec.nodes.iter().any(|node| ended(&format!("`isthmus launch {node}`"), head))
                }
                Process::Daemon(node) => ended(daemon, node),
                Process::Supervisor(node) => ended(&format!("the supervisor of {daemon}"), node),
                Process::Rank(node) => (0..spec.ranks).any(|rank| ended(&format!("rank {rank}"), node)),
            }
        }
        Hit::Grid(What::Cut(cut)) if *cut == site(head) => {
            cause.starts_with(&format!("site {cut} is cut off from "))
        }
        Hit::Grid(What::Cut(cut)) => {
            let lost = lost(cause);
            !lost.is_empty() && lost.iter().all(|node| site(node) == *cut)
        }
        Hit::Grid(What::Killed(services)) => services.iter().any(|(node, role)| match *role {
            "agent" if *node == head => cause == format!("this node's agent is gone ({head})"),
            "agent" => lost(cause) == [*node],
            _ => false,
        }),
        Hit::Grid(_) => false,
    }
}

/// The nodes that a cause says were lost.
fn lost(cause: &str) -> Vec<&str> {
    let names = cause.strip_prefix("lost nodes ").or_else(|| cause.strip_prefix("lost node "));
    let Some((names, _)) = names.and_then(|names| names.split_once(": ")) else { return Vec::new() };
    let names = names.split_once(" of site ").map_or(names, |(names, _)| names);
    let names = names.split_once(" and ").map_or(names, |(names, _)| names);
    names.split(", ").collect()
}

/// Whether a job that didn't start, or was ended by what it met, mentions who is to blame. A site
/// that can't be reached is known by its nodes, and the head's own site by all that it can't reach.
pub(super) fn mentions(hit: &Hit, spec: &Spec, printed: &str) -> bool {
    let Hit::Grid(what) = hit else { return false };
    let own: Vec<_> =
        printed.lines().filter(|line| line.contains("isthmus: ") || line.starts_with("  ")).collect();
    let has = |text: &str| own.iter().any(|line| line.contains(text));
    let of_site = |name: &str| {
        let is_own = name == site(spec.head());
        let nodes = spec.nodes.iter().filter(|node| is_own != (site(node) == name));
        has(&format!("site {name}")) || nodes.into_iter().any(|node| has(node)) || (is_own && has("broker"))
    };
    match what {
        What::Cut(site) | What::Apart(site) | What::Link(site, _) | What::Swallows(site, _) => of_site(site),
        What::Restarts(site) | What::Forgets(site) | What::Moves(site) | What::Timeouts(site, _) => {
            of_site(site)
        }
        What::Killed(services) => services.iter().any(|(machine, role)| match *role {
            "agent" if *machine == spec.head() => has("agent"),
            "agent" => has(machine),
            "gateway" => has("gateway") || of_site(site(machine)),
            role => has(role),
        }),
        What::Upgraded((_, role)) => has(role),
        What::Host(host) => has(host) || has("broker") || has("relay"),
        What::Rank(_) => false,
    }
}

#[cfg(test)]
fn spec(mpi: Mpi) -> Spec {
    let nodes = vec!["n1.alpha", "n1.beta", "n2.beta", "n1.gamma"];
    Spec { mpi, nodes, ranks: 4, outlive: std::time::Duration::from_secs(8) }
}

#[test]
fn who_ended_a_job_is_told_from_others() {
    let killed = |service| Hit::Grid(What::Killed(vec![service]));
    for (hit, cause, want) in [
        (Hit::Process(Process::Run, "TERM"), "SIGTERM to `isthmus run`", true),
        (Hit::Process(Process::Run, "TERM"), "SIGINT to `isthmus run`", false),
        (Hit::Process(Process::Launcher, "TERM"), "mpirun.openmpi on n1.alpha was ended by SIGTERM", true),
        (Hit::Process(Process::Launcher, "TERM"), "rank 3 on n1.beta was ended by SIGTERM", false),
        (
            Hit::Process(Process::Launch, "KILL"),
            "`isthmus launch n1.beta` on n1.alpha was ended by SIGKILL",
            true,
        ),
        (Hit::Process(Process::Daemon("n1.beta"), "KILL"), "orted on n1.beta was ended by SIGKILL", true),
        (Hit::Process(Process::Daemon("n1.beta"), "KILL"), "orted on n2.beta was ended by SIGKILL", false),
        (
            Hit::Process(Process::Supervisor("n1.beta"), "KILL"),
            "the supervisor of orted on n1.beta was ended by SIGKILL",
            true,
        ),
        (Hit::Process(Process::Rank("n1.gamma"), "KILL"), "rank 3 on n1.gamma was ended by SIGKILL", true),
        (Hit::Process(Process::Rank("n1.gamma"), "KILL"), "rank 3 on n1.beta was ended by SIGKILL", false),
        (
            Hit::Grid(What::Cut("beta")),
            "lost nodes n1.beta, n2.beta of site beta: no sign of life for 8 s",
            true,
        ),
        (Hit::Grid(What::Cut("beta")), "lost node n1.beta: no sign of life for 8 s", true),
        (Hit::Grid(What::Cut("beta")), "lost nodes n1.beta, n1.gamma: no sign of life for 8 s", false),
        (Hit::Grid(What::Cut("beta")), "lost node n1.gamma: no sign of life for 8 s", false),
        (Hit::Grid(What::Cut("alpha")), "lost node n1.beta: no sign of life for 8 s", false),
        (
            Hit::Grid(What::Cut("alpha")),
            "site alpha is cut off from n1.beta, n1.gamma, and from the broker, for 9.0 s",
            true,
        ),
        (killed(("n1.beta", "agent")), "lost node n1.beta: its agent has ended, or its machine", true),
        (killed(("n1.beta", "agent")), "lost nodes n1.beta, n2.beta of site beta: gone", false),
        (killed(("n1.beta", "agent")), "lost node n2.beta: its agent has ended", false),
        (killed(("n1.alpha", "agent")), "this node's agent is gone (n1.alpha)", true),
        (killed(("hub", "broker")), "lost node n1.beta: gone", false),
    ] {
        assert_eq!(is_named(&hit, &spec(Mpi::OpenMpi), cause), want, "{hit:?}: {cause}");
    }
    let cause = "mpiexec on n1.alpha was ended by SIGTERM";
    assert!(is_named(&Hit::Process(Process::Launcher, "TERM"), &spec(Mpi::Mpich), cause));
}

#[test]
fn the_account_has_the_cause() {
    assert_eq!(cause("isthmus: lost node a\n  cause: lost node a\nmore"), Some("lost node a"));
    assert_eq!(cause("isthmus: lost node a\n"), None);
}

#[test]
fn a_job_that_does_not_start_mentions_who_is_away() {
    for (what, printed, want) in [
        (What::Cut("beta"), "isthmus: not started: n1.beta cannot take part", true),
        (What::Cut("beta"), "isthmus: not started\n  n2.beta: no answer within 30 s", true),
        (What::Cut("beta"), "isthmus: not started: n1.gamma cannot take part", false),
        (What::Cut("beta"), "rank 3 on n1.beta says hello", false),
        (What::Cut("alpha"), "isthmus: not started: n1.gamma cannot take part", true),
        (What::Cut("alpha"), "isthmus: not started: the broker can't be reached", true),
        (What::Cut("alpha"), "isthmus: not started: no room on n1.alpha", false),
        (What::Killed(vec![("n2.beta", "gateway")]), "isthmus: not started: gateway n2.beta is away", true),
        (What::Killed(vec![("n1.beta", "agent")]), "isthmus: lost node n1.beta: gone", true),
        (What::Killed(vec![("n1.beta", "agent")]), "isthmus: lost node n2.beta: gone", false),
        (What::Host("hub"), "isthmus: not started: the broker can't be reached", true),
        (What::Host("hub"), "isthmus: not started: 'x' is not a program", false),
    ] {
        assert_eq!(
            mentions(&Hit::Grid(what.clone()), &spec(Mpi::OpenMpi), printed),
            want,
            "{what:?}: {printed}"
        );
    }
}
