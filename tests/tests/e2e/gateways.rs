//! Routes over gateways where there is no relay at all, and what becomes of them
//! when a gateway dies.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Shared, World, isthmus, root};

static GRID: Shared = Shared::new("gateways");

/// Time within which agents find out that they reach nothing, and services come up. It guards
/// against hanging only.
const SOON: Duration = Duration::from_secs(90);

fn joined(from: &str, to: &str, want: &str) -> Result<()> {
    let world = GRID.take()?;
    if from.contains("enclosed") || to.contains("enclosed") {
        World::eventually("the enclosed node knows that it is", SOON, || {
            let plan = world.plan(from, to)?;
            Ok([&plan["from"], &plan["to"]].iter().any(|end| end["way_out"] == false))
        })?;
    }
    world.joined_by(from, to, want)
}

#[test]
fn to_the_acceptors_gateway() -> Result<()> {
    joined("n1.nat", "n1.front", "direct, one-gateway")
}

#[test]
fn to_the_initiators_gateway() -> Result<()> {
    joined("n1.front", "n1.nat", "reverse, gateway-out")
}

#[test]
fn from_an_enclosed_node_over_both() -> Result<()> {
    joined("n1.enclosed", "n1.front", "direct, two-gateway")
}

#[test]
fn to_an_enclosed_node_over_both() -> Result<()> {
    joined("n1.front", "n1.enclosed", "reverse, two-gateway")
}

/// Without a way between the nodes, the run ends before anything starts.
#[test]
fn nothing_joins_two_that_let_nothing_in() -> Result<()> {
    let world = GRID.take()?;
    let mut plan = serde_json::Value::Null;
    // The node of enclosed has a public address, and may be let in until it finds that it has no way out.
    let known = World::eventually("no step is planned", SOON, || {
        plan = world.plan("n1.nat", "n1.enclosed")?;
        Ok(plan["steps"].as_array().is_some_and(Vec::is_empty))
    });
    known.with_context(|| format!("{plan:#}"))?;
    let output = world.run("n1.nat", &["--try-for", "0", "--nodes", "n1.nat,n1.enclosed"], &["true"])?;
    let reason = "only gateways relay, and none of them may join these two sites";
    ensure!(output.status == 125 && output.stderr.contains(reason), "{}", output.whole());
    // What the user can mend comes before all else, and once; the line can be read.
    for line in output.stderr.lines().filter(|line| line.contains(reason)) {
        let before = line.split(reason).next().unwrap_or_default();
        ensure!(!before.contains("left out") && !before.contains("; "), "{}", output.whole());
        ensure!(line.matches(reason).count() == 1 && line.len() < 1000, "{}", output.whole());
    }
    Ok(())
}

#[test]
fn plan_and_account_name_the_way() -> Result<()> {
    let world = GRID.take()?;
    let binary = isthmus().display().to_string();
    let plan = world.sh("n1.nat", SOON, &[&binary, "plan", "n1.nat", "n1.front"])?;
    ensure!(
        plan.stdout.contains("one-gateway") && plan.stdout.contains("gateway reached at 198.51.100."),
        "{}",
        plan.whole()
    );
    let status = world.sh("n1.nat", SOON, &[&binary, "status"])?;
    ensure!(status.stdout.contains(":7740"), "{}", status.whole());
    for (nodes, want) in [
        (["n1.nat", "n1.front"], "one-gateway at front, raw, trusted"),
        (["n1.enclosed", "n1.front"], "two-gateway at enclosed and front, encrypted"),
    ] {
        let output = world.all_to_all(&nodes)?;
        ensure!(output.stderr.contains(want), "{}", output.whole());
    }
    Ok(())
}

#[test]
fn a_gateway_dies_and_comes_back() -> Result<()> {
    let world = GRID.take()?;
    let directory = world.directory.path();
    let file = |name: &str| directory.join(name);
    let there = |name: &str| World::eventually(name, SOON, || Ok(file(name).exists()));
    let (binary, program) = (
        isthmus().display().to_string(),
        root().join("tests/programs/gateway_dies.py").display().to_string(),
    );
    let words = [&binary, "run", "--nodes", "n1.open,n1.nat,n1.front", "--each", "--", "python3", &program];
    let mut command = world.command("n1.open", SOON * 5, &words)?;
    command.arg(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = command.spawn()?;
    let killed = there("ready").and_then(|()| {
        world.kill("fe.front", "-KILL", &world.service("fe.front", "gateway")?)?;
        std::fs::write(file("killed"), "")?;
        there("tried")?;
        // A new job is tried for a while, and fails with the reason.
        let output = world.run("n1.nat", &["--try-for", "2s", "--nodes", "n1.nat,n1.front"], &["true"])?;
        ensure!(output.status == 125 && output.stderr.contains("front"), "{}", output.whole());
        Ok(())
    });
    // Whatever went wrong, the next test wants a gateway.
    let gateway = world.serve("fe.front", "gateway", &[], &World::config("gateway"))?;
    GATEWAY.lock().map_err(|_| anyhow::anyhow!("a test failed before"))?.replace(gateway);
    std::fs::write(file("back"), "")?;
    let output = job.wait_with_output()?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let whole = format!("{out}\n-- stderr\n{err}");
    killed.with_context(|| whole.clone())?;
    ensure!(output.status.success(), "{whole}");
    for line in ["over the gateway: ", "end to end: goes on", "new: ", "again: connected"] {
        ensure!(out.contains(line), "{line:?} is not in {whole}");
    }
    ensure!(!out.contains("new: connected"), "{whole}");
    Ok(())
}

/// The gateway that was started again. It stays up as long as the grid.
static GATEWAY: std::sync::Mutex<Option<Job>> = std::sync::Mutex::new(None);
