//! A site with two gateways: both carry connections, and what becomes of nodes,
//! connections and jobs when one of them is lost and comes back.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Shared, World, isthmus, promised, root};

static GRID: Shared = Shared::new("several");

/// Time within which agents find out that they reach nothing, and services come up. By then an
/// agent is also back at its first choice, and a vanished gateway is replaced. It guards against
/// hanging only.
const SOON: Duration = Duration::from_secs(120);
/// Time within which a new connection goes over another gateway than the dead one.
const CONNECTED: Duration = Duration::from_secs(15);

/// Site alpha's gateways in `isthmus status`: whether each is up, and how many nodes are attached
/// to it.
fn gateways(world: &World) -> Result<BTreeMap<String, (bool, u64)>> {
    let status = world.status("n1.gamma")?;
    let sites = status["sites"].as_array().context("no sites")?;
    let alpha = sites.iter().find(|site| site["name"] == "alpha").context("no alpha")?;
    let gateways = alpha["gateways"].as_array().context("no gateways")?.iter().map(|gateway| {
        let name = gateway["name"].as_str().context("no name")?.to_owned();
        let nodes = gateway["nodes_up"].as_u64().context("no number of nodes")?;
        Ok((name, (gateway["up"] == true, nodes)))
    });
    gateways.collect()
}

/// Waits until both gateways are up, or not, and have so many nodes, as wanted.
fn until(world: &World, want: [(bool, u64); 2]) -> Result<()> {
    let mut found = BTreeMap::new();
    let awaited = World::eventually("gateways as wanted", SOON, || {
        found = gateways(world)?;
        Ok(found.values().copied().eq(want))
    });
    awaited.with_context(|| format!("{found:?}, not {want:?}"))
}

/// Grid names and virtual addresses of alpha's nodes that are up.
fn addresses(world: &World) -> Result<Vec<String>> {
    let status = world.status("n1.gamma")?;
    let nodes = status["nodes"].as_array().context("no nodes")?.iter();
    let alpha = nodes.filter(|node| node["up"] == true);
    let alpha = alpha.map(|node| format!("{} {}", node["name"], node["virtual_address"]));
    Ok(alpha.filter(|node| node.contains(".alpha")).collect())
}

fn know_what_they_reach(world: &World) -> Result<()> {
    World::eventually("enclosed nodes know that they are", SOON, || {
        let mut all = true;
        for node in ["n1.alpha", "n2.alpha"] {
            all &= world.plan(node, "n1.beta")?["from"]["way_out"] == false;
        }
        Ok(all)
    })
}

fn kill(world: &World, front: &str) -> Result<()> {
    world.kill(front, "-KILL", &world.service(front, "gateway")?)
}

/// The gateways that were started again. They stay up as long as their grids.
static AGAIN: Mutex<Vec<Job>> = Mutex::new(Vec::new());

fn start(world: &World, front: &str) -> Result<()> {
    let job = world.serve(front, "gateway", &[], &World::config("gateway"))?;
    AGAIN.lock().map_err(|_| anyhow::anyhow!("a test failed before"))?.push(job);
    Ok(())
}

fn joined(from: &str, to: &str, want: &str) -> Result<()> {
    let world = GRID.take()?;
    until(&world, [(true, 1), (true, 1)])?;
    know_what_they_reach(&world)?;
    let ways = world.hundred(from, to)?;
    ensure!(ways == BTreeMap::from([(want.to_owned(), 100)]), "{ways:?}, not 100 by {want}");
    Ok(())
}

#[test]
fn from_outside_to_the_nodes_gateways() -> Result<()> {
    joined("n1.beta", "n1.alpha", "direct, one-gateway")
}

#[test]
fn by_dials_back_to_their_gateways() -> Result<()> {
    joined("n1.alpha", "n1.beta", "reverse, gateway-out")
}

#[test]
fn out_by_the_gateway_that_a_node_is_attached_to() -> Result<()> {
    joined("n2.alpha", "n1.gamma", "direct, gateway-out")
}

#[test]
fn a_job_over_all_of_them() -> Result<()> {
    let world = GRID.take()?;
    until(&world, [(true, 1), (true, 1)])?;
    know_what_they_reach(&world)?;
    world.all_to_all(&["n1.beta", "n1.alpha", "n2.alpha", "n1.gamma"])?;
    world.all_to_all(&["n2.alpha", "n1.alpha", "n1.beta"])?;
    let binary = isthmus().display().to_string();
    let status = world.sh("n1.alpha", SOON, &[&binary, "status"])?;
    ensure!(status.stdout.contains("2 of 2 up"), "{}", status.whole());
    ensure!(status.stdout.contains("front2.alpha  up"), "{}", status.whole());
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_gateway_dies_comes_back_and_dies_during_a_job() -> Result<()> {
    let world = GRID.take_alone()?;
    until(&world, [(true, 1), (true, 1)])?;
    know_what_they_reach(&world)?;
    let before = addresses(&world)?;
    ensure!(before.len() == 2, "{before:?}");

    // The node of the killed gateway goes to the other gateway, and keeps its address.
    kill(&world, "front2.alpha")?;
    let died = until(&world, [(true, 2), (false, 0)])
        .and_then(|()| {
            ensure!(addresses(&world)? == before);
            Ok(())
        })
        .and_then(|()| world.all_to_all(&["n1.beta", "n1.alpha", "n2.alpha"]))
        .and_then(|_| during_a_job(&world));
    // Whatever went wrong, the next test wants both.
    if gateways(&world)?.get("front2") != Some(&(true, 1)) {
        start(&world, "front2.alpha")?;
    }
    died?;
    until(&world, [(true, 1), (true, 1)])?;
    ensure!(addresses(&world)? == before);
    world.all_to_all(&["n1.beta", "n1.alpha", "n2.alpha"])?;
    Ok(())
}

/// A gateway dies during a job. The job begins with one gateway, which all that holds it together
/// depends on. Then the other gateway comes, is used, and dies. Half of the program's connections
/// end with it: those that it carried.
fn during_a_job(world: &World) -> Result<()> {
    let directory = world.directory.path();
    let file = |name: &str| directory.join(name);
    let there = |name: &str| World::eventually(name, SOON, || Ok(file(name).exists()));
    let (binary, program) =
        (isthmus().display().to_string(), root().join("tests/programs/several.py").display().to_string());
    let words = [&binary, "run", "--nodes", "n1.beta,n1.alpha", "--each", "--", "python3", &program];
    let mut command = world.command("n1.beta", SOON * 5, &words)?;
    command.arg(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = command.spawn()?;
    let result = there("begun").and_then(|()| {
        start(world, "front2.alpha")?;
        until(world, [(true, 1), (true, 1)])?;
        std::fs::write(file("back"), "")?;
        there("ready")?;
        kill(world, "front2.alpha")?;
        std::fs::write(file("killed"), "")?;
        Ok(())
    });
    if result.is_err() {
        // Lets the program end.
        for name in ["back", "killed", "done"] {
            std::fs::write(file(name), "")?;
        }
    }
    let output = job.wait_with_output()?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let whole = format!("{out}\n-- stderr\n{err}");
    result.with_context(|| whole.clone())?;
    ensure!(output.status.success(), "{whole}");
    for line in ["kept 4 of 8", "further: connected"] {
        ensure!(out.contains(line), "{line:?} is not in {whole}");
    }
    // The node's name is before it.
    let took = out.lines().find_map(|line| line.split_once("new: connected after ")?.1.strip_suffix(" s"));
    let took = Duration::try_from_secs_f64(took.with_context(|| whole.clone())?.parse()?)?;
    ensure!(took < promised(CONNECTED), "a new connection took {took:?}: {whole}");
    until(world, [(true, 2), (false, 0)])
}

#[test]
#[ignore = "test-all"]
fn a_gateway_that_is_cut_off_is_replaced() -> Result<()> {
    replaced(|world| world.cut("front2.alpha"))
}

#[test]
#[ignore = "test-all"]
fn a_gateway_that_has_lost_the_broker_alone_is_replaced() -> Result<()> {
    let rules = "add table inet wan; add chain inet wan out { type filter hook output priority 0; }; \
                 add rule inet wan out ip daddr 198.51.100.10 tcp dport 7700 reject with tcp reset";
    replaced(|world| {
        let done = world.sh("front2.alpha", SOON, &["nft", rules])?;
        ensure!(done.status == 0, "{}", done.whole());
        Ok(())
    })
}

fn replaced(cut: impl FnOnce(&World) -> Result<()>) -> Result<()> {
    let world = World::up("several")?;
    until(&world, [(true, 1), (true, 1)])?;
    know_what_they_reach(&world)?;
    let before = addresses(&world)?;
    cut(&world)?;
    until(&world, [(true, 2), (false, 0)])?;
    ensure!(addresses(&world)? == before);
    world.all_to_all(&["n1.beta", "n1.alpha", "n2.alpha"])?;
    Ok(())
}
