//! What a run asks of schedulers by name: a feature of nodes, a reservation, and a site that is near.

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Shared, World, isthmus, promised};
use serde_json::Value;

use super::logins::{Agent, Logins};
use super::{has, written};
use crate::clusters::{GONE, GRID, Reservation, SOON};

static THREE: Shared = Shared::new("three-slurms");

/// A command that says on which node it runs, once for each node.
const SAY: [&str; 3] = ["sh", "-c", "echo on $ISTHMUS_NODE"];
const EACH: [&str; 2] = ["--each", "--no-prefix"];

/// The user's agents on the login nodes of three sites.
fn logins(world: &World) -> Result<Logins<'_>> {
    let start = |site: &str| {
        let options = ["--nodes", "1", "--pilot-nodes", "4"];
        Agent::start(world, site, ("login", "root"), &options, "submit = \"slurm\"\n")
    };
    let agents = ["alpha", "beta", "gamma"].into_iter().map(start).collect::<Result<Vec<_>>>()?;
    Ok(Logins::of(world, agents))
}

#[test]
#[ignore = "test-all"]
fn a_tag_is_a_feature_of_nodes() -> Result<()> {
    let world = THREE.take()?;
    let logins = logins(&world)?;
    let options = [&["--tag", "gpu"][..], &EACH].concat();
    let output = logins.run_with("alpha=1", &options, &SAY)?.output()?;
    let text = written(&output);
    ensure!(output.status.success(), "{text}");
    has(&text, &["on n3-root-p1.alpha\n"])?;
    // One node has the first, and none the second.
    for (pilots, tag, want) in [
        ("alpha=2", "gpu", "it can't start as things are"),
        ("alpha=1", "tpu", "Invalid feature specification"),
    ] {
        let output = logins.run_with(pilots, &["--tag", tag], &["true"])?.output()?;
        let text = written(&output);
        ensure!(output.status.code() == Some(125) && text.contains(want), "{want:?} is not in\n{text}");
    }
    logins.nothing_left(promised(GONE))
}

/// Room for the masters on one node, and for the workers at the two other sites.
const GROUPS: &str = "time = '10m'\n[[group]]\nname = 'masters'\nranks = 1\ntags = ['gpu']\n\
                      [[group]]\nname = 'workers'\nranks = '2-4'\n";

/// Has the round trip between alpha and another site measured.
fn measure(world: &World, other: &str) -> Result<()> {
    let binary = isthmus().display().to_string();
    let ends = ["alpha", other].map(|site| format!(".{site}"));
    let is_it = |path: &Value| {
        let found = [&path["from"], &path["to"]].map(|end| end.as_str().unwrap_or_default());
        let joins = |end: &String| found.iter().any(|name| name.ends_with(end));
        ends.iter().all(joins) && path["round_trip_ms"].as_f64() > Some(0.0)
    };
    World::eventually("the round trip is measured", SOON, || {
        // Its status says whether it has found anything wrong.
        world.sh("n1.alpha", SOON, &[&binary, "doctor", "pair", "alpha", other])?;
        let status = world.status("n1.alpha")?;
        Ok(status["site_paths"].as_array().context("no paths")?.iter().any(is_it))
    })
}

#[test]
#[ignore = "test-all"]
fn the_round_trip_between_two_groups_decides_on_the_site() -> Result<()> {
    let world = THREE.take()?;
    let logins = logins(&world)?;
    for site in ["beta", "gamma"] {
        measure(&world, site)?;
    }
    let file = world.directory.path().join("apart.toml");
    let (path, binary) = (file.display().to_string(), isthmus().display().to_string());
    let ring = Mpi::OpenMpi.program("ring");
    let run = |between: &str, options: &[&str]| {
        std::fs::write(&file, format!("{GROUPS}{between}"))?;
        let words = [&[&binary, "run", "--profile", &path, "--pilots", "alpha,beta,gamma"], options].concat();
        world.sh("n1.alpha", SOON, &[&words[..], &["--", "mpirun.openmpi", &ring]].concat())
    };
    let within = |rtt: &str| format!("[[between]]\ngroups = ['masters', 'workers']\nrtt = '{rtt}'\n");
    let anywhere = run("", &["--start-estimate"])?;
    ensure!(anywhere.status == 0, "{}", anywhere.whole());
    has(&anywhere.stdout, &["masters: 1 rank on 1 node with 1 core of Slurm at alpha"])?;
    has(&anywhere.stdout, &["workers: 4 ranks on 1 node with 4 cores of Slurm at beta"])?;

    // Between alpha and gamma it takes 4 ms, between alpha and beta 102 ms.
    let near = run(&within("40 ms"), &[])?;
    let text = near.whole();
    ensure!(near.status == 0, "{text}");
    has(&text, &["masters: 1 rank at alpha on n3-root-p1.alpha (1)"])?;
    has(&text, &["workers: 2 ranks at gamma on n2-root-p1.gamma (2)", "between alpha and gamma"])?;
    has(&text, &[" No Errors", "2 nodes at 2 sites"])?;
    logins.nothing_left(promised(GONE))?;

    let nowhere = run(&within("2 ms"), &[])?;
    let text = nowhere.whole();
    ensure!(nowhere.status == 125, "{text}");
    has(&text, &["not started: ", "the round trip between masters and workers must be 2 ms at most"])?;
    logins.nothing_left(promised(GONE))
}

#[test]
#[ignore = "test-all"]
fn a_reservation_is_asked_for_by_its_name() -> Result<()> {
    let world = GRID.take()?;
    let logins = Logins::start(&world)?;
    let reserved = Reservation::make(&world, "alpha", "demo", "n3")?;
    let options = [&["--reservation", "demo"][..], &EACH].concat();
    let output = logins.run_with("alpha=1", &options, &SAY)?.output()?;
    let text = written(&output);
    ensure!(output.status.success(), "{text}");
    has(&text, &["on n3-root-p1.alpha\n"])?;
    logins.nothing_left(promised(GONE))?;
    reserved.end()?;
    let output = logins.run_with("alpha=1", &options, &SAY)?.output()?;
    let text = written(&output);
    ensure!(output.status.code() == Some(125), "{text}");
    has(&text, &["reservation is invalid"])?;
    logins.nothing_left(promised(GONE))
}
