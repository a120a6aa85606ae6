//! Jobs that outlive what breaks between their sites.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus, root};

use crate::life::{NODES, SECONDS, SOON};
use crate::programs::expect_same;

/// Long enough that heartbeats would have ended the job, and TCP's own pause is long.
const CUT: Duration = Duration::from_secs(20);

/// A job through a cut takes no longer.
const LONG: Duration = Duration::from_secs(180);
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// A job whose ranks pass a checked token between the sites, for longer than the cut.
pub(crate) fn ring(world: &World, mpi: Mpi, options: &[&str]) -> Result<Job> {
    ring_of(world, mpi, options, "1000")
}

/// The same, so many rounds of about 10 ms.
fn ring_of(world: &World, mpi: Mpi, options: &[&str], rounds: &str) -> Result<Job> {
    let job = world.begin(mpi, &NODES.join(","), options, "ring", &["20000", rounds])?;
    World::eventually("all ranks run", SOON, || {
        let counts = NODES.map(|node| world.processes(node, "/ring").map(|found| found.len()));
        let [here, there] = counts;
        Ok(here? == 2 && there? == 2)
    })?;
    // By now they pass the token on.
    std::thread::sleep(Duration::from_secs(2));
    Ok(job)
}

/// The job's trunk was cut so often so far, in the eyes of the agents.
pub(crate) fn cuts(world: &World) -> Result<usize> {
    Ok(world.logs()?.lines().filter(|line| line.contains("a trunk is cut")).count())
}

/// Waits until the job's trunk is cut once more.
fn expect_cut(world: &World, before: usize) -> Result<()> {
    World::eventually("the trunk is cut", SOON, || Ok(cuts(world)? > before))
}

/// The job must end in order.
pub(crate) fn expect_success(world: &World, job: Job) -> Result<()> {
    let (status, printed) = job.end()?;
    ensure!(status == 0, "status {status}\n{printed}");
    world.expect_clean_within(SECONDS)
}

/// The job must end in order, and have told of the pause. Returns what it printed.
pub(crate) fn expect_outlived(world: &World, mpi: Mpi, job: Job, healed: Instant) -> Result<String> {
    let (status, printed) = job.end()?;
    eprintln!("{mpi:?}: ended {:.1} s after the cut was healed\n{printed}", healed.elapsed().as_secs_f64());
    ensure!(status == 0, "{mpi:?}: status {status}\n{printed}");
    let account = " for n1.beta, which was cut off ";
    for text in ["nothing is heard of n1.beta", "n1.beta is back after ", account] {
        ensure!(printed.contains(text), "{mpi:?}: no {text:?} in\n{printed}");
    }
    world.expect_clean_within(SECONDS)?;
    Ok(printed)
}

fn outlives_a_cut(mpi: Mpi) -> Result<()> {
    let world = World::up("two-relays")?;
    let job = ring(&world, mpi, &[])?;
    world.cut_site("beta")?;
    // A cut has a length.
    std::thread::sleep(CUT);
    ensure!(world.processes("n1.beta", "/ring")?.len() == 2, "the ranks that are cut off have ended");
    world.heal_site("beta")?;
    expect_outlived(&world, mpi, job, Instant::now()).map(drop)
}

#[test]
fn an_openmpi_job_outlives_a_cut() -> Result<()> {
    outlives_a_cut(Mpi::OpenMpi)
}

#[test]
fn an_mpich_job_outlives_a_cut() -> Result<()> {
    outlives_a_cut(Mpi::Mpich)
}

/// A program connects while its site is cut off, for longer than its kernel would try.
#[test]
fn a_connection_that_begins_in_a_cut_is_made_after_it() -> Result<()> {
    /// As long as a kernel tries that sends a SYN again three times.
    const KERNEL: Duration = Duration::from_secs(15);
    let world = World::up("two-relays")?;
    world.set_syn_retries(&NODES, 3)?;
    let directory = world.directory.path();
    let (binary, nodes) = (isthmus().display().to_string(), NODES.join(","));
    let program = root().join("tests/programs/late.py").display().to_string();
    let place = directory.display().to_string();
    let words = [&binary, "run", "--nodes", &nodes, "--each", "--", "python3", &program, &place, NODES[0]];
    let job = Job::start(world.command(NODES[0], LONG, &words)?)?;
    let both = || Ok(["ready.0", "ready.1"].iter().all(|name| directory.join(name).exists()));
    World::eventually("both programs wait", SOON, both)?;
    let before = cuts(&world)?;
    world.cut_site("beta")?;
    expect_cut(&world, before)?;
    std::fs::write(directory.join("go"), "")?;
    let waits = || Ok(world.logs()?.contains("a connection is not there yet"));
    World::eventually("the connection waits", SOON, waits)?;
    std::thread::sleep(KERNEL);
    world.heal_site("beta")?;
    let (status, printed) = job.end()?;
    ensure!(status == 0 && printed.contains("connected"), "status {status}\n{printed}");
    ensure!(!printed.contains("failed:"), "{printed}");
    world.expect_clean_within(SECONDS)
}

/// Without a relay the trunk can't be dialed, so the far node isn't told that the job has
/// ended. It asks the broker.
#[test]
fn a_job_that_ends_during_a_cut_ends_beyond_it() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = world.endless(Mpi::OpenMpi, &NODES.join(","), &[])?;
    crate::life::running(&world)?;
    // The far node has found the job at the broker by then.
    std::thread::sleep(Duration::from_secs(4));
    let before = cuts(&world)?;
    for host in ["hub", "spare"] {
        world.kill(host, "-KILL", &world.service(host, "relay")?)?;
    }
    expect_cut(&world, before)?;
    let ended = Instant::now();
    world.kill(NODES[0], "-TERM", &world.service(NODES[0], "run")?)?;
    let took = world.gone(&NODES, ended, SECONDS + SECONDS)?;
    eprintln!("gone after {:.1} s", took.as_secs_f64());
    ensure!(took < SECONDS, "it took {took:?}");
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "status {status}\n{printed}");
    world.expect_clean_within(Duration::from_secs(2))?;
    let listed = world.status(NODES[0])?["jobs"].as_array().map(Vec::len);
    ensure!(listed == Some(0), "jobs are listed: {listed:?}");
    let told = "the head has ended the job while this node was cut off";
    ensure!(world.logs()?.contains(told), "no word of it");
    Ok(())
}

#[test]
fn a_job_outlives_its_relay() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = ring(&world, Mpi::OpenMpi, &[])?;
    // Whichever it goes over: both, and one comes back.
    for host in ["hub", "spare"] {
        world.kill(host, "-KILL", &world.service(host, "relay")?)?;
    }
    std::thread::sleep(Duration::from_secs(6));
    let _relay = world.serve("spare", "relay", &[], &World::config("relay"))?;
    expect_outlived(&world, Mpi::OpenMpi, job, Instant::now()).map(drop)
}

/// First the NAT forgets its mappings, then the site gets another address.
#[test]
fn a_job_outlives_its_nat() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = ring_of(&world, Mpi::Mpich, &[], "3000")?;
    let before = cuts(&world)?;
    world.lab().nat("beta")?.expire()?;
    expect_cut(&world, before)?;
    // Until it works again, another fault would not be seen.
    World::eventually("the trunk works", SOON, || Ok(trunks(&world)?.iter().all(|seen| seen.works)))?;
    let before = cuts(&world)?;
    world.lab().nat("beta")?.move_to("198.51.100.77".parse()?)?;
    expect_cut(&world, before)?;
    expect_success(&world, job)?;
    expect_trunk_with_pauses(&world)
}

/// What a node shows of its trunks with the other one.
struct Seen {
    node: &'static str,
    /// Whether one works.
    works: bool,
    /// Of all.
    pauses: u64,
    shown: serde_json::Value,
}

/// What both nodes show.
fn trunks(world: &World) -> Result<Vec<Seen>> {
    let binary = isthmus().display().to_string();
    let mut all = Vec::new();
    for (node, peer) in [(NODES[0], NODES[1]), (NODES[1], NODES[0])] {
        let output = world.sh(node, SOON, &[&binary, "trunks", "--json"])?;
        ensure!(output.status == 0, "{}", output.whole());
        let shown: serde_json::Value = serde_json::from_str(&output.stdout)?;
        let trunks = shown["trunks"].as_array().cloned().unwrap_or_default();
        let is_working = |trunk: &serde_json::Value| {
            trunk["peer"] == peer
                && trunk["cut_seconds"].is_null()
                && trunk["carriers"][0]["round_trip_ms"].as_f64() >= Some(1.0)
        };
        let pauses = trunks.iter().filter_map(|trunk| trunk["pauses"].as_u64()).sum();
        all.push(Seen { node, works: trunks.iter().any(is_working), pauses, shown });
    }
    Ok(all)
}

/// The agents know how often the trunk was cut, and how its carriers are now. A cut
/// that one end healed before the other saw it is a pause of the one end only.
fn expect_trunk_with_pauses(world: &World) -> Result<()> {
    let all = trunks(world)?;
    for Seen { node, works, shown, .. } in &all {
        ensure!(works, "{node}: {shown:#}");
    }
    ensure!(all.iter().any(|seen| seen.pauses > 0), "no trunk knows of a pause");
    Ok(())
}

/// Carriers over a relay can't be dialed without the broker. They are, once it is back.
#[test]
fn a_job_outlives_the_broker_and_a_cut_meanwhile() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = ring_of(&world, Mpi::OpenMpi, &[], "3000")?;
    world.kill("hub", "-KILL", &world.service("hub", "broker")?)?;
    let before = cuts(&world)?;
    for site in ["alpha", "beta"] {
        world.lab().nat(site)?.expire()?;
    }
    expect_cut(&world, before)?;
    std::thread::sleep(Duration::from_secs(5));
    let _broker = world.serve("hub", "broker", &[], &World::config("broker"))?;
    expect_success(&world, job)
}

/// Ranks of which each talks to each, and LAMMPS: their messages cross the cut in both
/// directions at any moment.
#[test]
fn collectives_and_lammps_outlive_a_cut() -> Result<()> {
    let world = World::up("two-relays")?;
    let input = root().join("examples/lammps/melt.in").display().to_string();
    let log = |name: &str| world.directory.path().join(name).display().to_string();
    let (log_alone, log_over_sites) = (log("alone"), log("over-sites"));
    let lammps = |log| {
        let words = ["mpirun.openmpi", "-n", "4", "lmp", "-screen", "none", "-log", log, "-in", &input];
        [&words[..], &["-var", "cells", "6", "-var", "steps", "600"]].concat()
    };
    let alone = world.sh(NODES[0], LONG, &lammps(&log_alone))?;
    ensure!(alone.status == 0, "{}", alone.whole());

    let (binary, nodes) = (isthmus().display().to_string(), NODES.join(","));
    let words = [&[&binary, "run", "--nodes", &nodes, "--"], &lammps(&log_over_sites)[..]].concat();
    let lammps = Job::start(world.command(NODES[0], LONG, &words)?)?;
    let alltoall = world.begin(Mpi::Mpich, &nodes, &[], "alltoall", &["262144", "30"])?;
    let jobs = [(lammps, "lmp"), (alltoall, "/alltoall")];
    let run = || {
        let all = jobs.iter().map(|(_, program)| Ok(world.processes(NODES[1], program)?.len() >= 2));
        all.collect::<Result<Vec<_>>>().map(|all| all == [true, true])
    };
    World::eventually("both run", SOON, run)?;
    // By now their ranks exchange data.
    std::thread::sleep(Duration::from_secs(3));
    world.cut_site("beta")?;
    std::thread::sleep(CUT);
    ensure!(run()?, "ranks that are cut off have ended");
    world.heal_site("beta")?;
    for (job, program) in jobs {
        let (status, printed) = job.end()?;
        ensure!(status == 0 && printed.contains("which was cut off"), "{program}: {status}\n{printed}");
    }
    world.expect_clean_within(SECONDS)?;
    expect_same(&std::fs::read_to_string(log_alone)?, &std::fs::read_to_string(log_over_sites)?)
}

#[test]
#[ignore = "takes 12 minutes: run it by name when a trunk's waiting changes"]
fn a_job_outlives_a_cut_of_ten_minutes() -> Result<()> {
    let world = World::up("two-relays")?;
    let ring = ("ring", &["20000", "3000"][..]);
    let job = world.begin_for(2 * TEN_MINUTES, Mpi::OpenMpi, &NODES.join(","), &[], ring)?;
    World::eventually("the ranks run", SOON, || Ok(world.processes(NODES[1], "/ring")?.len() == 2))?;
    std::thread::sleep(Duration::from_secs(2));
    world.cut_site("beta")?;
    std::thread::sleep(TEN_MINUTES);
    world.heal_site("beta")?;
    expect_outlived(&world, Mpi::OpenMpi, job, Instant::now()).map(drop)
}

/// The trunk goes over a gateway, and then over the site's other one.
#[test]
fn a_job_outlives_its_gateway() -> Result<()> {
    let world = World::up("two-gateways")?;
    let job = ring_of(&world, Mpi::OpenMpi, &[], "3000")?;
    for gateway in ["front2.alpha", "front1.alpha"] {
        let before = cuts(&world)?;
        world.kill(gateway, "-KILL", &world.service(gateway, "gateway")?)?;
        if gateway == "front1.alpha" {
            // Now there is none.
            expect_cut(&world, before)?;
        }
        std::thread::sleep(Duration::from_secs(4));
    }
    let _gateway = world.serve("front2.alpha", "gateway", &[], &World::config("gateway"))?;
    expect_success(&world, job)
}

#[test]
fn a_cut_that_is_too_long_ends_the_job_at_both_ends() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = ring(&world, Mpi::OpenMpi, &["--outlive", "8s"])?;
    let cut = Instant::now();
    world.cut_site("beta")?;
    let took = world.gone(&NODES, cut, Duration::from_secs(40))?;
    let (status, printed) = job.end()?;
    ensure!(took > Duration::from_secs(8), "{took:?}\n{printed}");
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    let text = "lost node n1.beta: no sign of life for 8 s";
    ensure!(printed.contains(text), "no {text:?} in\n{printed}");
    Ok(())
}

#[test]
fn a_waiting_job_is_ended_by_ctrl_c() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = ring(&world, Mpi::OpenMpi, &[])?;
    world.cut_site("beta")?;
    std::thread::sleep(Duration::from_secs(8));
    let asked = Instant::now();
    world.kill("n1.alpha", "-INT", &world.service("n1.alpha", "run")?)?;
    world.gone(&NODES[..1], asked, Duration::from_secs(30)).context("at the head")?;
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    // The other site learns of it when it is back.
    world.heal_site("beta")?;
    world.gone(&NODES, Instant::now(), Duration::from_secs(30)).context("at the site that was cut off")?;
    Ok(())
}

/// Open MPI's launcher waits for the daemon beyond the cut.
#[test]
fn a_job_that_has_lost_a_rank_waits_for_no_site() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = ring(&world, Mpi::OpenMpi, &[])?;
    world.cut_site("beta")?;
    std::thread::sleep(Duration::from_secs(5));
    let rank = world.processes("n1.alpha", "/ring")?.pop().context("no rank")?;
    let killed = Instant::now();
    world.kill("n1.alpha", "-KILL", &rank)?;
    world.gone(&NODES[..1], killed, SECONDS).context("at the head")?;
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    ensure!(printed.contains("n1.alpha was ended by SIGKILL"), "{printed}");
    world.heal_site("beta")?;
    world.gone(&NODES, Instant::now(), Duration::from_secs(30)).context("at the site that was cut off")?;
    Ok(())
}

/// A dead agent isn't waited for: its gateway knows that it is gone.
#[test]
fn a_dead_agent_is_not_waited_for() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = ring(&world, Mpi::OpenMpi, &[])?;
    let killed = Instant::now();
    world.kill("n1.beta", "-KILL", &world.service("n1.beta", "agent")?)?;
    world.gone(&NODES, killed, SECONDS)?;
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    ensure!(printed.contains("lost node n1.beta"), "{printed}");
    Ok(())
}
