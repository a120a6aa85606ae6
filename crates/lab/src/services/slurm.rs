//! The Slurm of each site that has one: which daemons run where, and their configuration. Here is
//! decided what; [`super::run::slurm`] does it.

use super::daemon::{Daemon, RealMachine, short};
use crate::grid::{Grid, Node, Role, Site};

/// The directory of a machine with Slurm's configuration, keys, records and the scripts of jobs. No
/// other user may enter it.
pub(crate) const DIRECTORY: &str = "/run/isthmus-machine/slurm";
/// Slurm's configuration, for its daemons and its commands.
pub(crate) const CONFIGURATION: &str = "/run/isthmus-machine/slurm/slurm.conf";
/// The script that sets the clock of jobs, where a site's clock is wrong.
pub(crate) const CLOCK: &str = "/run/isthmus-machine/slurm/clock";
/// Configuration of the control groups of jobs, where a site's Slurm confines them. Slurm looks for it
/// beside its own.
pub(crate) const GROUPS: (&str, &str) =
    ("/run/isthmus-machine/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n");
/// The key by which a site's munged know one another (munged(8)).
pub(crate) const KEY: &str = "/run/isthmus-machine/slurm/munge.key";
/// Where Slurm looks for munged's socket (munged(8), `--socket`).
pub(crate) const SOCKET: &str = "/run/munge/munge.socket.2";
/// The directory of Slurm's records, below [`DIRECTORY`]. slurmctld and slurmd don't make it.
pub(crate) const RECORDS: [&str; 2] =
    ["/run/isthmus-machine/slurm/state", "/run/isthmus-machine/slurm/spool"];

/// The Slurm of one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slurm {
    /// Name of the site, and of the cluster.
    pub site: String,
    /// The machine of slurmctld.
    pub controller: String,
    /// The number of nodes for jobs.
    pub nodes: usize,
    /// Text of slurm.conf (slurm.conf(5)), the same on all machines of the site.
    pub configuration: String,
    /// By how many seconds the site's clock is ahead.
    pub clock_ahead_seconds: i32,
    /// Whether jobs have control groups of their own.
    pub confines: bool,
    /// The daemons, each after those that it needs.
    pub daemons: Vec<Daemon>,
}

/// The Slurms of a grid's sites.
pub(crate) fn slurms(grid: &Grid, machine: RealMachine) -> Vec<Slurm> {
    grid.sites.iter().filter_map(|site| slurm(site, machine)).collect()
}

fn slurm(site: &Site, machine: RealMachine) -> Option<Slurm> {
    let with = |role: Role| site.nodes.iter().filter(move |node| node.roles.contains(&role));
    let controller = with(Role::Slurmctld).next()?;
    let name = |node: &Node| format!("{}.{}", node.name, site.name);
    let daemon = |role, node: &Node| Daemon {
        role,
        machine: name(node),
        arguments: arguments(role, node),
        variables: &[],
    };
    let ours = site.nodes.iter().filter(|node| node.roles.iter().any(|role| role.is_of_slurm()));
    let munged = ours.map(|node| daemon(Role::Munged, node));
    let slurmd = with(Role::Slurmd).map(|node| daemon(Role::Slurmd, node));
    Some(Slurm {
        site: site.name.clone(),
        controller: name(controller),
        nodes: with(Role::Slurmd).count(),
        configuration: configuration(site, controller, machine),
        clock_ahead_seconds: site.clock_ahead_seconds,
        confines: site.slurm_confines,
        daemons: munged.chain([daemon(Role::Slurmctld, controller)]).chain(slurmd).collect(),
    })
}

/// The arguments of a daemon, which stays in the foreground and logs to standard error.
fn arguments(role: Role, node: &Node) -> Vec<String> {
    let words: &[&str] = match role {
        // A machine's `/` may belong to nobody that munged trusts, as in a container. Its files are in
        // a directory of this user alone.
        Role::Munged => &[
            "--foreground",
            "--force",
            "--key-file=/run/isthmus-machine/slurm/munge.key",
            "--seed-file=/run/isthmus-machine/slurm/munge.seed",
            "--pid-file=/run/isthmus-machine/slurm/munged.pid",
        ],
        Role::Slurmctld => &["-D", "-c", "-f", CONFIGURATION],
        Role::Slurmd => &["-D", "-f", CONFIGURATION, "-N", &node.name],
        Role::Broker | Role::Relay | Role::Gateway | Role::Agent | Role::SgeQmaster | Role::SgeExecd => &[],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Text of slurm.conf. Where nodes have no control groups of their own, Slurm finds a job's processes
/// by their parents.
fn configuration(site: &Site, controller: &Node, machine: RealMachine) -> String {
    let RealMachine { user, cores } = machine;
    let mut text = format!(
        "ClusterName={}\n\
         SlurmctldHost={}({})\n\
         SlurmUser={user}\n\
         SlurmdUser={user}\n\
         AuthType=auth/munge\n\
         CredType=cred/munge\n\
         StateSaveLocation={DIRECTORY}/state\n\
         SlurmdSpoolDir={DIRECTORY}/spool\n\
         SlurmctldPidFile={DIRECTORY}/slurmctld.pid\n\
         SlurmdPidFile={DIRECTORY}/slurmd.pid\n\
         TaskPlugin=task/none\n\
         JobAcctGatherType=jobacct_gather/none\n\
         MpiDefault=none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\n\
         ReturnToService=2\n\
         MessageTimeout=60\n",
        site.name.to_ascii_lowercase(),
        short(&controller.host_name),
        controller.address,
    );
    text.push_str(match site.slurm_confines {
        true => {
            "ProctrackType=proctrack/cgroup\n\
             PrologFlags=Contain\n"
        }
        false => "ProctrackType=proctrack/linuxproc\n",
    });
    if site.clock_ahead_seconds != 0 {
        text.push_str(&format!("TaskProlog={CLOCK}\n"));
    }
    for node in site.nodes.iter().filter(|node| node.roles.contains(&Role::Slurmd)) {
        let features = match node.features.as_slice() {
            [] => String::new(),
            features => format!(" Feature={}", features.join(",")),
        };
        text.push_str(&format!(
            "NodeName={} NodeHostname={} NodeAddr={} CPUs={}{features} State=UNKNOWN\n",
            node.name,
            short(&node.host_name),
            node.address,
            node.slots.unwrap_or(cores),
        ));
    }
    text.push_str("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::MACHINE_DIRECTORY;

    const GRID: &str = r#"
        [[host]]
        name = "hub"
        [[site]]
        name = "alpha"
        kind = "nat"
        subnet = "192.168.1.0/24"
        nodes = [
            { name = "login", host_name = "login.alpha.example", roles = ["slurmctld"] },
            { name = "n1", roles = ["slurmd"], slots = 4, features = ["gpu", "ib"] },
            { name = "n2", host_name = "node2", roles = ["slurmd"] },
            { name = "n3" },
        ]
        [[site]]
        name = "beta"
        kind = "open"
        nodes = [{ name = "n1" }]
    "#;

    fn found(text: &str) -> Vec<Slurm> {
        let grid = Grid::parse(text, "test", "test").unwrap();
        slurms(&grid, RealMachine { user: 1000, cores: 2 })
    }

    #[test]
    fn a_site_s_slurm_has_its_daemons_in_order() {
        let [slurm] = &found(GRID)[..] else { panic!("one site has a Slurm") };
        assert_eq!((slurm.controller.as_str(), slurm.nodes), ("login.alpha", 2));
        let daemons =
            slurm.daemons.iter().map(|daemon| format!("{} {}", daemon.role.command(), daemon.machine));
        assert_eq!(
            daemons.collect::<Vec<_>>(),
            [
                "munged login.alpha",
                "munged n1.alpha",
                "munged n2.alpha",
                "slurmctld login.alpha",
                "slurmd n1.alpha",
                "slurmd n2.alpha"
            ]
        );
        assert_eq!(slurm.daemons[5].arguments, ["-D", "-f", CONFIGURATION, "-N", "n2"]);
    }

    #[test]
    fn nodes_are_told_by_name_host_and_address() {
        let text = &found(GRID)[0].configuration;
        for line in [
            "ClusterName=alpha",
            "SlurmctldHost=login(192.168.1.2)",
            "SlurmUser=1000",
            "NodeName=n1 NodeHostname=n1 NodeAddr=192.168.1.3 CPUs=4 Feature=gpu,ib State=UNKNOWN",
            "NodeName=n2 NodeHostname=node2 NodeAddr=192.168.1.4 CPUs=2 State=UNKNOWN",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("n3"), "{text}");
    }

    #[test]
    fn files_are_in_the_lab_s_own_directory() {
        for path in RECORDS.iter().chain(&[DIRECTORY, CONFIGURATION, KEY]) {
            assert!(path.starts_with(MACHINE_DIRECTORY), "{path}");
        }
        let munged = &found(GRID)[0].daemons[0];
        assert!(munged.arguments.contains(&format!("--key-file={KEY}")), "{munged:?}");
    }

    #[test]
    fn a_batch_system_must_be_whole() {
        let node = |name: &str, roles: &str| format!("{{ name = \"{name}\", roles = [{roles}] }},");
        for (nodes, want) in [
            (node("n1", "\"slurmctld\""), "no node with the slurmd role"),
            (node("n1", "\"slurmd\""), "no node with the slurmctld role"),
            (
                node("n1", "\"slurmctld\", \"slurmd\"") + &node("n2", "\"slurmctld\""),
                "has a slurmctld already",
            ),
            (node("n1", "\"slurmctld\", \"slurmd\", \"munged\""), "leave it out"),
            (node("n1", "\"slurmctld\", \"slurmd\""), ""),
        ] {
            let text = format!("[[site]]\nname = \"alpha\"\nkind = \"open\"\nnodes = [{nodes}]");
            let error = Grid::parse(&text, "test", "test").map_err(|error| error.to_string()).err();
            assert_eq!(error.is_none(), want.is_empty(), "{nodes}: {error:?}");
            assert!(error.is_none_or(|error| error.contains(want)), "{nodes}");
        }
    }
}
