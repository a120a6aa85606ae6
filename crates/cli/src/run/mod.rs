//! `isthmus run`: prepares the environment and runs the user's own command.

pub(crate) mod account;
mod bypass;
mod command;
mod each;
mod mpi;
mod nodes;
mod output;
mod preflight;
mod programs;
mod progress;
mod signals;
mod timing;
mod uncarried;
mod watch;
mod work;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use isthmus_agent::starting::supervise::handle;
use isthmus_lab::grid::ByteSize;
use isthmus_net::{grpc, mac};
use isthmus_wire::proto::job_news::Kind;
use isthmus_wire::proto::{self, UncarriedProgram};

use crate::{local, pages};
use account::{Account, Outcome, count};
use output::OutputFile;
use progress::{Progress, say};
use signals::Signals;
use timing::Stopwatch;
use uncarried::Part;
use watch::{Ended, Watch};
use work::Work;

pub(crate) use watch::WireUp;

/// How long the nodes may take to take part; the agent's own deadline is
/// shorter and says more.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// How long the nodes may take to end the job.
const END_DEADLINE: Duration = Duration::from_secs(30);
/// How long to wait for news that were on their way when the job ended.
const LAST_NEWS: Duration = Duration::from_millis(50);
/// Exit status where isthmus itself failed, as env(1) and timeout(1) have it.
const OWN_FAILURE: u8 = 125;

/// Run a command, such as mpirun, as one job over all sites.
///
/// The command runs on this node, which must have an agent. MPI's own launcher
/// starts the ranks on the other nodes through their agents. Exit status: the
/// command's own; 125 if isthmus itself failed; 126 or 127 if the command
/// could not be started or found.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Nodes (NODE.SITE) or whole sites to use; all that are up by default.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    nodes: Vec<String>,
    /// Say nothing but errors.
    #[arg(long, short)]
    quiet: bool,
    /// Tell at the end how each pair of nodes was joined, not only each pair of
    /// sites.
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
    /// Write the account of the job to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Tell at the end where the time of the start went, phase by phase and node
    /// by node; with a file name, as a picture (SVG), too.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    timing: Option<Option<PathBuf>>,
    /// Run the command on every node, not only on this one.
    ///
    /// It finds in its environment ISTHMUS_NODE_RANK (0, 1, ...), ISTHMUS_NODES
    /// (how many), ISTHMUS_NODE (its own name), ISTHMUS_HEAD (that of rank 0)
    /// and ISTHMUS_NODE_LIST (all, separated by commas); otherwise it has the
    /// environment of its node's agent, and no input. It starts in this
    /// directory, where the node has it. When it fails on one node, it is ended
    /// on all.
    #[arg(long)]
    each: bool,
    /// With --each: set a variable for the command; without a value, to what it
    /// is here.
    #[arg(long, value_name = "NAME[=VALUE]", requires = "each")]
    env: Vec<String>,
    /// With --each: don't begin lines of output with the node's name.
    #[arg(long, requires = "each")]
    no_prefix: bool,
    /// Free memory that each node must have, such as "2 GiB".
    #[arg(long, value_name = "SIZE", conflicts_with = "no_check")]
    min_memory: Option<ByteSize>,
    /// Start without looking at anything on the nodes: program and whether it can
    /// be carried, libraries, MPI
    /// version, memory, clocks, the ways between sites.
    #[arg(long)]
    no_check: bool,
    /// The agent's Unix socket.
    #[arg(long, env = "ISTHMUS_AGENT", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs `isthmus run`.
pub(crate) fn main(args: RunArgs) -> ExitCode {
    // Before any thread exists, so that all of them leave signals to us.
    let signals = match Signals::block() {
        Ok(signals) => signals,
        Err(error) => {
            say(&format!("cannot take signals: {error}"));
            return ExitCode::from(OWN_FAILURE);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.context("cannot start").and_then(|runtime| {
        let result = runtime.block_on(run(args, signals));
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(OWN_FAILURE)),
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(OWN_FAILURE)
        }
    }
}

async fn run(args: RunArgs, mut signals: Signals) -> anyhow::Result<i32> {
    let mut stopwatch = Stopwatch::start();
    // Before anything starts: whether they can be written.
    let report_file = args.report.as_deref().map(OutputFile::create).transpose()?;
    let picture = args.timing.as_ref().and_then(Option::as_deref);
    let picture_file = picture.map(OutputFile::create).transpose()?;
    let is_launcher = command::is_launcher(&args.command)?;
    if is_launcher && args.each {
        bail!("a launcher starts its ranks on all nodes by itself: leave --each out");
    }
    let socket = args.socket.clone().unwrap_or_else(local::socket);
    let mut agent = local::connect(&socket).await?;
    let grid = nodes::Candidates::of(&args.nodes, |records| {
        let agent = agent.clone();
        let page = move |request| {
            let mut agent = agent.clone();
            async move { agent.list(request).await }
        };
        pages::all(records, page)
    });
    let grid = grid.await.map_err(local::failure)?;
    let nodes = nodes::choose(&grid, &args.nodes)?;
    let job = mac::new_job();
    let arguments = args.command.get(1..).unwrap_or_default();
    let wanted = match (args.no_check, args.each) {
        (true, _) => Vec::new(),
        (false, true) => programs::everywhere(&args.command),
        (false, false) if is_launcher => programs::wanted(arguments),
        (false, false) => Vec::new(),
    };
    let mut warnings = Vec::new();
    if !args.no_check && !args.each {
        let part = if is_launcher { Part::Launcher } else { Part::Command };
        warnings = judge(part, command::uncarried(&args.command, &grid.own))?;
    }
    let launcher = args.command.first().filter(|_| is_launcher).map(String::as_str);
    let progress = Progress::new(args.quiet);
    progress.preparing(&nodes);
    let request = proto::StartRequest {
        program: args.command.first().cloned().unwrap_or_default(),
        nodes: nodes.clone(),
        job: job.to_string(),
        check: Some(command::program_check(&wanted)),
        preflight: (!args.no_check).then(|| proto::Preflight {
            launcher: launcher.unwrap_or_default().to_owned(),
            library_path: std::env::var("LD_LIBRARY_PATH").unwrap_or_default(),
        }),
    };
    stopwatch.asked();
    let starting = async {
        let mut news = agent.start(request).await?.into_inner();
        match news.message().await?.and_then(|news| news.kind) {
            Some(Kind::Ready(ready)) => Ok((ready, news)),
            _ => Err(tonic::Status::internal("the agent did not say that the job is ready")),
        }
    };
    let started = tokio::select! {
        started = tokio::time::timeout(START_DEADLINE, starting) => started,
        signal = signals.next() => bail!("interrupted by {} before anything was started", signal.name()),
    };
    let (ready, mut news) = started
        .map_err(|_| anyhow::anyhow!("the job's nodes were not ready within {START_DEADLINE:?}"))?
        .map_err(|status| {
            anyhow::anyhow!("not started: the job cannot take place\n{}", grpc::reason(&status))
        })?;
    stopwatch.ready(&ready.held);
    let needs = preflight::Needs {
        launcher,
        wanted: &wanted,
        nodes: &nodes,
        ranks: is_launcher.then(|| mpi::ranks(arguments)).flatten(),
        memory_bytes: args.min_memory.map(|size| size.0),
    };
    let findings = preflight::findings(&needs, &ready.missing, &ready.reports);
    if findings.iter().any(|finding| finding.fatal) {
        let text = preflight::text(&findings);
        bail!("not started:\n{text}To start in spite of that, give --no-check");
    }
    if !findings.is_empty() && !args.quiet {
        progress.say(preflight::text(&findings).trim());
    }
    let part = if args.each { Part::Command } else { Part::Rank };
    warnings.extend(judge(part, ready.uncarried)?);
    progress.ready(&nodes);

    let started = Instant::now();
    stopwatch.command(started);
    let work = if args.each {
        Work::Each(each::Each::start(
            &agent,
            &each::Wanted {
                job: &job.to_string(),
                nodes: &nodes,
                command: &args.command,
                environment: &args.env,
                prefix: !args.no_prefix,
            },
        ))
    } else {
        let directory = Path::new(&ready.job_directory);
        Work::Here(command::start(&args.command, (&job.to_string(), &socket), directory, &nodes)?)
    };
    let mut watch = Watch {
        work,
        quiet: args.quiet,
        warned: HashSet::new(),
        signals,
        progress,
        wire_up: WireUp::new(started),
        stopwatch,
        failures: Vec::new(),
        ways: HashSet::new(),
        cause: None,
        killed: Vec::new(),
        daemon_killed: false,
        links: Vec::new(),
        agent,
        job: job.to_string(),
        ending: None,
        interrupts: 0,
    };
    watch.warn(warnings);
    // The job lasts as long as this call: it must outlive the account.
    let ended = watch.until_end(&mut news).await;
    let took = started.elapsed();
    watch.stopwatch.ended(watch.wire_up.span());
    watch.work.end().await;
    let reply = match tokio::time::timeout(END_DEADLINE, watch.end()).await {
        Ok(Ok(Ok(reply))) => reply,
        Ok(Ok(Err(status))) => {
            say(&format!("the job's end was not confirmed: {}", grpc::reason(&status)));
            proto::EndReply::default()
        }
        Ok(Err(_)) | Err(_) => {
            say(&format!("the job did not end everywhere within {END_DEADLINE:?}"));
            proto::EndReply::default()
        }
    };
    // What was told in the last moment says why the command ended.
    let mut lost = Vec::new();
    while let Ok(Ok(Some(message))) = tokio::time::timeout(LAST_NEWS, news.message()).await {
        lost.extend(watch.hear(message.kind));
    }
    lost.extend(reply.nodes_lost.iter().filter_map(|lost| watch.hear(Some(Kind::NodeLost(lost.clone())))));
    let lost_late = !lost.is_empty();
    lost.into_iter().for_each(|reason| watch.lose(reason));
    for killed in &reply.commands_killed {
        let _ = watch.hear(Some(Kind::CommandKilled(killed.clone())));
    }
    drop(news);
    let killed_here = handle::gone(&mut watch.work.outcome()).await;
    watch.warn(reply.uncarried);
    watch.progress.clear();
    let status = match ended {
        // The launcher may not have noticed; that of Open MPI 5 has, and says 0.
        Ended::Lost(0) => OWN_FAILURE.into(),
        Ended::Command(0) if lost_late || watch.daemon_killed => OWN_FAILURE.into(),
        Ended::Command(status) => status,
        Ended::Lost(status) => status,
    };
    if status != 0 {
        watch.failures.iter().for_each(|failure| say(failure));
    }
    let bypasses = bypass::bypasses(&watch.links, &grid.nodes);
    bypasses.iter().for_each(|bypass| say(&format!("warning: {}", bypass.text())));
    let outcome = Outcome {
        job: job.to_string(),
        status,
        took,
        wire_up: watch.wire_up.result(),
        ranks: is_launcher.then(|| mpi::ranks(arguments)).flatten(),
        nodes: &nodes,
        processes_killed: reply.processes_killed + killed_here,
        ended_by: watch.cause.filter(|_| status != 0),
        bypasses,
    };
    let timing = watch.stopwatch.times(Instant::now());
    let account = Account::new(&outcome, &reply.joined, timing);
    if !args.quiet {
        let mut text = account.text(args.verbose);
        if args.verbose {
            text.push_str(&preflight::probes(&ready.reports));
        }
        progress::write(&text);
    }
    if args.timing.is_some() {
        progress::write(&account.timing.table());
    }
    if let Some(file) = report_file {
        let json = serde_json::to_string_pretty(&account).context("cannot write the account")?;
        file.write(&(json + "\n"))?;
    }
    if let Some(file) = picture_file {
        let title = format!("Start of {} on {}", args.command[0], count(nodes.len() as u64, "node"));
        file.write(&timing::draw(&account.timing, &title))?;
    }
    Ok(status)
}

/// Refuses what makes the job pointless; gives what is to be told.
fn judge(part: Part, programs: Vec<UncarriedProgram>) -> anyhow::Result<Vec<UncarriedProgram>> {
    let (fatal, told) = uncarried::sort(part, programs);
    if let Some(reason) = uncarried::describe(&fatal) {
        bail!("not started: {reason}. If it only starts other programs, give --no-check");
    }
    Ok(told)
}
