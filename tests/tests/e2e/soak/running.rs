//! A job whose ranks keep opening connections, and what is known of it meanwhile.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus};

use super::verdict::longest_pause;

pub(super) const NODES: [&str; 2] = ["n1.alpha", "n1.beta"];

/// What a job consists of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spec {
    pub(super) mpi: Mpi,
    /// The nodes of the job, the head first.
    pub(super) nodes: Vec<&'static str>,
    pub(super) ranks: usize,
    /// How long the job waits for a node that is cut off.
    pub(super) outlive: Duration,
}

impl Spec {
    pub(super) fn head(&self) -> &'static str {
        self.nodes.first().copied().unwrap_or_default()
    }
}

/// Time within which a job has begun, or has ended in order. It guards against hanging only.
const SOON: Duration = Duration::from_secs(120);
/// Time within which a job that should live must make progress after a fault, however busy the
/// machine is. The figures have what it took.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long after the soak's end a job is ended in any case.
const BEYOND: Duration = Duration::from_secs(600);
/// Rounds of ranks that aren't asked to end: enough for weeks.
const ROUNDS: &str = "100000000";

/// Shell script that runs a job with its outputs and its status in files, which can be read at any
/// time.
const SCRIPT: &str = "directory=$1; shift; \"$@\" >\"$directory/output\" 2>&1; \
                      echo $? >\"$directory/new\"; mv \"$directory/new\" \"$directory/status\"";

/// A job that has been started.
pub(super) struct Running {
    job: Job,
    directory: PathBuf,
    pub(super) spec: Spec,
}

impl Running {
    /// Starts a job that lasts until it is asked to end. `number` distinguishes it from other jobs.
    /// `lasts` is the time of the soak.
    pub(super) fn visit(
        world: &World,
        spec: &Spec,
        (number, seed): (usize, usize),
        lasts: Duration,
    ) -> Result<Self> {
        let directory = directory(world, number).display().to_string();
        Self::start(world, spec, number, ("visit", &[ROUNDS, &seed.to_string(), &directory]), lasts + BEYOND)
    }

    /// Starts a job with a program of apps/. It is ended `at_most` later.
    pub(super) fn start(
        world: &World,
        spec: &Spec,
        number: usize,
        (program, arguments): (&str, &[&str]),
        at_most: Duration,
    ) -> Result<Self> {
        let directory = directory(world, number);
        fs::create_dir(&directory)?;
        let (shown, binary) = (directory.display().to_string(), isthmus().display().to_string());
        let (nodes, waits) = (spec.nodes.join(","), format!("{}s", spec.outlive.as_secs()));
        let (launcher, program) = (spec.mpi.launcher(), spec.mpi.program(program));
        let count = spec.ranks.to_string();
        let shell = ["sh", "-c", SCRIPT, "sh", shown.as_str()];
        let run = [binary.as_str(), "run", "--nodes", &nodes, "--outlive", &waits];
        let ranks = ["--", launcher.as_str(), "-n", &count, &program];
        let words = [&shell[..], &run[..], &ranks[..], arguments].concat();
        let job = Job::start(world.command(spec.head(), at_most, &words)?)?;
        Ok(Self { job, directory, spec: spec.clone() })
    }

    /// Waits until all ranks have ended their first round.
    pub(super) fn begun(&self) -> Result<()> {
        let known = World::eventually("the ranks have begun", SOON, || {
            Ok(!self.progress().is_empty() || self.has_ended())
        });
        match known {
            Ok(()) if !self.has_ended() => Ok(()),
            Ok(()) => bail!("it has ended\n{}", self.printed()),
            Err(error) => Err(error.context(self.printed())),
        }
    }

    /// Tells the ranks to end after a round.
    pub(super) fn tell_to_end(&self) -> Result<()> {
        Ok(fs::write(self.directory.join("end"), "")?)
    }

    /// Tells the ranks to end after a round, and waits for the end of the job.
    pub(super) fn ask_to_end(&self) -> Result<()> {
        self.tell_to_end()?;
        let ended = World::eventually("the job has ended", SOON, || Ok(self.has_ended()));
        ended.map_err(|error| error.context(self.printed()))
    }

    /// Whether `isthmus run` has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.directory.join("status").exists()
    }

    /// What the job has written to both outputs so far.
    pub(super) fn printed(&self) -> String {
        let bytes = fs::read(self.directory.join("output")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The job's status, once it has ended.
    pub(super) fn status(self) -> Result<i32> {
        World::eventually("the job has ended", SOON, || Ok(self.has_ended()))?;
        let status: i32 = fs::read_to_string(self.directory.join("status"))?.trim().parse()?;
        self.job.end()?;
        Ok(status)
    }

    /// When `isthmus run` ended, in seconds since the epoch, and its status. `None` while it runs.
    pub(super) fn end(&self) -> Option<(f64, i32)> {
        let path = self.directory.join("status");
        let status = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        let written = fs::metadata(&path).and_then(|data| data.modified()).ok()?;
        Some((written.duration_since(UNIX_EPOCH).ok()?.as_secs_f64(), status))
    }

    /// When all ranks had ended a round, for each round, in seconds since the epoch. Empty if no
    /// rank has begun.
    pub(super) fn progress(&self) -> Vec<f64> {
        times(&fs::read_to_string(self.directory.join("progress")).unwrap_or_default())
    }
}

/// The directory of a job's files.
fn directory(world: &World, number: usize) -> PathBuf {
    world.directory.path().join(format!("job-{number}"))
}

/// The times in the lines of a file. The last line may be half written.
fn times(text: &str) -> Vec<f64> {
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.filter_map(|line| line.split_once(' ')?.0.parse::<f64>().ok()).collect()
}

/// Waits until a job makes progress. Returns its longest pause since `began`, which is in seconds
/// since the epoch. `None` if the job has ended instead.
pub(super) fn flows(job: &Running, began: f64) -> Result<Option<Duration>> {
    let (healed, clock) = (Instant::now(), super::now());
    loop {
        if let Some(pause) = longest_pause(&job.progress(), began, clock) {
            return Ok(Some(Duration::from_secs_f64(pause)));
        }
        if job.has_ended() {
            return Ok(None);
        }
        ensure!(healed.elapsed() < LONGEST_PAUSE, "no progress for {LONGEST_PAUSE:?} since the fault ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until all services are there, and it is known how the first node connects to the others.
pub(super) fn expect_whole(world: &World, nodes: &[&str]) -> Result<()> {
    World::eventually("the grid is whole", SOON, || Ok(is_whole(world, nodes)))
}

fn is_whole(world: &World, nodes: &[&str]) -> bool {
    let Some((first, others)) = nodes.split_first() else { return true };
    let Ok(status) = world.status(first) else { return false };
    let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let all_up = |name: &str| list(name).iter().all(|one| one["up"] == true);
    let there = list("nodes");
    let is_there = |name: &&str| there.iter().any(|node| node["name"] == *name);
    let is_planned = |name: &&str| {
        let plan = world.plan(first, name);
        plan.is_ok_and(|plan| plan["steps"].as_array().is_some_and(|steps| !steps.is_empty()))
    };
    // A gateway would answer in place of a broker that is away.
    let is_up = status["without_broker"].is_null() && ["sites", "nodes", "relays"].into_iter().all(all_up);
    is_up && nodes.iter().all(is_there) && others.iter().all(is_planned)
}

#[test]
fn times_of_progress_are_read() {
    for (text, want) in [
        ("", &[][..]),
        ("1.500 0\n2.250 1\n", &[1.5, 2.25][..]),
        ("1.500 0\n2.2", &[1.5][..]),
        ("1.500 0\n2.2 ", &[1.5][..]),
    ] {
        assert_eq!(times(text), want, "{text:?}");
    }
}
