//! `isthmus run`: prepares the environment and runs the user's own command. Also `isthmus alloc`,
//! `isthmus exec`, and the command that an MPI's launcher calls in place of ssh.

// Texts of other parties are escaped: isthmus_front::output writes them.
#![deny(clippy::print_stderr)]

mod account;
pub mod alloc;
pub mod allocation;
mod args;
mod bypass;
mod candidates;
mod collectives;
mod command;
mod culprit;
mod each;
pub mod exec;
mod finish;
mod given;
mod hosts;
pub mod joined;
mod kept;
pub mod launch;
mod mpi;
mod nodes;
mod notice;
mod pauses;
mod pilots;
mod placing;
mod preflight;
mod prepare;
mod profile;
mod programs;
mod progress;
mod pulses;
mod ranks;
mod remote;
mod replaced;
mod signals;
mod silent;
mod slots;
pub mod staging;
mod startable;
mod timing;
mod topology;
mod tries;
mod uncarried;
mod unready;
mod waits;
mod watch;
mod wire_up;
mod work;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use isthmus_front::format::causes;
use isthmus_front::notes::{self, Kind, Phase};
use isthmus_front::output::message;
use isthmus_wire::proto::{JobNews, Ready, UncarriedProgram};
use nix::sys::signal::Signal;
use tonic::Streaming;

use finish::{Conclusion, Files, Finished};
use given::Given;
use mpi::Launcher;
use nodes::ChoiceError;
use placing::{Placed, Source};
use prepare::{Prepared, Wanted};
use profile::Asked;
use progress::{Daemons, Progress};
use pulses::Pulses;
use signals::{Interrupted, Received, Signals};
use staging::Paths;
use startable::Unstartable;
use timing::Stopwatch;
use tries::{NotStarted, Tries};
use watch::{Begun, Watch};

pub use args::{RunArgs, explain};
pub use nodes::chosen;
pub use topology::of as job_topology;

/// Exit status where isthmus itself failed, as env(1) and timeout(1) have it.
const OWN_FAILURE: u8 = 125;
/// How long before a batch job's time is over the user is told of it.
const SOON: Duration = Duration::from_secs(120);
/// What the user reads where `isthmus cancel` has sent a signal.
const CANCELLED: &str = "cancelled by `isthmus cancel`";

/// Runs `isthmus run`, and returns the exit status of this process.
pub fn main(args: RunArgs) -> ExitCode {
    with_signals(|signals| run(args, signals))
}

/// Runs something that takes signals, and returns the exit status of this process.
fn with_signals<F: Future<Output = anyhow::Result<i32>>>(what: impl FnOnce(Signals) -> F) -> ExitCode {
    // Before any thread exists, so that all of them leave signals to this one.
    let signals = match Signals::block() {
        Ok(signals) => signals,
        Err(error) => {
            message(&format!("cannot take signals: {error}"));
            return ExitCode::from(OWN_FAILURE);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.context("cannot start").and_then(|runtime| {
        let result = runtime.block_on(what(signals));
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(OWN_FAILURE)),
        Err(error) => {
            message(&causes(&error));
            ExitCode::from(own_status(&error))
        }
    }
}

/// The exit status if isthmus itself gives up.
fn own_status(error: &anyhow::Error) -> u8 {
    if let Some(unstartable) = error.downcast_ref::<Unstartable>() {
        return unstartable.status();
    }
    let interrupted = error.downcast_ref::<Interrupted>();
    interrupted.and_then(|interrupted| u8::try_from(interrupted.0.status()).ok()).unwrap_or(OWN_FAILURE)
}

/// Whether `isthmus cancel` has sent a signal to this process, which has this note.
fn is_cancel(signal: Received, note: &notes::Own) -> bool {
    signal.number == Signal::SIGTERM as i32 && note.is_cancelled()
}

/// The result of a command with this note; its error says so if `isthmus cancel` has ended it.
fn or_cancelled<T>(result: anyhow::Result<T>, note: &notes::Own) -> anyhow::Result<T> {
    result.map_err(|error| {
        let interrupted = error.downcast_ref::<Interrupted>();
        let is_cancelled = interrupted.is_some_and(|interrupted| is_cancel(interrupted.0, note));
        if is_cancelled { error.context(CANCELLED) } else { error }
    })
}

/// The result of a run on nodes that batch jobs give. Its error says so if one of these has ended, and
/// nodes are missing for that.
async fn or_ended<T>(result: anyhow::Result<T>, given: &Given) -> anyhow::Result<T> {
    let Err(error) = result else { return result };
    let is_missing = error.downcast_ref().is_some_and(ChoiceError::may_pass)
        || error.downcast_ref().is_some_and(|start: &NotStarted| start.may_pass);
    if !is_missing {
        return Err(error);
    }
    match given.end_of_job(false).await {
        Some(words) => Err(error.context(words)),
        None => Err(error),
    }
}

/// Waits until a time; forever if there is none.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// A job whose nodes are ready.
struct Held<'a> {
    prepared: Prepared<'a>,
    ready: Ready,
    news: Streaming<JobNews>,
    /// Programs that can't be carried, of which the user is to be warned.
    warnings: Vec<UncarriedProgram>,
}

/// Tries once to have the agents of a job's nodes hold the job.
async fn hold<'a>(
    wanted: Wanted<'a>,
    tries: &mut Tries,
    signals: &mut Signals,
    (progress, stopwatch): (&mut Progress, &mut Stopwatch),
) -> anyhow::Result<Held<'a>> {
    progress.show("looking up the grid's nodes");
    let mut prepared = tokio::select! {
        prepared = Prepared::new(wanted, progress, tries) => prepared?,
        signal = signals.next() => return Err(Interrupted(signal).into()),
    };
    let mut warnings = prepared.check_command()?;
    progress.asking(&prepared.nodes);
    stopwatch.asked();
    let (ready, news) = prepared.hold(signals).await?;
    stopwatch.ready(&ready.held);
    warnings.extend(prepared.check_nodes(&ready, progress)?);
    Ok(Held { prepared, ready, news, warnings })
}

/// Has the agents of a job's nodes hold the job, and tries again what may pass.
async fn hold_soon<'a>(
    wanted: Wanted<'a>,
    signals: &mut Signals,
    (progress, stopwatch): (&mut Progress, &mut Stopwatch),
) -> anyhow::Result<Held<'a>> {
    let mut tries = Tries::begin(wanted.args.try_for);
    loop {
        match hold(wanted, &mut tries, signals, (progress, stopwatch)).await {
            Ok(held) => return Ok(held),
            Err(error) => tries.again(error, progress, (signals, wanted.args.quiet)).await?,
        }
    }
}

async fn run(mut args: RunArgs, signals: Signals) -> anyhow::Result<i32> {
    let stopwatch = Stopwatch::start();
    // A run that takes the batch job's nodes unasked finds its agents with them.
    if args.socket.is_none() && !args.no_allocation && !args.asks_for_no_nodes() {
        args.socket = allocation::socket();
    }
    let note = notes::Own::begin(Kind::Run, args.command.first().map_or("", String::as_str));
    or_cancelled(run_noted(&args, &note, signals, stopwatch).await, &note)
}

async fn run_noted(
    args: &RunArgs,
    note: &notes::Own,
    mut signals: Signals,
    stopwatch: Stopwatch,
) -> anyhow::Result<i32> {
    let files = Files::create(args)?;
    let paths = args.staging.paths()?;
    let mut progress = Progress::new(args.quiet);
    let launcher = prepare::launcher(args)?;
    let asked = Asked::read(args.profile.as_deref(), (&args.command, launcher))?;
    let by_profile = asked.line.is_some();
    args.batch.check(by_profile, by_profile && args.nodes.is_empty() && Given::kept().is_none())?;
    if args.batch.start_estimate && (asked.line.is_none() || args.batch.has_numbers()) {
        pilots::estimate(args.asking(note), &mut progress, &mut signals).await?;
        return Ok(0);
    }
    let mut given = match args.batch.start_estimate {
        true => Given::kept(),
        false => Given::find(args, note, &mut progress, &mut signals).await?,
    };
    let wanted = (args, note, launcher, &asked);
    let files = (files, &paths);
    let result = run_asked(wanted, &mut given, signals, (progress, stopwatch), files).await;
    let result = match &given {
        Some(given) => or_ended(result, given).await,
        None => result,
    };
    if let Some(given) = given {
        given.finish().await;
    }
    result
}

/// Runs the job as its profile asks. Nodes that this takes are put into `given`.
async fn run_asked(
    (args, note, launcher, asked): (&RunArgs, &notes::Own, Option<Launcher>, &Asked),
    given: &mut Option<Given>,
    mut signals: Signals,
    (mut progress, stopwatch): (Progress, Stopwatch),
    files: (Files<'_>, &Paths),
) -> anyhow::Result<i32> {
    let Asked { profile, line } = asked;
    let args = match line {
        Some(_) if args.batch.start_estimate => {
            let source = Source::of(args, note, given.as_ref())?;
            placing::estimate(&source, profile, &mut progress, &mut signals).await?;
            return Ok(0);
        }
        Some(line) => placing::run((args, note), (profile, line), given, &mut progress, &mut signals).await?,
        None => RunArgs { placed: Placed::by_launcher(profile), ..args.clone() },
    };
    let wanted = Wanted { args: &args, note, launcher, given: given.as_ref(), is_staging: false };
    run_on(wanted, signals, (progress, stopwatch), files).await
}

/// Runs the job, on the nodes that a batch job has given if there are any.
async fn run_on(
    wanted: Wanted<'_>,
    mut signals: Signals,
    (mut progress, mut stopwatch): (Progress, Stopwatch),
    (files, paths): (Files<'_>, &Paths),
) -> anyhow::Result<i32> {
    let notice = match wanted.args.signal {
        Some(notice) => notice.of(wanted.args, wanted.given)?.map(|end| (notice, end)),
        None => None,
    };
    let staged;
    let wanted = if paths.stage.is_empty() {
        wanted
    } else {
        staged = staging::bring(wanted, &paths.stage, &mut signals, &mut progress).await?;
        stopwatch = Stopwatch::start();
        Wanted { args: &staged, ..wanted }
    };
    let Wanted { args, note, given, .. } = wanted;
    let Held { prepared, ready, mut news, warnings } =
        hold_soon(wanted, &mut signals, (&mut progress, &mut stopwatch)).await?;
    if let Some(line) = prepared.left_out() {
        progress.message(&line);
    }
    // From now on the command may write to the terminal.
    progress.clear();

    let started = Instant::now();
    stopwatch.command(started);
    let work = prepared.start(&ready)?;
    note.is(Phase::Runs);
    let notice = notice.map(|(notice, end)| notice.once(end, args.quiet));
    let (agent, job) = (prepared.agent.clone(), prepared.job.clone());
    let (quiet, keep_going) = (args.quiet, args.keep_going);
    let head = prepared.nodes.first().map(|node| node.name.clone()).unwrap_or_default();
    let pulses = Pulses::new(args.patience, started);
    let daemons = Daemons::new(&prepared.nodes, prepared.waits_for_daemons(), started);
    let is_launcher = prepared.is_launcher();
    let begun = Begun {
        work,
        quiet,
        keep_going,
        is_launcher,
        signals,
        progress,
        daemons,
        stopwatch,
        agent,
        job,
        head,
        pulses,
    };
    let mut watch = Watch::new(begun, started);
    watch.warn(warnings);
    // The job lasts as long as this call: it must outlive the account.
    let ended = watch.until_end(&mut news).await;
    let took = started.elapsed();
    if let Some(notice) = notice {
        notice.abort();
    }
    watch.stopwatch.ended(watch.wire_up.span());
    let finished = Finished { args, note, given, prepared, ready, watch, ended, took };
    let concluded = finished.account(news, files).await?;
    fetch(wanted, &paths.fetch, concluded).await
}

/// Fetches files once the command has ended. Returns the exit status.
async fn fetch(
    wanted: Wanted<'_>,
    paths: &[String],
    Conclusion { status, was_interrupted }: Conclusion,
) -> anyhow::Result<i32> {
    if paths.is_empty() {
        return Ok(status);
    }
    if was_interrupted {
        message("nothing is fetched, as the run was interrupted");
        return Ok(status);
    }
    let (mut signals, mut progress) = (Signals::block()?, Progress::new(wanted.args.quiet));
    let fetched = staging::fetch(wanted, paths, &mut signals, &mut progress).await;
    progress.clear();
    let Err(error) = fetched else { return Ok(status) };
    let (why, own) = match error.downcast_ref::<Interrupted>() {
        Some(Interrupted(signal)) if is_cancel(*signal, wanted.note) => {
            (CANCELLED.to_owned(), signal.status())
        }
        Some(Interrupted(signal)) => (format!("interrupted by {signal}"), signal.status()),
        None => (causes(&error), i32::from(OWN_FAILURE)),
    };
    message(&format!("cannot fetch files: {why}"));
    // The command's own failure is what scripts are to see.
    Ok(if status == 0 { own } else { status })
}
