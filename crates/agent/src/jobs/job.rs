//! One job at one node: its terms, and what belongs to it here.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_service::mac::Secret;
use isthmus_trunk::TrunkId;
use isthmus_wire::settings::{ConnectLimits, Host};
use isthmus_wire::topology::Topology;
use isthmus_wire::{GridName, JobId};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::jobs::holding::Holding;
use crate::jobs::job_directory::JobDirectory;
use crate::jobs::lost_gateway::OverGateways;
use crate::jobs::members::Members;
use crate::jobs::news::{News, NewsReceiver};
use crate::jobs::partners::{Acceptor, Joined, Partners};
use crate::jobs::sockets::Sockets;
use crate::observing::account::Account;
use crate::observing::leftovers::Leftovers;
use crate::observing::preloaded;
use crate::observing::ranks::Ranks;
use crate::observing::raw::Raw;
use crate::observing::starters::Starters;
use crate::starting::processes::Processes;

/// How long the processes of an ended job may take to end by themselves: the supervisor of
/// `isthmus run` is not this agent's child, and has its own grace period.
const ALONE: Duration = Duration::from_secs(3);
/// How long the processes of an ended job may take to end in all. Processes that are left after
/// [`ALONE`] are killed.
const GONE: Duration = Duration::from_secs(6);
/// Pause between two looks for processes.
const PAUSE: Duration = Duration::from_millis(100);

/// What a job's head decides for all its nodes.
#[derive(Debug)]
pub(crate) struct Terms {
    /// The secret that the job's agents share.
    pub token: Secret,
    /// How long the job waits for a site that is cut off; zero: not at all.
    pub outlive: Duration,
    /// How long an agent of the job may be silent.
    pub patience: Duration,
    /// Whether only agents may encrypt the job's data between sites, never gateways in their place.
    pub encrypt_to_nodes: bool,
    /// What the job's MPI library is told; `None` for a job without that library.
    pub topology: Option<Topology>,
    /// The jobs with which its programs connect when it begins.
    pub partners: Partners,
    /// At the head: the job that this one joins, if it joins one.
    pub joined: Option<Joined>,
    /// At the head: the first node on which the job's program runs. Empty elsewhere.
    pub leader: String,
}

/// A job at one node.
#[derive(Debug)]
pub(crate) struct Job {
    pub id: JobId,
    /// The secret that the job's agents share.
    pub token: Secret,
    /// How long the job waits for a site that is cut off; zero: not at all.
    pub outlive: Duration,
    /// How long an agent of the job may be silent.
    pub patience: Duration,
    /// Whether only agents may encrypt the job's data between sites, never gateways in their place.
    pub encrypt_to_nodes: bool,
    /// Whether the job's ranks have the MPI library.
    pub has_topology: bool,
    /// How long the job's connections may take to be made, by agents and by shims.
    pub connect_limits: ConnectLimits,
    pub members: Members,
    /// The jobs with which its programs connect.
    pub partners: Partners,
    /// At the head: the job that this one has joined, if it has joined one.
    pub joined: Option<Joined>,
    /// At the head: the first node on which the job's program runs. Empty elsewhere.
    pub leader: String,
    pub directory: JobDirectory,
    /// The job's knocks and handed-over sockets at this node.
    pub sockets: Sockets,
    /// Trunks that are watched because connections of the job go over them.
    pub trunks: Mutex<HashSet<TrunkId>>,
    /// The account of the job's connections that began here.
    pub account: Account,
    /// The gateways over whose trunks the job's connections go.
    pub over_gateways: OverGateways,
    /// The bytes of the job's raw connections that began here.
    pub raw: Arc<Raw>,
    /// The job's ranks that were seen here.
    pub ranks: Ranks,
    /// The processes by which launchers start the job's ranks.
    pub starters: Starters,
    /// The job's commands that run here.
    pub processes: Processes,
    /// This node's part in holding the job together.
    pub holding: Holding,
    /// The files that the job's MPI would leave here if it were killed.
    pub leftovers: Leftovers,
    /// When the job began here, in the unit of `/proc/PID/stat` since boot: its processes are
    /// younger.
    pub began: u64,
    /// Sends news to the job's head.
    pub news: News,
    /// Cancelled when the job ends here.
    pub ended: CancellationToken,
    /// Cancelled once no process and no file of the job is left here.
    pub cleared: CancellationToken,
}

impl Job {
    /// Makes the record of a job that begins here; `nodes` has the head first. The receiver gets
    /// the news for the head.
    pub(crate) fn new(
        id: JobId,
        Terms { token, outlive, patience, encrypt_to_nodes, topology, partners, joined, leader }: Terms,
        connect_limits: ConnectLimits,
        nodes: Vec<Host>,
        own: GridName,
        directory: JobDirectory,
    ) -> (Self, NewsReceiver) {
        let (news, news_rx) = News::channel();
        let ended = CancellationToken::new();
        let job = Self {
            id,
            token,
            outlive,
            patience,
            encrypt_to_nodes,
            has_topology: topology.is_some(),
            connect_limits,
            members: Members::new(nodes),
            partners,
            joined,
            leader,
            directory,
            sockets: Sockets::default(),
            trunks: Mutex::default(),
            account: Account::new(own),
            over_gateways: OverGateways::default(),
            raw: Raw::new(ended.clone()),
            ranks: Ranks::default(),
            starters: Starters::default(),
            processes: Processes::default(),
            holding: Holding::default(),
            leftovers: Leftovers::default(),
            began: preloaded::ticks_since_boot(),
            news,
            ended,
            cleared: CancellationToken::new(),
        };
        (job, news_rx)
    }

    /// Where a program's connection to this address leads; `None` if that is no node of the job or of a
    /// partner. The head of a run that has joined a job is the other job's: partners come first.
    pub(crate) fn acceptor(&self, address: Ipv4Addr) -> Option<Acceptor> {
        if let Some((partner, name)) = self.partners.at(address) {
            return Some(Acceptor { name, partner: Some(partner) });
        }
        self.members.node(address).map(|name| Acceptor { name: name.clone(), partner: None })
    }

    /// The node of the job, or of a partner, with this address.
    pub(crate) fn node(&self, address: Ipv4Addr) -> Option<GridName> {
        let own = self.members.node(address).cloned();
        own.or_else(|| self.partners.at(address).map(|(_, name)| name))
    }

    /// The nodes whose names the job's programs know.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        known_hosts(&self.members.nodes, &self.partners)
    }

    /// Writes the names of all nodes into the job's directory, for processes that start from now on.
    pub(crate) fn write_hosts(&self) {
        if let Err(error) = self.directory.set_hosts(self.hosts()) {
            warn!(job = %self.id, %error, "new processes don't know the names of new nodes");
        }
    }

    /// Ends the job's processes on this node and lets no further one start. Returns the number of
    /// processes that had to be killed.
    pub(crate) async fn end_processes(self: &Arc<Self>, node: &str) -> u32 {
        if !self.processes.is_closed() {
            self.note_leftovers().await;
        }
        let (killed, by_others) = self.processes.end_all().await;
        for killed in by_others {
            self.news.killed(node, killed);
        }
        killed
    }

    /// The job's processes on this node.
    fn own_processes(&self) -> Vec<Process> {
        preloaded::processes_of(self.directory.path(), self.began)
    }

    /// Notes which files of MPIs the job's processes use. To be called before they are ended.
    async fn note_leftovers(self: &Arc<Self>) {
        let job = Arc::clone(self);
        // Hundreds of small reads, which would delay other tasks. A process that is stuck in the
        // kernel may hold up its own.
        let look = spawn_blocking(move || job.leftovers.note(&job.own_processes(), job.directory.path()));
        let _ = timeout(ALONE, look).await;
    }

    /// Waits until the job has no process here, and kills those that don't end: a supervisor
    /// that was killed has left its command's descendants. Then removes what the MPI has left.
    /// Returns the number of processes that had to be killed.
    pub(crate) async fn clear(self: &Arc<Self>) -> u32 {
        let started = Instant::now();
        let mut killed = HashSet::new();
        loop {
            let job = Arc::clone(self);
            let look = spawn_blocking(move || job.own_processes());
            let Ok(Ok(left)) = timeout(GONE, look).await else { break };
            if left.is_empty() {
                break;
            }
            if started.elapsed() >= GONE {
                let left: Vec<i32> = left.iter().map(|process| process.pid).collect();
                warn!(job = %self.id, ?left, "processes of the job are left");
                break;
            }
            if started.elapsed() >= ALONE {
                for process in &left {
                    // If the process has ended, another one may have its number.
                    if process.is_alive() && kill(Pid::from_raw(process.pid), Signal::SIGKILL).is_ok() {
                        killed.insert(process.pid);
                    }
                }
            }
            sleep(PAUSE).await;
        }
        if !killed.is_empty() {
            warn!(job = %self.id, killed = killed.len(), "killed processes that the job had left");
        }
        let _ = timeout(ALONE, self.are_leftovers_in_use()).await;
        u32::try_from(killed.len()).unwrap_or(u32::MAX)
    }

    /// Removes the files that the MPI has left and that nobody uses. Returns whether some are used.
    pub(crate) async fn are_leftovers_in_use(self: &Arc<Self>) -> bool {
        let job = Arc::clone(self);
        spawn_blocking(move || job.leftovers.remove()).await.unwrap_or(true)
    }
}

/// The nodes of a job and of its partners, each once.
pub(crate) fn known_hosts(nodes: &[Host], partners: &Partners) -> Vec<Host> {
    let mut hosts = nodes.to_vec();
    let mut names: HashSet<GridName> = hosts.iter().map(|host| host.name.clone()).collect();
    for partner in partners.all() {
        hosts.extend(partner.nodes.iter().filter(|host| names.insert(host.name.clone())).cloned());
    }
    hosts
}
