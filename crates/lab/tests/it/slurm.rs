//! Sites with a real Slurm: it runs jobs on its own site's nodes, keeps its key to itself, and ends
//! with the lab.

use std::collections::BTreeSet;
use std::path::Path;

use isthmus_lab::grid::Role;
use isthmus_lab::{Grid, Lab, Options};
use nix::sys::signal::Signal;

use crate::common::{eventually, labs_run_here, namespaces, options, processes_in, shell, unique_name};

const GRID: &str = r#"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    nodes = [
        { name = "n1", host_name = "login.alpha.example", roles = ["slurmctld"] },
        { name = "n2", roles = ["slurmd"], slots = 2 },
        { name = "n3", host_name = "node3", roles = ["slurmd"], slots = 2 },
    ]
    [[site]]
    name = "beta"
    kind = "nat"
    subnet = "192.168.1.0/24"
    nodes = [{ name = "n1", roles = ["slurmctld", "slurmd"] }]
"#;

/// Whether labs run here, and Slurm is installed. Fails in continuous integration, where it must be.
fn slurm_runs_here() -> bool {
    let installed = Path::new("/usr/sbin/slurmctld").exists() && Path::new("/usr/sbin/munged").exists();
    if !installed {
        assert!(std::env::var_os("CI").is_none(), "Slurm must be installed in CI");
        eprintln!("SKIPPED: Slurm isn't installed (scripts/setup test)");
    }
    installed && labs_run_here()
}

fn up() -> Lab {
    let grid = Grid::parse(GRID, "test", &unique_name()).unwrap();
    Lab::up_with(&grid, &Options { services: true, ..options() }).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn each_site_has_a_slurm_of_its_own() {
    if !slurm_runs_here() {
        return;
    }
    let lab = up();
    let sh = |machine: &str, line: &str| shell(lab.machine(machine).unwrap(), line);
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join(" ")
    };
    let job = "timeout 60 srun --nodes=2 --ntasks=2 hostname";
    assert_eq!(sorted(sh("n1.alpha", job)), "n2 node3");
    assert_eq!(sorted(sh("n1.beta", "timeout 60 srun hostname")), "n1");
    // Its own list, and what scontrol makes of it.
    assert_eq!(sorted(sh("n1.alpha", "scontrol show hostnames 'n[2-3]'")), "n2 n3");
    let key = "cd /run/isthmus-machine/slurm && stat -c %a . munge.key slurm.conf && sha256sum munge.key";
    let keys: Vec<String> = ["n1.alpha", "n2.alpha", "n1.beta"].map(|machine| sh(machine, key)).into();
    assert!(keys.iter().all(|key| key.starts_with("700\n600\n600\n")), "{keys:?}");
    assert!(keys[0] == keys[1] && keys[1] != keys[2], "{keys:?}");
    // A daemon is a service of the lab.
    assert!(lab.kill("n3.alpha", Some(Role::Slurmd), Signal::SIGKILL).unwrap() > 0);
    lab.down().unwrap();
}

#[test]
fn a_killed_lab_ends_its_slurms_and_their_jobs() {
    if !slurm_runs_here() {
        return;
    }
    let lab = up();
    let spaces: BTreeSet<String> =
        lab.record().machines.iter().flat_map(|machine| namespaces(machine.init.pid)).collect();
    let ours = namespaces(std::process::id() as i32);
    let spaces = &spaces - &ours;
    let submit = "printf '#!/bin/sh\\nsleep 600\\n' | sbatch --parsable --nodes=2 --output=/dev/null";
    assert_eq!(shell(lab.machine("n1.alpha").unwrap(), submit).trim(), "1");
    let running = || shell(lab.machine("n1.alpha").unwrap(), "squeue --noheader --format=%T");
    eventually("the job runs", || running().trim() == "RUNNING");
    lab.record().keeper.signal(Signal::SIGKILL).unwrap();
    eventually("no process of the lab", || processes_in(&spaces).is_empty());
}
