//! `isthmus alloc`: nodes of batch schedulers for as long as a command runs, such as a shell or a
//! script with several calls of `isthmus run`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use isthmus_agent::starting::supervise::handle::Launch;
use isthmus_agent::starting::supervise::{Outcome, Supervised};
use isthmus_front::output::message;
use tokio::sync::watch;

use crate::pilots::{self, Asking, BatchArgs, Pilots};
use crate::prepare::check_program;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::work::Work;

/// The variable with the names of an allocation's nodes, separated by commas.
pub(crate) const NODES: &str = "ISTHMUS_ALLOCATION";
/// The shell of users who have set none.
const SHELL: &str = "/bin/sh";

/// Keep nodes of batch schedulers while a command runs, such as a shell.
///
/// Within it, `isthmus run` uses these nodes unless it names others. At the command's end they are
/// given back. Exit status: the command's own; 125 if isthmus itself failed; 126 or 127 if the command
/// could not be started or found.
#[derive(Debug, Args)]
#[command(override_usage = "isthmus alloc [OPTIONS] --pilots SITE=NODES,... [-- COMMAND [ARGUMENT]...]")]
pub struct AllocArgs {
    #[command(flatten)]
    batch: BatchArgs,
    /// Print errors only.
    #[arg(long, short)]
    quiet: bool,
    /// The agent's Unix socket.
    #[arg(long, env = "ISTHMUS_AGENT", value_name = "PATH")]
    socket: Option<std::path::PathBuf>,
    /// The command and its arguments; by default your shell ($SHELL).
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs `isthmus alloc`, and returns the exit status of this process.
pub fn main(args: AllocArgs) -> ExitCode {
    crate::with_signals(|signals| alloc(args, signals))
}

async fn alloc(args: AllocArgs, mut signals: Signals) -> anyhow::Result<i32> {
    let AllocArgs { batch, quiet, socket, command } = args;
    let mut progress = Progress::new(quiet);
    anyhow::ensure!(
        !batch.pilots.is_empty(),
        "say with --pilots which nodes to keep, such as --pilots alpha=4,beta=2"
    );
    batch.check(false)?;
    let command = if command.is_empty() { vec![shell()] } else { command };
    check_program(&command)?;
    let asking = Asking { batch: &batch, socket: socket.as_ref(), quiet, beside: &[] };
    if batch.start_estimate {
        pilots::estimate(asking, &mut progress, &mut signals).await?;
        return Ok(0);
    }
    let Some(pilots) = Pilots::find(asking, &mut progress, &mut signals).await? else { return Ok(0) };
    progress.clear();
    let status = run(&command, &pilots, &mut signals).await;
    if !quiet {
        message("giving the nodes back");
    }
    pilots.finish().await;
    status
}

/// Runs the command until it ends. A pilot that ends before it doesn't end it.
async fn run(command: &[String], pilots: &Pilots, signals: &mut Signals) -> anyhow::Result<i32> {
    let isthmus = std::env::current_exe().context("cannot find the isthmus binary")?;
    let working_directory = std::env::current_dir().context("the working directory is gone")?;
    let nodes = OsString::from(pilots.names().join(","));
    let others = std::env::vars_os().filter(|(name, _)| name != NODES);
    let supervised = Supervised::start(Launch {
        isthmus: &isthmus,
        command: command.iter().map(OsString::from).collect(),
        environment: others.chain([(OsString::from(NODES), nodes)]).collect(),
        working_directory: &working_directory,
        detached: false,
    });
    let mut work = Work::Here(supervised.context("cannot start the command's supervisor")?);
    let mut outcome = work.outcome();
    let mut is_told = false;
    let status = loop {
        tokio::select! {
            status = ended(&mut outcome) => break status,
            signal = signals.next() => work.signal(signal.number, signal.from_terminal).await,
            failure = pilots.failure(), if !is_told => {
                is_told = true;
                message(&format!("{failure}. Its nodes are gone; the command goes on"));
            }
        }
    };
    work.end().await;
    Ok(status)
}

/// The command's status, once it has ended.
async fn ended(outcome: &mut watch::Receiver<Outcome>) -> i32 {
    match outcome.wait_for(|outcome| outcome.status.is_some()).await {
        Ok(outcome) => outcome.status.unwrap_or_default(),
        // The supervisor was killed, and the command with it.
        Err(_) => i32::from(crate::OWN_FAILURE),
    }
}

fn shell() -> String {
    std::env::var("SHELL").ok().filter(|shell| !shell.is_empty()).unwrap_or_else(|| SHELL.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: AllocArgs,
    }

    #[test]
    fn what_follows_the_command_is_its_own() {
        for (line, want) in [
            ("--pilots a=1", Some("")),
            ("--pilots a=1,b=2 --time 2h -- sh -c --quiet", Some("sh -c --quiet")),
            ("--pilots a=1 ./script --time 2h", Some("./script --time 2h")),
            ("--nodes n1.a -- sh", None),
        ] {
            let words = std::iter::once("alloc").chain(line.split_whitespace());
            let got = Cli::try_parse_from(words).ok().map(|cli| cli.args.command.join(" "));
            assert_eq!(got.as_deref(), want, "{line}");
        }
    }
}
