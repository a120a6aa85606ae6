//! `isthmus run --each`: the command on every node, for programs without a
//! launcher.

use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use isthmus_agent::starting::supervise::Outcome;
use isthmus_profile::environment::environment;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::{Command, Group, JobNode, Variable};
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::launch;
use crate::remote::{self, Hand, Remote, Stream};

/// Longest line, in bytes, that is held back to be written whole.
const LINE_MAX: usize = 64 * 1024;

/// The command as it runs on every node.
#[derive(Debug)]
pub(super) struct Each {
    hands: Vec<Hand>,
    outcome: watch::Receiver<Outcome>,
    /// The first failure in words: the user reads of it once its cause is known.
    failure: Arc<OnceLock<String>>,
    /// The task that runs the commands. Ending it ends them all; `None` once that is done.
    tasks: Option<tokio::task::JoinHandle<()>>,
}

/// The command that runs once on every node with slots.
#[derive(Debug)]
pub(super) struct EachCommand<'a> {
    /// The id of the job.
    pub job: &'a str,
    /// The job's nodes; those without slots run nothing.
    pub nodes: &'a [JobNode],
    /// The command and its arguments.
    pub command: &'a [String],
    /// Variables for the command, `NAME=VALUE` or `NAME`.
    pub environment: &'a [String],
    /// Whether lines of output begin with the node's name.
    pub prefix: bool,
    /// The groups of the job's profile, which take nodes in the order of ranks.
    pub groups: &'a [Group],
    /// The job that the run has joined, and the first node on which its program runs; `None` if it has joined none.
    pub joined: Option<(&'a str, &'a str)>,
}

impl Each {
    /// Starts the command on every node with slots.
    pub(super) fn start(agent: &LocalClient<Channel>, wanted: &EachCommand<'_>) -> Self {
        let nodes: Vec<&str> =
            wanted.nodes.iter().filter(|node| node.slots > 0).map(|node| node.name.as_str()).collect();
        let mut hands = Vec::new();
        let mut running = JoinSet::new();
        for (rank, node) in nodes.iter().enumerate() {
            let mut told = remote::variables(wanted.job, wanted.environment);
            told.extend(variables(&nodes, rank, wanted.joined));
            told.extend(group_variables(wanted.groups, rank));
            let remote = Remote::new(Command {
                job: wanted.job.to_owned(),
                node: (*node).to_owned(),
                shell_command: remote::shell_command(wanted.command),
                environment: told,
                working_directory: launch::working_directory(),
                job_directory: String::new(),
            });
            let hand = remote.hand();
            hands.push(hand.clone());
            let (mut agent, node) = (agent.clone(), (*node).to_owned());
            let prefix = if wanted.prefix { format!("{node}: ") } else { String::new() };
            running.spawn(async move {
                let lines = Arc::new(Mutex::new([Lines::new(&prefix), Lines::new(&prefix)]));
                let sink = |stream, bytes: &[u8]| write(&lines, stream, |lines| lines.take(bytes));
                tokio::spawn(async move { hand.end_input().await });
                let ended = remote.run(&mut agent, sink).await;
                for stream in [Stream::Output, Stream::Error] {
                    let _ = write(&lines, stream, Lines::rest);
                }
                (node, ended)
            });
        }
        let (outcome_tx, outcome) = watch::channel(Outcome::default());
        let failure = Arc::<OnceLock<String>>::default();
        let failed = failure.clone();
        let tasks = tokio::spawn(async move {
            let (status, words) = until_end(running).await;
            if let Some(words) = words {
                let _ = failed.set(words);
            }
            outcome_tx.send_replace(Outcome { status: Some(status), gone: Some(0), ..Outcome::default() });
        });
        Self { hands, outcome, failure, tasks: Some(tasks) }
    }

    /// A receiver that follows the outcome: the status of the first command that failed, or 0 once
    /// all have ended.
    pub(super) fn outcome(&self) -> watch::Receiver<Outcome> {
        self.outcome.clone()
    }

    /// Why the first command that failed has done so, in words; `None` if none has.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// Passes a signal to the commands on all nodes.
    pub(super) async fn signal(&self, number: i32) {
        for hand in &self.hands {
            hand.signal(number).await;
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(tasks) = self.tasks.take() {
            tasks.abort();
        }
    }
}

/// Waits until all commands have ended, or one has failed. Returns the status, and the failure in
/// words.
async fn until_end(mut running: JoinSet<(String, anyhow::Result<Option<i32>>)>) -> (i32, Option<String>) {
    let own_failure = i32::from(super::OWN_FAILURE);
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((_, Ok(Some(0)))) => {}
            Ok((node, Ok(Some(status)))) => return (status, Some(failed(&node, status))),
            Ok((node, Ok(None))) => {
                return (own_failure, Some(format!("the connection to the command on {node} broke")));
            }
            Ok((node, Err(error))) => return (own_failure, Some(format!("{node}: {error:#}"))),
            Err(_) => return (own_failure, None),
        }
    }
    (0, None)
}

/// How the command on a node has failed, in words. A program may end with the status that stands
/// for an end by a signal, and the status alone doesn't tell the two apart.
fn failed(node: &str, status: i32) -> String {
    match Signal::try_from(status - 128) {
        Ok(signal) => format!("the command on {node} ended with status {status}, as by {signal}"),
        Err(_) => format!("the command on {node} ended with status {status}"),
    }
}

/// The variables by which the command finds its rank.
fn variables(nodes: &[&str], rank: usize, joined: Option<(&str, &str)>) -> Vec<Variable> {
    let head = joined.map_or_else(|| nodes.first().copied().unwrap_or_default(), |(_, head)| head);
    let joined = joined.map(|(job, _)| ("ISTHMUS_JOINED", job.to_owned()));
    [
        ("ISTHMUS_NODE_RANK", rank.to_string()),
        ("ISTHMUS_NODES", nodes.len().to_string()),
        ("ISTHMUS_NODE", nodes.get(rank).copied().unwrap_or_default().to_owned()),
        ("ISTHMUS_HEAD", head.to_owned()),
        ("ISTHMUS_NODE_LIST", nodes.join(",")),
    ]
    .into_iter()
    .chain(joined)
    .map(|(name, value)| remote::variable(name, &value))
    .collect()
}

/// The variables by which the command finds its group.
fn group_variables(groups: &[Group], rank: usize) -> Vec<Variable> {
    let groups: Vec<_> = groups.iter().map(|group| (group.name.as_str(), group.ranks)).collect();
    let told = environment(&groups, u32::try_from(rank).unwrap_or(u32::MAX));
    told.into_iter().map(|(name, value)| remote::variable(name, &value)).collect()
}

fn write(
    lines: &Mutex<[Lines; 2]>,
    stream: Stream,
    text: impl FnOnce(&mut Lines) -> Vec<u8>,
) -> io::Result<()> {
    let [output, error] = &mut *lines.lock().unwrap_or_else(PoisonError::into_inner);
    match stream {
        Stream::Output => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(&text(output))?;
            stdout.flush()
        }
        Stream::Error => io::stderr().lock().write_all(&text(error)),
    }
}

/// Output that is cut into lines, so that lines of several nodes don't mix.
#[derive(Debug)]
struct Lines {
    prefix: String,
    held: Vec<u8>,
}

impl Lines {
    fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), held: Vec::new() }
    }

    /// Takes in output, and returns the lines that are whole.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.held.extend_from_slice(part);
            if part.ends_with(b"\n") || self.held.len() >= LINE_MAX {
                out.extend(self.rest());
            }
        }
        out
    }

    /// Returns the part of a line that is held back, as a line.
    fn rest(&mut self) -> Vec<u8> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let mut line = self.prefix.clone().into_bytes();
        line.append(&mut self.held);
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_whole() {
        let mut lines = Lines::new("n1.a: ");
        let mut written = Vec::new();
        for part in ["one\ntw", "o", "\n\nthree"] {
            written.extend(lines.take(part.as_bytes()));
        }
        assert_eq!(written, b"n1.a: one\nn1.a: two\nn1.a: \n");
        assert_eq!(lines.rest(), b"n1.a: three\n");
        assert!(lines.rest().is_empty());
    }

    #[test]
    fn a_failure_is_told_with_its_signal() {
        for (status, want) in [
            (7, "the command on n1.a ended with status 7"),
            (137, "the command on n1.a ended with status 137, as by SIGKILL"),
            (255, "the command on n1.a ended with status 255"),
        ] {
            assert_eq!(failed("n1.a", status), want);
        }
    }

    #[test]
    fn endless_lines_are_cut() {
        let mut lines = Lines::new("");
        assert!(lines.take(&vec![b'x'; LINE_MAX - 1]).is_empty());
        assert_eq!(lines.take(b"x").len(), LINE_MAX + 1);
    }

    #[test]
    fn each_finds_its_rank() {
        let text = |rank, joined| {
            let entries = variables(&["n1.a", "n1.b"], rank, joined).into_iter().map(|entry| {
                format!("{}={}", String::from_utf8_lossy(&entry.name), String::from_utf8_lossy(&entry.value))
            });
            entries.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            text(1, None),
            "ISTHMUS_NODE_RANK=1 ISTHMUS_NODES=2 ISTHMUS_NODE=n1.b ISTHMUS_HEAD=n1.a ISTHMUS_NODE_LIST=n1.a,n1.b"
        );
        assert_eq!(
            text(0, Some(("5a1f", "n0.a"))),
            "ISTHMUS_NODE_RANK=0 ISTHMUS_NODES=2 ISTHMUS_NODE=n1.a ISTHMUS_HEAD=n0.a ISTHMUS_NODE_LIST=n1.a,n1.b ISTHMUS_JOINED=5a1f"
        );
    }
}
