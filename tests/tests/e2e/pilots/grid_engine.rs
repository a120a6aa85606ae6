//! Nodes from a real Grid Engine at one site, and from a Slurm at the other.

use std::path::Path;

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, World, isthmus, promised};

use super::has;
use super::logins::Logins;
use crate::clusters::{GONE, SOON};

#[test]
fn a_job_over_nodes_of_grid_engine_and_slurm() -> Result<()> {
    // Not every system's archive has it.
    if !Path::new("/usr/sbin/sge_qmaster").exists() {
        eprintln!("SKIPPED: Grid Engine isn't installed (scripts/setup test)");
        return Ok(());
    }
    let world = World::up("two-schedulers")?;
    let submit = |to: &str| format!("submit = \"{to}\"\n");
    let sites = [("alpha", submit("grid-engine"), None), ("beta", submit("slurm"), None)];
    let logins = Logins::start_by(&world, "4", sites)?;
    let (binary, ring) = (isthmus().display().to_string(), Mpi::OpenMpi.program("ring"));
    let run = format!("{binary} run -- mpirun.openmpi -n 5");
    let script = format!("{run} {ring} && {run} hostname");
    // Both slots of both nodes of alpha, and one of a node of beta.
    let words =
        [&binary, "alloc", "--pilots", "alpha=2:2,beta=1", "--time", "10m", "--", "sh", "-c", &script];
    let output = world.sh("n1.alpha", SOON, &words)?;
    let text = output.whole();
    ensure!(output.status == 0, "{text}");
    let pilots = ["of Grid Engine at alpha: n2-root-p1.alpha, n3-root-p1.alpha", "of Slurm at beta: n"];
    has(&text, &pilots)?;
    has(&text, &[" No Errors", "3 nodes at 2 sites"])?;
    for node in ["n2-root-p1.alpha", "n3-root-p1.alpha"] {
        ensure!(output.stdout.lines().filter(|line| *line == node).count() == 2, "{node}: {text}");
    }
    let on_beta = output.stdout.lines().filter(|line| line.ends_with("-root-p1.beta"));
    ensure!(on_beta.count() == 1, "{text}");
    logins.nothing_left(promised(GONE))
}
