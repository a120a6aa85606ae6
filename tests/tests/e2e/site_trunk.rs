//! Trunks between gateways: where both sites keep them, jobs' data goes over them, and the
//! gateways encrypt it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, Shared, World, isthmus, promised, root};

use crate::outlive::{expect_outlived, ring_of};
use crate::privacy::relay_sees_nothing_of;

static GRID: Shared = Shared::new("site-trunks");

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);
/// Length of a cut after which the carrier is given up.
const CUT: Duration = Duration::from_secs(15);
/// How soon connections over a site trunk end at both ends once a gateway was killed: it is gone once
/// the broker hasn't had it for 30 s.
const ENDED: Duration = Duration::from_secs(40);
/// How soon they end at the site of the killed gateway.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Checks that so many pairs of sites are joined by this dial, and encrypted by `by`.
fn expect(account: &serde_json::Value, pairs: usize, dial: Option<&str>, by: &str) -> Result<()> {
    let joined = account["pairs"].as_array().context("no pairs")?;
    let ends: BTreeSet<String> = joined.iter().map(|pair| pair["ends"].to_string()).collect();
    ensure!(ends.len() == pairs, "{account:#}");
    for pair in joined {
        ensure!(pair["encryption"] == by && pair["encrypted"] == true, "{account:#}");
        ensure!(dial.is_none_or(|dial| pair["dial"] == dial), "{account:#}");
        // The gateways tell what they carried.
        ensure!(pair["bytes"][0].as_u64().is_some_and(|bytes| bytes > 0), "{account:#}");
    }
    Ok(())
}

fn job(
    world: &World,
    mpi: Mpi,
    nodes: &str,
    options: &[&str],
    words: &[&str],
) -> Result<(String, serde_json::Value)> {
    let (launcher, program) = (mpi.launcher(), mpi.program(words[0]));
    let ranks = (2 * nodes.split(',').count()).to_string();
    let options = [&["--nodes", nodes], options].concat();
    let command = [&[&launcher, "-n", &ranks, &program], &words[1..]].concat();
    let head = nodes.split(',').next().unwrap_or_default();
    let (output, account) = world.run_reported(head, &options, &command)?;
    ensure!(output.status == 0, "{}", output.whole());
    Ok((output.whole(), account))
}

fn goes_over_the_trunk(mpi: Mpi) -> Result<()> {
    let world = GRID.take()?;
    let nodes = "n1.alpha,n1.beta,n1.gamma";
    let (printed, account) = job(&world, mpi, nodes, &[], &["alltoall"])?;
    expect(&account, 3, Some("trunk"), "gateways").context(printed)?;
    // The initiator's gateway is dialed by the other one, or both dial the relay.
    let (printed, account) = job(&world, mpi, "n1.beta,n1.alpha", &[], &["ring", "1000", "1000"])?;
    expect(&account, 1, Some("trunk"), "gateways").context(printed)?;
    world.expect_clean()
}

#[test]
fn openmpi_goes_over_the_trunk_of_the_gateways() -> Result<()> {
    goes_over_the_trunk(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn mpich_goes_over_the_trunk_of_the_gateways() -> Result<()> {
    goes_over_the_trunk(Mpi::Mpich)
}

/// The trunks of a node's gateway, as `isthmus trunks` tells them.
fn site_trunks(world: &World, node: &str) -> Result<Vec<serde_json::Value>> {
    let shown = world.sh(node, SOON, &[&isthmus().display().to_string(), "trunks", "--json"])?;
    let json: serde_json::Value = serde_json::from_str(&shown.stdout).with_context(|| shown.whole())?;
    json["site_trunks"].as_array().cloned().context("no list")
}

#[test]
fn a_node_shows_the_trunks_of_its_gateway() -> Result<()> {
    let world = GRID.take()?;
    job(&world, Mpi::OpenMpi, "n1.alpha,n1.beta", &[], &["alltoall"])?;
    for (node, peer) in [("n1.alpha", "gateway.beta"), ("n1.beta", "gateway.alpha")] {
        let trunks = site_trunks(&world, node)?;
        let works = |trunk: &serde_json::Value| {
            trunk["peer"] == peer
                && trunk["route"] == "two-gateway"
                && trunk["carriers"].as_array().is_some_and(|carriers| !carriers.is_empty())
        };
        ensure!(trunks.iter().any(works), "{node}: {trunks:#?}");
    }
    Ok(())
}

/// Neither front-end lets anything in, and neither node has a way out: no relay carries the data.
#[test]
fn two_closed_sites_have_a_trunk_without_a_relay() -> Result<()> {
    let world = GRID.take()?;
    let (printed, account) = job(&world, Mpi::OpenMpi, "n1.epsilon,n1.zeta", &[], &["alltoall"])?;
    expect(&account, 1, Some("trunk"), "gateways").context(printed)?;
    // A trunk that began over the relay, before the gateways knew how they are seen, moves.
    World::eventually("the gateways have punched", SOON, || {
        // The gateway that has made the trunk tells how it was dialed.
        let ends = [site_trunks(&world, "n1.epsilon")?, site_trunks(&world, "n1.zeta")?].concat();
        let peers = ["gateway.epsilon", "gateway.zeta"];
        let between = ends.iter().filter(|trunk| peers.iter().any(|peer| trunk["peer"] == *peer));
        let made = between.filter(|trunk| trunk["made_here"] == true).collect::<Vec<_>>();
        Ok(!made.is_empty() && made.iter().all(|trunk| trunk["dial"] == "punch"))
    })?;
    job(&world, Mpi::OpenMpi, "n1.zeta,n1.epsilon", &[], &["ring", "100", "1000"])?;
    world.expect_clean()
}

#[test]
#[ignore = "test-all"]
fn a_job_can_refuse_it() -> Result<()> {
    let world = GRID.take()?;
    let words = ["ring", "100", "1000"];
    let (printed, account) = job(&world, Mpi::OpenMpi, "n1.alpha,n1.beta", &["--encrypt-to-nodes"], &words)?;
    expect(&account, 1, None, "agents").context(printed)
}

#[test]
fn a_site_without_it_is_joined_by_its_agents() -> Result<()> {
    let world = GRID.take()?;
    let (printed, account) = job(&world, Mpi::OpenMpi, "n1.alpha,n1.delta", &[], &["alltoall"])?;
    expect(&account, 1, None, "agents").context(printed)
}

#[test]
fn the_plan_has_it_first_or_says_why_not() -> Result<()> {
    let world = GRID.take()?;
    let plan = world.plan("n1.alpha", "n1.beta")?;
    let [first, second] = [0, 1].map(|at| &plan["ways"][at]);
    ensure!(first["transport"] == "site trunk" && first["encryption"] == "gateways", "{plan:#}");
    ensure!(second["transport"] == "trunk" && second["encryption"] == "agents", "{plan:#}");
    let plan = world.plan("n1.alpha", "n1.delta")?;
    let left_out = plan["left_out"].as_array().context("no list")?;
    let trunk = left_out.iter().find(|left| left["dial"] == "trunk").context("not left out")?;
    ensure!(trunk["reason"] == "the gateways of site delta keep no trunks with other sites", "{plan:#}");
    Ok(())
}

#[test]
fn a_relay_between_gateways_sees_ciphertext_only() -> Result<()> {
    let world = GRID.take()?;
    relay_sees_nothing_of(&world, "n1.alpha", "n1.gamma")
}

fn outlives_a_cut(mpi: Mpi) -> Result<()> {
    let world = World::up("site-trunks")?;
    // The job lasts longer than it takes to cut the site off.
    let job = ring_of(&world, mpi, &[], "2000")?;
    world.cut_site("beta")?;
    // A cut has a length.
    std::thread::sleep(CUT);
    ensure!(world.processes("n1.beta", "/ring")?.len() == 2, "the ranks that are cut off have ended");
    world.heal_site("beta")?;
    let healed = Instant::now();
    let printed = expect_outlived(&world, mpi, job.end()?, healed)?;
    ensure!(printed.contains("encrypted gateway to gateway"), "{printed}");
    Ok(())
}

/// How a killed gateway's end is told, at the surviving site.
const GONE: &str = "over the site trunk: gateway gateway.beta is gone";

/// A gateway is killed and isn't started again. The connections over its trunk end at both ends,
/// though nothing is sent over them: at its own site with its process, at the other one soon after.
#[test]
fn a_killed_gateway_ends_the_connections_over_its_trunk() -> Result<()> {
    let world = World::up_alone("site-trunks")?;
    let directory = world.directory.path();
    let file = |name: &str| directory.join(name);
    let there = |name: &str| World::eventually(name, SOON, || Ok(file(name).exists()));
    let program = root().join("tests/programs/site_trunk_ends.py").display().to_string();
    let (binary, place) = (isthmus().display().to_string(), directory.display().to_string());
    // Also the job's own connections to beta go over its gateway. The job doesn't wait for its return.
    let job = ["run", "--outlive", "45s", "--nodes", "n1.alpha,n1.beta", "--each"];
    let words = [&[binary.as_str()], &job[..], &["--", "python3", &program, &place]].concat();
    let job = Job::start(world.command("n1.alpha", SOON * 4, &words)?)?;
    there("ready.0").and_then(|()| there("ready.1"))?;
    let killed = Instant::now();
    world.kill("fe.beta", "-KILL", &world.service("fe.beta", "gateway")?)?;
    there("ended.1")?;
    let (here, _) = (killed.elapsed(), there("ended.0")?);
    let took = killed.elapsed();
    let ends = ["ended.0", "ended.1"].map(|name| std::fs::read_to_string(file(name)).unwrap_or_default());
    let (_, printed) = job.end()?;
    ensure!(here < promised(AT_ONCE) && took < promised(ENDED), "{here:?}, {took:?}\n{printed}");
    // What was written may not have arrived.
    ensure!(ends[0].contains("Connection reset by peer"), "{ends:?}");
    ensure!(["end of file", "Connection reset by peer"].iter().any(|end| ends[1].contains(end)), "{ends:?}");
    ensure!(printed.contains(GONE), "{printed}");
    Ok(())
}

fn a_job_ends_with_its_gateway(mpi: Mpi) -> Result<()> {
    let world = World::up_alone("site-trunks")?;
    let job = ring_of(&world, mpi, &["--outlive", "60s"], "1000000")?;
    let killed = Instant::now();
    world.kill("fe.beta", "-KILL", &world.service("fe.beta", "gateway")?)?;
    let (status, printed) = job.end()?;
    let took = killed.elapsed();
    ensure!(status != 0 && status != 124 && took < promised(ENDED), "{status} after {took:?}\n{printed}");
    let cause = printed.lines().find(|line| line.trim_start().starts_with("cause: "));
    ensure!(cause.is_some_and(|cause| cause.contains(GONE)), "{printed}");
    Ok(())
}

#[test]
fn an_openmpi_job_ends_with_its_gateway() -> Result<()> {
    a_job_ends_with_its_gateway(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn an_mpich_job_ends_with_its_gateway() -> Result<()> {
    a_job_ends_with_its_gateway(Mpi::Mpich)
}

#[test]
#[ignore = "test-all"]
fn an_openmpi_job_outlives_a_cut_between_gateways() -> Result<()> {
    outlives_a_cut(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn an_mpich_job_outlives_a_cut_between_gateways() -> Result<()> {
    outlives_a_cut(Mpi::Mpich)
}
