//! Runs that join a job: the programs of both connect with each other, and each ends by itself.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Printing, Shared, World, isthmus, root};
use tempfile::TempDir;

static GRID: Shared = Shared::new("four-sites");

const HEAD: &str = "n1.alpha";
/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(240);

/// A running service (tests/programs/joins.py).
struct Service {
    run: Printing,
    /// The service's head ends when the file `end` is there.
    directory: TempDir,
}

impl Service {
    /// Starts the service on its first two nodes, at two sites. The second one is a member.
    fn start(world: &World) -> Result<Self> {
        let directory = tempfile::tempdir_in(world.directory.path())?;
        let shown = directory.path().display().to_string();
        let run = started(world, &["--nodes", "n1.alpha,n1.beta"], &["head", &shown])?;
        run.prints("n1.alpha: serving")?;
        run.prints("n1.beta: a member, which has joined none")?;
        Ok(Self { run, directory })
    }

    fn end(self) -> Result<()> {
        fs::write(self.directory.path().join("end"), "")?;
        let (status, printed) = self.run.ended()?;
        ensure!(status == 0, "{printed}");
        Ok(())
    }
}

/// Starts members on further nodes, in a run that joins the job.
fn members(world: &World, job: &str, nodes: &str) -> Result<Printing> {
    started(world, &["--join", job, "--nodes", nodes], &["member"])
}

fn started(world: &World, options: &[&str], arguments: &[&str]) -> Result<Printing> {
    let (binary, program) =
        (isthmus().display().to_string(), root().join("tests/programs/joins.py").display().to_string());
    let run = [&[binary.as_str(), "run", "--each"], options, &["--", "/usr/bin/python3", &program]].concat();
    Printing::start(world, HEAD, LONG, &[&run[..], arguments].concat())
}

#[test]
fn members_join_and_leave_while_a_service_runs() -> Result<()> {
    let world = GRID.take()?;
    let service = Service::start(&world)?;
    let job = world.only_job(HEAD)?;
    let joined = format!("a member, which has joined {job}");

    // Over two sites, each behind a NAT, and by the beginning of the id.
    let first = members(&world, &job[..8], "n2.alpha,n2.beta")?;
    for node in ["n2.alpha", "n2.beta"] {
        first.prints(&format!("{node}: {joined}"))?;
        service.run.prints(&format!("connected back to {node} at 240."))?;
        first.prints(&format!("{node}: reached n1.beta"))?;
    }
    // What joins later reaches those that have joined before, and they know it.
    let second = members(&world, &job, "n1.gamma")?;
    second.prints(&format!("n1.gamma: {joined}"))?;
    for node in ["n1.beta", "n2.alpha", "n2.beta"] {
        second.prints(&format!("n1.gamma: reached {node}"))?;
    }
    // The end of a run that has joined ends no other.
    drop(first);
    service.run.prints("n2.beta has left")?;
    service.run.prints("n2.alpha has left")?;
    // Its nodes may join anew.
    let again = members(&world, &job, "n2.beta")?;
    again.prints("n2.beta: reached n1.gamma")?;

    service.end()?;
    for run in [second, again] {
        let (status, printed) = run.ended()?;
        ensure!(status == 0, "{printed}");
    }
    world.expect_clean()
}

/// Each is told of those before, whichever comes first.
#[test]
fn runs_that_join_at_once_reach_each_other() -> Result<()> {
    let world = GRID.take()?;
    let service = Service::start(&world)?;
    let job = world.only_job(HEAD)?;
    let nodes = ["n2.alpha", "n2.beta", "n1.gamma", "n1.delta"];
    let runs = nodes.map(|node| members(&world, &job, node));
    for (node, run) in nodes.iter().zip(runs.iter()) {
        let run = run.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        run.prints(&format!("{node}: a member, which has joined {job}"))?;
    }
    service.end()?;
    for run in runs {
        let (status, printed) = run?.ended()?;
        ensure!(status == 0, "{printed}");
    }
    world.expect_clean()
}

/// A worker may end badly when its scheduler ends. The run's work is over, then, and it has not failed.
#[test]
fn a_member_that_fails_as_the_job_ends_is_no_failure() -> Result<()> {
    let world = GRID.take()?;
    let service = Service::start(&world)?;
    let job = world.only_job(HEAD)?;
    let program = root().join("tests/programs/joins.py").display().to_string();
    let binary = isthmus().display().to_string();
    let options = [&binary, "run", "--each", "--join", &job, "--nodes", "n2.beta", "--"];
    let words = ["sh", "-c", "/usr/bin/python3 $0 member; exit 7", &program];
    let run = Printing::start(&world, HEAD, LONG, &[&options[..], &words].concat())?;
    run.prints("n2.beta: a member")?;
    service.end()?;
    let (status, printed) = run.ended()?;
    ensure!(status == 0 && printed.contains(&format!("job {job} has ended")), "status {status}: {printed}");
    world.expect_clean()
}

#[test]
fn files_are_brought_to_nodes_that_join() -> Result<()> {
    let world = GRID.take()?;
    let service = Service::start(&world)?;
    let job = world.only_job(HEAD)?;
    // A directory of the node's own.
    let text = "/tmp/joining-staged";
    let here = ["sh", "-c", "echo staged > $0", text];
    let made = world.sh(HEAD, LONG, &here)?;
    ensure!(made.status == 0, "{}", made.whole());
    let options = ["--each", "--join", &job, "--nodes", "n1.gamma", "--stage", text];
    let output = world.run(HEAD, &options, &["cat", text])?;
    ensure!(output.status == 0 && output.stdout == "n1.gamma: staged\n", "{}", output.whole());
    service.end()?;
    world.expect_clean()
}

/// What a node can't be told of while its site is cut off, it is told of later.
#[test]
fn a_site_that_was_cut_off_learns_who_has_joined() -> Result<()> {
    let world = GRID.take()?;
    let service = Service::start(&world)?;
    let job = world.only_job(HEAD)?;
    world.cut_site("beta")?;
    let run = members(&world, &job, "n1.gamma")?;
    service.run.prints("connected back to n1.gamma")?;
    world.heal_site("beta")?;
    run.prints("n1.gamma: reached n1.beta")?;
    service.end()?;
    drop(run);
    world.expect_clean()
}

/// Members that don't end with the head.
#[test]
fn a_run_ends_with_the_job_that_it_has_joined() -> Result<()> {
    let world = GRID.take()?;
    let service = Service::start(&world)?;
    let job = world.only_job(HEAD)?;
    let binary = isthmus().display().to_string();
    let words = [&binary, "run", "--each", "--join", &job, "--nodes", "n1.delta", "--", "sh", "-c"];
    let script = "echo sleeping; exec sleep 3600";
    let run = Printing::start(&world, HEAD, LONG, &[&words[..], &[script]].concat())?;
    run.prints("n1.delta: sleeping")?;
    service.end()?;
    let (status, printed) = run.ended()?;
    let want = format!("isthmus: job {job} has ended, and so does this run, which had joined it");
    ensure!(status == 0 && printed.contains(&want), "status {status}: {printed}");
    world.expect_clean()
}

#[test]
fn a_run_that_cannot_join_says_why() -> Result<()> {
    let world = GRID.take()?;
    let service = Service::start(&world)?;
    let job = world.only_job(HEAD)?;
    let other = if job.starts_with('0') { "1" } else { "0" };
    for (node, options, want) in [
        (HEAD, &["--each", "--join", &job][..], "name the nodes that are to join the job"),
        (HEAD, &["--each", "--join", &job, "--nodes", "n1.beta"], "n1.beta takes part in job"),
        (HEAD, &["--each", "--join", &job, "--nodes", "n1.alpha,n2.alpha"], "n1.alpha takes part in job"),
        (HEAD, &["--each", "--join", other, "--nodes", "n2.beta"], "was started on n1.alpha"),
        ("n1.beta", &["--each", "--join", &job, "--nodes", "n2.beta"], "was started on n1.beta"),
        (HEAD, &["--each", "--join", "job", "--nodes", "n2.beta"], "hexadecimal digits"),
        (HEAD, &["--join", &job, "--nodes", "n2.beta"], "--each"),
    ] {
        let output = world.run(node, options, &["true"])?;
        ensure!(output.status != 0 && output.stderr.contains(want), "{want:?}: {}", output.whole());
    }
    // None of that has hurt the job, which goes on.
    let member = members(&world, &job, "n2.beta")?;
    member.prints("n2.beta: reached n1.beta")?;
    service.end()?;
    drop(member);
    world.expect_clean()
}
