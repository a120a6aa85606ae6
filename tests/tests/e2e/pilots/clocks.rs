//! Clusters whose clocks are wrong by an hour, in different directions.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, World, promised};

use super::has;
use super::logins::{Logins, isthmus_on};
use crate::clusters::{GONE, sh};

/// By how many seconds the clock of a machine is ahead.
fn ahead(world: &World, machine: &str) -> Result<f64> {
    let date = sh(world, machine, &["date", "+%s"])?.stdout.trim().parse::<f64>()?;
    Ok(date - SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

#[test]
fn a_job_over_nodes_of_schedulers_whose_clocks_are_an_hour_off() -> Result<()> {
    let world = World::up("clocks")?;
    for (machine, sign) in [("n1.alpha", -1.0), ("n2.alpha", -1.0), ("n1.beta", 1.0), ("n2.beta", 1.0)] {
        let ahead = ahead(&world, machine)? * sign;
        ensure!((3598.0..3602.0).contains(&ahead), "the clock of {machine} is ahead by {ahead} s");
    }
    let logins = Logins::start(&world)?;
    let ring = Mpi::OpenMpi.program("ring");
    let pilots = ["run", "--pilots", "alpha=1,beta=1", "--time", "2m", "--wait", "2m", "--"];
    let words = [&pilots[..], &["mpirun.openmpi", "-n", "2", "--map-by", "node", &ring]].concat();
    let text = isthmus_on(&world, "n1.alpha", &words)?.whole();
    // The tickets of `one-gateway` expire by the broker's clock, which is an hour behind the gateway's.
    has(&text, &[" No Errors", "2 nodes at 2 sites", "one-gateway at beta"])?;
    has(&text, &[" s ahead of this node's (set it, best by NTP)"])?;
    logins.nothing_left(promised(GONE))
}
