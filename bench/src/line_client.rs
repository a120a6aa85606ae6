//! A client in a job or beside it that reads from its standard input what to
//! measure: `isthmus-bench traffic obey`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::de::DeserializeOwned;

use crate::confine::{Running, wait_for};

/// How long the client may take beyond a measurement: its own patience, and a margin.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of the traffic in another process, which obeys lines of text.
pub(crate) struct LineClient {
    /// The client's process. `None` if a job started it.
    running: Option<Running>,
    input: Box<dyn Write + Send>,
    /// client → benchmark: each line that the client prints
    lines_rx: Receiver<String>,
}

impl LineClient {
    /// Starts a command whose standard input and output are the client's.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let input = Box::new(child.stdin.take().context("no standard input")?);
        let stdout = child.stdout.take().context("no standard output")?;
        Ok(Self { running: Some(Running(child)), input, lines_rx: listen(|| Ok(stdout)) })
    }

    /// Makes two named pipes for a client that a job starts. They are the client's standard input
    /// and output.
    pub(crate) fn at_pipes([input, output]: [PathBuf; 2]) -> anyhow::Result<Self> {
        for pipe in [&input, &output] {
            nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU)
                .with_context(|| format!("cannot make {}", pipe.display()))?;
        }
        // Open for reading as well: so it need not wait for the client (fifo(7)).
        let input = Box::new(OpenOptions::new().read(true).write(true).open(input)?);
        Ok(Self { running: None, input, lines_rx: listen(move || File::open(&output)) })
    }

    /// Process id of what was started: the client, or what starts it in a job. `None` if a job
    /// started the client.
    pub(crate) fn id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.0.id())
    }

    /// Has the client measure for `duration`. Returns what it found.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, line: &str, duration: Duration) -> anyhow::Result<T> {
        self.send(&format!("{line} --duration {}", milliseconds(duration)))?;
        self.receive(duration).with_context(|| format!("no answer to `{line}`"))
    }

    /// Sends a line to the client.
    pub(crate) fn send(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{line}").context("the client has ended")
    }

    /// Receives the client's next answer, within this time and a margin.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, within: Duration) -> anyhow::Result<T> {
        let answer = self.lines_rx.recv_timeout(within + PATIENCE).context("the client did not answer")?;
        serde_json::from_str(&answer).with_context(|| format!("the client answered {answer:?}"))
    }

    /// Sends the client a last line and waits until its process has ended.
    pub(crate) fn finish(mut self, line: &str) -> anyhow::Result<()> {
        self.send(line)?;
        drop(self.input);
        let Some(mut running) = self.running else { return Ok(()) };
        let mut ended = None;
        wait_for("the client to end", || {
            ended = running.0.try_wait().ok().flatten();
            ended.is_some()
        })?;
        ensure!(ended.is_some_and(|status| status.success()), "the client ended badly: {ended:?}");
        Ok(())
    }
}

/// Reads lines from what `open` opens. A thread does so, since opening may have to wait for the
/// other end.
fn listen<R: Read>(open: impl FnOnce() -> io::Result<R> + Send + 'static) -> Receiver<String> {
    let (lines_tx, lines_rx) = mpsc::channel();
    thread::spawn(move || {
        let Ok(from) = open() else { return };
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if lines_tx.send(line).is_err() {
                break;
            }
        }
    });
    lines_rx
}

/// A duration as a word of a command line.
pub(crate) fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_one_word() {
        for (duration, want) in [(100, "100ms"), (1500, "1500ms"), (61_000, "61000ms")] {
            let duration = Duration::from_millis(duration);
            let text = milliseconds(duration);
            assert_eq!(text, want);
            assert_eq!(*text.parse::<humantime::Duration>().unwrap(), duration);
        }
    }
}
