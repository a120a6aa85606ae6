//! The node: its jobs and their shared resources.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::Bbr;
use isthmus_identity::{Identity, Owner, Role, secured};
use isthmus_net::loopback::{PairMaker, Sources};
use isthmus_net::rails::Rail;
use isthmus_reach::Dialer;
use isthmus_rpc::grpc::Served;
use isthmus_service::lock;
use isthmus_trunk::Incarnation;
use isthmus_wire::proto;
use isthmus_wire::{GridName, JobId, VirtualAddress};
use tokio::sync::mpsc;
use tracing::info;

use crate::carrying::black_hole::BlackHole;
use crate::carrying::ports::PortCounter;
use crate::jobs::given_up::GivenUp;
use crate::jobs::job::Job;
use crate::observing::heartbeat::beat::Heartbeats;
use crate::observing::measure::serving::Measuring;
use crate::starting::programs;
use crate::trunks::registry::Registry;
use crate::uplink::upstream::Upstream;

/// TLS for the connections between agents, by purpose.
#[derive(Debug, Clone)]
pub(crate) struct ClientTls {
    /// For a trunk's carrier.
    pub trunk: secured::ClientTls,
    pub grpc: secured::ClientTls,
    /// For a measurement of the way to another node.
    pub measure: secured::ClientTls,
    /// For a test of large packets.
    pub packets: secured::ClientTls,
}

/// Files and names that the node's jobs need.
#[derive(Debug, Clone)]
pub(crate) struct Facilities {
    /// The node's grid name.
    pub name: GridName,
    /// The user whose processes may be started here.
    pub owner: Owner,
    /// Path of the `isthmus` binary.
    pub isthmus: PathBuf,
    /// Path of the preloaded library.
    pub shim: PathBuf,
    /// Path of the agent's own Unix socket.
    pub local_socket: PathBuf,
    /// The interface that programs see as that of the virtual address.
    pub interface: String,
    /// The time and random bits of this agent's start. Peers learn by it that trunks of a former
    /// agent are gone.
    pub incarnation: Incarnation,
}

/// What carries the data of a node's connections.
#[derive(Debug)]
pub(crate) struct Carrying {
    pub plane: Plane,
    /// Further links of the node to other sites, for trunks.
    pub rails: Vec<Rail>,
    /// Whether trunks use BBR for bulk.
    pub bbr: Bbr,
    /// The way by which connections of other agents for gRPC reach this node's gRPC server.
    pub calls_tx: mpsc::Sender<Served>,
}

#[derive(Debug)]
pub(crate) struct Node {
    facilities: Facilities,
    upstream: Upstream,
    dialer: Dialer,
    tls: ClientTls,
    loopback: Sources,
    pairs: PairMaker,
    black_hole: BlackHole,
    ports: PortCounter,
    heartbeats: Heartbeats,
    measuring: Measuring,
    plane: Plane,
    trunks: Registry,
    rails: Vec<Rail>,
    bbr: Bbr,
    /// The way by which connections of other agents for gRPC reach this node's gRPC server.
    calls_tx: mpsc::Sender<Served>,
    jobs: Mutex<HashMap<JobId, Arc<Job>>>,
    given_up: GivenUp,
    /// Runs join jobs one after the other.
    joining: Mutex<()>,
    /// The agent stops: no further job begins.
    stopping: AtomicBool,
}

/// Faults of a job's programs on this node.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Programs that don't exist.
    pub missing: Vec<proto::MissingProgram>,
    /// Programs that can't be carried.
    pub uncarried: Vec<proto::UncarriedProgram>,
}

impl Node {
    pub(crate) fn new(
        facilities: Facilities,
        upstream: Upstream,
        dialer: Dialer,
        tls: ClientTls,
        (loopback, pairs, black_hole): (Sources, PairMaker, BlackHole),
        heartbeats: Heartbeats,
        Carrying { plane, rails, bbr, calls_tx }: Carrying,
    ) -> Self {
        let (ports, measuring, jobs) = (PortCounter::default(), Measuring::default(), Mutex::default());
        Self {
            facilities,
            upstream,
            dialer,
            tls,
            loopback,
            pairs,
            black_hole,
            ports,
            heartbeats,
            measuring,
            plane,
            trunks: Registry::default(),
            rails,
            bbr,
            calls_tx,
            jobs,
            given_up: GivenUp::default(),
            joining: Mutex::default(),
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &GridName {
        &self.facilities.name
    }

    /// The user whose processes may be started here.
    pub(crate) fn owner(&self) -> &Owner {
        &self.facilities.owner
    }

    pub(crate) fn facilities(&self) -> &Facilities {
        &self.facilities
    }

    /// This node's virtual address, while the agent is attached or has been.
    pub(crate) fn own_address(&self) -> Option<VirtualAddress> {
        self.upstream.own_address()
    }

    /// The loopback address that is the twin of this node's virtual address; 127.0.0.1 before the
    /// agent is attached.
    pub(crate) fn twin(&self) -> Ipv4Addr {
        self.own_address().map_or(Ipv4Addr::LOCALHOST, VirtualAddress::twin)
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// The text of a node's revocation, which is then the reason for its loss; `None` if it isn't
    /// revoked.
    pub(crate) fn revocation_of(&self, name: &GridName) -> Option<String> {
        let (site, node, owner) = (name.site.clone(), name.node.clone(), self.owner().clone());
        let identity = Identity::new(Role::Agent, Some(site), Some(node), Some(owner)).ok()?;
        self.tls.grpc.peers().revoked_now(&identity).map(|refusal| refusal.to_string())
    }

    pub(crate) fn tls(&self) -> &ClientTls {
        &self.tls
    }

    /// The addresses from which this agent's connections over loopback come.
    pub(crate) fn loopback(&self) -> &Sources {
        &self.loopback
    }

    pub(crate) fn pairs(&self) -> &PairMaker {
        &self.pairs
    }

    pub(crate) fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    pub(crate) fn measuring(&self) -> &Measuring {
        &self.measuring
    }

    /// The worker threads that carry bytes.
    pub(crate) fn plane(&self) -> &Plane {
        &self.plane
    }

    pub(crate) fn trunks(&self) -> &Registry {
        &self.trunks
    }

    /// Further links of this node to other sites.
    pub(crate) fn rails(&self) -> &[Rail] {
        &self.rails
    }

    /// Whether this node's trunks use BBR for bulk.
    pub(crate) fn bbr(&self) -> Bbr {
        self.bbr
    }

    /// The sender that takes connections of other agents to this node's gRPC server.
    pub(crate) fn calls_tx(&self) -> &mpsc::Sender<Served> {
        &self.calls_tx
    }

    /// A source port for a program that bound none.
    pub(crate) fn next_port(&self) -> u16 {
        self.ports.next()
    }

    pub(crate) fn black_hole_port(&self) -> u16 {
        self.black_hole.port()
    }

    /// Adds the job that `make` returns, unless a job of this id is there.
    ///
    /// # Errors The error of `make`; `None` if a job of this id is there.
    pub(crate) fn add<T, E>(
        &self,
        id: JobId,
        make: impl FnOnce() -> Result<(Arc<Job>, T), E>,
    ) -> Result<(Arc<Job>, T), Option<E>> {
        let mut jobs = lock(&self.jobs);
        if jobs.contains_key(&id) {
            return Err(None);
        }
        let (job, rest) = make().map_err(Some)?;
        jobs.insert(id, job.clone());
        Ok((job, rest))
    }

    /// Calls `run` if no job runs, and lets none begin meanwhile; `None` if one runs.
    pub(crate) fn if_idle<T>(&self, run: impl FnOnce() -> T) -> Option<T> {
        let jobs = lock(&self.jobs);
        jobs.is_empty().then(run)
    }

    /// Lets no further job begin. Returns the jobs that run.
    pub(crate) fn stop(&self) -> Vec<Arc<Job>> {
        let jobs = lock(&self.jobs);
        // Under the lock, while no job is being added: each job is refused from now on, or among
        // these.
        self.stopping.store(true, Ordering::SeqCst);
        jobs.values().cloned().collect()
    }

    /// Whether no further job may begin.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn job(&self, id: JobId) -> Option<Arc<Job>> {
        lock(&self.jobs).get(&id).cloned()
    }

    /// The lock that a run holds while it joins a job, or leaves it.
    pub(crate) fn joining(&self) -> &Mutex<()> {
        &self.joining
    }

    pub(crate) fn given_up(&self) -> &GivenUp {
        &self.given_up
    }

    pub(crate) fn jobs(&self) -> Vec<Arc<Job>> {
        lock(&self.jobs).values().cloned().collect()
    }

    /// Finds the faults of a check's programs on this node.
    pub(crate) async fn look_for(self: &Arc<Self>, check: Option<proto::ProgramCheck>) -> Faults {
        let Some(check) = check else { return Faults::default() };
        let node = self.clone();
        // Programs may lie on a slow file system.
        tokio::task::spawn_blocking(move || node.look_for_now(&check)).await.unwrap_or_default()
    }

    fn look_for_now(&self, check: &proto::ProgramCheck) -> Faults {
        let own_path = std::env::var("PATH").unwrap_or_default();
        let node = || self.name().to_string();
        let is_there = check.working_directory.is_empty() || Path::new(&check.working_directory).is_dir();
        let directory = if is_there { String::new() } else { check.working_directory.clone() };
        let missing = |program| {
            let directory = directory.clone();
            proto::MissingProgram { node: node(), program, directory }
        };
        let uncarried = |found| self.uncarried(found);
        Faults {
            missing: programs::missing(check, &own_path).into_iter().map(missing).collect(),
            uncarried: programs::uncarried(check, &own_path).into_iter().map(uncarried).collect(),
        }
    }

    /// The message that tells of a program that can't be carried here.
    pub(crate) fn uncarried(&self, found: programs::Uncarried) -> proto::UncarriedProgram {
        proto::UncarriedProgram {
            node: self.name().to_string(),
            program: found.program,
            file: found.file.to_string_lossy().into_owned(),
            hindrance: found.hindrance.kind.into(),
            detail: found.hindrance.detail,
        }
    }

    /// Ends a job: its processes, its pending connections, its streams, what its MPI has left, its
    /// directory. Returns the number of processes that had to be killed.
    pub(crate) async fn end(&self, job: &Arc<Job>) -> u32 {
        let killed = job.end_processes(&self.name().to_string()).await;
        job.ended.cancel();
        job.sockets.end();
        let killed = killed + job.clear().await;
        // Tasks that still have the job may outlive the agent's own end.
        job.directory.remove();
        if lock(&self.jobs).remove(&job.id).is_some() {
            info!(job = %job.id, killed, "job ended");
        }
        job.cleared.cancel();
        killed
    }
}

/// The name of the interface with this address, "lo" if there is none.
pub(crate) fn interface_of(address: IpAddr) -> String {
    let holds = |interface: &nix::ifaddrs::InterfaceAddress| match (&interface.address, address) {
        (Some(held), IpAddr::V4(wanted)) => held.as_sockaddr_in().is_some_and(|held| held.ip() == wanted),
        (Some(held), IpAddr::V6(wanted)) => held.as_sockaddr_in6().is_some_and(|held| held.ip() == wanted),
        (None, _) => false,
    };
    nix::ifaddrs::getifaddrs()
        .ok()
        .and_then(|mut interfaces| interfaces.find(holds))
        .map_or_else(|| "lo".to_owned(), |interface| interface.interface_name)
}
