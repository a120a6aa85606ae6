//! Between sites that trust the network the program gets the raw socket, and
//! the kernel alone carries its data: directly, from either side, and through a
//! relay's splice.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, Shared};

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
