//! A client that stands somewhere, in a job or beside it, and is told what to
//! measure: `isthmus-bench traffic obey`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::de::DeserializeOwned;

use crate::confine::{Running, wait_for};

/// What an answer may take beyond the time it measures: the client's own
/// patience, and a margin.
const PATIENCE: Duration = Duration::from_secs(30);

/// The client, as seen from here.
#[derive(Debug)]
pub struct Asker {
    running: Running,
    stdin: ChildStdin,
    /// client → here: each line it says
    lines_rx: Receiver<String>,
}

impl Asker {
    /// Starts the command that has the client at its standard input and output.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let (lines_tx, lines_rx) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines_tx.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { running: Running(child), stdin, lines_rx })
    }

    /// Has it measure for this long, and gives what it found.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        line: &str,
        duration: humantime::Duration,
    ) -> anyhow::Result<T> {
        writeln!(self.stdin, "{line} --duration {duration}").context("the client has ended")?;
        let answer = self
            .lines_rx
            .recv_timeout(*duration + PATIENCE)
            .with_context(|| format!("no answer to `{line}`"))?;
        serde_json::from_str(&answer).with_context(|| format!("`{line}` gave {answer:?}"))
    }

    /// Has it do one last thing and waits for its end.
    pub fn finish(mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.stdin, "{line}").context("the client has ended")?;
        drop(self.stdin);
        let mut ended = None;
        wait_for("the client to end", || {
            ended = self.running.0.try_wait().ok().flatten();
            ended.is_some()
        })?;
        ensure!(ended.is_some_and(|status| status.success()), "the client ended badly: {ended:?}");
        Ok(())
    }
}
