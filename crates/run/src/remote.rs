//! A command on a node of a job, run by that node's agent: input, output,
//! signals and exit status pass through.

use isthmus_rpc::grpc;
use isthmus_wire::proto::exec_down::Kind as Down;
use isthmus_wire::proto::exec_up::Kind as Up;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::{Command, ExecUp, Variable};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use anyhow::Context as _;
use isthmus_front::local;
use isthmus_front::output::{self, one_line};

/// How many messages with input and signals may wait for the network.
const QUEUE: usize = 16;

/// Which of its outputs a command has written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// A command to be run on another node.
#[derive(Debug)]
pub(crate) struct Remote {
    command: Command,
    up_tx: mpsc::Sender<ExecUp>,
    up_rx: mpsc::Receiver<ExecUp>,
}

/// Sends a running command input and signals.
#[derive(Debug, Clone)]
pub(crate) struct Hand(mpsc::Sender<ExecUp>);

impl Remote {
    /// A command that has not started yet.
    pub(crate) fn new(command: Command) -> Self {
        let (up_tx, up_rx) = mpsc::channel(QUEUE);
        Self { command, up_tx, up_rx }
    }

    /// A sender of input and signals to the command.
    pub(crate) fn hand(&self) -> Hand {
        Hand(self.up_tx.clone())
    }

    /// Runs the command to its end. Returns its exit status, or 128 + signal, or `None` if the
    /// connection broke. Dropping the future ends the command with all that it started.
    ///
    /// # Errors If the command can't be run, or `sink` fails.
    pub(crate) async fn run(
        self,
        agent: &mut LocalClient<Channel>,
        mut sink: impl FnMut(Stream, &[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<Option<i32>> {
        let Self { command, up_tx, up_rx } = self;
        let node = command.node.clone();
        let failed =
            |status: Status| local::failure(status).context(format!("cannot run a command on {node}"));
        let first = tokio_stream::once(ExecUp { kind: Some(Up::Command(command)) });
        let up = tokio_stream::StreamExt::chain(first, ReceiverStream::new(up_rx));
        let mut down = agent.exec(up).await.map_err(failed)?.into_inner();
        // The sender is held to the end: signals go over the same stream.
        let _up_tx = up_tx;
        loop {
            let message = match down.message().await {
                Ok(Some(message)) => message,
                // A node or an agent is lost: `isthmus run` says which, and why.
                Err(status) if grpc::connection_broke(&status) => return Ok(None),
                Err(status) => return Err(failed(status)),
                Ok(None) => anyhow::bail!("the connection to {node} ended before the command did"),
            };
            match message.kind {
                Some(Down::Stdout(bytes)) => {
                    sink(Stream::Output, &bytes).context("cannot write its output")?
                }
                Some(Down::Stderr(bytes)) => {
                    sink(Stream::Error, &bytes).context("cannot write its output")?
                }
                Some(Down::Exit(exit)) => {
                    if !exit.reason.is_empty() {
                        output::message(&format!("{node}: {}", one_line(&exit.reason)));
                    }
                    return Ok(Some(exit.status));
                }
                Some(Down::Started(_)) | None => {}
            }
        }
    }
}

impl Hand {
    /// Sends the command input; `false` if it has ended.
    pub(crate) async fn input(&self, bytes: &[u8]) -> bool {
        self.give(Up::Stdin(bytes.to_vec())).await
    }

    /// Ends the command's input; `false` if the command has ended.
    pub(crate) async fn end_input(&self) -> bool {
        self.give(Up::StdinEnd(true)).await
    }

    pub(crate) async fn signal(&self, number: i32) -> bool {
        self.give(Up::Signal(number)).await
    }

    async fn give(&self, kind: Up) -> bool {
        self.0.send(ExecUp { kind: Some(kind) }).await.is_ok()
    }
}

/// The command line by which a shell runs these words as one command, with `exec`.
pub(crate) fn shell_command(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!(" '{}'", word.replace('\'', r"'\''")));
    std::iter::once("exec".to_owned()).chain(quoted).collect()
}

/// A variable that the user sets for all ranks of a job. Agents pass no variables of isthmus on,
/// and some launchers pass none at all.
const OF_ALL_RANKS: &str = "ISTHMUS_COLL";

/// The variables for a command on another node: the job's id, [`OF_ALL_RANKS`], and the wanted
/// ones. A wanted one is `NAME=VALUE`, or a name whose value here is taken.
pub(crate) fn variables(job: &str, wanted: &[String]) -> Vec<Variable> {
    let own = ("ISTHMUS_JOB".to_owned(), job.to_owned());
    let of_all = OF_ALL_RANKS.to_owned();
    let given = std::iter::once(&of_all).chain(wanted).filter_map(|text| match text.split_once('=') {
        Some((name, value)) => Some((name.to_owned(), value.to_owned())),
        None => std::env::var(text).ok().map(|value| (text.clone(), value)),
    });
    std::iter::once(own).chain(given).map(|(name, value)| variable(&name, &value)).collect()
}

pub(crate) fn variable(name: &str, value: &str) -> Variable {
    Variable { name: name.into(), value: value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_program_unchanged() {
        let words: Vec<String> =
            ["printf", "%s|", "a b", "it's", "$HOME", ""].into_iter().map(ToOwned::to_owned).collect();
        let output = std::process::Command::new("sh").arg("-c").arg(shell_command(&words)).output().unwrap();
        assert_eq!(output.stdout, b"a b|it's|$HOME||");
    }
}
