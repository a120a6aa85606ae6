//! Between sites that trust the network the program gets the raw socket, and
//! the kernel alone carries its data: directly, from either side, and through a
//! relay's splice.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, Shared, World, isthmus};

static GRID: Shared = Shared::new("trusted");

fn raw(mpi: Mpi, nodes: &str, dials: &[&str]) -> Result<()> {
    let world = GRID.take()?;
    let launcher = mpi.launcher();
    let program = mpi.program("alltoall");
    let head = nodes.split(',').next().unwrap_or_default();
    let (output, account) =
        world.run_reported(head, &["--nodes", nodes], &[&launcher, "-n", "4", &program])?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    let pairs = account["pairs"].as_array().cloned().unwrap_or_default();
    ensure!(!pairs.is_empty(), "{account:#}");
    for pair in pairs {
        ensure!(pair["encrypted"] == false && pair["bytes"].is_null(), "{account:#}");
        ensure!(dials.iter().any(|dial| pair["dial"] == *dial), "{account:#}");
    }
    world.expect_clean(Duration::from_secs(10))
}

/// Connections share an encrypted trunk, though they needn't be encrypted.
fn shared(world: &World, nodes: [&str; 2], reason: &str) -> Result<()> {
    let plan = world.plan(nodes[0], nodes[1])?;
    ensure!(plan["encrypted"] == false && plan["trunk"]["used"] == true, "{plan:#}");
    ensure!(plan["trunk"]["reason"].as_str().is_some_and(|found| found.contains(reason)), "{plan:#}");
    let (launcher, program) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("alltoall"));
    let (output, account) =
        world.run_reported(nodes[0], &["--nodes", &nodes.join(",")], &[&launcher, "-n", "4", &program])?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    let pairs = account["pairs"].as_array().cloned().unwrap_or_default();
    ensure!(!pairs.is_empty() && pairs.iter().all(|pair| pair["encrypted"] == true), "{account:#}");
    Ok(())
}

#[test]
fn trunks_where_the_configuration_says_so() -> Result<()> {
    shared(&*GRID.take()?, ["n1.beta", "n1.delta"], "the broker's configuration says so")
}

#[test]
fn trunks_where_much_is_lost() -> Result<()> {
    let world = World::up("trusted")?;
    let (here, there) = ("n1.alpha", "n1.beta");
    let before = world.plan(here, there)?;
    ensure!(before["trunk"]["used"] == false, "{before:#}");
    world.lab().set_link("beta", &["loss=2%"])?;
    let binary = isthmus().display().to_string();
    // One of the two directions counts for the two sites.
    for (from, to) in [(here, there), (there, here)] {
        let output = world.sh(from, Duration::from_secs(60), &[&binary, "doctor", "pair", from, to])?;
        ensure!(output.status == 0, "{}", output.whole());
    }
    shared(&world, [here, there], "a trunk is faster")
}

#[test]
fn openmpi_between_two_open_sites() -> Result<()> {
    raw(Mpi::OpenMpi, "n1.alpha,n1.beta", &["direct"])
}

#[test]
fn mpich_between_two_open_sites() -> Result<()> {
    raw(Mpi::Mpich, "n1.alpha,n1.beta", &["direct"])
}

#[test]
fn openmpi_between_an_open_site_and_nat() -> Result<()> {
    raw(Mpi::OpenMpi, "n1.alpha,n1.gamma", &["direct", "reverse"])
}

#[test]
fn openmpi_over_a_relay() -> Result<()> {
    raw(Mpi::OpenMpi, "n1.gamma,n1.delta", &["relay"])
}

#[test]
fn mpich_between_an_open_site_and_nat() -> Result<()> {
    raw(Mpi::Mpich, "n1.alpha,n1.gamma", &["direct", "reverse"])
}

#[test]
fn mpich_over_a_relay() -> Result<()> {
    raw(Mpi::Mpich, "n1.gamma,n1.delta", &["relay"])
}
