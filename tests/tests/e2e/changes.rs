//! Networks change under a running grid: connections made from then on find
//! another way, and a message names it.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus, root};

/// Deadline that guards against hanging only. A better way is tried again after 15 s, and then less
/// often, for which `AGAIN` is.
const SOON: Duration = Duration::from_secs(90);
const AGAIN: Duration = Duration::from_secs(150);
/// Longest time of the job, after which it is ended.
const AT_MOST: Duration = Duration::from_secs(600);

/// Two nodes of a job, which connects on the test's order.
struct Pair {
    world: World,
    from: &'static str,
    to: &'static str,
    job: Job,
    /// The file that the test writes its orders to.
    orders: PathBuf,
    /// The file that the program writes its answers to.
    answers: PathBuf,
}

impl Pair {
    /// Starts the job and waits for its first connection.
    fn begin(from: &'static str, to: &'static str) -> Result<Self> {
        let world = World::up_alone("changes")?;
        first_way(&world, from, to)?;
        let directory = world.directory.path();
        let (orders, answers) = (directory.join("orders"), directory.join("answers"));
        for file in [&orders, &answers] {
            std::fs::write(file, "")?;
        }
        let program = root().join("tests/programs/again.py");
        let script = format!(
            "exec {} run --nodes {from},{to} --each -- python3 {} {} > {}",
            isthmus().display(),
            program.display(),
            orders.display(),
            answers.display()
        );
        let job = Job::start(world.command(from, AT_MOST, &["sh", "-c", &script])?)?;
        let pair = Self { world, from, to, job, orders, answers };
        pair.connected(1)?;
        Ok(pair)
    }

    /// Orders the job to connect once more, which makes `count` connections. Returns the time that
    /// this took.
    fn again(&self, count: usize) -> Result<Duration> {
        let asked = Instant::now();
        self.order("again")?;
        self.connected(count)?;
        Ok(asked.elapsed())
    }

    fn order(&self, line: &str) -> Result<()> {
        Ok(writeln!(std::fs::File::options().append(true).open(&self.orders)?, "{line}")?)
    }

    fn connected(&self, count: usize) -> Result<()> {
        let line = format!("connected {count}");
        World::eventually(&line, SOON, || Ok(std::fs::read_to_string(&self.answers)?.contains(&line)))
    }

    /// The dial of the plan's first way. `None` if a failure counts against the way.
    fn best(&self) -> Result<Option<String>> {
        let plan = plan(&self.world, self.from, self.to)?;
        let step = &plan["steps"][0];
        let reason = step["reason"].as_str().context("no reason")?;
        let dial = step["dial"].as_str().context("no dial")?;
        Ok((!reason.contains("failed before")).then(|| dial.to_owned()))
    }

    /// Ends the job. Returns the grid, and what the job printed.
    fn end(self) -> Result<(World, String)> {
        self.order("end")?;
        let (status, printed) = self.job.end()?;
        ensure!(status == 0, "{status}\n{printed}");
        Ok((self.world, printed))
    }
}

fn plan(world: &World, from: &str, to: &str) -> Result<serde_json::Value> {
    let binary = isthmus().display().to_string();
    let output = world.sh(from, SOON, &[&binary, "plan", from, to, "--json"])?;
    ensure!(output.status == 0, "{}", output.whole());
    Ok(serde_json::from_str(&output.stdout)?)
}

/// Waits until both nodes know how they are seen from outside.
fn first_way(world: &World, from: &str, to: &str) -> Result<()> {
    World::eventually("both nodes know how they are seen", SOON, || {
        let plan = plan(world, from, to)?;
        Ok(["from", "to"].iter().all(|end| plan[end]["mapping"] != "unknown"))
    })
}

/// Checks that a job on these nodes works at the first try.
fn expect_working(world: &World, nodes: &str) -> Result<()> {
    let (launcher, alltoall) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("alltoall"));
    let output = world.run("n1.alpha", &["--nodes", nodes], &[&launcher, "-n", "2", &alltoall])?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    Ok(())
}

fn sh(world: &World, machine: &str, script: &str) -> Result<()> {
    let done = world.lab().machine(machine)?.privileged_command("sh").args(["-c", script]).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_firewall_is_tightened_and_opened_again() -> Result<()> {
    let pair = Pair::begin("n1.alpha", "n1.port")?;
    ensure!(pair.best()?.as_deref() == Some("port-range"), "{:?}", pair.best()?);
    sh(
        &pair.world,
        "router.port",
        "nft add table ip tight
         nft add chain ip tight pass '{ type filter hook forward priority -10; }'
         nft add rule ip tight pass tcp dport 7731-7740 ct state new drop",
    )?;
    let first = pair.again(2)?;
    World::eventually("the failure counts against the way", SOON, || {
        Ok(pair.best()?.as_deref() != Some("port-range"))
    })?;
    let second = pair.again(3)?;
    // The first connection has waited for the way that is closed now.
    ensure!(second < first, "{second:?} after {first:?}");
    sh(&pair.world, "router.port", "nft delete table ip tight")?;
    World::eventually("it is found to be open again", AGAIN, || {
        Ok(pair.best()?.as_deref() == Some("port-range"))
    })?;
    pair.again(4)?;
    let (world, printed) = pair.end()?;
    ensure!(printed.contains("n1.alpha reaches n1.port by punch now: port-range: "), "{printed}");
    ensure!(printed.contains("no answer"), "{printed}");
    expect_working(&world, "n1.alpha,n1.port")
}

#[test]
#[ignore = "test-all"]
fn a_nat_forgets_its_mappings() -> Result<()> {
    let pair = Pair::begin("n1.alpha", "n1.beta")?;
    for site in ["alpha", "beta"] {
        pair.world.lab().nat(site)?.expire()?;
    }
    pair.again(2)?;
    let (world, _) = pair.end()?;
    expect_working(&world, "n1.alpha,n1.beta")
}

#[test]
#[ignore = "test-all"]
fn a_router_restarts() -> Result<()> {
    let world = World::up("changes")?;
    first_way(&world, "n1.alpha", "n1.beta")?;
    expect_working(&world, "n1.alpha,n1.beta")?;
    world.lab().nat("beta")?.restart(Duration::from_secs(1))?;
    expect_working(&world, "n1.alpha,n1.beta")
}

#[test]
#[ignore = "test-all"]
fn a_site_gets_another_address() -> Result<()> {
    let world = World::up("changes")?;
    first_way(&world, "n1.alpha", "n1.beta")?;
    expect_working(&world, "n1.alpha,n1.beta")?;
    world.lab().nat("beta")?.move_to("198.51.100.77".parse()?)?;
    expect_working(&world, "n1.alpha,n1.beta")
}
