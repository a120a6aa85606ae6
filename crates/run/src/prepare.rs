//! Before the command starts: isthmus chooses the nodes, their agents hold the
//! job and report, and faults end the run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use isthmus_front::ask::Grid;
use isthmus_front::{local, notes, without_broker};
use isthmus_rpc::grpc;
use isthmus_service::clock::seconds;
use isthmus_wire::proto::job_news::Kind;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::{self, JobNews, JobNode, Ready, Topology, UncarriedProgram};
use tonic::Streaming;
use tonic::transport::Channel;

use super::args::RunArgs;
use super::candidates::Candidates;
use super::given::Given;
use super::mpi::Launcher;
use super::preflight::Finding;
use super::programs::NamedProgram;
use super::progress::Progress;
use super::signals::{Interrupted, Signals};
use super::tries::{NotStarted, Tries};
use super::uncarried::{self, Part};
use super::work::Work;
use super::{
    command, each, hosts, mpi, nodes, preflight, programs, replaced, slots, startable, topology, unready,
};

/// How long the nodes may take to take part. The agent's own deadline is shorter,
/// and its message has more detail.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Longest host file that is looked at: 10,000 nodes take a third of it.
const HOST_FILE_BYTES: u64 = 1 << 20;

/// The directories in which execvp(3) looks without `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// What is to be run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub args: &'a RunArgs,
    /// What this process notes of itself.
    pub note: &'a notes::Own,
    /// The MPI whose launcher the command is; `None` for any other command.
    pub launcher: Option<Launcher>,
    /// The nodes that batch jobs give, if any do.
    pub given: Option<&'a Given>,
    /// Whether this is the job that brings files, before or after the run's own.
    pub is_staging: bool,
}

/// Which MPI's launcher the command is; `None` for any other command.
///
/// # Errors
/// If the command can't be started here.
pub(super) fn launcher(args: &RunArgs) -> anyhow::Result<Option<Launcher>> {
    let launcher = command::launcher(&args.command)?;
    if launcher.is_some() && args.each {
        bail!("a launcher starts its ranks on all nodes by itself: leave --each out");
    }
    if launcher.is_none() && !args.each && !args.no_check {
        check_program(&args.command)?;
    }
    Ok(launcher)
}

/// Whether a command's program can be started here.
///
/// # Errors
/// [`startable::Unstartable`].
pub(super) fn check_program(command: &[String]) -> anyhow::Result<()> {
    let program = command.first().map(String::as_str).unwrap_or_default();
    let path = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
    Ok(startable::check(program, &path)?)
}

/// A job before its command starts.
pub(super) struct Prepared<'a> {
    args: &'a RunArgs,
    socket: PathBuf,
    /// The client of this node's agent.
    pub agent: LocalClient<Channel>,
    /// The job's id.
    pub job: String,
    /// The job that this one joins, if it joins one.
    join: Option<&'a str>,
    /// The records that the nodes were chosen from.
    pub candidates: Candidates,
    /// The job's nodes, the head first.
    pub nodes: Vec<JobNode>,
    /// The MPI whose launcher the command is; `None` for any other command.
    launcher: Option<Launcher>,
    /// The programs that each node must have.
    wanted: Vec<NamedProgram>,
    /// What the MPI library is told; `None` for a job without it.
    topology: Option<Topology>,
}

impl<'a> Prepared<'a> {
    /// Chooses the job's nodes, and finds out what they need.
    ///
    /// # Errors
    /// If the launcher can't be used, the agent doesn't answer, or a node that the
    /// command line names can't take part.
    pub(super) async fn new(
        Wanted { args, note, launcher, given, is_staging }: Wanted<'a>,
        progress: &Progress,
        tries: &mut Tries,
    ) -> anyhow::Result<Self> {
        let own = given.and_then(Given::socket).or(args.socket.as_ref());
        let socket = own.cloned().unwrap_or_else(local::socket);
        let agent = local::connect(&socket).await?;
        let grid = Grid::of_agent(agent.clone(), socket.clone()).or_without_broker();
        let names = given.map_or_else(|| args.nodes.clone(), |given| given.names(args));
        // Files are brought in a job by itself, which has programs on this node as well.
        let join = args.join.as_deref().filter(|_| !is_staging);
        if join.is_some() && names.is_empty() {
            bail!(
                "name the nodes that are to join the job: --nodes, or --pilots for those of a batch scheduler"
            );
        }
        let candidates = Candidates::of(&names, |records| grid.list(records)).await?;
        if let Some(answer) = candidates.without_broker.as_ref().filter(|_| !args.quiet)
            && !std::mem::replace(&mut tries.without_broker_is_told, true)
        {
            progress.message(&without_broker::line(answer));
        }
        let mut nodes = nodes::choose(&candidates, &names, args.min_nodes)?;
        if let Some(given) = given {
            given.set_slots(&mut nodes);
        }
        let wanted = match (args.no_check, args.each) {
            (true, _) => Vec::new(),
            (false, true) => programs::everywhere(&args.command),
            (false, false) if !args.placed.programs.is_empty() => args.placed.programs.clone(),
            (false, false) if launcher.is_some() => programs::wanted(arguments(args)),
            (false, false) => Vec::new(),
        };
        let job = if is_staging { note.further_job() } else { note.next_job() };
        let topology = match args.no_coll {
            true => None,
            false => {
                let groups = args.placed.groups.clone();
                let known = topology::of(&nodes, groups, |records| grid.list(records)).await?;
                Some(proto::Topology { reorder: args.reorder || args.placed.reorder, ..known })
            }
        };
        Ok(Self { args, socket, agent, job, join, candidates, nodes, launcher, wanted, topology })
    }

    /// The launcher, as on the command line; `None` for any other command.
    fn launcher(&self) -> Option<&str> {
        self.args.command.first().filter(|_| self.launcher.is_some()).map(String::as_str)
    }

    /// The number of ranks on the launcher's command line; `None` if it isn't given, or for any
    /// other command.
    pub(super) fn ranks(&self) -> Option<u64> {
        self.launcher.and_then(|_| mpi::ranks(arguments(self.args)))
    }

    /// Whether the user has named the nodes of a launcher.
    pub(super) fn is_placed(&self) -> bool {
        programs::is_placed(arguments(self.args))
    }

    /// Whether the command is a launcher.
    pub(super) fn is_launcher(&self) -> bool {
        self.launcher.is_some()
    }

    /// Whether the launcher starts a daemon on every node, and no rank before all of them run.
    /// Hydra starts ranks at once, and on nodes of the user's choice there may be none.
    pub(super) fn waits_for_daemons(&self) -> bool {
        matches!(self.launcher, Some(Launcher::OpenMpi4 | Launcher::OpenMpi5)) && !self.is_placed()
    }

    /// The line about nodes that the job goes without, if there are any.
    pub(super) fn left_out(&self) -> Option<String> {
        let line = nodes::left_out(&self.candidates, &self.nodes).filter(|_| !self.args.quiet)?;
        Some(format!("the job {line}"))
    }

    /// Warnings about the command itself, on this node.
    ///
    /// # Errors If the command can't be carried and the job is pointless without that, or the
    /// command can't start ranks on other nodes.
    pub(super) fn check_command(&self) -> anyhow::Result<Vec<UncarriedProgram>> {
        if self.args.no_check || self.args.each {
            return Ok(Vec::new());
        }
        let has_others = self.nodes.iter().skip(1).any(|node| node.slots > 0);
        if let Some(launcher) = self.launcher.filter(|_| has_others) {
            let arguments = arguments(self.args);
            let mut findings = replaced::findings(launcher, arguments);
            findings.extend(hosts::findings(launcher, arguments, &self.nodes, read_hosts));
            if !findings.is_empty() {
                bail!(not_started(&preflight::text(&findings)));
            }
        }
        let part = if self.launcher.is_some() { Part::Launcher } else { Part::Command };
        judge(part, command::uncarried(&self.args.command, &self.candidates.own))
    }

    /// Has the agents of all nodes hold the job.
    ///
    /// # Errors If a node can't take part, a deadline passes, or a signal comes first.
    pub(super) async fn hold(
        &mut self,
        signals: &mut Signals,
    ) -> anyhow::Result<(Ready, Streaming<JobNews>)> {
        let request = proto::StartRequest {
            program: self.args.command.first().cloned().unwrap_or_default(),
            nodes: self.nodes.clone(),
            job: self.job.clone(),
            check: Some(command::program_check(&self.wanted)),
            preflight: (!self.args.no_check).then(|| proto::Preflight {
                launcher: self.launcher().unwrap_or_default().to_owned(),
                library_path: std::env::var("LD_LIBRARY_PATH").unwrap_or_default(),
            }),
            outlive_seconds: seconds(self.args.outlive),
            encrypt_to_nodes: self.args.encrypt_to_nodes,
            patience_seconds: seconds(self.args.patience),
            topology: self.topology.clone(),
            join: self.join.unwrap_or_default().to_owned(),
        };
        let starting = async {
            let mut news = self.agent.start(request).await?.into_inner();
            match news.message().await?.and_then(|news| news.kind) {
                Some(Kind::Ready(ready)) => Ok(Ok((ready, news))),
                Some(Kind::Unready(unready)) => Ok(Err(unready)),
                _ => Err(tonic::Status::internal("the agent's first message is not that the job is ready")),
            }
        };
        let started = tokio::select! {
            started = tokio::time::timeout(START_DEADLINE, starting) => started,
            signal = signals.next() => return Err(Interrupted(signal).into()),
        };
        let not_started = |reasons: String, may_pass| {
            let text = format!("not started: the job cannot take place\n{reasons}");
            NotStarted { text, reasons, may_pass }
        };
        let started = started
            .map_err(|_| {
                let seconds = START_DEADLINE.as_secs();
                anyhow::anyhow!("the job's nodes were not ready within {seconds} s")
            })?
            .map_err(|status| not_started(grpc::reasons(&status), grpc::may_pass(&status)))?
            .map_err(|unready| not_started(unready::text(&unready), unready::may_pass(&unready)))?;
        Ok(started)
    }

    fn more_ranks_than_slots(&self) -> Option<Finding> {
        let slots = self.nodes.iter().map(|node| u64::from(node.slots)).sum();
        let variable = |name: &str| std::env::var(name).ok();
        slots::finding(self.launcher?, arguments(self.args), variable, (self.ranks(), slots))
    }

    /// Judges what the nodes reported. Prints faults that don't keep the job from
    /// starting, and returns programs to warn of.
    ///
    /// # Errors
    /// If the job would fail.
    pub(super) fn check_nodes(
        &self,
        ready: &Ready,
        progress: &Progress,
    ) -> anyhow::Result<Vec<UncarriedProgram>> {
        if let Some(text) =
            self.topology.as_ref().and_then(|_| topology::without_library(ready, &self.candidates.own))
        {
            bail!(text);
        }
        let needs = preflight::Needs {
            launcher: self.launcher(),
            wanted: &self.wanted,
            nodes: &self.nodes,
            memory_bytes: self.args.min_memory.map(|size| size.0),
            memory_of_ranks: &self.args.placed.memory,
        };
        let mut findings = preflight::findings(&needs, &ready.missing, &ready.reports);
        findings.extend(self.more_ranks_than_slots());
        let text = preflight::text(&findings);
        let mut fatal = findings.iter().filter(|finding| finding.is_fatal()).peekable();
        if fatal.peek().is_some() {
            let may_pass = fatal.all(|finding| finding.weight == preflight::Weight::Passing);
            bail!(NotStarted { text: not_started(&text), reasons: text, may_pass });
        }
        if !findings.is_empty() && !self.args.quiet {
            progress.message(text.trim());
        }
        let part = if self.args.each { Part::Command } else { Part::Rank };
        judge(part, ready.uncarried.clone())
    }

    /// Starts the command, here or on every node.
    ///
    /// # Errors
    /// If it can't be started here.
    pub(super) fn start(&self, ready: &Ready) -> anyhow::Result<Work> {
        if !self.args.each {
            let directory = Path::new(&ready.job_directory);
            let started =
                command::start(&self.args.command, (&self.job, &self.socket), directory, &self.nodes);
            return Ok(Work::Here(started?));
        }
        let wanted = each::EachCommand {
            job: &self.job,
            nodes: &self.nodes,
            command: &self.args.command,
            environment: &self.args.env,
            prefix: !self.args.no_prefix,
            groups: &self.args.placed.groups,
            joined: self.join.map(|_| (ready.joined.as_str(), ready.joined_leader.as_str())),
        };
        Ok(Work::Each(each::Each::start(&self.agent, &wanted)))
    }
}

fn not_started(findings: &str) -> String {
    format!("not started:\n{findings}To start in spite of that, give --no-check")
}

/// The text of a host file. Returns `None` if it can't be read, or is huge or a pipe: such a file
/// isn't looked at.
fn read_hosts(path: &str) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    if !found.is_file() || found.len() > HOST_FILE_BYTES {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

fn arguments(args: &RunArgs) -> &[String] {
    args.command.get(1..).unwrap_or_default()
}

/// Refuses programs that make the job pointless. Returns the programs of which to warn the user.
fn judge(part: Part, programs: Vec<UncarriedProgram>) -> anyhow::Result<Vec<UncarriedProgram>> {
    let (fatal, warnings) = uncarried::sort(part, programs);
    if let Some(reason) = uncarried::describe(&fatal) {
        bail!("not started: {reason}. If it only starts other programs, give --no-check");
    }
    Ok(warnings)
}
