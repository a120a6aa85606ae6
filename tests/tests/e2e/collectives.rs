//! The library for MPI is in every rank, and its collectives cross sites as they should.

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Shared, World};
use serde_json::Value;

static GRID: Shared = Shared::new("four-sites");

/// A node at each of three sites.
const NODES: &str = "n1.alpha,n1.beta,n1.gamma";

/// Runs the checked collectives. Returns the account's part about them.
fn run(world: &World, mpi: Mpi, options: &[&str], nodes: &str, ranks: &str) -> Result<Value> {
    let (launcher, program) = (mpi.launcher(), mpi.program("coll"));
    let head = nodes.split(',').next().context("no node")?;
    let mut options = options.to_vec();
    options.extend(["--nodes", nodes]);
    let words = [launcher.as_str(), "-n", ranks, &program];
    let (output, account) = world.run_reported(head, &options, &words)?;
    ensure!(output.status == 0, "{mpi:?}: {}", output.whole());
    let done = format!("coll: all right, {ranks} ranks");
    ensure!(output.stdout.contains(&done), "{mpi:?}: {}", output.whole());
    world.expect_clean()?;
    Ok(account["collectives"].clone())
}

/// The number of calls that took the MPI's own algorithm, and of those that took another.
fn calls(collectives: &Value) -> (u64, u64) {
    let calls = collectives["calls"].as_array().into_iter().flatten();
    calls.fold((0, 0), |(native, others), taken| {
        let count = taken["calls"].as_u64().unwrap_or_default();
        if taken["algorithm"] == "native" { (native + count, others) } else { (native, others + count) }
    })
}

/// Checks that small collectives over sites take other algorithms than the MPI's own.
fn crosses(mpi: Mpi) -> Result<()> {
    let world = GRID.take_for(mpi)?;
    let collectives = run(&world, mpi, &[], NODES, "6")?;
    ensure!(collectives["ranks"] == 6, "{mpi:?}: {collectives:#}");
    let (_, others) = calls(&collectives);
    ensure!(others > 0, "{mpi:?}: all native: {collectives:#}");
    let crossings = collectives["between_sites"].as_array().map_or(0, Vec::len);
    ensure!(crossings == 6, "{mpi:?}: {collectives:#}");
    let sent: u64 = collectives["between_sites"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|crossing| crossing["bytes"].as_u64())
        .sum();
    let least = collectives["least_bytes"].as_u64().unwrap_or_default();
    ensure!((1..=sent).contains(&least), "{mpi:?}: {sent} B sent: {collectives:#}");
    Ok(())
}

#[test]
fn openmpi_crosses_sites_by_leaders() -> Result<()> {
    crosses(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn openmpi5_crosses_sites_by_leaders() -> Result<()> {
    crosses(Mpi::OpenMpi5)
}

#[test]
#[ignore = "test-all"]
fn mpich4_crosses_sites_by_leaders() -> Result<()> {
    crosses(Mpi::Mpich4)
}

#[test]
fn mpich_crosses_sites_by_leaders() -> Result<()> {
    crosses(Mpi::Mpich)
}

#[test]
fn mpiabi_crosses_sites_by_leaders() -> Result<()> {
    crosses(Mpi::MpiAbi)
}

/// Checks that the user's choice of an algorithm holds at the ranks of all nodes. If it held at
/// some only, all calls would be native.
fn takes_what_is_asked(mpi: Mpi) -> Result<()> {
    let world = GRID.take_for(mpi)?;
    let script = format!("ISTHMUS_COLL=leaders exec {} -n 6 {}", mpi.launcher(), mpi.program("coll"));
    let (output, account) = world.run_reported("n1.alpha", &["--nodes", NODES], &["sh", "-c", &script])?;
    ensure!(output.status == 0, "{mpi:?}: {}", output.whole());
    let taken = account["collectives"]["calls"].as_array().context("no calls")?;
    let of_barriers =
        |name: &str| taken.iter().any(|call| call["operation"] == "barrier" && call["algorithm"] == name);
    ensure!(of_barriers("leaders") && !of_barriers("native"), "{mpi:?}: {account:#}");
    world.expect_clean()
}

#[test]
fn openmpi_takes_what_is_asked() -> Result<()> {
    takes_what_is_asked(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn mpich_takes_what_is_asked() -> Result<()> {
    takes_what_is_asked(Mpi::Mpich)
}

#[test]
fn within_a_site_all_is_native() -> Result<()> {
    let world = GRID.take()?;
    let collectives = run(&world, Mpi::OpenMpi, &[], "n1.alpha", "2")?;
    ensure!(collectives["ranks"] == 2, "{collectives:#}");
    ensure!(calls(&collectives).1 == 0, "{collectives:#}");
    Ok(())
}

#[test]
fn a_job_can_go_without_the_library() -> Result<()> {
    let world = GRID.take()?;
    let collectives = run(&world, Mpi::OpenMpi, &["--no-coll"], NODES, "6")?;
    ensure!(collectives.is_null(), "{collectives:#}");
    let words = ["sh", "-c", "echo $LD_PRELOAD"];
    for (options, want) in [(&[][..], true), (&["--no-coll"], false)] {
        let output = world.run("n1.alpha", options, &words)?;
        ensure!(output.stdout.contains("libisthmus_mpi.so") == want, "{options:?}: {}", output.whole());
    }
    Ok(())
}

/// A bad profile ends the run before anything starts.
#[test]
fn a_profile_is_checked_first() -> Result<()> {
    let world = GRID.take()?;
    let output = world.run("n1.alpha", &["--profile", "/nonexistent"], &["true"])?;
    ensure!(output.status == 125 && output.stderr.contains("/nonexistent"), "{}", output.whole());
    Ok(())
}

/// Checks that a thread may wait in a call that makes a communicator while other threads call
/// collectives.
fn threads_may_wait(mpi: Mpi) -> Result<()> {
    let world = GRID.take_for(mpi)?;
    let (launcher, program) = (mpi.launcher(), mpi.program("threads_dup"));
    // Open MPI 5's own collectives over nodes make communicators at their first call, and hang.
    let own: &[&str] = if mpi == Mpi::OpenMpi5 { &["--mca", "coll", "^han"] } else { &[] };
    let words = [&[launcher.as_str(), "-n", "6"], own, &[program.as_str()]].concat();
    let (output, account) = world.run_reported("n1.alpha", &["--nodes", NODES], &words)?;
    ensure!(output.stdout.contains("threads_dup: all right, 6 ranks"), "{mpi:?}: {}", output.whole());
    let (_, others) = calls(&account["collectives"]);
    ensure!(others > 0, "{mpi:?}: all native: {account:#}");
    world.expect_clean()
}

#[test]
fn openmpi_threads_may_wait_for_a_communicator() -> Result<()> {
    threads_may_wait(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn openmpi5_threads_may_wait_for_a_communicator() -> Result<()> {
    threads_may_wait(Mpi::OpenMpi5)
}

#[test]
#[ignore = "test-all"]
fn mpich_threads_may_wait_for_a_communicator() -> Result<()> {
    threads_may_wait(Mpi::Mpich)
}

/// Runs six ranks in a ring, which are placed on the three sites in turns. Returns the status, what
/// the ranks print, and the account's part about collectives.
fn plate(world: &World, options: &[&str]) -> Result<(i32, String, Value)> {
    let (launcher, program) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("plate"));
    let mut options = options.to_vec();
    options.extend(["--nodes", NODES]);
    let words = [launcher.as_str(), "-n", "6", "--map-by", "node", &program, "6", "1"];
    let (output, account) = world.run_reported("n1.alpha", &options, &words)?;
    ensure!(output.stdout.contains("plate: "), "{}", output.whole());
    world.expect_clean()?;
    Ok((output.status, output.whole(), account["collectives"].clone()))
}

/// The order of ranks changes only if the user asks for it, as this program goes on by that of
/// `MPI_COMM_WORLD`. The account says what another order would save.
#[test]
fn topologies_are_reordered_if_asked_for() -> Result<()> {
    let world = GRID.take()?;
    let (status, said, collectives) = plate(&world, &[])?;
    ensure!(status == 0 && said.contains("plate: 0 of 6 ranks renumbered, 0 values wrong"), "{said}");
    let order = serde_json::json!({ "topologies": 1, "weight": 6, "weight_reordered": 3 });
    ensure!(collectives["reorderable"] == order && collectives["reordered"].is_null(), "{collectives:#}");
    ensure!(
        said.contains("1 topology with `reorder`: its edges between sites weigh 6, with --reorder 3"),
        "{said}"
    );
    let profile = world.directory.path().join("reorder.toml");
    std::fs::write(&profile, "reorder = true\n")?;
    let profile = profile.display().to_string();
    for options in [&["--reorder"][..], &["--profile", &profile]] {
        let (_, said, collectives) = plate(&world, options)?;
        ensure!(!said.contains("plate: 0 of 6"), "{options:?}: {said}");
        ensure!(collectives["reordered"] == order && collectives["reorderable"].is_null(), "{collectives:#}");
    }
    Ok(())
}
