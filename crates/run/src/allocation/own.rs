//! What a batch job gives to `isthmus run`: nodes, slots, and agents if there are none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use isthmus_front::ask::Grid;
use isthmus_front::format::{count, site};
use isthmus_front::local;
use isthmus_front::output::message;
use isthmus_front::state::state_without_option;
use isthmus_slurm::{Allocation, End, TimeLeft, time_left};
use isthmus_wire::proto::{JobNode, Node};
use isthmus_wire::text::first;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::note::Note;
use super::step::{AllocatedNode, Order, Step};
use super::{known, of_this_process};
use crate::SOON;
use crate::args::RunArgs;
use crate::candidates::own_nodes;
use crate::notice::ends_in;
use crate::progress::Progress;
use crate::signals::{Interrupted, Signals};

/// How long Slurm may take to say how a job ends.
const ASK: Duration = Duration::from_secs(3);
/// How often Slurm is asked at least how much time is left. Limits are changed.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// How soon Slurm is asked again that hasn't told.
const AGAIN: Duration = Duration::from_secs(10);
/// Longest answer of scontrol that is read, in bytes.
const ANSWER: usize = 64 << 10;
/// Most nodes that a message names.
const NAMED: usize = 8;

/// Nodes of the batch job that `isthmus run` is called in.
#[derive(Debug)]
pub(crate) struct OwnBatchJob {
    job: u32,
    /// Grid names of the nodes, each with its slots; `None` for as many as its agent offers.
    nodes: Vec<(String, Option<u32>)>,
    /// The socket of the agent on this node; `None` for the default.
    socket: Option<PathBuf>,
    /// The agents that were started for this run.
    step: Option<Step>,
    /// Tells the user before the batch job's time is over; `None` if that isn't to be told.
    warning: Option<JoinHandle<()>>,
}

impl OwnBatchJob {
    /// The nodes that a batch job gives, with agents on all of them. `None` outside a batch job, or
    /// if the command line says which nodes to use.
    ///
    /// # Errors
    /// If Slurm's variables can't be read, or a node gets no agent; [`Interrupted`] if a signal comes.
    pub(crate) async fn find(
        args: &RunArgs,
        progress: &mut Progress,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<Self>> {
        if args.no_allocation || !args.asks_for_no_nodes() {
            return Ok(None);
        }
        let allocation = of_this_process().context(
            "the nodes of this batch job are not known (--no-allocation ignores it, --nodes names nodes)",
        )?;
        let Some(allocation) = allocation else {
            if !args.with.is_empty() {
                bail!(
                    "--with adds to the nodes of a batch job, and this is none (SLURM_JOB_ID isn't set): name all nodes \
                     with --nodes"
                );
            }
            return Ok(None);
        };
        progress.show("looking for agents on the batch job's nodes");
        let found = tokio::select! {
            found = Self::of(args, &allocation, progress) => found?,
            signal = signals.next() => return Err(Interrupted(signal).into()),
        };
        if !args.quiet {
            let names = first(found.nodes.iter().map(|(name, _)| name), 0, NAMED);
            let started = found.step.as_ref().map_or(0, |step| step.nodes.len()) as u64;
            let started = match started {
                0 => String::new(),
                started => format!(", {} started", count(started, "agent")),
            };
            progress.message(&format!("batch job {} of Slurm: {names}{started}", found.job));
        }
        Ok(Some(found))
    }

    async fn of(args: &RunArgs, allocation: &Allocation, progress: &mut Progress) -> anyhow::Result<Self> {
        let noted =
            Note::read(&state_without_option(), allocation).map(|note| note.nodes).unwrap_or_default();
        let socket_of = |nodes: &[AllocatedNode], host: &str| {
            nodes.iter().find(|node| node.host == host).map(|node| node.socket.clone())
        };
        let here = allocation.here.as_deref();
        let own = here.and_then(|here| socket_of(&noted, here));
        let socket = args.socket.clone().or(own);
        let listed = listed(socket.clone().unwrap_or_else(local::socket)).await;
        let hosts: Vec<&str> = allocation.hosts.iter().map(|host| host.name.as_str()).collect();
        let mut agents = known::agents(&hosts, &noted, &listed);
        let missing: Vec<&str> = hosts.iter().copied().filter(|host| !agents.contains_key(*host)).collect();
        let step = if missing.is_empty() {
            None
        } else {
            progress.show(&format!("starting {} by srun", count(missing.len() as u64, "agent")));
            Some(
                Step::start(allocation.job, &missing, &order(args, allocation)?, None)
                    .await
                    .context(REMEDY)?,
            )
        };
        let started = step.as_ref().map(|step| step.nodes.clone()).unwrap_or_default();
        agents.extend(started.iter().map(|node| (node.host.clone(), node.name.clone())));
        let own = here.and_then(|here| socket_of(&started, here));
        Ok(Self {
            job: allocation.job,
            nodes: nodes(allocation, &agents),
            socket: args.socket.clone().or(own).or(socket),
            step,
            warning: (!args.quiet).then(|| tokio::spawn(warn(allocation.job))),
        })
    }

    /// The names of the nodes that the job is to have.
    pub(crate) fn names(&self, args: &RunArgs) -> Vec<String> {
        self.nodes.iter().map(|(name, _)| name.clone()).chain(args.with.iter().cloned()).collect()
    }

    /// The socket of the agent on this node; `None` for the default.
    pub(crate) fn socket(&self) -> Option<&PathBuf> {
        self.socket.as_ref()
    }

    /// Gives the job's nodes the slots that the batch job has there.
    pub(crate) fn set_slots(&self, nodes: &mut [JobNode]) {
        for node in nodes {
            let given = self.nodes.iter().find(|(name, _)| *name == node.name);
            if let Some(slots) = given.and_then(|(_, slots)| *slots) {
                node.slots = slots;
            }
        }
    }

    /// How Slurm ends the batch job, in words; `None` if it doesn't, or doesn't say so in time.
    pub(crate) async fn end_of_job(&self) -> Option<String> {
        let end = End::of(&told(self.job).await?)?;
        Some(format!("batch job {} of Slurm {end}", self.job))
    }

    /// Ends the agents that were started for this run.
    pub(crate) async fn finish(self) {
        if let Some(warning) = &self.warning {
            warning.abort();
        }
        let Some(step) = self.step else { return };
        if !step.end().await {
            message("the agents in this batch job are still ending; Slurm ends them with the job");
        }
    }
}

/// What Slurm tells of a job; `None` if it doesn't answer in time.
async fn told(job: u32) -> Option<String> {
    let mut command = Command::new("scontrol");
    command.args(["--oneliner", "show", "job", &job.to_string()]);
    command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = timeout(ASK, command.output()).await.ok()?.ok()?;
    if !output.status.success() {
        return None;
    }
    let answer = output.stdout.get(..ANSWER).unwrap_or(&output.stdout);
    Some(String::from_utf8_lossy(answer).into_owned())
}

/// Tells the user before the job's time limit ends it.
async fn warn(job: u32) {
    message(&nears_end(job, SOON).await);
}

/// Waits until the time of a batch job is over in less than `before`, and returns that in words. Waits for
/// ever if the job has no time limit. Limits may be changed meanwhile.
pub(crate) async fn nears_end(job: u32, before: Duration) -> String {
    let mut end: Option<Instant> = None;
    loop {
        let mut pause = LOOK_AGAIN;
        match told(job).await.as_deref().and_then(time_left) {
            Some(TimeLeft::Left(left)) => end = Some(Instant::now() + left),
            Some(TimeLeft::NoLimit) => end = None,
            Some(TimeLeft::NotRunning) => (end, pause) = (None, AGAIN),
            // What Slurm has told before holds.
            None => pause = AGAIN,
        }
        if let Some(end) = end {
            let left = end.saturating_duration_since(Instant::now());
            if left <= before {
                return ends_in(&format!("batch job {job} of Slurm"), left);
            }
            pause = pause.min(left.saturating_sub(before));
        }
        sleep(pause).await;
    }
}

/// What to do about nodes without an agent.
const REMEDY: &str = "the batch job's nodes can't be used (--token FILE and --via FRONT-END make them members of \
                      the grid, the first time; --no-allocation ignores the batch job)";

/// Nodes of this owner at the own site, by the agent at a socket. Empty if none answers: then agents
/// are started, and say what is wrong.
async fn listed(socket: PathBuf) -> Vec<Node> {
    let Ok(agent) = local::connect(&socket).await else { return Vec::new() };
    let grid = Grid::of_agent(agent, socket).or_without_broker();
    let own_site = |head: &Node| vec![site(&head.name).to_owned()];
    let found = own_nodes(own_site, |records| grid.list(records)).await;
    found.ok().flatten().unwrap_or_default()
}

/// What nodes without an agent are told.
fn order(args: &RunArgs, allocation: &Allocation) -> anyhow::Result<Order> {
    let token = match &args.token {
        Some(path) => Some(
            isthmus_service::files::read_secret(path)
                .with_context(|| format!("cannot use the token in {}", path.display()))?,
        ),
        None => None,
    };
    Ok(Order {
        cluster: allocation.cluster.clone(),
        state: None,
        token,
        via: args.via.clone(),
        tethered: true,
        pilot: None,
    })
}

/// The nodes in the order of the batch job.
fn nodes(allocation: &Allocation, agents: &BTreeMap<String, String>) -> Vec<(String, Option<u32>)> {
    let of = |host: &isthmus_slurm::Host| Some((agents.get(&host.name)?.clone(), host.slots));
    allocation.hosts.iter().filter_map(of).collect()
}
