//! One job at one node.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use isthmus_net::mac::Secret;
use isthmus_wire::proto;
use isthmus_wire::settings::Host;
use isthmus_wire::{GridName, JobId, Nonce, VirtualAddress};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::account::Account;
use crate::exec::Processes;
use crate::job_directory::JobDirectory;
use crate::knock::Knocks;
use crate::names::Names;
use crate::peers::PeerChannels;

/// Preambles a job may see at one node before it must end: a bound on memory,
/// 16 bytes each, far beyond any job's number of connections.
const NONCES_MAX: usize = 1 << 22;
/// Failures waiting to be told to the head; more are dropped, because they say
/// the same.
const FAILURES_QUEUE: usize = 64;

/// Connects that failed.
pub type Failures = mpsc::Receiver<proto::ConnectFailed>;
/// Programs started here that can't be carried.
pub type Uncarried = mpsc::Receiver<proto::UncarriedProgram>;

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
    failures_tx: mpsc::Sender<proto::ConnectFailed>,
    uncarried_tx: mpsc::Sender<proto::UncarriedProgram>,
    started_uncarried: Mutex<Vec<proto::UncarriedProgram>>,
    news_rx: Mutex<Option<(Failures, Uncarried)>>,
    /// The head has begun to end the job: nodes that leave are not lost.
    pub ending: AtomicBool,
    /// Ends everything of the job here.
    pub ended: CancellationToken,
}

impl Job {
    /// Puts a job together.
    pub fn new(id: JobId, token: Secret, nodes: Vec<Host>, own: GridName, directory: JobDirectory) -> Self {
        let (failures_tx, failures_rx) = mpsc::channel(FAILURES_QUEUE);
        let (uncarried_tx, uncarried_rx) = mpsc::channel(FAILURES_QUEUE);
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
            failures_tx,
            uncarried_tx,
            started_uncarried: Mutex::default(),
            news_rx: Mutex::new(Some((failures_rx, uncarried_rx))),
            ending: AtomicBool::new(false),
            ended: CancellationToken::new(),
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

    /// Tells the head that a connect failed.
    pub fn tell_failure(&self, failure: proto::ConnectFailed) {
        // A full queue says the same already.
        let _ = self.failures_tx.try_send(failure);
    }

    /// Tells the head that a process here starts a program that can't be
    /// carried, once for each program.
    pub fn tell_uncarried(&self, program: proto::UncarriedProgram) {
        let mut started = lock(&self.started_uncarried);
        if started.len() < FAILURES_QUEUE && !started.contains(&program) {
            started.push(program.clone());
            let _ = self.uncarried_tx.try_send(program);
        }
    }

    /// All of them, for the account: what was started last may not have been
    /// told.
    pub fn started_uncarried(&self) -> Vec<proto::UncarriedProgram> {
        lock(&self.started_uncarried).clone()
    }

    /// What to tell the head, for the one who does.
    pub fn take_failures(&self) -> Option<(Failures, Uncarried)> {
        lock(&self.news_rx).take()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
