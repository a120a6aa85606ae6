//! Between sites that trust the network the program gets the raw socket, and
//! the kernel alone carries its data: directly, from either side, and through a
//! relay's splice.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Job, Mpi, Shared, World, isthmus, root};

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
        let carried = pair["bytes"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64);
        ensure!(pair["encrypted"] == false && carried.sum::<u64>() > 0, "{account:#}");
        ensure!(dials.iter().any(|dial| pair["dial"] == *dial), "{account:#}");
    }
    world.expect_clean()
}

/// Checks that connections between two nodes share an encrypted trunk, although they needn't be
/// encrypted.
fn shared(world: &World, nodes: [&str; 2], reason: &str) -> Result<()> {
    let plan = world.plan(nodes[0], nodes[1])?;
    let way = &plan["ways"][0];
    ensure!(plan["encrypted"] == false && way["transport"] == "trunk", "{plan:#}");
    ensure!(way["reason"].as_str().is_some_and(|found| found.contains(reason)), "{plan:#}");
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
    ensure!(before["ways"][0]["transport"] == "socket", "{before:#}");
    world.lab().set_link("beta", &["loss=2%"])?;
    let binary = isthmus().display().to_string();
    // One of the two directions counts for the two sites.
    for (from, to) in [(here, there), (there, here)] {
        let output = world.sh(from, SOON, &[&binary, "doctor", "pair", from, to])?;
        ensure!(output.status == 0, "{}", output.whole());
    }
    shared(&world, [here, there], "a trunk is faster")
}

/// A time longer than gamma's router remembers an idle connection.
const IDLE: Duration = Duration::from_secs(50);
/// Deadline of what has begun and must go on. It guards against hanging only.
const SOON: Duration = Duration::from_secs(120);

/// Starts a job with a single connection, which is idle until the file `go` exists. Returns the job
/// and the directory of its files.
fn idle(world: &World, name: &str, nodes: [&str; 2]) -> Result<(Job, PathBuf)> {
    let directory = world.directory.path().join(name);
    fs::create_dir(&directory)?;
    let program = root().join("tests/programs/idle.py").display().to_string();
    let (binary, shared) = (isthmus().display().to_string(), directory.display().to_string());
    let joined = nodes.join(",");
    let words = [&*binary, "run", "--nodes", &joined, "--each", "--", "python3", &program, &shared, nodes[0]];
    let job = Job::start(world.command(nodes[0], SOON * 5, &words)?)?;
    for rank in ["0", "1"] {
        let ready = directory.join(format!("ready.{rank}"));
        World::eventually("they are connected", SOON, || Ok(ready.exists()))?;
    }
    Ok((job, directory))
}

/// A router forgets an idle connection after 20 s, and takes no packet of a connection that it
/// doesn't know. Connections that the program holds itself, directly and over a relay, outlast
/// that. The program sees their options as it set them.
#[test]
#[ignore = "test-all"]
fn an_idle_connection_outlasts_a_forgetful_router() -> Result<()> {
    let world = World::up("trusted")?;
    let limits = "cd /proc/sys/net/netfilter && echo 20 >nf_conntrack_tcp_timeout_established && \
                  echo 0 >nf_conntrack_tcp_loose";
    let limited = world.sh("router.gamma", SOON, &["sh", "-c", limits])?;
    ensure!(limited.status == 0, "{}", limited.whole());
    let jobs =
        [idle(&world, "direct", ["n1.alpha", "n1.gamma"])?, idle(&world, "relay", ["n1.gamma", "n1.delta"])?];
    // Idleness has a length.
    std::thread::sleep(IDLE);
    for (_, directory) in &jobs {
        fs::write(directory.join("go"), "")?;
    }
    for (job, directory) in jobs {
        let (status, printed) = job.end()?;
        ensure!(status == 0, "{}: status {status}\n{printed}", directory.display());
        for rank in ["0", "1"] {
            ensure!(directory.join(format!("done.{rank}")).exists(), "rank {rank}\n{printed}");
        }
    }
    world.expect_clean()
}

/// The counted bytes are what each rank sends and the other receives, over connections whose
/// processes end in three ways. They are all that the kernel carries.
#[test]
fn bytes_of_raw_connections_are_counted() -> Result<()> {
    // At a job's end an agent waits 0.5 s for what the kernel tells.
    let world = GRID.take_alone()?;
    let program = root().join("tests/programs/volume.py").display().to_string();
    let (there, back) = (3_000_000_u64, 200_000_u64);
    let (sent, answered) = (there.to_string(), back.to_string());
    for (nodes, dial) in [(["n1.alpha", "n1.beta"], "direct"), (["n1.gamma", "n1.delta"], "relay")] {
        for end in ["close", "exit", "kill"] {
            let words = ["python3", &program, nodes[0], &sent, &answered, end];
            let joined = nodes.join(",");
            let (output, account) = world.run_reported(nodes[0], &["--nodes", &joined, "--each"], &words)?;
            let case = format!("{nodes:?}, {end}: {}\n{account:#}", output.whole());
            ensure!(output.status == 0 || end == "kill", "{case}");
            let pairs = account["pairs"].as_array().cloned().unwrap_or_default();
            ensure!(pairs.len() == 1 && pairs[0]["dial"] == dial, "{case}");
            ensure!(pairs[0]["bytes_least"] == false, "{case}");
            // The second node of the two sends more, and comes first or second by name.
            let mut bytes = [0, 1].map(|way| pairs[0]["bytes"][way].as_u64().unwrap_or_default());
            bytes.sort_unstable();
            for (counted, known) in bytes.into_iter().zip([back, there]) {
                ensure!((known..=known + known / 5).contains(&counted), "{counted} of {known}: {case}");
            }
        }
    }
    world.expect_clean()
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
#[ignore = "test-all"]
fn mpich_between_an_open_site_and_nat() -> Result<()> {
    raw(Mpi::Mpich, "n1.alpha,n1.gamma", &["direct", "reverse"])
}

#[test]
#[ignore = "test-all"]
fn mpich_over_a_relay() -> Result<()> {
    raw(Mpi::Mpich, "n1.gamma,n1.delta", &["relay"])
}
