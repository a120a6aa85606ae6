//! The broker as a process: what its services share, and the registry's calls.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use isthmus_net::clock::unix_seconds;
use isthmus_net::credentials::{ALPN_H2, CredentialsError};
use isthmus_net::grpc::attachments::Down;
use isthmus_net::rendezvous::{self, Way};
use isthmus_net::{Credentials, Identity, Role, grpc, lock, mac};
use isthmus_wire::bounds::MESSAGE_BYTES;
use isthmus_wire::proto::enrolment_server::EnrolmentServer;
use isthmus_wire::proto::registry_server::{Registry as RegistryService, RegistryServer};
use isthmus_wire::{Label, proto};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

use crate::attach;
use crate::config::{BrokerConfig, ForbiddenPairs, PolicyError, TrustedPairs};
use crate::enrolment::EnrolmentService;
use crate::fold::{Fold, FoldError};
use crate::probes::{self, Probes};
use crate::records::Unreadable;
use crate::registry::{LookupError, Policy, ProbeError, Registry, RendezvousError};
use crate::rendezvous::{PendingRendezvous, acceptors_answer};
use crate::sessions::Sessions;
use crate::state::{State, StateError};
use crate::store::{Embedded, Revision, Store, StoreError};

/// How often the broker looks whether its own certificate is due.
const RENEWAL_CHECK: Duration = Duration::from_secs(3600);

/// How long attachments may take to end when the broker does.
const ENDING: Duration = Duration::from_secs(2);
/// How often it is looked whether leases have ended.
const LEASE_CHECK: Duration = Duration::from_secs(1);
/// How often it is looked whether ways between sites are to be measured.
const MEASURE_CHECK: Duration = Duration::from_secs(5);
/// How often it is looked whether the directory has changed.
const DIRECTORY_CHECK: Duration = Duration::from_millis(250);
/// How long a rendezvous waits for a node whose gateway went away, to come to
/// another one.
const RETURN: Duration = Duration::from_secs(3);
/// How long arranging a rendezvous may take whose caller gave no budget.
const RENDEZVOUS: Duration = Duration::from_secs(10);

/// Why a broker can't run.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Its state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// Its store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record of its that can't be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Its configuration.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Its credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The server.
    #[error("the broker's server failed: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// What the services share.
pub(crate) struct Broker {
    pub(crate) state: State,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sessions: Sessions,
    pub(crate) rendezvous: PendingRendezvous,
    pub(crate) probes: Probes,
    /// The attachments' tasks.
    pub(crate) tasks: TaskTracker,
    /// Sent whenever a node came up.
    pub(crate) came: watch::Sender<()>,
    /// The revision of the store that the registry has taken in.
    pub(crate) applied: watch::Sender<Revision>,
    registry: Mutex<Registry>,
}

impl Broker {
    pub(crate) fn new(state: State, store: Arc<dyn Store>, registry: Registry) -> Self {
        Self {
            state,
            store,
            sessions: Sessions::new(),
            rendezvous: PendingRendezvous::default(),
            probes: Probes::default(),
            tasks: TaskTracker::new(),
            came: watch::Sender::new(()),
            applied: watch::Sender::new(0),
            registry: Mutex::new(registry),
        }
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }
}

/// The status of a call that the store failed.
pub(crate) fn store_status(error: StoreError) -> Status {
    warn!(%error, "cannot use the store");
    Status::internal("the broker cannot use its store; see its log")
}

/// Runs the broker of a state directory on a listener until `shutdown`; calls
/// `ready` once everything is set up.
///
/// # Errors
/// If it can't start, or its server fails.
pub async fn run(
    listener: TcpListener,
    state: State,
    config: &BrokerConfig,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), BrokerError> {
    let credentials = state.credentials(SystemTime::now())?;
    let store = Arc::new(Embedded::open(&state.store_path())?);
    let trusted = TrustedPairs::new(&config.trusted).map_err(|error| PolicyError::Site("trusted", error))?;
    let policy = Policy {
        trusted,
        forbidden: ForbiddenPairs::new(&config.pairs)?,
        relays: config.relays,
        measure: config.measure,
    };
    let registry = Registry::new(&state.grid.name, policy);
    let tls = credentials.enrolling_server_config(&[ALPN_H2])?;
    let broker = Arc::new(Broker::new(state, store, registry));
    let fold = Fold::begin(&broker).await.map_err(|error| match error {
        FoldError::Store(error) => BrokerError::Store(error),
        FoldError::Unreadable(error) => BrokerError::Unreadable(error),
    })?;
    let routes =
        Routes::new(RegistryServer::new(Service(broker.clone())).max_decoding_message_size(MESSAGE_BYTES))
            .add_service(EnrolmentServer::new(EnrolmentService(broker.clone())));
    ready();
    let serving = grpc::serve(listener, tls, routes, async {
        shutdown.await;
        broker.sessions.remove_all();
    });
    let result = tokio::select! {
        result = serving => result.map_err(BrokerError::from),
        () = keep_renewed(&broker, &credentials) => Ok(()),
        () = keep_measured(&broker) => Ok(()),
        () = keep_directory(&broker) => Ok(()),
        () = keep_leases(&broker) => Ok(()),
        () = fold.keep(&broker) => Ok(()),
    };
    // They delete their records, and hold the store open.
    broker.tasks.close();
    let _ = timeout(ENDING, broker.tasks.wait()).await;
    result
}

/// Renews the broker's own certificate when it is due; never returns.
async fn keep_renewed(broker: &Broker, credentials: &Credentials) {
    loop {
        tokio::time::sleep(RENEWAL_CHECK).await;
        match broker.state.renew_if_due(credentials, SystemTime::now()) {
            Ok(true) => info!("the broker's certificate is renewed"),
            Ok(false) => {}
            Err(error) => warn!(%error, "cannot renew the broker's certificate"),
        }
    }
}

/// Has leases end in time; never returns.
async fn keep_leases(broker: &Broker) {
    loop {
        tokio::time::sleep(LEASE_CHECK).await;
        if let Err(error) = broker.store.expire().await {
            warn!(%error, "cannot end leases");
        }
    }
}

/// Sends the directory to the gateways when it has changed; never returns.
async fn keep_directory(broker: &Broker) {
    loop {
        tokio::time::sleep(DIRECTORY_CHECK).await;
        let effects = broker.registry().directory_due();
        broker.sessions.carry_out(effects);
    }
}

/// Has ways between sites measured; never returns.
async fn keep_measured(broker: &Broker) {
    loop {
        tokio::time::sleep(MEASURE_CHECK).await;
        let effects = broker.registry().measure_due(unix_seconds(SystemTime::now()));
        broker.sessions.carry_out(effects);
    }
}

/// The site of a gateway that calls.
pub(crate) fn site_of_gateway(caller: &Identity) -> Result<&Label, Status> {
    match (caller.role(), caller.site()) {
        (Role::Gateway, Some(site)) => Ok(site),
        _ => Err(Status::permission_denied(format!(
            "only gateways may do this, and this is {caller}; agents ask the gateway of their site"
        ))),
    }
}

struct Service(Arc<Broker>);

#[tonic::async_trait]
impl RegistryService for Service {
    type AttachStream = ReceiverStream<Down>;

    async fn attach(
        &self,
        request: Request<Streaming<proto::AttachUp>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let caller = grpc::caller(&request)?;
        grpc::check_caller("the broker", &caller.to_string(), &request)?;
        let attached = attach::attach(&self.0, &caller, request.into_inner()).await?;
        Ok(grpc::with_versions(Response::new(attached)))
    }

    async fn lookup(
        &self,
        request: Request<proto::LookupRequest>,
    ) -> Result<Response<proto::LookupReply>, Status> {
        let caller = grpc::caller(&request)?;
        let site = site_of_gateway(&caller)?;
        let reply = self.0.registry().lookup((site, caller.name()), request.get_ref());
        reply.map(Response::new).map_err(|error| lookup_status(&error))
    }

    async fn rendezvous(
        &self,
        request: Request<proto::RendezvousRequest>,
    ) -> Result<Response<proto::RendezvousReply>, Status> {
        let caller = grpc::caller(&request)?;
        let site = site_of_gateway(&caller)?;
        let deadline = grpc::budget(&request, RENDEZVOUS);
        let request = rendezvous::Request::try_from(request.get_ref());
        let request = request.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let connection = mac::new_connection();
        let now = unix_seconds(SystemTime::now());
        let (until, mut came) = (deadline.part(RETURN).at(), self.0.came.subscribe());
        let (mut reply, effects) = loop {
            let arranged = self.0.registry().rendezvous(site, &request, connection, now);
            match arranged {
                Err(RendezvousError::Lookup(LookupError::Absent(_)))
                    if timeout_at(until, came.changed()).await.is_ok() => {}
                arranged => break arranged.map_err(rendezvous_status)?,
            }
        };
        if let Way::Punch { rendezvous, .. } | Way::Traverse { rendezvous, .. } = request.way {
            let waiting = self.0.rendezvous.wait_for(rendezvous);
            self.0.sessions.carry_out(effects);
            reply.way = Some(acceptors_answer(waiting, deadline).await?);
        } else {
            self.0.sessions.carry_out(effects);
        }
        Ok(Response::new(reply))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainReply>, Status> {
        grpc::caller(&request)?;
        let reply = self.0.registry().explain(request.get_ref());
        reply.map(Response::new).map_err(|error| lookup_status(&error))
    }

    async fn probe(
        &self,
        request: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeReply>, Status> {
        let caller = grpc::caller(&request)?;
        let site = site_of_gateway(&caller)?;
        let (id, now) = (mac::new_connection(), unix_seconds(SystemTime::now()));
        let ordered = self.0.registry().probe(site, request.get_ref(), id, now);
        let effect = ordered.map_err(|error| match &error {
            ProbeError::NotYours(_) => Status::permission_denied(error.to_string()),
            ProbeError::TooOften => Status::resource_exhausted(error.to_string()),
            ProbeError::NoRelay(_) => Status::unavailable(error.to_string()),
        })?;
        let waiting = self.0.probes.wait_for(id);
        self.0.sessions.carry_out(vec![effect]);
        probes::reply(waiting).await.map(Response::new)
    }

    async fn measure(
        &self,
        request: Request<proto::MeasureRequest>,
    ) -> Result<Response<proto::MeasureReply>, Status> {
        grpc::caller(&request)?;
        let now = unix_seconds(SystemTime::now());
        let (reply, effect) = self.0.registry().measure(request.get_ref(), now).map_err(rendezvous_status)?;
        self.0.sessions.carry_out(effect.into_iter().collect());
        Ok(Response::new(reply))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        grpc::caller(&request)?;
        let reply = self.0.registry().list(request.get_ref());
        reply.map(Response::new).map_err(|refused| Status::invalid_argument(refused.0))
    }
}

fn rendezvous_status(error: RendezvousError) -> Status {
    match &error {
        RendezvousError::Lookup(error) => lookup_status(error),
        RendezvousError::NotYours(_) => Status::permission_denied(error.to_string()),
        RendezvousError::Unavailable(_) => Status::unavailable(error.to_string()),
    }
}

fn lookup_status(error: &LookupError) -> Status {
    match error {
        LookupError::Unknown(_) => Status::not_found(error.to_string()),
        LookupError::Absent(_) => Status::unavailable(error.to_string()),
    }
}
