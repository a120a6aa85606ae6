//! Commands that run while a test does something.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// A command that runs while the test does something. It is ended when this value is dropped.
#[derive(Debug)]
pub struct Job(Option<Child>);

impl Job {
    /// Starts the command without input.
    ///
    /// # Errors
    /// The command can't be started.
    pub fn start(mut command: Command) -> Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(Self(Some(command.spawn()?)))
    }

    /// Waits for the command's end. Returns its status and what it wrote to its standard error.
    ///
    /// # Errors
    /// The command can't be waited for.
    pub fn end(mut self) -> Result<(i32, String)> {
        let output = self.0.take().context("it has ended")?.wait_with_output()?;
        Ok((output.status.code().unwrap_or(128), String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // The signal goes through to the command, which ends its job.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}
