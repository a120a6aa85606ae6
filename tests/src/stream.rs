//! One connection whose every byte is checked, under whatever happens meanwhile.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::{Job, World, isthmus, root};

const SOON: Duration = Duration::from_secs(60);
/// Longest time of the job, after which it is ended.
const AT_MOST: Duration = Duration::from_secs(600);

/// A connection of a job on two nodes. It carries data in both directions at once, and every byte
/// is checked. The programs at its ends write how much they have received.
#[derive(Debug)]
pub struct Stream {
    directory: PathBuf,
    job: Job,
}

impl Stream {
    /// Starts the job with these options of `isthmus run`. Waits until data has come to both ends.
    ///
    /// # Errors
    /// No data comes.
    pub fn start(world: &World, nodes: &[&str; 2], options: &[&str]) -> Result<Self> {
        let directory = world.directory.path().to_owned();
        let program = root().join("tests/programs/stream.py").display().to_string();
        let (binary, shared) = (isthmus().display().to_string(), directory.display().to_string());
        let joined = nodes.join(",");
        let run = [&[&*binary, "run", "--nodes", &joined, "--each"], options].concat();
        let words = [&run[..], &["--", "python3", &program, &shared, nodes[0]]].concat();
        let job = Job::start(world.command(nodes[0], AT_MOST, &words)?)?;
        let stream = Self { directory, job };
        let begun = World::eventually("both ends receive", SOON, || {
            Ok(stream.received(0)? > 0 && stream.received(1)? > 0)
        });
        match begun {
            Ok(()) => Ok(stream),
            Err(error) => {
                let (status, printed) = {
                    drop(fs::write(stream.directory.join("end"), ""));
                    stream.job.end()?
                };
                Err(error.context(format!("status {status}\n{printed}\n{}", world.logs()?)))
            }
        }
    }

    /// Bytes that have come so far to the node with this place in the job.
    ///
    /// # Errors
    /// The program wrote no number.
    pub fn received(&self, rank: usize) -> Result<u64> {
        let text = fs::read_to_string(self.directory.join(format!("progress.{rank}"))).unwrap_or_default();
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        Ok(whole.lines().last().unwrap_or("0").parse()?)
    }

    /// Waits until more data has come to both ends.
    ///
    /// # Errors
    /// No more data comes.
    pub fn flows(&self) -> Result<()> {
        let before = [self.received(0)?, self.received(1)?];
        World::eventually("data flows", SOON, || {
            Ok(self.received(0)? > before[0] + (1 << 20) && self.received(1)? > before[1] + (1 << 20))
        })
    }

    /// Ends both directions. Returns the bytes of both together.
    ///
    /// # Errors
    /// A byte is wrong, or the job fails.
    pub fn end(self) -> Result<u64> {
        fs::write(self.directory.join("end"), "")?;
        let (status, printed) = self.job.end()?;
        ensure!(status == 0, "status {status}\n{printed}");
        let done = |rank| fs::read_to_string(self.directory.join(format!("done.{rank}")));
        let (near, far) = (done(0)?, done(1)?);
        let (sent, received) = near.split_once(' ').context("no two numbers")?;
        ensure!(far == format!("{received} {sent}"), "{near} and {far}");
        Ok(sent.parse::<u64>()? + received.parse::<u64>()?)
    }
}
