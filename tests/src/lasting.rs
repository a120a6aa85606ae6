//! MPI jobs that last until a test has them end.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{Mpi, Printing, World, isthmus};

/// How long the job may take to do something. It guards against hanging only, as nothing is
/// promised.
const SOON: Duration = Duration::from_secs(120);
/// Longest time of the job, after which it is ended.
const AT_MOST: Duration = Duration::from_secs(900);
/// Rounds of ranks that aren't asked to end: enough for weeks.
const ROUNDS: &str = "100000000";

/// A job whose ranks exchange checked messages and keep opening connections (apps/visit.c). It lasts
/// until it is asked to end. It is ended when this value is dropped.
#[derive(Debug)]
pub struct Lasting {
    job: Printing,
    directory: PathBuf,
}

impl Lasting {
    /// Starts a job of two ranks on each of the nodes, on the first of them, with these options of
    /// `isthmus run`. Waits until each rank has exchanged messages with others.
    ///
    /// # Errors
    /// The ranks don't. The error has what was printed.
    pub fn start(world: &World, mpi: Mpi, nodes: &[&str], options: &[&str]) -> Result<Self> {
        let (joined, count) = (nodes.join(","), (2 * nodes.len()).to_string());
        let head = nodes.first().context("no node")?;
        let options = [&["--nodes", joined.as_str()][..], options].concat();
        Self::start_by(world, head, &options, (mpi, &["-n", count.as_str()]))
    }

    /// Starts a job in a node, with these options of `isthmus run` and those of the launcher, for two
    /// ranks at least. Waits until each rank has exchanged messages with others.
    ///
    /// # Errors
    /// The ranks don't. The error has what was printed.
    pub fn start_by(
        world: &World,
        head: &str,
        options: &[&str],
        (mpi, of_launcher): (Mpi, &[&str]),
    ) -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = world.directory.path().join(format!("lasting-{number}"));
        fs::create_dir(&directory)?;
        let (binary, launcher, program) =
            (isthmus().display().to_string(), mpi.launcher(), mpi.program("visit"));
        let shown = directory.display().to_string();
        let run = [&[binary.as_str(), "run"][..], options, &["--", launcher.as_str()], of_launcher].concat();
        let words = [&run[..], &[program.as_str(), ROUNDS, "1", shown.as_str()]].concat();
        let job = Printing::start(world, head, AT_MOST, &words)?;
        let lasting = Self { job, directory };
        World::eventually("all ranks have ended a round", SOON, || Ok(lasting.rounds() > 0))
            .with_context(|| lasting.printed())?;
        Ok(lasting)
    }

    /// How many rounds all ranks have ended.
    fn rounds(&self) -> usize {
        fs::read_to_string(self.directory.join("progress")).unwrap_or_default().lines().count()
    }

    /// Waits until all ranks have gone on by a round.
    ///
    /// # Errors
    /// The ranks don't. The error has what was printed.
    pub fn goes_on(&self) -> Result<()> {
        let before = self.rounds();
        // One round may have been over already when this began.
        World::eventually("the ranks go on", SOON, || Ok(self.rounds() > before + 1))
            .with_context(|| self.printed())
    }

    /// What the job has written to both outputs so far.
    pub fn printed(&self) -> String {
        self.job.printed()
    }

    /// Waits until the job has written a text.
    ///
    /// # Errors
    /// The job doesn't write it. The error has what it has written.
    pub fn prints(&self, text: &str) -> Result<()> {
        self.job.prints(text)
    }

    /// Waits for the job's end, without causing it. Returns the job's status and what it has
    /// written.
    ///
    /// # Errors
    /// The job can't be waited for.
    pub fn ended(self) -> Result<(i32, String)> {
        self.job.ended()
    }

    /// Has the ranks end after a round, and waits for the job's end. Returns its status and what it
    /// has written.
    ///
    /// # Errors
    /// The job can't be waited for.
    pub fn end(self) -> Result<(i32, String)> {
        fs::write(self.directory.join("end"), "")?;
        self.ended()
    }
}
