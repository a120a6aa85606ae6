//! The helpers of a run on its nodes: they are started, and what they say is collected.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use isthmus_front::output::one_line;
use isthmus_service::mac;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::{Command, JobNode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

use super::task::{LINE_MAX, Offers, Said, Task, Work};
use crate::remote::{self, Hand, Remote, Stream};

/// Starts a helper. The shell's parent is the supervisor, a process of isthmus, so that the node's
/// own isthmus is found wherever it is installed.
const COMMAND: &str = "exec /proc/$PPID/exe stage";
/// Most bytes of a helper's errors that are kept.
const ERRORS_MAX: usize = 4096;
/// How long the news may take that a node is lost, once a connection to it is broken.
const NEWS: Duration = Duration::from_secs(1);
/// How long helpers may take to end by themselves.
const END_DEADLINE: Duration = Duration::from_secs(2);

/// The running helpers of a job.
pub(super) struct Helpers<'a> {
    agent: LocalClient<Channel>,
    job: &'a str,
    /// The job's nodes.
    nodes: &'a [JobNode],
    secret: [u8; 32],
    /// How long all helpers may be silent.
    patience: Duration,
    hands: Vec<Hand>,
    running: JoinSet<()>,
    said_tx: mpsc::UnboundedSender<(usize, anyhow::Result<Said>)>,
    said: mpsc::UnboundedReceiver<(usize, anyhow::Result<Said>)>,
}

impl<'a> Helpers<'a> {
    pub(super) fn new(
        agent: LocalClient<Channel>,
        (job, nodes): (&'a str, &'a [JobNode]),
        patience: Duration,
    ) -> Self {
        let (said_tx, said) = mpsc::unbounded_channel();
        Self {
            agent,
            job,
            nodes,
            secret: mac::random(),
            patience,
            hands: Vec::new(),
            running: JoinSet::new(),
            said_tx,
            said,
        }
    }

    /// The address at which a node's helper offers files.
    pub(super) fn address(&self, node: usize, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from(self.nodes[node].virtual_address), port)
    }

    /// Starts a helper on a node.
    ///
    /// # Errors
    /// Its task is too long.
    pub(super) fn start(&mut self, node: usize, work: Work) -> anyhow::Result<()> {
        let line = serde_json::to_string(&Task { secret: self.secret, work })? + "\n";
        ensure!(line.len() < LINE_MAX, "there are too many paths");
        let name = self.nodes[node].name.clone();
        let remote = Remote::new(Command {
            job: self.job.to_owned(),
            node: name.clone(),
            shell_command: COMMAND.to_owned(),
            environment: remote::variables(self.job, &[]),
            working_directory: "/".to_owned(),
            job_directory: String::new(),
        });
        let hand = remote.hand();
        self.hands.push(hand.clone());
        let (mut agent, said) = (self.agent.clone(), self.said_tx.clone());
        self.running.spawn(async move {
            hand.input(line.as_bytes()).await;
            let (mut lines, mut errors) = (Vec::new(), Vec::<u8>::new());
            let sink = |stream, bytes: &[u8]| {
                match stream {
                    Stream::Output => {
                        for line in whole_lines(&mut lines, bytes)? {
                            let read = serde_json::from_slice(&line).context("it says what is no answer");
                            // Nobody listens any more at the end.
                            let _ = said.send((node, read));
                        }
                    }
                    Stream::Error => {
                        errors.extend(bytes.iter().take(ERRORS_MAX - errors.len().min(ERRORS_MAX)));
                    }
                }
                Ok(())
            };
            let ended = remote.run(&mut agent, sink).await;
            if matches!(ended, Ok(None)) {
                sleep(NEWS).await;
            }
            let _ = said.send((node, Err(failure(&name, ended, &errors))));
        });
        Ok(())
    }

    /// What a helper says next, or why it has failed, with the index of its node.
    ///
    /// # Errors
    /// None says anything for too long.
    pub(super) async fn next(&mut self) -> anyhow::Result<(usize, anyhow::Result<Said>)> {
        let said = timeout(self.patience, self.said.recv()).await;
        let patience = humantime::format_duration(self.patience);
        let (node, said) = said.ok().flatten().with_context(|| format!("nothing went on for {patience}"))?;
        let said = match said {
            Ok(Said::Failed { why }) => {
                let why: String = why.chars().take(ERRORS_MAX).collect();
                Err(anyhow::anyhow!("{}", one_line(&why)))
            }
            said => said,
        };
        Ok((node, said.with_context(|| self.nodes[node].name.clone())))
    }

    /// Waits until a helper offers files. `told` gets all else that is said.
    ///
    /// # Errors
    /// A helper has failed, or none says anything for too long.
    pub(super) async fn offers(
        &mut self,
        mut told: impl FnMut(usize, &Said),
    ) -> anyhow::Result<(usize, Offers)> {
        loop {
            match self.next().await? {
                (node, Ok(Said::Offers(offers))) => return Ok((node, offers)),
                (node, said) => told(node, &said?),
            }
        }
    }

    /// Ends the helpers.
    pub(super) async fn end(mut self) {
        for hand in &self.hands {
            hand.end_input().await;
        }
        let all = async { while self.running.join_next().await.is_some() {} };
        let _ = timeout(END_DEADLINE, all).await;
    }
}

/// Takes in output, and returns the lines that are whole.
fn whole_lines(held: &mut Vec<u8>, bytes: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
    let mut lines = Vec::new();
    for part in bytes.split_inclusive(|byte| *byte == b'\n') {
        held.extend_from_slice(part);
        if held.len() > LINE_MAX {
            return Err(std::io::Error::other("a line is too long"));
        }
        if part.ends_with(b"\n") {
            lines.push(std::mem::take(held));
        }
    }
    Ok(lines)
}

/// Why a helper has ended.
fn failure(node: &str, ended: anyhow::Result<Option<i32>>, errors: &[u8]) -> anyhow::Error {
    let errors = String::from_utf8_lossy(errors);
    let errors: Vec<&str> = errors.lines().map(|line| line.trim_start_matches("isthmus: ")).collect();
    match ended {
        Err(error) => error,
        Ok(None) => anyhow::anyhow!("the connection to the helper on {node} broke"),
        Ok(Some(status)) if errors.is_empty() => anyhow::anyhow!("the helper ended with status {status}"),
        Ok(Some(_)) => anyhow::anyhow!("{}", one_line(&errors.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_parts() {
        let mut held = Vec::new();
        let mut lines = Vec::new();
        for part in ["{\"a\"", ":1}\n{}\n", "", "{"] {
            lines.extend(whole_lines(&mut held, part.as_bytes()).unwrap());
        }
        assert_eq!(lines, [b"{\"a\":1}\n".to_vec(), b"{}\n".to_vec()]);
        assert!(whole_lines(&mut held, &vec![b'x'; LINE_MAX]).is_err());
    }

    #[test]
    fn failures_are_told_in_the_helpers_words() {
        for (ended, errors, want) in [
            (
                Ok(Some(1)),
                "isthmus: cannot read /x: Permission denied\n",
                "cannot read /x: Permission denied",
            ),
            (Ok(Some(137)), "", "the helper ended with status 137"),
            (Ok(None), "isthmus: x", "the connection to the helper on n1.b broke"),
            (Err(anyhow::anyhow!("no such node")), "", "no such node"),
        ] {
            assert_eq!(failure("n1.b", ended, errors.as_bytes()).to_string(), want);
        }
    }
}
