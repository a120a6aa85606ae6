//! Commands whose output a test reads while they run.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{Job, World};

/// How long a text may take to be written. It guards against hanging only, as nothing is promised.
const SOON: Duration = Duration::from_secs(120);
/// Shell script that runs a command with both outputs to a file, which can be read at any time.
const SCRIPT: &str = "exec \"$@\" >\"$0\" 2>&1";

/// A command that runs while the test does something, with both outputs in one file. It is ended
/// when this value is dropped.
#[derive(Debug)]
pub struct Printing {
    job: Job,
    file: PathBuf,
}

impl Printing {
    /// Starts a command in a node, without input. It is ended after `deadline`.
    ///
    /// # Errors
    /// The command can't be started.
    pub fn start(world: &World, node: &str, deadline: Duration, words: &[&str]) -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = world.directory.path().join(format!("printed-{number}"));
        let shown = file.display().to_string();
        let shell = ["sh", "-c", SCRIPT, shown.as_str()];
        let job = Job::start(world.command(node, deadline, &[&shell[..], words].concat())?)?;
        Ok(Self { job, file })
    }

    /// What the command has written to both outputs so far.
    pub fn printed(&self) -> String {
        let bytes = fs::read(&self.file).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the command has written a text.
    ///
    /// # Errors
    /// The command doesn't write it. The error has what it has written.
    pub fn prints(&self, text: &str) -> Result<()> {
        self.prints_one_of(&[text])
    }

    /// Waits until the command has written a text so many times.
    ///
    /// # Errors
    /// The command doesn't. The error has what it has written.
    pub fn prints_times(&self, text: &str, times: usize) -> Result<()> {
        let what = format!("{text}, {times} times");
        World::eventually(&what, SOON, || Ok(self.printed().matches(text).count() >= times))
            .with_context(|| self.printed())
    }

    /// Waits until the command has written one of these texts.
    ///
    /// # Errors
    /// The command writes none of them. The error has what it has written.
    pub fn prints_one_of(&self, texts: &[&str]) -> Result<()> {
        World::eventually(&texts.join(" or "), SOON, || {
            let printed = self.printed();
            Ok(texts.iter().any(|text| printed.contains(text)))
        })
        .with_context(|| self.printed())
    }

    /// Waits for the command's end, without causing it. Returns its status and what it has written.
    ///
    /// # Errors
    /// The command can't be waited for.
    pub fn ended(self) -> Result<(i32, String)> {
        let Self { job, file } = self;
        let (status, _) = job.end()?;
        let bytes = fs::read(file)?;
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }
}
