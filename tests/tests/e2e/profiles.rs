//! Ranks go where their groups' profile wants them, on nodes whose agents are there.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Output, Shared, World};

static GRID: Shared = Shared::new("four-sites");

/// Two groups that have room at different sites only: a node has two slots.
const TWO: &str = "[[group]]\nname = 'masters'\nranks = 1\nrtt = '5 ms'\n\
                   [[group]]\nname = 'workers'\nranks = '2-4'\nsplit = true\n";

const NODES: &str = "n1.alpha,n1.beta";

/// Runs a command with a profile on a node of alpha and one of beta.
fn run(world: &World, profile: &str, options: &[&str], words: &[&str]) -> Result<Output> {
    let path = world.directory.path().join("job.toml");
    std::fs::write(&path, profile)?;
    let path = path.display().to_string();
    world.run("n1.alpha", &[&["--nodes", NODES, "--profile", &path], options].concat(), words)
}

/// Checks that groups get nodes, and each its number of ranks.
fn groups_are_placed(mpi: Mpi) -> Result<()> {
    let world = GRID.take_for(mpi)?;
    let (launcher, program) = (mpi.launcher(), mpi.program("ring"));
    let output = run(&world, TWO, &[], &[&launcher, &program])?;
    let text = output.whole();
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{mpi:?}: {text}");
    let (masters, workers) = (line(&output, "masters: 1 rank at ")?, line(&output, "workers: 2 ranks at ")?);
    let site = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    ensure!(text.contains("between alpha and beta"), "{mpi:?}: {text}");
    let ran = run(&world, TWO, &[], &[&launcher, "hostname"])?;
    for (site, ranks) in [(site(&masters), 1), (site(&workers), 2)] {
        let node = format!("n1.{site}");
        let count = ran.stdout.lines().filter(|line| **line == node).count();
        ensure!(count == ranks, "{mpi:?}: {count} ranks on {node}: {}", ran.whole());
    }
    world.expect_clean()
}

/// The rest of the line that begins with these words.
fn line(output: &Output, words: &str) -> Result<String> {
    let found = output.stderr.lines().find_map(|line| line.split_once(words));
    Ok(found.with_context(|| output.whole())?.1.to_owned())
}

#[test]
fn openmpi_groups_are_placed() -> Result<()> {
    groups_are_placed(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn openmpi5_groups_are_placed() -> Result<()> {
    groups_are_placed(Mpi::OpenMpi5)
}

#[test]
fn mpich_groups_are_placed() -> Result<()> {
    groups_are_placed(Mpi::Mpich)
}

#[test]
fn groups_run_their_own_programs() -> Result<()> {
    let world = GRID.take()?;
    let profile = "[[group]]\nname = 'a'\nranks = 1\ncommand = ['sh', '-c', 'echo it is a']\n\
                   [[group]]\nname = 'b'\nranks = 2\n";
    let words = ["mpirun.openmpi", "-x", "WHO=b", "sh", "-c", "echo it is $WHO"];
    let output = run(&world, profile, &[], &words)?;
    let count = |words: &str| output.stdout.lines().filter(|line| *line == words).count();
    ensure!(count("it is a") == 1 && count("it is b") == 2, "{}", output.whole());
    Ok(())
}

/// Only the nodes of a group must have its program.
#[test]
fn mpich_groups_have_programs_of_their_own() -> Result<()> {
    let world = GRID.take_for(Mpi::Mpich)?;
    let program = |name: &str| format!("/tmp/only-of-{name}");
    let group =
        |name: &str| format!("[[group]]\nname = '{name}'\nranks = 2\ncommand = ['{}']\n", program(name));
    let profile = group("a") + &group("b");
    let launcher = Mpi::Mpich.launcher();
    let planned = run(&world, &profile, &["--start-estimate"], &[&launcher])?;
    for name in ["a", "b"] {
        let line = planned.stdout.lines().find_map(|line| line.strip_prefix(&format!("{name}: 2 ranks on ")));
        let node = line.with_context(|| planned.whole())?;
        // Each machine of a lab has a /tmp of its own.
        let path = program(name);
        let write = format!("printf '#!/bin/sh\\necho it is {name}\\n' >{path} && chmod 755 {path}");
        let made = world.sh(node, Duration::from_secs(60), &["sh", "-c", &write])?;
        ensure!(made.status == 0, "{}", made.whole());
    }
    let output = run(&world, &profile, &[], &[&launcher])?;
    let count = |words: &str| output.stdout.lines().filter(|line| *line == words).count();
    ensure!(count("it is a") == 2 && count("it is b") == 2, "{}", output.whole());
    Ok(())
}

#[test]
fn what_can_t_be_met_is_said_before_anything_starts() -> Result<()> {
    let world = GRID.take()?;
    let app = ["mpirun.openmpi", "hostname"];
    for (profile, words, want) in [
        ("[[group]]\nname = 'a'\nranks = 3\n", &app[..], "a needs 3 ranks"),
        ("[[group]]\nname = 'a'\nranks = 1\ntags = ['gpu']\n", &app, "a needs nodes with the tag gpu"),
        ("[[group]]\nname = 'a'\nranks = 1\nmemory = '900 GiB'\n", &app, "its ranks need"),
        (
            "[[group]]\nname = 'a'\nranks = '1-2'\n",
            &["mpirun.openmpi", "-n", "2", "hostname"],
            "leave -n 2 out",
        ),
        ("[[group]]\nname = 'a'\nranks = 1\ncores = 2\n", &["hostname"], "no launcher of an MPI"),
    ] {
        let output = run(&world, profile, &[], words)?;
        ensure!(
            output.status == 125 && output.stderr.contains(want),
            "{want:?} is not in\n{}",
            output.whole()
        );
    }
    Ok(())
}

#[test]
fn an_estimate_runs_nothing() -> Result<()> {
    let world = GRID.take()?;
    let output = run(&world, TWO, &["--start-estimate"], &["mpirun.openmpi", "false"])?;
    let text = output.whole();
    ensure!(output.status == 0 && output.stdout.contains("masters: 1 rank on n1."), "{text}");
    ensure!(output.stdout.contains("workers: 2 ranks on n1."), "{text}");
    Ok(())
}
