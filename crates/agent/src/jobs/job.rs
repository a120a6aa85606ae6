//! One job at one node.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard};

use isthmus_net::lock;
use isthmus_net::mac::Secret;
use isthmus_wire::proto::{CommandKilled, UncarriedProgram, job_news};
use isthmus_wire::settings::Host;
use isthmus_wire::{GridName, JobId, Nonce, VirtualAddress};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::accepting::knock::Knocks;
use crate::carrying::names::Names;
use crate::jobs::job_directory::JobDirectory;
use crate::jobs::peers::PeerChannels;
use crate::observing::account::Account;
use crate::starting::exec::Processes;

/// Preambles a job may see at one node before it must end: a bound on memory,
/// 16 bytes each, far beyond any job's number of connections.
const NONCES_MAX: usize = 1 << 22;
/// News waiting to be told to the head; more are dropped, because they say much
/// the same.
const NEWS_QUEUE: usize = 1024;
/// Handed-over sockets remembered at most, 8 bytes each; beyond that all are
/// taken for such.
const HANDED_OVER_MAX: usize = 1 << 20;

/// A job as one node sees it.
#[derive(Debug)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The secret that its agents share.
    pub token: Secret,
    /// Its nodes, the head first.
    pub nodes: Vec<Host>,
    by_address: HashMap<Ipv4Addr, GridName>,
    /// Its directory here.
    pub directory: JobDirectory,
    /// Connections that began here.
    pub account: Account,
    /// Knocks not yet answered.
    pub knocks: Knocks,
    /// Commands running here.
    pub processes: Processes,
    /// Channels to the job's other agents.
    pub peers: PeerChannels,
    names: Mutex<Names>,
    seen: Mutex<HashSet<Nonce>>,
    news_tx: mpsc::Sender<job_news::Kind>,
    started_uncarried: Mutex<Vec<UncarriedProgram>>,
    news_rx: Mutex<Option<mpsc::Receiver<job_news::Kind>>>,
    /// The head has begun to end the job: nodes that leave are not lost.
    pub ending: AtomicBool,
    /// Ends everything of the job here.
    pub ended: CancellationToken,
    /// Nodes that are not to be waited for when the job ends.
    pub lost: Mutex<HashSet<GridName>>,
    /// Ends the heartbeat connection from the head.
    pub heartbeat: Mutex<Option<CancellationToken>>,
    /// Commands that a signal of somebody else ended here.
    pub killed: Mutex<Vec<CommandKilled>>,
    /// Inode numbers of the sockets that were handed over.
    handed_over: Mutex<HashSet<u64>>,
}

impl Job {
    /// Puts a job together.
    pub fn new(id: JobId, token: Secret, nodes: Vec<Host>, own: GridName, directory: JobDirectory) -> Self {
        let (news_tx, news_rx) = mpsc::channel(NEWS_QUEUE);
        Self {
            id,
            token,
            by_address: nodes.iter().map(|node| (node.address.ip(), node.name.clone())).collect(),
            nodes,
            directory,
            account: Account::new(own),
            knocks: Knocks::default(),
            processes: Processes::default(),
            peers: PeerChannels::default(),
            names: Mutex::default(),
            seen: Mutex::default(),
            news_tx,
            started_uncarried: Mutex::default(),
            news_rx: Mutex::new(Some(news_rx)),
            ending: AtomicBool::new(false),
            ended: CancellationToken::new(),
            lost: Mutex::default(),
            heartbeat: Mutex::default(),
            killed: Mutex::default(),
            handed_over: Mutex::default(),
        }
    }

    /// The job's node with this virtual address.
    pub fn node(&self, address: Ipv4Addr) -> Option<&GridName> {
        self.by_address.get(&address)
    }

    /// The virtual address of a node of the job.
    pub fn address(&self, name: &GridName) -> Option<VirtualAddress> {
        self.nodes.iter().find(|node| node.name == *name).map(|node| node.address)
    }

    /// Whether this nonce comes for the first time; it is then remembered.
    pub fn first_use(&self, nonce: Nonce) -> bool {
        let mut seen = lock(&self.seen);
        seen.len() < NONCES_MAX && seen.insert(nonce)
    }

    /// Names of handed-over sockets.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Tells the head of something that happened here.
    pub fn tell(&self, news: job_news::Kind) {
        // A full queue says the same already.
        let _ = self.news_tx.try_send(news);
    }

    /// Tells the head that a process here starts a program that can't be
    /// carried, once for each program.
    pub fn tell_uncarried(&self, program: UncarriedProgram) {
        let mut started = lock(&self.started_uncarried);
        if started.len() < NEWS_QUEUE && !started.contains(&program) {
            started.push(program.clone());
            self.tell(job_news::Kind::Uncarried(program));
        }
    }

    /// All of them, for the account: what was started last may not have been
    /// told.
    pub fn started_uncarried(&self) -> Vec<UncarriedProgram> {
        lock(&self.started_uncarried).clone()
    }

    /// What was told, for the one who passes it on to the head.
    pub fn take_news(&self) -> Option<mpsc::Receiver<job_news::Kind>> {
        lock(&self.news_rx).take()
    }

    /// Remembers that this socket was handed over.
    pub fn handed_over(&self, inode: u64) {
        let mut sockets = lock(&self.handed_over);
        if sockets.len() < HANDED_OVER_MAX {
            sockets.insert(inode);
        }
    }

    /// Whether this socket was handed over.
    pub fn was_handed_over(&self, inode: u64) -> bool {
        let sockets = lock(&self.handed_over);
        sockets.len() == HANDED_OVER_MAX || sockets.contains(&inode)
    }
}
