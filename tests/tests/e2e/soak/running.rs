//! A job whose ranks keep opening connections, and what is known of it meanwhile.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus};

use super::verdict::longest_pause;

pub(super) const NODES: [&str; 2] = ["n1.alpha", "n1.beta"];

/// A job has begun, or has ended in order, within this. It guards against hanging only.
const SOON: Duration = Duration::from_secs(120);
/// A job that should live must make progress within this after a fault, however busy the
/// machine is. The figures have what it took.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A job ends by then in any case, beyond the time that the soak lasts.
const BEYOND: Duration = Duration::from_secs(600);
/// Without being asked to end, ranks go on for so many rounds: for weeks.
const ROUNDS: &str = "100000000";

/// Its outputs and its status come to files, which can be read at any time.
const SCRIPT: &str = "directory=$1; shift; \"$@\" >\"$directory/output\" 2>&1; \
                      echo $? >\"$directory/new\"; mv \"$directory/new\" \"$directory/status\"";

/// A job of two ranks on each of both nodes.
pub(super) struct Running {
    job: Job,
    directory: PathBuf,
    /// For how long it waits.
    pub(super) outlive: Duration,
}

impl Running {
    /// Starts one, which `number` tells from others, once the grid is whole.
    pub(super) fn start(
        world: &World,
        mpi: Mpi,
        (number, seed): (usize, usize),
        outlive: Duration,
        lasts: Duration,
    ) -> Result<Self> {
        World::eventually("the grid is whole", SOON, || Ok(is_whole(world)))?;
        let directory = world.directory.path().join(format!("job-{number}"));
        fs::create_dir(&directory)?;
        let (shown, binary) = (directory.display().to_string(), isthmus().display().to_string());
        let (nodes, waits) = (NODES.join(","), format!("{}s", outlive.as_secs()));
        let (launcher, program, seed) = (mpi.launcher(), mpi.program("visit"), seed.to_string());
        let shell = ["sh", "-c", SCRIPT, "sh", shown.as_str()];
        let run = [binary.as_str(), "run", "--nodes", &nodes, "--outlive", &waits];
        let ranks = ["--", launcher.as_str(), "-n", "4", &program, ROUNDS, &seed, &shown];
        let words = [&shell[..], &run[..], &ranks[..]].concat();
        let job = Job::start(world.command(NODES[0], lasts + BEYOND, &words)?)?;
        Ok(Self { job, directory, outlive })
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

    /// Has the ranks end after a round, and waits for the end of the job.
    pub(super) fn ask_to_end(&self) -> Result<()> {
        fs::write(self.directory.join("end"), "")?;
        let ended = World::eventually("the job has ended", SOON, || Ok(self.has_ended()));
        ended.map_err(|error| error.context(self.printed()))
    }

    /// Whether `isthmus run` has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.directory.join("status").exists()
    }

    /// What it wrote to both outputs so far.
    pub(super) fn printed(&self) -> String {
        let bytes = fs::read(self.directory.join("output")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its status, once it has ended.
    pub(super) fn status(self) -> Result<i32> {
        World::eventually("the job has ended", SOON, || Ok(self.has_ended()))?;
        let status: i32 = fs::read_to_string(self.directory.join("status"))?.trim().parse()?;
        self.job.end()?;
        Ok(status)
    }

    /// When all ranks had ended a round, in seconds since the epoch. None if no rank has
    /// begun.
    fn progress(&self) -> Vec<f64> {
        times(&fs::read_to_string(self.directory.join("progress")).unwrap_or_default())
    }
}

/// The times in the lines of a file. The last line may be under way.
fn times(text: &str) -> Vec<f64> {
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.filter_map(|line| line.split_once(' ')?.0.parse::<f64>().ok()).collect()
}

/// Waits until a job makes progress; gives its longest pause since `began`, in seconds since
/// the epoch. None if the job has ended instead.
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

/// Whether all services are there, and it is known how the nodes connect.
pub(super) fn is_whole(world: &World) -> bool {
    let Ok(status) = world.status(NODES[0]) else { return false };
    let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let all_up = |name: &str| list(name).iter().all(|one| one["up"] == true);
    let nodes = list("nodes");
    let is_there = |name: &str| nodes.iter().any(|node| node["name"] == name);
    let is_planned = || {
        let plan = world.plan(NODES[0], NODES[1]);
        plan.is_ok_and(|plan| plan["steps"].as_array().is_some_and(|steps| !steps.is_empty()))
    };
    // A gateway would answer in place of a broker that is away.
    let is_up = status["without_broker"].is_null() && ["sites", "nodes", "relays"].into_iter().all(all_up);
    is_up && NODES.into_iter().all(is_there) && is_planned()
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
