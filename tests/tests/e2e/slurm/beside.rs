//! Jobs within a batch job, over its nodes and others beside them: where a profile places groups, and nodes
//! that another site's scheduler gives.

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, promised};

use super::{Batch, has_run_everywhere, nothing_left};
use crate::clusters::{GONE, GRID};
use crate::pilots::logins::{Agent, Logins};

/// One group that fills the nodes of the batch job, and one for which there is room elsewhere.
const PROFILE: &str = "[[group]]\nname = 'masters'\nranks = 4\n[[group]]\nname = 'workers'\nranks = '1-2'\n";

#[test]
#[ignore = "test-all"]
fn a_profile_places_groups_over_a_batch_job_and_another_site() -> Result<()> {
    let world = GRID.take()?;
    let batch = Batch::new(&world, "placed")?;
    let profile = world.directory.path().join("placed.toml");
    std::fs::write(&profile, PROFILE)?;
    let run = format!("isthmus run --with beta --profile {} -- mpirun.openmpi", profile.display());
    let ring = Mpi::OpenMpi.program("ring");
    let written = batch.run(2, &format!("{run} {ring} && {run} hostname"))?;
    for words in [
        " No Errors",
        "n2-root-1.alpha, n3-root-1.alpha, 2 agents started",
        "masters: 4 ranks at alpha on n2-root-1.alpha (2), n3-root-1.alpha (2)",
        "workers: 1 rank at beta on n1.beta (1)",
        "3 nodes at 2 sites",
    ] {
        ensure!(written.contains(words), "{words:?} is not in\n{written}");
    }
    has_run_everywhere(&written)?;
    nothing_left(&world, GONE)
}

#[test]
#[ignore = "test-all"]
fn a_batch_job_runs_over_its_nodes_and_those_of_another_scheduler() -> Result<()> {
    let world = GRID.take()?;
    let options = ["--nodes", "1", "--pilot-nodes", "4"];
    let login = Agent::start(&world, "beta", ("login", "root"), &options, "submit = \"slurm\"\n")?;
    let logins = Logins::of(&world, vec![login]);
    let batch = Batch::new(&world, "both")?;
    let ring = Mpi::OpenMpi.program("ring");
    let written = batch.run(
        2,
        &format!(
            "isthmus up --slurm --token $ISTHMUS_TOKEN --via $ISTHMUS_VIA\n\
             isthmus run --nodes n2-root-1.alpha,n3-root-1.alpha --pilots beta=1 --time 10m -- \
             mpirun.openmpi -n 3 --map-by node {ring}"
        ),
    )?;
    for words in [
        "agents run on 2 nodes until it ends: n2-root-1.alpha, n3-root-1.alpha",
        "of Slurm at beta: n",
        "-root-p1.beta",
        "ring: 3 ranks",
        " No Errors",
        "3 nodes at 2 sites",
    ] {
        ensure!(written.contains(words), "{words:?} is not in\n{written}");
    }
    logins.nothing_left(promised(GONE))
}
