//! The Grid Engine of each site that has one: which daemons run where, and what they read. Here is
//! decided what; [`super::run::grid_engine`] does it.
//!
//! Each machine has a cell of its own (sge_intro(1)), with the same content. What the site has of hosts,
//! queues and parallel environments is the master's alone.

use std::net::Ipv4Addr;

use super::daemon::{Daemon, RealMachine, short};
use crate::grid::{Grid, Node, Role, Site};

/// The directory of a machine with Grid Engine's cell, its records and the scripts of jobs. No other user
/// may enter it.
pub(crate) const DIRECTORY: &str = "/run/isthmus-machine/grid-engine";
/// The directories in [`DIRECTORY`], each after those that it is in.
pub(crate) const DIRECTORIES: [&str; 9] = [
    "root",
    "root/default",
    "root/default/common",
    "execd",
    "master",
    "master/job_scripts",
    "given",
    "given/hosts",
    "given/environments",
];
/// Parts of Grid Engine that are at `$SGE_ROOT`, and the directory in which Debian has them.
pub(crate) const PARTS: ([&str; 4], &str) = (["bin", "lib", "utilbin", "util"], "/var/lib/gridengine");
/// The file by which daemons and commands find the rest (bootstrap(5)).
pub(crate) const BOOTSTRAP: &str = "/run/isthmus-machine/grid-engine/root/default/common/bootstrap";
/// The variables by which daemons and commands find the cell (sge_intro(1)).
pub(crate) const VARIABLES: [(&str, &str); 4] = [
    ("SGE_ROOT", "/run/isthmus-machine/grid-engine/root"),
    ("SGE_CELL", "default"),
    ("SGE_QMASTER_PORT", "6444"),
    ("SGE_EXECD_PORT", "6445"),
];
/// A daemon with this variable stays in the foreground, and logs to standard error.
const FOREGROUND: &[(&str, &str)] = &[("SGE_ND", "1")];
/// The only queue.
const QUEUE: &str = "all.q";
/// A job can ask for so many slots of each node at least.
const MOST_SLOTS: u32 = 8;

/// A script of `sh` that makes the master's records, before it starts.
pub(crate) const RECORDS: &str = "\
umask 077
cell=/run/isthmus-machine/grid-engine own=/usr/lib/gridengine shared=/usr/share/gridengine
sed -f $cell/given/configuration.sed $shared/default-configuration >$cell/given/configuration
$own/spoolinit classic libspoolc \"$cell/root/default/common;$cell/master\" init
$own/spooldefaults configuration $cell/given/configuration
$own/spooldefaults complexes $shared/util/resources/centry
$own/spooldefaults usersets $shared/util/resources/usersets
$own/spooldefaults adminhosts $cell/given/hosts
$own/spooldefaults submithosts $cell/given/hosts
$own/spooldefaults pes $cell/given/environments
$own/spooldefaults managers root
";
/// A script of `sh` that makes the queue, once the master answers.
pub(crate) const OPEN: &str = "\
umask 077
given=/run/isthmus-machine/grid-engine/given
qconf -sq | sed -f $given/queue.sed >$given/queue
qconf -Aq $given/queue
qconf -ssconf | sed -f $given/schedule.sed >$given/schedule
qconf -Msconf $given/schedule
";
/// Changes of Grid Engine's own configuration (sge_conf(5)): root may have jobs, loads and ends are
/// reported soon, and nobody gets mail.
const CONFIGURATION: &str = "\
s|^execd_spool_dir.*|execd_spool_dir /run/isthmus-machine/grid-engine/execd|
s|^min_uid.*|min_uid 0|
s|^min_gid.*|min_gid 0|
s|^mailer.*|mailer /bin/true|
s|^administrator_mail.*|administrator_mail none|
s|^load_report_time.*|load_report_time 00:00:03|
s|^reporting_params.*|reporting_params accounting=true reporting=false flush_time=00:00:01 joblog=false|
";
/// Changes of the scheduler's configuration (sched_conf(5)): jobs don't wait for the next round, and
/// it is said why they wait.
const SCHEDULE: &str = "\
s|^schedule_interval.*|schedule_interval 0:0:2|
s|^flush_submit_sec.*|flush_submit_sec 1|
s|^flush_finish_sec.*|flush_finish_sec 1|
s|^schedd_job_info.*|schedd_job_info true|
";

/// The Grid Engine of one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GridEngine {
    /// Name of the site.
    pub site: String,
    /// The daemon that queues jobs.
    pub master: Daemon,
    /// The daemons of the nodes for jobs.
    pub nodes: Vec<Daemon>,
    /// The machines that have a cell.
    pub machines: Vec<Machine>,
    /// What each machine's cell has: paths below [`DIRECTORY`], and texts.
    pub cell: Vec<(&'static str, String)>,
    /// What the master reads besides: paths below [`DIRECTORY`], and texts.
    pub given: Vec<(String, String)>,
}

/// A machine of a site with Grid Engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The machine's name in the lab.
    pub name: String,
    /// The machine's address and host name.
    pub host: (Ipv4Addr, String),
}

/// The Grid Engines of a grid's sites.
pub(crate) fn grid_engines(grid: &Grid, machine: RealMachine) -> Vec<GridEngine> {
    grid.sites.iter().filter_map(|site| grid_engine(site, machine)).collect()
}

fn grid_engine(site: &Site, machine: RealMachine) -> Option<GridEngine> {
    let with = |role: Role| site.nodes.iter().filter(move |node| node.roles.contains(&role));
    let master = with(Role::SgeQmaster).next()?;
    let name = |node: &Node| format!("{}.{}", node.name, site.name);
    let daemon = |role, node: &Node| Daemon {
        role,
        machine: name(node),
        arguments: Vec::new(),
        variables: FOREGROUND,
    };
    let ours = site.nodes.iter().filter(|node| node.roles.iter().any(|role| role.is_of_grid_engine()));
    let ours: Vec<&Node> = ours.collect();
    let slots = |node: &Node| node.slots.unwrap_or(machine.cores);
    let nodes: Vec<(&str, u32)> =
        with(Role::SgeExecd).map(|node| (short(&node.host_name), slots(node))).collect();
    let host = |node: &&Node| Machine { name: name(node), host: (node.address, node.host_name.clone()) };
    let names: Vec<&str> = ours.iter().map(|node| short(&node.host_name)).collect();
    Some(GridEngine {
        site: site.name.clone(),
        master: daemon(Role::SgeQmaster, master),
        nodes: with(Role::SgeExecd).map(|node| daemon(Role::SgeExecd, node)).collect(),
        machines: ours.iter().map(host).collect(),
        cell: vec![
            ("root/default/common/bootstrap", bootstrap()),
            ("root/default/common/act_qmaster", format!("{}\n", short(&master.host_name))),
        ],
        given: given(&names, &nodes),
    })
}

impl GridEngine {
    /// Lines of hosts(5) for a machine: its site's other hosts. Grid Engine knows hosts by name alone.
    pub(crate) fn hosts(&self, machine: &str) -> String {
        let others = self.machines.iter().filter(|other| other.name != machine);
        let line = |Machine { host: (address, name), .. }: &Machine| match short(name) {
            short if short == name => format!("{address} {name}\n"),
            short => format!("{address} {name} {short}\n"),
        };
        others.map(line).collect()
    }
}

/// Text of bootstrap(5). Host names are compared by their first labels.
fn bootstrap() -> String {
    format!(
        "admin_user              none\n\
         default_domain          none\n\
         ignore_fqdn             true\n\
         spooling_method         classic\n\
         spooling_lib            libspoolc\n\
         spooling_params         {DIRECTORY}/root/default/common;{DIRECTORY}/master\n\
         binary_path             /usr/sbin\n\
         qmaster_spool_dir       {DIRECTORY}/master\n\
         security_mode           none\n\
         listener_threads        2\n\
         worker_threads          2\n\
         scheduler_threads       1\n"
    )
}

/// What the master reads: the hosts that may ask it, the parallel environments, and changes of what Grid
/// Engine has by default. `nodes` are those for jobs, with their slots.
fn given(hosts: &[&str], nodes: &[(&str, u32)]) -> Vec<(String, String)> {
    let most = nodes.iter().map(|(_, slots)| *slots).max().unwrap_or(1).max(MOST_SLOTS);
    // One host with any number of slots; or several with a fixed number each.
    let rules = (1..=most).map(|slots| (format!("each{slots}"), slots.to_string()));
    let rules: Vec<(String, String)> =
        std::iter::once(("one".to_owned(), "$pe_slots".to_owned())).chain(rules).collect();
    let environments = rules.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ");
    let own = |file: &str, text: String| (format!("given/{file}"), text);
    let hosts = hosts.iter().map(|host| own(&format!("hosts/{host}"), format!("hostname {host}\n")));
    let all = hosts
        .chain(rules.iter().map(|(name, rule)| own(&format!("environments/{name}"), environment(name, rule))))
        .chain([
            own("configuration.sed", CONFIGURATION.to_owned()),
            own("schedule.sed", SCHEDULE.to_owned()),
            own("queue.sed", queue(nodes, &environments)),
        ]);
    all.collect()
}

/// Text of a parallel environment (sge_pe(5)).
fn environment(name: &str, allocation_rule: &str) -> String {
    format!(
        "pe_name {name}\n\
         slots 99999\n\
         user_lists NONE\n\
         xuser_lists NONE\n\
         start_proc_args NONE\n\
         stop_proc_args NONE\n\
         allocation_rule {allocation_rule}\n\
         control_slaves TRUE\n\
         job_is_first_task FALSE\n\
         urgency_slots min\n\
         accounting_summary TRUE\n\
         qsort_args NONE\n"
    )
}

/// Changes that make the queue of Grid Engine's template (queue_conf(5)). A busy machine takes jobs all
/// the same.
fn queue(nodes: &[(&str, u32)], environments: &str) -> String {
    let hosts = nodes.iter().map(|(host, _)| *host).collect::<Vec<_>>().join(" ");
    let slots: String = nodes.iter().map(|(host, slots)| format!(",[{host}={slots}]")).collect();
    format!(
        "s|^qname.*|qname {QUEUE}|\n\
         s|^hostlist.*|hostlist {hosts}|\n\
         s|^slots.*|slots 1{slots}|\n\
         s|^pe_list.*|pe_list {environments}|\n\
         s|^load_thresholds.*|load_thresholds NONE|\n"
    )
}

/// How many nodes take jobs, from `qstat -f`: a queue's line on a host that doesn't has the letters of its
/// states (qstat(1)) as a sixth field.
pub(crate) fn taking(listed: &str) -> usize {
    let of_queue = |line: &&str| line.starts_with(&format!("{QUEUE}@"));
    listed.lines().filter(of_queue).filter(|line| line.split_whitespace().count() == 5).count()
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
            { name = "login", host_name = "login.alpha.example", roles = ["sge_qmaster"] },
            { name = "n1", roles = ["sge_execd"], slots = 4 },
            { name = "n2", host_name = "node2", roles = ["sge_execd"] },
            { name = "n3" },
        ]
        [[site]]
        name = "beta"
        kind = "open"
        nodes = [{ name = "n1" }]
    "#;

    fn found(text: &str) -> GridEngine {
        let grid = Grid::parse(text, "test", "test").unwrap();
        let mut all = grid_engines(&grid, RealMachine { user: 0, cores: 2 });
        assert_eq!(all.len(), 1, "one site has a Grid Engine");
        all.remove(0)
    }

    #[test]
    fn a_site_s_grid_engine_has_a_master_and_nodes() {
        let engine = found(GRID);
        assert_eq!((engine.site.as_str(), engine.master.machine.as_str()), ("alpha", "login.alpha"));
        let nodes: Vec<_> = engine.nodes.iter().map(|node| (node.role, node.machine.as_str())).collect();
        assert_eq!(nodes, [(Role::SgeExecd, "n1.alpha"), (Role::SgeExecd, "n2.alpha")]);
        assert_eq!(engine.hosts("login.alpha"), "192.168.1.3 n1\n192.168.1.4 node2\n");
        assert_eq!(engine.hosts("n1.alpha"), "192.168.1.2 login.alpha.example login\n192.168.1.4 node2\n");
    }

    #[test]
    fn the_master_is_given_hosts_slots_and_environments() {
        let engine = found(GRID);
        assert!(engine.cell.iter().any(|(path, text)| path.ends_with("act_qmaster") && text == "login\n"));
        let given = |path: &str| {
            let found = engine.given.iter().find(|(name, _)| name == path);
            found.unwrap_or_else(|| panic!("no {path}")).1.clone()
        };
        assert_eq!(given("given/hosts/login"), "hostname login\n");
        assert!(given("given/environments/each2").contains("\nallocation_rule 2\n"));
        assert!(given("given/environments/one").contains("\nallocation_rule $pe_slots\n"));
        let queue = given("given/queue.sed");
        for line in
            ["s|^hostlist.*|hostlist n1 node2|", "s|^slots.*|slots 1,[n1=4],[node2=2]|", "each7 each8|"]
        {
            assert!(queue.contains(line), "{line} is not in\n{queue}");
        }
    }

    #[test]
    fn files_are_in_the_lab_s_own_directory() {
        assert!(DIRECTORY.starts_with(MACHINE_DIRECTORY));
        let engine = found(GRID);
        assert_eq!(BOOTSTRAP, format!("{DIRECTORY}/{}", engine.cell[0].0));
        assert_eq!(VARIABLES[0].1, format!("{DIRECTORY}/root"));
        for (variable, role) in [(VARIABLES[2], Role::SgeQmaster), (VARIABLES[3], Role::SgeExecd)] {
            assert_eq!(variable.1, role.port().to_string());
        }
        for path in engine.given.iter().map(|(path, _)| path.as_str()) {
            let directory = path.rsplit_once('/').unwrap().0;
            assert!(DIRECTORIES.contains(&directory), "{path}");
        }
    }

    #[test]
    fn a_batch_system_must_be_whole() {
        for (roles, more, want) in [
            ("\"sge_qmaster\"", "", "no node with the sge_execd role"),
            ("\"sge_execd\"", "", "no node with the sge_qmaster role"),
            ("\"sge_qmaster\", \"sge_execd\"", "clock_ahead_seconds = 60", "leave `clock_ahead_seconds` out"),
            ("\"sge_qmaster\", \"sge_execd\"", "", ""),
        ] {
            let text = format!(
                "[[site]]\nname = \"alpha\"\nkind = \"open\"\n{more}\nnodes = [{{ name = \"n1\", roles = [{roles}] }}]"
            );
            let error = Grid::parse(&text, "test", "test").map_err(|error| error.to_string()).err();
            assert_eq!(error.is_none(), want.is_empty(), "{roles}: {error:?}");
            assert!(error.is_none_or(|error| error.contains(want)), "{roles}");
        }
    }

    #[test]
    fn nodes_take_jobs_once_their_load_is_known() {
        let line = "---------------------------------------------------------------------------------\n";
        let head = "queuename                      qtype resv/used/tot. load_avg arch          states\n";
        let idle = "all.q@n2                       BIP   0/0/2          1.89     lx-amd64      \n";
        let unknown = "all.q@n3                       BIP   0/0/2          -NA-     -NA-          au\n";
        for (listed, want) in [
            (String::new(), 0),
            (format!("{head}{line}{unknown}{line}{unknown}"), 0),
            (format!("{head}{line}{idle}{line}{unknown}"), 1),
            (format!("{head}{line}{idle}{line}{idle}"), 2),
        ] {
            assert_eq!(taking(&listed), want, "{listed}");
        }
    }
}
