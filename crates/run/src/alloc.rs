//! `isthmus alloc`: nodes of batch schedulers for as long as a command runs, such as a shell or a
//! script with several calls of `isthmus run`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use isthmus_agent::starting::supervise::Supervised;
use isthmus_agent::starting::supervise::handle::{self, Launch};
use isthmus_front::notes::{self, Kind, Phase};
use isthmus_front::output::message;
use isthmus_profile::Profile;
use tokio::time::Instant;

use crate::allocation;
use crate::kept::KeptNodes;
use crate::pilots::{self, Asking, BatchArgs, Pilots};
use crate::placing::{self, Source};
use crate::prepare::check_program;
use crate::profile;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::work::Work;
use crate::{CANCELLED, is_cancel, or_cancelled, until};

/// How long the command may take to end after a signal that ends it.
const TERM_GRACE: Duration = Duration::from_secs(4);
/// The shell of users who have set none.
const SHELL: &str = "/bin/sh";

/// Keep nodes of batch schedulers while a command runs, such as a shell.
///
/// Within it, `isthmus run` uses these nodes unless it names others. At the command's end they are
/// given back. Exit status: the command's own; 125 if isthmus itself failed; 126 or 127 if the command
/// could not be started or found.
#[derive(Debug, Args)]
#[command(
    override_usage = "isthmus alloc [OPTIONS] <--pilots SITE=NODES,...|--profile FILE> [-- COMMAND [ARGUMENT]...]"
)]
pub struct AllocArgs {
    /// Print errors only.
    #[arg(long, short)]
    quiet: bool,
    /// The agent's Unix socket.
    #[arg(long, env = "ISTHMUS_AGENT", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A job's profile: keep the nodes that its groups need.
    ///
    /// Give it to `isthmus run` as well. With `--pilots alpha,beta` only the batch schedulers of these sites
    /// are asked.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The command and its arguments; by default your shell ($SHELL).
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
    // The last one: its heading is for all that follows.
    #[command(flatten)]
    batch: BatchArgs,
}

/// Runs `isthmus alloc`, and returns the exit status of this process.
pub fn main(args: AllocArgs) -> ExitCode {
    crate::with_signals(|signals| alloc(args, signals))
}

async fn alloc(args: AllocArgs, mut signals: Signals) -> anyhow::Result<i32> {
    let AllocArgs { quiet, socket, profile, command, batch } = args;
    let socket = socket.or_else(allocation::socket);
    let mut progress = Progress::new(quiet);
    anyhow::ensure!(
        profile.is_some() || !batch.pilots.is_empty(),
        "say with --pilots which nodes to keep, such as --pilots alpha=4,beta=2, or with --profile what they are for"
    );
    let by_profile = profile.is_some();
    anyhow::ensure!(
        !(by_profile && batch.has_numbers()),
        "--pilots: leave the numbers of nodes out, the profile says how many are needed"
    );
    batch.check(by_profile, by_profile)?;
    let profile = profile.as_deref().map(profile::read).transpose()?;
    let command = if command.is_empty() { vec![shell()] } else { command };
    check_program(&command)?;
    let note = notes::Own::begin(Kind::Alloc, command.first().map_or("", String::as_str));
    let asking = Asking { batch: &batch, note: &note, socket: socket.as_ref(), quiet, beside: &[] };
    if batch.start_estimate {
        match &profile {
            Some(profile) => {
                placing::estimate(&Source::all(asking), profile, &mut progress, &mut signals).await?;
            }
            None => pilots::estimate(asking, &mut progress, &mut signals).await?,
        }
        return Ok(0);
    }
    let kept = keep(asking, profile.as_ref(), &mut progress, &mut signals).await;
    let (mut kept, pilots) = or_cancelled(kept, &note)?;
    kept.end_unix_seconds = pilots.as_ref().and_then(Pilots::end_unix_seconds);
    progress.clear();
    note.is(Phase::Runs);
    let status = run(&command, socket.as_deref(), &kept, pilots.as_ref(), (&mut signals, &note)).await;
    if let Some(pilots) = pilots {
        if !quiet {
            message("giving the nodes back");
        }
        pilots.finish().await;
    }
    status
}

/// Has the nodes that are to be kept, and the pilots that give them, if any is needed.
async fn keep(
    asking: Asking<'_>,
    profile: Option<&Profile>,
    progress: &mut Progress,
    signals: &mut Signals,
) -> anyhow::Result<(KeptNodes, Option<Pilots>)> {
    if let Some(profile) = profile {
        return placing::keep(&Source::all(asking), profile, progress, signals).await;
    }
    let pilots = Pilots::find(asking, progress, signals).await?;
    let names = pilots.as_ref().map(Pilots::names).unwrap_or_default();
    Ok((KeptNodes::with_tags(names, &asking.batch.tags), pilots))
}

/// Runs the command until it ends. A pilot that ends before it doesn't end it.
async fn run(
    command: &[String],
    socket: Option<&Path>,
    kept: &KeptNodes,
    pilots: Option<&Pilots>,
    (signals, note): (&mut Signals, &notes::Own),
) -> anyhow::Result<i32> {
    let isthmus = std::env::current_exe().context("cannot find the isthmus binary")?;
    let working_directory = std::env::current_dir().context("the working directory is gone")?;
    let supervised = Supervised::start(Launch {
        isthmus: &isthmus,
        command: command.iter().map(OsString::from).collect(),
        environment: environment(kept, socket),
        working_directory: &working_directory,
        detached: false,
    });
    let mut work = Work::Here(supervised.context("cannot start the command's supervisor")?);
    let mut outcome = work.outcome();
    let (mut told, mut deadline) = (0, None);
    let status = loop {
        tokio::select! {
            status = handle::status(&mut outcome) => break status,
            signal = signals.any() => {
                if is_cancel(signal, note) {
                    message(CANCELLED);
                }
                work.signal(signal.number, signal.from_terminal).await;
                if signal.is_final() {
                    deadline.get_or_insert_with(|| Instant::now() + TERM_GRACE);
                }
            }
            () = until(deadline), if deadline.is_some() => {
                deadline = None;
                work.end().await;
            }
            failures = failures(pilots, told) => {
                for failure in failures.iter().skip(told) {
                    message(&format!(
                        "{failure}. The command goes on; its next runs must name the other nodes with --nodes"
                    ));
                }
                told = failures.len();
            }
        }
    };
    // Runs that the command has left behind end before their nodes.
    work.end().await;
    handle::gone(&mut outcome).await;
    Ok(status)
}

/// Waits until more pilots than `told` have ended, and returns why each has, in words.
async fn failures(pilots: Option<&Pilots>, told: usize) -> Vec<String> {
    match pilots {
        Some(pilots) => pilots.failures(told).await,
        None => std::future::pending().await,
    }
}

/// The command's environment: this process's, the nodes, and the agent's socket if it isn't the default.
fn environment(kept: &KeptNodes, socket: Option<&Path>) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let socket = socket.map(|socket| ("ISTHMUS_AGENT", OsString::from(socket)));
    for (name, value) in kept.variables().into_iter().chain(socket) {
        environment.retain(|(old, _)| old != name);
        environment.push((name.into(), value));
    }
    environment
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
    fn the_command_is_told_nodes_and_agent() {
        let told = |socket: Option<&str>| {
            let kept = KeptNodes::with_tags(["n1.a", "n2.b"].map(str::to_owned).into(), &[]);
            let found = environment(&kept, socket.map(Path::new));
            let value = |wanted: &str| {
                let mut values =
                    found.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.clone());
                (values.next(), values.next())
            };
            (value("ISTHMUS_ALLOCATION"), value("ISTHMUS_AGENT").0)
        };
        let nodes = (Some(OsString::from("n1.a,n2.b")), None);
        assert_eq!(told(Some("/x")), (nodes.clone(), Some("/x".into())));
        assert_eq!(told(None).0, nodes);
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
