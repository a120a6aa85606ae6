//! Jobs that outlive what breaks between their sites.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Lasting, Mpi, World, isthmus, promised, root};

use crate::life::{NODES, SECONDS, SOON};
use crate::programs::expect_same;

/// Length of a long cut: heartbeats would have ended the job, and TCP's own pause is long.
const CUT: Duration = Duration::from_secs(20);

/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(400);
const TEN_MINUTES: Duration = Duration::from_secs(600);
/// What the user reads once a site is silent and the job waits for it.
const SILENT: &str = "nothing is heard of n1.beta";

/// Starts a job whose ranks exchange checked messages between the sites, until it is asked to end.
pub(crate) fn lasting(world: &World, mpi: Mpi, options: &[&str]) -> Result<Lasting> {
    Lasting::start(world, mpi, &NODES, options)
}

/// Starts a job whose ranks pass a checked token between the sites over the connections that they
/// have. It has so many rounds of about 10 ms each.
pub(crate) fn ring_of(world: &World, mpi: Mpi, options: &[&str], rounds: &str) -> Result<Job> {
    /// The bytes of some rounds.
    const SOME: u64 = 100_000;
    let job = world.begin_for(LONG, mpi, &NODES.join(","), options, ("ring", &["20000", rounds]))?;
    World::eventually("the ranks pass the token on", SOON, || Ok(come(world, NODES[1], "ring")? > SOME))?;
    Ok(job)
}

/// Bytes that have come to the sockets of a program on a node.
fn come(world: &World, node: &str, program: &str) -> Result<u64> {
    let listing = world.sh(node, SOON, &["ss", "-HtinpO", "state", "established"])?;
    ensure!(listing.status == 0, "{}", listing.whole());
    let own = format!("((\"{program}\",");
    let lines = listing.stdout.lines().filter(|line| line.contains(&own));
    let words = lines.flat_map(str::split_whitespace);
    Ok(words.filter_map(|word| word.strip_prefix("bytes_received:")?.parse::<u64>().ok()).sum())
}

/// How often the job's trunk has been cut so far, in the eyes of the agents.
pub(crate) fn cuts(world: &World) -> Result<usize> {
    Ok(world.logs()?.lines().filter(|line| line.contains("a trunk is cut")).count())
}

/// Waits until the job's trunk is cut once more.
fn expect_cut(world: &World, before: usize) -> Result<()> {
    World::eventually("the trunk is cut", SOON, || Ok(cuts(world)? > before))
}

/// Checks that a job with this status and output has ended in order.
pub(crate) fn expect_success(world: &World, (status, printed): (i32, String)) -> Result<()> {
    ensure!(status == 0, "status {status}\n{printed}");
    world.expect_clean()
}

/// Checks that a job with this status and output has ended in order, and has told of the pause.
/// Returns what it printed.
pub(crate) fn expect_outlived(
    world: &World,
    mpi: Mpi,
    (status, printed): (i32, String),
    healed: Instant,
) -> Result<String> {
    eprintln!("{mpi:?}: ended {:.1} s after the cut was healed\n{printed}", healed.elapsed().as_secs_f64());
    ensure!(status == 0, "{mpi:?}: status {status}\n{printed}");
    let account = " for n1.beta, which was cut off ";
    for text in [SILENT, "n1.beta is back after ", account] {
        ensure!(printed.contains(text), "{mpi:?}: no {text:?} in\n{printed}");
    }
    world.expect_clean()?;
    Ok(printed)
}

/// Checks that the job goes on, ends in order, and has told of the pause.
fn goes_on(world: &World, mpi: Mpi, job: Lasting, healed: Instant) -> Result<()> {
    job.goes_on()?;
    expect_outlived(world, mpi, job.end()?, healed).map(drop)
}

fn outlives_a_cut(mpi: Mpi) -> Result<()> {
    let world = World::up("two-relays")?;
    let job = lasting(&world, mpi, &[])?;
    world.cut_site("beta")?;
    // A cut has a length.
    std::thread::sleep(CUT);
    ensure!(world.processes("n1.beta", "/visit")?.len() == 2, "the ranks that are cut off have ended");
    world.heal_site("beta")?;
    goes_on(&world, mpi, job, Instant::now())
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
#[ignore = "test-all"]
fn a_connection_that_begins_in_a_cut_is_made_after_it() -> Result<()> {
    /// How long a kernel tries to connect that sends a SYN again three times.
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
    world.expect_clean()
}

/// After a short cut the job goes on as soon as another connection can be made. No party waits for
/// a pause, of TCP or its own, that is as long as the cut.
#[test]
#[ignore = "test-all"]
fn a_job_goes_on_soon_after_a_short_cut() -> Result<()> {
    const SHORT: Duration = Duration::from_secs(5);
    /// Time within which the job must go on after the network has healed. A round trip between the
    /// sites takes 5 ms.
    const ON: Duration = Duration::from_millis(3010);
    const CUTS: usize = 10;
    let world = World::up_alone("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    let mut all = Vec::new();
    for _ in 0..CUTS {
        job.goes_on()?;
        world.cut_site("beta")?;
        // A cut has a length.
        std::thread::sleep(SHORT);
        world.heal_site("beta")?;
        let healed = Instant::now();
        job.goes_on()?;
        all.push(healed.elapsed());
    }
    eprintln!("went on after {all:.1?}");
    ensure!(all.iter().all(|took| *took < promised(ON)), "{all:.1?}\n{}", job.printed());
    expect_success(&world, job.end()?)
}

/// Without a relay the trunk can't be dialed, so the far node isn't told that the job has ended. It
/// asks the broker.
#[test]
#[ignore = "test-all"]
fn a_job_that_ends_during_a_cut_ends_beyond_it() -> Result<()> {
    /// Time after which the far node has asked twice whether the broker lists the job: it asks
    /// after 2, 6 and 14 s.
    const ASKED: Duration = Duration::from_secs(10);
    let world = World::up_alone("two-relays")?;
    let job = world.endless(Mpi::OpenMpi, &NODES.join(","), &[])?;
    crate::life::running(&world)?;
    World::eventually("the broker lists the job", SOON, || Ok(listed(&world)? == 1))?;
    // Nothing shows that the far node has asked the broker: only time does.
    std::thread::sleep(ASKED);
    let before = cuts(&world)?;
    for host in ["hub", "spare"] {
        world.kill(host, "-KILL", &world.service(host, "relay")?)?;
    }
    expect_cut(&world, before)?;
    let ended = Instant::now();
    world.kill(NODES[0], "-TERM", &world.service(NODES[0], "run")?)?;
    let took = world.gone(&NODES, ended, promised(SECONDS))?;
    eprintln!("gone after {:.1} s", took.as_secs_f64());
    let (status, printed) = job.end()?;
    ensure!(status != 0 && status != 124, "status {status}\n{printed}");
    world.expect_clean_within(promised(SECONDS))?;
    World::eventually("no job is listed", SOON, || Ok(listed(&world)? == 0))?;
    let told = "the head has ended the job while this node was cut off";
    World::eventually(told, SOON, || Ok(world.logs()?.contains(told)))
}

/// How many jobs the broker lists.
fn listed(world: &World) -> Result<usize> {
    Ok(world.status(NODES[0])?["jobs"].as_array().context("no list")?.len())
}

#[test]
#[ignore = "test-all"]
fn a_job_outlives_its_relay() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    // Whichever relay the job goes over: both relays end, and one comes back.
    for host in ["hub", "spare"] {
        world.kill(host, "-KILL", &world.service(host, "relay")?)?;
    }
    job.prints("the connection to n1.beta broke (relay ")?;
    let _relay = world.serve("spare", "relay", &[], &World::config("relay"))?;
    job.goes_on()?;
    let (status, printed) = job.end()?;
    ensure!(status == 0 && printed.contains("n1.beta is back after "), "status {status}\n{printed}");
    world.expect_clean()
}

/// First the NAT forgets its mappings, and then the site gets another address.
#[test]
#[ignore = "test-all"]
fn a_job_outlives_its_nat() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = lasting(&world, Mpi::Mpich, &[])?;
    let before = cuts(&world)?;
    world.lab().nat("beta")?.expire()?;
    expect_cut(&world, before)?;
    // Until it works again, another fault would not be seen.
    World::eventually("the trunk works", SOON, || Ok(trunks(&world)?.iter().all(|seen| seen.works)))?;
    let before = cuts(&world)?;
    world.lab().nat("beta")?.move_to("198.51.100.77".parse()?)?;
    expect_cut(&world, before)?;
    job.goes_on()?;
    expect_success(&world, job.end()?)?;
    expect_trunk_with_pauses(&world)
}

/// What a node shows of its trunks with the other node.
struct Seen {
    node: &'static str,
    /// Whether a trunk works.
    works: bool,
    /// Number of pauses of all trunks.
    pauses: u64,
    shown: serde_json::Value,
}

/// What both nodes show of their trunks.
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

/// Checks that the agents know how often the trunk was cut, and how its carriers are now. A cut
/// that one end healed before the other saw it is a pause of that end only.
fn expect_trunk_with_pauses(world: &World) -> Result<()> {
    let mut all = trunks(world)?;
    World::eventually("the trunk works in the eyes of both", SOON, || {
        all = trunks(world)?;
        Ok(all.iter().all(|seen| seen.works))
    })
    .with_context(|| {
        let shown = all.iter().map(|Seen { node, shown, .. }| format!("{node}: {shown:#}\n"));
        shown.collect::<String>()
    })?;
    ensure!(all.iter().any(|seen| seen.pauses > 0), "no trunk knows of a pause");
    Ok(())
}

/// Carriers over a relay can't be dialed without the broker. They are dialed once the broker is
/// back.
#[test]
#[ignore = "test-all"]
fn a_job_outlives_the_broker_and_a_cut_meanwhile() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    world.kill("hub", "-KILL", &world.service("hub", "broker")?)?;
    let before = cuts(&world)?;
    for site in ["alpha", "beta"] {
        world.lab().nat(site)?.expire()?;
    }
    expect_cut(&world, before)?;
    // The broker stays away for a while.
    std::thread::sleep(Duration::from_secs(5));
    let _broker = world.serve("hub", "broker", &[], &World::config("broker"))?;
    job.goes_on()?;
    expect_success(&world, job.end()?)
}

/// Messages of LAMMPS, and of ranks that all talk to each other, cross the cut in both directions
/// at any moment.
#[test]
#[ignore = "test-all"]
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
    // The alltoall lasts longer than LAMMPS takes to begin.
    let alltoall = ("alltoall", &["262144", "120"][..]);
    let alltoall = world.begin_for(LONG, Mpi::Mpich, &nodes, &[], alltoall)?;
    let jobs = [(lammps, "lmp"), (alltoall, "/alltoall")];
    let run = || {
        let all = jobs.iter().map(|(_, program)| Ok(world.processes(NODES[1], program)?.len() >= 2));
        all.collect::<Result<Vec<_>>>().map(|all| all == [true, true])
    };
    World::eventually("both run", SOON, run)?;
    let exchange = |program: &str| Ok::<_, anyhow::Error>(come(&world, NODES[1], program)? > 20_000);
    World::eventually("their ranks exchange data", SOON, || Ok(exchange("lmp")? && exchange("alltoall")?))?;
    world.cut_site("beta")?;
    // A cut has a length.
    std::thread::sleep(CUT);
    ensure!(run()?, "ranks that are cut off have ended");
    world.heal_site("beta")?;
    for (job, program) in jobs {
        let (status, printed) = job.end()?;
        ensure!(status == 0 && printed.contains("which was cut off"), "{program}: {status}\n{printed}");
    }
    world.expect_clean()?;
    expect_same(&std::fs::read_to_string(log_alone)?, &std::fs::read_to_string(log_over_sites)?)
}

#[test]
#[ignore = "test-all"]
fn a_job_outlives_a_cut_of_ten_minutes() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    world.cut_site("beta")?;
    std::thread::sleep(TEN_MINUTES);
    world.heal_site("beta")?;
    goes_on(&world, Mpi::OpenMpi, job, Instant::now())
}

/// The trunk goes over a gateway, and then over the site's other gateway.
#[test]
#[ignore = "test-all"]
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
        // The gateway stays away for a while.
        std::thread::sleep(Duration::from_secs(4));
    }
    let _gateway = world.serve("front2.alpha", "gateway", &[], &World::config("gateway"))?;
    expect_success(&world, job.end()?)
}

#[test]
fn a_cut_that_is_too_long_ends_the_job_at_both_ends() -> Result<()> {
    const OUTLIVE: Duration = Duration::from_secs(8);
    let world = World::up_alone("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &["--outlive", "8s"])?;
    let cut = Instant::now();
    world.cut_site("beta")?;
    let took = world.gone(&NODES, cut, OUTLIVE + promised(SECONDS));
    let (status, printed) = job.ended()?;
    let took = took.with_context(|| printed.clone())?;
    ensure!(took > OUTLIVE, "{took:?}\n{printed}");
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    let text = "lost node n1.beta: no sign of life for 8 s";
    ensure!(printed.contains(text), "no {text:?} in\n{printed}");
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_waiting_job_is_ended_by_ctrl_c() -> Result<()> {
    let world = World::up("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    world.cut_site("beta")?;
    job.prints(SILENT)?;
    let asked = Instant::now();
    world.kill("n1.alpha", "-INT", &world.service("n1.alpha", "run")?)?;
    world.gone(&NODES[..1], asked, SOON).context("at the head")?;
    let (status, printed) = job.ended()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    // The other site learns of the job's end when the site is back.
    world.heal_site("beta")?;
    world.gone(&NODES, Instant::now(), SOON).context("at the site that was cut off")?;
    Ok(())
}

/// Open MPI's launcher waits for the daemon beyond the cut.
#[test]
#[ignore = "test-all"]
fn a_job_that_has_lost_a_rank_waits_for_no_site() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    world.cut_site("beta")?;
    job.prints(SILENT)?;
    let rank = world.processes("n1.alpha", "/visit")?.pop().context("no rank")?;
    let killed = Instant::now();
    world.kill("n1.alpha", "-KILL", &rank)?;
    world.gone(&NODES[..1], killed, promised(SECONDS)).context("at the head")?;
    let (status, printed) = job.ended()?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    ensure!(printed.contains("n1.alpha was ended by SIGKILL"), "{printed}");
    world.heal_site("beta")?;
    world.gone(&NODES, Instant::now(), SOON).context("at the site that was cut off")?;
    Ok(())
}

/// A dead agent isn't waited for, as its gateway knows that it is gone.
#[test]
fn a_dead_agent_is_not_waited_for() -> Result<()> {
    let world = World::up_alone("two-relays")?;
    let job = lasting(&world, Mpi::OpenMpi, &[])?;
    let killed = Instant::now();
    world.kill("n1.beta", "-KILL", &world.service("n1.beta", "agent")?)?;
    let gone = world.gone(&NODES, killed, promised(SECONDS));
    let (status, printed) = job.ended()?;
    gone.with_context(|| printed.clone())?;
    ensure!(status != 0 && status != 124, "{status}\n{printed}");
    ensure!(printed.contains("lost node n1.beta"), "{printed}");
    Ok(())
}
