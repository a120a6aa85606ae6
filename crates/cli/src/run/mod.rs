//! `isthmus run`: prepares the environment and runs the user's own command.

pub mod account;
mod command;
mod each;
mod mpi;
mod nodes;
mod programs;
mod progress;
mod signals;
mod uncarried;
mod work;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use isthmus_agent::supervise::handle;
use isthmus_net::{grpc, mac};
use isthmus_wire::proto::job_news::Kind;
use isthmus_wire::proto::{self, Joined, UncarriedProgram};
use tonic::Streaming;

use crate::local;
use account::{Account, Outcome};
use progress::Progress;
use signals::Signals;
use uncarried::Part;
use work::Work;

/// How long the grid may take to say what there is.
const GRID_DEADLINE: Duration = Duration::from_secs(20);
/// How long the nodes may take to take part; the agent's own deadline is
/// shorter and says more.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// How long the nodes may take to end the job.
const END_DEADLINE: Duration = Duration::from_secs(30);
/// How long a command may take to end by itself after a node was lost or it
/// was told to.
const TERM_GRACE: Duration = Duration::from_secs(4);
/// Exit status where isthmus itself failed, as env(1) and timeout(1) have it.
const OWN_FAILURE: u8 = 125;

/// Run a command, such as mpirun, as one job over all sites.
///
/// The command runs on this node, which must have an agent. MPI's own launcher
/// starts the ranks on the other nodes through their agents; a program without
/// a launcher is started everywhere by --each, or on one node by `isthmus exec`
/// within the command. Exit status: the command's own, with --each that of the
/// first that failed; 125 if isthmus itself failed; 126 or 127 if the command
/// could not be started or found.
#[derive(Debug, Args)]
pub struct RunArgs {
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
    /// Don't look for the program on every node, and whether it can be carried,
    /// before starting.
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
pub fn main(args: RunArgs) -> ExitCode {
    // Before any thread exists, so that all of them leave signals to us.
    let signals = match Signals::block() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("isthmus: cannot take signals: {error}");
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
            eprintln!("isthmus: {error:#}");
            ExitCode::from(OWN_FAILURE)
        }
    }
}

async fn run(args: RunArgs, mut signals: Signals) -> anyhow::Result<i32> {
    let is_launcher = command::is_launcher(&args.command)?;
    if is_launcher && args.each {
        bail!("a launcher starts its ranks on all nodes by itself: leave --each out");
    }
    let socket = args.socket.clone().unwrap_or_else(local::socket);
    let mut agent = local::connect(&socket).await?;
    let asking = agent.grid(proto::GridRequest {});
    let grid = tokio::time::timeout(GRID_DEADLINE, asking)
        .await
        .map_err(|_| anyhow::anyhow!("the grid did not answer within {GRID_DEADLINE:?}"))?
        .map_err(local::failure)?
        .into_inner();
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
    let progress = Progress::new(args.quiet);
    progress.preparing(&nodes);
    let request = proto::StartRequest {
        program: args.command.first().cloned().unwrap_or_default(),
        nodes: nodes.clone(),
        job: job.to_string(),
        check: Some(command::program_check(&wanted)),
    };
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
    if let Some(mistake) = programs::mistake(&wanted, &nodes, &ready.missing) {
        bail!("not started: {mistake}; put it there, name other nodes with --nodes, or give --no-check");
    }
    let part = if args.each { Part::Command } else { Part::Rank };
    warnings.extend(judge(part, ready.uncarried)?);
    progress.ready(&nodes);

    let started = Instant::now();
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
        failures: Vec::new(),
    };
    watch.warn(warnings);
    // The job lasts as long as this call: it must outlive the account.
    let ended = watch.until_end(&mut news).await;
    let took = started.elapsed();
    watch.work.end().await;
    let ending = agent.end(proto::EndRequest { job: job.to_string() });
    let reply = match tokio::time::timeout(END_DEADLINE, ending).await {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => {
            eprintln!("isthmus: the job's end was not confirmed: {}", grpc::reason(&status));
            proto::EndReply::default()
        }
        Err(_) => {
            eprintln!("isthmus: the job did not end everywhere within {END_DEADLINE:?}");
            proto::EndReply::default()
        }
    };
    drop(news);
    let killed_here = handle::gone(&mut watch.work.outcome()).await;
    watch.warn(reply.uncarried);
    watch.progress.clear();
    let status = match ended {
        Ended::Command(status) => status,
        // The launcher may not have noticed.
        Ended::Lost(0) => OWN_FAILURE.into(),
        Ended::Lost(status) => status,
    };
    if status != 0 {
        for failure in &watch.failures {
            eprintln!("isthmus: {failure}");
        }
    }
    let outcome = Outcome {
        job: job.to_string(),
        status,
        took,
        wire_up: watch.wire_up.result(),
        ranks: is_launcher.then(|| mpi::ranks(arguments)).flatten(),
        nodes: &nodes,
        processes_killed: reply.processes_killed + killed_here,
    };
    let account = Account::new(&outcome, &reply.joined);
    if !args.quiet {
        eprint!("{}", account.text(args.verbose));
    }
    if let Some(file) = &args.report {
        let json = serde_json::to_string_pretty(&account).context("cannot write the account")?;
        std::fs::write(file, json + "\n").with_context(|| format!("cannot write {}", file.display()))?;
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

/// How the command came to its end.
enum Ended {
    /// By itself, or by a signal.
    Command(i32),
    /// Because a node or the agent was lost.
    Lost(i32),
}

/// What is watched while the command runs.
struct Watch {
    work: Work,
    quiet: bool,
    /// Nodes and files of programs that were told of.
    warned: HashSet<(String, String)>,
    signals: Signals,
    progress: Progress,
    wire_up: WireUp,
    failures: Vec<String>,
}

impl Watch {
    async fn until_end(&mut self, news: &mut Streaming<proto::JobNews>) -> Ended {
        let mut outcome = self.work.outcome();
        let mut lost = false;
        let mut told_to_end: Option<tokio::time::Instant> = None;
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        loop {
            let grace = async {
                match told_to_end {
                    Some(since) => tokio::time::sleep_until(since + TERM_GRACE).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                status = handle::status(&mut outcome) => {
                    return if lost { Ended::Lost(status) } else { Ended::Command(status) };
                }
                signal = self.signals.next() => {
                    self.work.signal(signal.number, signal.from_terminal).await;
                    if signal.is_final() {
                        told_to_end.get_or_insert_with(tokio::time::Instant::now);
                    }
                }
                message = news.message(), if !lost => match message {
                    Ok(Some(proto::JobNews { kind })) => {
                        if let Some(reason) = self.hear(kind) {
                            self.progress.say(&reason);
                            lost = true;
                        }
                    }
                    Ok(None) | Err(_) => {
                        self.progress.say("this node's agent is gone: the job ends");
                        lost = true;
                    }
                },
                _ = ticks.tick() => {
                    self.wire_up.tick(Instant::now());
                    self.progress.tick(&self.wire_up);
                }
                () = grace => self.work.end().await,
            }
            if lost && told_to_end.is_none() {
                told_to_end = Some(tokio::time::Instant::now());
                self.work.signal(nix::libc::SIGTERM, false).await;
            }
        }
    }

    /// Tells of programs that aren't carried, once of each.
    fn warn(&mut self, mut programs: Vec<UncarriedProgram>) {
        let key = |program: &UncarriedProgram| (program.node.clone(), program.file.clone());
        programs.retain(|program| !self.warned.contains(&key(program)));
        self.warned.extend(programs.iter().map(key));
        if let Some(text) = uncarried::describe(&programs).filter(|_| !self.quiet) {
            self.progress.say(&format!("warning: {text}"));
        }
    }

    /// Takes in a piece of news; says why if a node is lost.
    fn hear(&mut self, kind: Option<Kind>) -> Option<String> {
        match kind {
            Some(Kind::Joined(joined)) => self.wire_up.joined(joined, Instant::now()),
            Some(Kind::ConnectFailed(failed)) => {
                let text = format!(
                    "{} could not connect to {}: {}",
                    failed.initiator, failed.acceptor, failed.reason
                );
                if !self.failures.contains(&text) {
                    self.failures.push(text);
                }
            }
            Some(Kind::NodeLost(lost)) => {
                return Some(format!("lost node {}: {}; the job ends", lost.node, lost.reason));
            }
            Some(Kind::Uncarried(program)) => {
                self.warn(vec![program]);
            }
            Some(Kind::Ready(_)) | None => {}
        }
        None
    }
}

/// When the connections of the start stood: at the first second in which no
/// new one came.
#[derive(Debug)]
pub struct WireUp {
    started: Instant,
    latest: Option<Instant>,
    done: bool,
    pairs: Vec<Joined>,
}

impl WireUp {
    /// Quiet time after which the start is over.
    const QUIET: Duration = Duration::from_secs(1);

    fn new(started: Instant) -> Self {
        Self { started, latest: None, done: false, pairs: Vec::new() }
    }

    fn joined(&mut self, joined: Joined, now: Instant) {
        let same = |old: &Joined| {
            (&old.initiator, &old.acceptor, old.dial, &old.relay)
                == (&joined.initiator, &joined.acceptor, joined.dial, &joined.relay)
        };
        let more = match self.pairs.iter_mut().find(|old| same(old)) {
            Some(old) => std::mem::replace(&mut old.connections, joined.connections) < joined.connections,
            None => {
                self.pairs.push(joined);
                true
            }
        };
        if more && !self.done {
            self.latest = Some(now);
        }
    }

    fn tick(&mut self, now: Instant) {
        self.done |= self.latest.is_some_and(|latest| now.duration_since(latest) >= Self::QUIET);
    }

    /// Connections so far.
    pub fn connections(&self) -> u64 {
        self.pairs.iter().map(|joined| joined.connections).sum()
    }

    /// Whether the start is over.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Time from the start to the last connection of it.
    pub fn result(&self) -> Option<Duration> {
        self.latest.map(|latest| latest.duration_since(self.started))
    }
}
