//! Agents on nodes of the own batch job: each is the child of a task of one job step, so that Slurm
//! counts what it starts, and ends it with the job.
//!
//! `isthmus allocated` runs in each task. All tasks read one line from the step's standard input, an
//! [`Order`], and each writes one line to standard output, a [`Word`]. So a token is in no argument,
//! variable or file.

use std::collections::VecDeque;
use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use isthmus_front::output::one_line;
use isthmus_slurm::step::{LEFT_OUT, arguments};
use isthmus_wire::text::first;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long agents may take to join and attach. An agent's own start has 60 s.
const START: Duration = Duration::from_secs(90);
/// How long the agents may take to end. An agent ends its part of jobs first.
const END: Duration = Duration::from_secs(20);
/// Bytes of all lines that a node may write, on average.
const WORDS: u64 = 8 << 10;
/// How many last lines of srun's errors are kept, and bytes of all of them that are read.
const ERRORS: (usize, u64) = (5, 1 << 20);
/// Most nodes that a message names.
const NAMED: usize = 8;
/// Variables of the caller's own job and agent, which the agents mustn't have.
const OWN: [&str; 3] = ["ISTHMUS_AGENT", "ISTHMUS_JOB", "LD_PRELOAD"];

pub use isthmus_pilot::order::{AllocatedNode, Order, Word};

/// A job step that runs agents.
#[derive(Debug)]
pub struct Step {
    srun: Child,
    input: Option<ChildStdin>,
    /// The agents, one for each node that was asked for.
    pub nodes: Vec<AllocatedNode>,
}

impl Step {
    /// Starts an agent on each of these nodes of a job, and waits until all are attached. srun's
    /// errors go to `log`, if there is one.
    ///
    /// # Errors
    /// If srun can't be run, or one of the nodes has no agent in time. The others' agents then end.
    pub async fn start(job: u32, hosts: &[&str], order: &Order, log: Option<File>) -> anyhow::Result<Self> {
        let isthmus = std::env::current_exe().context("cannot find the isthmus binary")?;
        let mut command = Command::new("srun");
        command.args(arguments(job, hosts)).arg(isthmus).arg("allocated");
        for name in LEFT_OUT.iter().chain(&OWN) {
            command.env_remove(name);
        }
        // A Ctrl-C is for the job's command: isthmus ends the agents itself.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(log.map_or_else(Stdio::piped, Stdio::from));
        let mut srun = command.spawn().context("cannot run srun, by which agents start in a batch job")?;
        let errors = srun.stderr.take().map(|errors| tokio::spawn(last_lines(errors)));
        let mut input = srun.stdin.take();
        let mut step = Self { srun, input: None, nodes: Vec::new() };
        let line = serde_json::to_string(order).context("cannot write the order")? + "\n";
        if let Some(input) = &mut input {
            // If srun has ended, its errors tell why.
            let _ = timeout(START, input.write_all(line.as_bytes())).await;
        }
        step.input = input.filter(|_| order.tethered);
        let mut failed = Vec::new();
        match timeout(START, step.all_ready(hosts, &mut failed)).await {
            Ok(Ok(())) => {
                step.nodes.sort_by_key(|node| hosts.iter().position(|host| *host == node.host));
                Ok(step)
            }
            // What nodes say is all that there is to say.
            Ok(Err(error)) => Err(step.failed(error, errors.filter(|_| failed.is_empty())).await),
            Err(_) => {
                let runs = |host: &&&str| step.nodes.iter().any(|node| node.host == **host);
                let waiting: Vec<_> = hosts.iter().filter(|host| !runs(host)).collect();
                let names = first(waiting.iter(), 0, NAMED);
                let error = anyhow!("no agent on {names} after {} s", START.as_secs());
                Err(step.failed(error, errors).await)
            }
        }
    }

    /// Waits for the word of each node. Adds to `failed` what nodes without an agent say.
    async fn all_ready(&mut self, hosts: &[&str], failed: &mut Vec<String>) -> anyhow::Result<()> {
        let output = self.srun.stdout.take().context("srun has no output")?;
        let mut lines = BufReader::new(output.take(WORDS.saturating_mul(hosts.len() as u64))).lines();
        while self.nodes.len() + failed.len() < hosts.len() {
            let Some(line) = lines.next_line().await.context("cannot read what srun prints")? else {
                bail!(failure(failed).unwrap_or_else(|| "srun ended before all agents ran".to_owned()));
            };
            match serde_json::from_str(&line) {
                Ok(Word::Ready(node)) if hosts.contains(&node.host.as_str()) => self.nodes.push(node),
                Ok(Word::Failed { host, reason }) => {
                    failed.push(format!("{}: {}", one_line(&host), one_line(&reason)));
                }
                // Other words, as of a shell's start files on the nodes.
                Ok(Word::Ready(_)) | Err(_) => {}
            }
        }
        match failure(failed) {
            Some(text) => bail!(text),
            None => Ok(()),
        }
    }

    /// The error of a start that has failed, with what srun said of it. Ends what was started.
    async fn failed(
        mut self,
        error: anyhow::Error,
        errors: Option<JoinHandle<Vec<String>>>,
    ) -> anyhow::Error {
        self.input = None;
        let said = match errors {
            // It ends with srun.
            Some(errors) => timeout(Duration::from_secs(2), errors).await.ok().and_then(Result::ok),
            None => None,
        };
        self.end().await;
        match said.filter(|lines| !lines.is_empty()) {
            Some(lines) => anyhow!("{error:#}; srun says: {}", lines.join("; ")),
            None => error,
        }
    }

    /// The process id of srun; `None` once it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.srun.id()
    }

    /// Ends the agents of a tethered step, and waits for that. Returns whether they have ended.
    pub async fn end(mut self) -> bool {
        drop(self.input.take());
        timeout(END, self.srun.wait()).await.is_ok()
    }
}

/// Why there are no agents on some nodes; `None` if there is one on each.
fn failure(failed: &[String]) -> Option<String> {
    (!failed.is_empty()).then(|| format!("no agent on {}", failed[..failed.len().min(NAMED)].join("; ")))
}

/// The last lines of srun's errors.
async fn last_lines(errors: ChildStderr) -> Vec<String> {
    let mut lines = BufReader::new(errors.take(ERRORS.1)).lines();
    let mut last = VecDeque::new();
    while let Ok(Some(line)) = lines.next_line().await {
        // Without processors to bind to, srun says so of the option that asks for none.
        if line.ends_with("lacks support for cpu binding") {
            continue;
        }
        if last.len() == ERRORS.0 {
            last.pop_front();
        }
        last.push_back(one_line(&line));
    }
    last.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_line() {
        let node = AllocatedNode {
            host: "n2".to_owned(),
            name: "n2-ada-1.alpha".to_owned(),
            socket: "/run/x".into(),
        };
        for word in [Word::Ready(node), Word::Failed { host: "n2".to_owned(), reason: "a\nb".to_owned() }] {
            let line = serde_json::to_string(&word).unwrap();
            assert!(!line.contains('\n'), "{line}");
            let read: Word = serde_json::from_str(&line).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), line);
        }
    }

    #[test]
    fn nodes_without_an_agent_are_named() {
        assert_eq!(failure(&[]), None);
        let failed: Vec<String> = (0..20).map(|number| format!("n{number}: no")).collect();
        let text = failure(&failed).unwrap();
        assert!(text.starts_with("no agent on n0: no; n1: no") && !text.contains("n8"), "{text}");
    }
}
