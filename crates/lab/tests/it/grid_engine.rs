//! Sites with a real Grid Engine: it runs jobs on its own site's nodes, of one slot or over several, and
//! ends with the lab.

use std::path::Path;

use isthmus_lab::grid::Role;
use isthmus_lab::{Grid, Lab, Options};
use nix::sys::signal::Signal;

use crate::common::{eventually, labs_run_here, options, shell, unique_name};

const GRID: &str = r#"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    nodes = [
        { name = "n1", roles = ["sge_qmaster"] },
        { name = "n2", roles = ["sge_execd"], slots = 2 },
        { name = "n3", host_name = "node3", roles = ["sge_execd"], slots = 2 },
    ]
    [[site]]
    name = "beta"
    kind = "nat"
    subnet = "192.168.1.0/24"
    nodes = [{ name = "n1", roles = ["sge_qmaster", "sge_execd"] }]
"#;

/// Whether labs run here as root, and Grid Engine is installed: not every system's archive has it.
fn grid_engine_runs_here() -> bool {
    if !Path::new("/usr/sbin/sge_qmaster").exists() || !Path::new("/usr/sbin/sge_execd").exists() {
        eprintln!("SKIPPED: Grid Engine isn't installed (scripts/setup test)");
        return false;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: Grid Engine needs root");
        return false;
    }
    labs_run_here()
}

#[test]
fn each_site_has_a_grid_engine_of_its_own() {
    if !grid_engine_runs_here() {
        return;
    }
    let grid = Grid::parse(GRID, "test", &unique_name()).unwrap();
    let lab = Lab::up_with(&grid, &Options { services: true, ..options() })
        .unwrap_or_else(|error| panic!("{error}"));
    let sh = |machine: &str, line: &str| shell(lab.machine(machine).unwrap(), line);
    // Each machine has a /tmp of its own.
    let submit = |options: &str| {
        format!("printf 'hostname\\n' | timeout 60 qsub -sync y -S /bin/sh -j y -o /tmp/out {options}")
    };
    sh("n1.alpha", &submit("-q all.q@node3"));
    assert_eq!(sh("n3.alpha", "cat /tmp/out"), "node3\n");
    sh("n1.beta", &submit("-pe one 1"));
    assert_eq!(sh("n1.beta", "cat /tmp/out"), "n1\n");
    // Two slots of each of two hosts.
    let wide = "printf 'for host in $(cut -d\" \" -f1 $PE_HOSTFILE); do \
                qrsh -inherit -nostdin $host /usr/bin/touch /tmp/was-here </dev/null; done\n' \
                | timeout 60 qsub -sync y -S /bin/sh -j y -o /tmp/out2 -pe each2 4";
    sh("n1.alpha", wide);
    for node in ["n2.alpha", "n3.alpha"] {
        sh(node, "test -e /tmp/was-here");
    }
    eventually("the queue is empty", || sh("n1.alpha", "qstat -u '*'").is_empty());
    let cell = "stat -c %a /run/isthmus-machine/grid-engine";
    assert_eq!(["n1.alpha", "n2.alpha"].map(|machine| sh(machine, cell)), ["700\n", "700\n"]);
    // A daemon is a service of the lab.
    assert!(lab.kill("n3.alpha", Some(Role::SgeExecd), Signal::SIGKILL).unwrap() > 0);
    lab.down().unwrap();
}
