//! The gateway as a process: what its services share, and the registry's calls.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use isthmus_net::contact::plan_from_facts;
use isthmus_net::credentials::{ALPN_H2, CredentialsError};
use isthmus_net::grpc::Repeat;
use isthmus_net::grpc::attachments::{Attachments, Down};
use isthmus_net::rendezvous::{self, Leg};
use isthmus_net::{Credentials, Identity, Role, grpc, lock, seen};
use isthmus_splice::address::{self, NoAddress};
use isthmus_splice::admission::{self, Intake, Limits, Pairs};
use isthmus_splice::plane::{self, Plane};
use isthmus_wire::bounds::{Bounded as _, MESSAGE_BYTES};
use isthmus_wire::proto::enrolment_server::EnrolmentServer;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::registry_server::{Registry, RegistryServer};
use isthmus_wire::proto::{self, attach_down, attach_up, rendezvous_reply};
use isthmus_wire::{GridName, Label, VirtualAddress};
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use tracing::info;

use crate::attach;
use crate::cache::Cache;
use crate::config::{GatewayConfig, Measure};
use crate::directory::Directory;
use crate::enrolment::EnrolmentService;
use crate::inside;
use crate::outside::{self, OutsidePort};
use crate::roster::{Effect, Roster, SessionId};
use crate::streams::{ARRIVALS, Streams};
use crate::upstream::{self, Upstream, WAIT};
use crate::way_out::Answered;

/// Why a gateway can't run.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The state directory is somebody else's.
    #[error("this identity is that of {0}, not of a gateway; give the state directory of a gateway")]
    NotAGateway(String),
    /// Its credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The server.
    #[error("the gateway's server failed: {0}")]
    Server(#[from] tonic::transport::Error),
    /// The outside port is taken, or not this machine's.
    #[error("cannot listen on {address}: {cause}; set another `outside` in section [gateway]")]
    Outside {
        /// The address that was to be listened on.
        address: SocketAddr,
        /// What the operating system said.
        cause: std::io::Error,
    },
    /// An address, and nothing that listens.
    #[error("[gateway] outside_address is set, and outside is not: say where to listen, or take it away")]
    NothingOutside,
    /// Nobody could be told where the outside port is.
    #[error(
        "listening on {} doesn't say where other sites reach this gateway, and it reaches the broker from {}, \
         where they can't: set `outside_address = \"HOST:PORT\"` in section [gateway]",
        .0.listen, .0.towards_broker
    )]
    NoAddress(NoAddress),
    /// The data plane could not be started or broke.
    #[error("the gateway's data plane failed: {0}")]
    Plane(std::io::Error),
}

/// Messages that may wait for one agent: a rendezvous with each of 1,024 nodes at
/// once.
const QUEUE: usize = 1024;
/// How often the broker is sent what agents found out and no plan goes by: the
/// nearest relay is chosen by it.
const SEEN_INTERVAL: Duration = Duration::from_secs(60);
/// Connections that stand and aren't served yet.
const INCOMING: usize = 64;

/// The answer to one question that several agents wait for.
type Flight = Arc<OnceCell<Result<proto::LookupReply, Status>>>;
/// Virtual address or name of the node that is asked for.
type FlightKey = (u32, String);
type Flights = HashMap<FlightKey, Flight>;

/// What the services share.
pub(crate) struct Gateway {
    pub(crate) credentials: Credentials,
    pub(crate) site: Label,
    /// What the broker is told first.
    pub(crate) hello: proto::GatewayUp,
    pub(crate) upstream: Upstream,
    pub(crate) sessions: Attachments<SessionId>,
    pub(crate) streams: Arc<Streams>,
    /// What the configuration says of the site's nodes.
    pub(crate) nodes_dial_out: Option<bool>,
    /// Whether somebody outside answers the gateway.
    pub(crate) answered: Answered,
    /// Whether other sites reach it there.
    pub(crate) outside: OutsidePort,
    pub(crate) directory: Directory,
    /// Where other sites reach the gateway, once that is known.
    outside_address: OnceLock<String>,
    roster: Mutex<Roster>,
    cache: Mutex<Cache>,
    /// Questions that the broker was asked and hasn't answered: a job that
    /// starts asks for each node many times at once.
    flights: Mutex<Flights>,
}

impl Gateway {
    pub(crate) fn roster(&self) -> MutexGuard<'_, Roster> {
        lock(&self.roster)
    }

    /// Where other sites reach the gateway; empty for nowhere.
    pub(crate) fn outside_address(&self) -> String {
        self.outside_address.get().cloned().unwrap_or_default()
    }

    /// Opens a connection for one of the site's nodes.
    pub(crate) async fn dial(&self, leg: &Leg) -> Result<(), Status> {
        let own = |ip| self.roster().is_own(ip);
        self.streams.dial(leg, own).await.map_err(|reason| {
            Status::unavailable(format!("the gateway of site {} dials for its node: {reason}", self.site))
        })
    }

    pub(crate) fn announcements(&self) -> Vec<attach_up::Kind> {
        let reach = self.outside.reach().map(attach_up::Kind::GatewayReach);
        reach.into_iter().chain(self.roster().announcements()).collect()
    }

    /// Does what the roster asks for. Never waits.
    pub(crate) fn carry_out(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ToAgent(to, kind) => self.sessions.send(to, kind),
                Effect::Close(session, reason) => self.sessions.close(session, reason),
                Effect::ToBroker(kind) => self.upstream.tell(kind),
                Effect::Changed(address) => self.contact_changed(address),
            }
        }
    }

    /// A contact changed: agents that were told of it must know.
    pub(crate) fn contact_changed(&self, address: VirtualAddress) {
        if lock(&self.cache).changed(address) {
            self.tell_agents(address.ip().into());
        }
    }

    /// Every contact may have changed.
    pub(crate) fn forget_contacts(&self) {
        if lock(&self.cache).all_changed() {
            self.tell_agents(0);
        }
    }

    /// The broker sent the directory: agents receive what concerns them.
    pub(crate) fn directory_changed(&self, directory: proto::Directory) {
        let nodes = self.roster().sessions().count();
        if let Some(told) = self.directory.set(&self.site, directory, nodes) {
            self.tell_all(attach_down::Kind::Directory(told));
        }
    }

    /// Agents may find another gateway while this one has no broker.
    pub(crate) fn tell_cut_off(&self, cut_off: bool) {
        self.tell_all(attach_down::Kind::CutOff(proto::CutOff { cut_off }));
    }

    /// Says that a contact has changed; those of all other sites for 0.
    fn tell_agents(&self, virtual_address: u32) {
        let changed = proto::ContactChanged { virtual_address };
        self.tell_all(attach_down::Kind::ContactChanged(changed));
    }

    fn tell_all(&self, kind: attach_down::Kind) {
        let sessions: Vec<_> = self.roster().sessions().collect();
        for session in sessions {
            self.sessions.send(session, kind.clone());
        }
    }

    /// Who calls, if it is an agent of this site.
    pub(crate) fn own_agent<T>(&self, request: &Request<T>) -> Result<Arc<Identity>, Status> {
        let caller = grpc::caller(request)?;
        if caller.role() == Role::Agent && caller.site() == Some(&self.site) {
            Ok(caller)
        } else {
            Err(Status::permission_denied(format!(
                "this is the gateway of site {}, which serves the agents of its own site, and not {caller}",
                self.site
            )))
        }
    }

    /// Whether an agent asks for itself.
    fn check_initiator(&self, caller: &Identity, initiator: u32) -> Result<(), Status> {
        let own = self.roster().address(caller.name());
        if own.is_some_and(|own| u32::from(own.ip()) == initiator) {
            return Ok(());
        }
        let address = std::net::Ipv4Addr::from(initiator);
        Err(Status::permission_denied(format!("{address} is not the address of {caller}")))
    }

    async fn find(&self, request: &proto::LookupRequest) -> Result<proto::LookupReply, Status> {
        let own = self.roster().find(request);
        if let Some(node) = own {
            let reply = self.own_contact(node);
            lock(&self.cache).tell_of_own(&reply);
            return Ok(reply);
        }
        let cached = lock(&self.cache).find(request).cloned();
        let reply = match cached {
            Some(reply) => reply,
            None => self.ask_with_others(request).await?,
        };
        lock(&self.cache).tell(&reply);
        Ok(reply)
    }

    /// Asks the broker, once for all who want to know the same.
    async fn ask_with_others(&self, request: &proto::LookupRequest) -> Result<proto::LookupReply, Status> {
        let key = (request.virtual_address, request.name.clone());
        let flight = lock(&self.flights).entry(key.clone()).or_default().clone();
        let guard = FlightGuard { flights: &self.flights, key, flight };
        guard.flight.get_or_init(|| self.ask(request)).await.clone()
    }

    async fn ask(&self, request: &proto::LookupRequest) -> Result<proto::LookupReply, Status> {
        let mut asked = lock(&self.cache).asking();
        let mut reply = self.ask_once(request).await?;
        if !lock(&self.cache).insert(asked, &reply) {
            // Something changed while the answer was under way.
            asked = lock(&self.cache).asking();
            reply = self.ask_once(request).await?;
            lock(&self.cache).insert(asked, &reply);
        }
        Ok(reply)
    }

    async fn ask_once(&self, request: &proto::LookupRequest) -> Result<proto::LookupReply, Status> {
        let lookup = |mut client: RegistryClient<_>, request| async move { client.lookup(request).await };
        self.upstream
            .registry("look a node up", (Repeat::IfUnavailable, WAIT.into()), request.clone(), lookup)
            .await
    }

    fn own_contact(&self, node: proto::Node) -> proto::LookupReply {
        // Within a site the plan depends on nothing else.
        let end = proto::End { node: node.name.clone(), ..proto::End::default() };
        let facts = proto::Facts { acceptor: Some(end.clone()), ..proto::Facts::default() };
        proto::LookupReply { node: Some(node), plan: Some(plan_from_facts(&end, &facts)), facts: None }
    }

    /// What a plan goes by that begins at a node of this site; `site` is what all
    /// its gateways say together, as far as the broker told.
    fn end(&self, node: &Label, site: Option<proto::SiteFacts>) -> proto::End {
        let own = || proto::SiteFacts {
            inbound: self.hello.inbound,
            gateway_outside: self.outside_address(),
            gateway_reach: self.outside.reach(),
        };
        let site = site.unwrap_or_else(own);
        let contact = self.roster().contact(node).cloned().unwrap_or_default();
        proto::End {
            node: GridName { node: node.clone(), site: self.site.clone() }.to_string(),
            inbound: site.inbound,
            outside_address: seen::let_in_at(&contact.outside_address, site.inbound(), contact.seen.as_ref()),
            seen: contact.seen,
            attached: true,
            // Known to the broker alone, and to no plan.
            virtual_address: 0,
            can_traverse: contact.can_traverse,
            gateway_outside: site.gateway_outside,
            gateway_reach: site.gateway_reach,
        }
    }
}

/// Runs a gateway on a listener until `shutdown`; calls `ready` once agents can
/// come, who then wait for the broker if it is away.
///
/// # Errors
/// If it can't start, or its server fails.
pub async fn run(
    listener: TcpListener,
    credentials: Credentials,
    config: &GatewayConfig,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), GatewayError> {
    let identity = credentials.identity();
    let (Role::Gateway, Some(site)) = (identity.role(), identity.site().cloned()) else {
        return Err(GatewayError::NotAGateway(identity.to_string()));
    };
    let tls = credentials.enrolling_server_config(&[ALPN_H2])?;
    let outside = match (config.outside, &config.outside_address) {
        (Some(address), _) => {
            let failed = |cause| GatewayError::Outside { address, cause };
            let listener = isthmus_net::listen(address).map_err(failed)?;
            let listening = listener.local_addr().map_err(failed)?;
            info!(%listening, "listening for other sites");
            Some((listener, listening))
        }
        (None, Some(_)) => return Err(GatewayError::NothingOutside),
        (None, None) => None,
    };
    plane::raise_descriptor_limit();
    let workers = config.workers.or_else(|| std::thread::available_parallelism().ok());
    let (plane, mut failure_rx) =
        Plane::start(workers.unwrap_or(NonZeroUsize::MIN)).map_err(GatewayError::Plane)?;
    let (keys_tx, keys_rx) = watch::channel(None);
    let (arrivals_tx, arrivals_rx) = mpsc::channel(ARRIVALS);
    let (grpc_tx, grpc_rx) = mpsc::channel(INCOMING);
    let (upstream, outbox) = Upstream::new();
    let hello = proto::GatewayUp {
        site: site.to_string(),
        inbound: proto::Inbound::from(config.inbound).into(),
        address: match &config.address {
            Some(address) => address.clone(),
            None => listener.local_addr().map(|address| address.to_string()).unwrap_or_default(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        outside_address: String::new(),
        measure_off: config.measure == Measure::Off,
    };
    let gateway = Arc::new(Gateway {
        credentials,
        site: site.clone(),
        hello,
        upstream,
        sessions: Attachments::new(QUEUE),
        streams: Arc::new(Streams::new(keys_tx, arrivals_tx)),
        nodes_dial_out: config.nodes_dial_out,
        answered: Answered::default(),
        outside: OutsidePort::default(),
        directory: Directory::default(),
        outside_address: OnceLock::new(),
        roster: Mutex::new(Roster::new(site)),
        cache: Mutex::default(),
        flights: Mutex::default(),
    });
    let routes =
        Routes::new(RegistryServer::new(Service(gateway.clone())).max_decoding_message_size(MESSAGE_BYTES))
            .add_service(EnrolmentServer::new(EnrolmentService(gateway.clone())));
    ready();
    let accepting = inside::accept(listener, tls, grpc_tx, gateway.streams.clone());
    let serving = grpc::serve_streams(grpc_rx, routes, async {
        shutdown.await;
        gateway.sessions.remove_all();
    });
    let (outside, listening) = outside.unzip();
    let watched = listening.is_some();
    let intake = Intake {
        outside,
        arrivals_rx,
        pairs: Pairs::InsideWithOutside,
        reach_tests: gateway.outside.reach_tests.clone(),
    };
    // Nobody is dialed for having asked.
    let recent_clients = Arc::default();
    let joining = admission::serve(
        intake,
        Limits::default(),
        keys_rx,
        Arc::new(plane),
        recent_clients,
        std::future::pending(),
    );
    let attaching = async {
        if let Some(listening) = listening {
            let configured = config.outside_address.clone();
            let found = address::of(configured, listening, gateway.credentials.upstream()).await;
            let _ = gateway.outside_address.set(found.map_err(GatewayError::NoAddress)?);
        }
        upstream::run(gateway.clone(), outbox).await;
        Ok(())
    };
    tokio::select! {
        result = serving => Ok(result?),
        () = accepting => Ok(()),
        () = joining => Ok(()),
        result = attaching => result,
        () = outside::watch(&gateway), if watched => Ok(()),
        () = send_seen(&gateway) => Ok(()),
        Some(error) = failure_rx.recv() => Err(GatewayError::Plane(error)),
    }
}

/// Sends now and then what agents found out and the broker can wait for; never
/// returns.
async fn send_seen(gateway: &Gateway) {
    loop {
        tokio::time::sleep(SEEN_INTERVAL).await;
        let effects = gateway.roster().seen_due();
        gateway.carry_out(effects);
    }
}

/// One of those who wait for a flight; it ends with the first who leaves, be it
/// with the answer or because the agent has gone.
struct FlightGuard<'a> {
    flights: &'a Mutex<Flights>,
    key: FlightKey,
    flight: Flight,
}

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        let mut flights = lock(self.flights);
        if flights.get(&self.key).is_some_and(|current| Arc::ptr_eq(current, &self.flight)) {
            flights.remove(&self.key);
        }
    }
}

struct Service(Arc<Gateway>);

#[tonic::async_trait]
impl Registry for Service {
    type AttachStream = ReceiverStream<Down>;

    async fn attach(
        &self,
        request: Request<Streaming<proto::AttachUp>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let caller = self.0.own_agent(&request)?;
        let own = format!("the gateway of site {}", self.0.site);
        grpc::check_caller(&own, &caller.to_string(), &request)?;
        let ends = grpc::peer(&request).map(|peer| (peer.address.ip(), peer.local));
        let (from, came_to) = ends.ok_or_else(|| Status::internal("a connection without an address"))?;
        let attached = attach::attach(&self.0, &caller, from, came_to, request.into_inner()).await?;
        Ok(grpc::with_versions(Response::new(attached)))
    }

    async fn lookup(
        &self,
        request: Request<proto::LookupRequest>,
    ) -> Result<Response<proto::LookupReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        let mut reply = self.0.find(request.get_ref()).await?;
        if let Some(facts) = reply.facts.take() {
            let initiator = self.0.end(caller.name(), facts.initiator_site.clone());
            reply.plan = Some(plan_from_facts(&initiator, &facts));
        }
        Ok(Response::new(reply))
    }

    async fn rendezvous(
        &self,
        request: Request<proto::RendezvousRequest>,
    ) -> Result<Response<proto::RendezvousReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        let from = grpc::peer(&request).map(|peer| peer.address.ip());
        let budget = (Repeat::Never, grpc::budget(&request, WAIT));
        self.0.check_initiator(&caller, request.get_ref().initiator)?;
        // What no broker needs to carry ends here.
        let request = rendezvous::Request::try_from(request.get_ref());
        let request = request.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let request = proto::RendezvousRequest::from(request);
        let rendezvous =
            |mut client: RegistryClient<_>, request| async move { client.rendezvous(request).await };
        let mut reply = self.0.upstream.registry("arrange a rendezvous", budget, request, rendezvous).await?;
        if let Some(rendezvous_reply::Way::OwnGateway(at)) = &mut reply.way {
            let (connection, leg) =
                rendezvous::take_leg(at).map_err(|error| Status::internal(error.to_string()))?;
            if let Some(from) = from {
                self.0.streams.expect(connection, from);
            }
            if let Some(leg) = leg {
                self.0.dial(&leg).await?;
            }
        }
        Ok(Response::new(reply))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainReply>, Status> {
        grpc::caller(&request)?;
        let budget = (Repeat::Never, grpc::budget(&request, WAIT));
        let request = request.into_inner();
        let explain = |mut client: RegistryClient<_>, request| async move { client.explain(request).await };
        self.0.upstream.registry("explain a plan", budget, request, explain).await.map(Response::new)
    }

    async fn probe(
        &self,
        request: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        let budget = (Repeat::Never, grpc::budget(&request, WAIT));
        let request = request.into_inner();
        self.0.check_initiator(&caller, request.initiator)?;
        let probe = |mut client: RegistryClient<_>, request| async move { client.probe(request).await };
        let reply = self.0.upstream.registry("have this node probed", budget, request, probe).await?;
        Ok(Response::new(reply))
    }

    async fn measure(
        &self,
        request: Request<proto::MeasureRequest>,
    ) -> Result<Response<proto::MeasureReply>, Status> {
        grpc::caller(&request)?;
        let budget = (Repeat::Never, grpc::budget(&request, WAIT));
        let request = request.into_inner();
        let measure = |mut client: RegistryClient<_>, request| async move { client.measure(request).await };
        self.0.upstream.registry("have a way measured", budget, request, measure).await.map(Response::new)
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        grpc::caller(&request)?;
        let budget = (Repeat::Never, grpc::budget(&request, WAIT));
        let request = request.into_inner();
        request.check().map_err(|error| Status::invalid_argument(error.to_string()))?;
        let list = |mut client: RegistryClient<_>, request| async move { client.list(request).await };
        self.0.upstream.registry("list the grid", budget, request, list).await.map(Response::new)
    }
}
