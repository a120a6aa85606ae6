//! The gateway as a process: what its services share, and the registry's calls.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isthmus_net::contact::plan_from_facts;
use isthmus_net::credentials::{ALPN_H2, CredentialsError};
use isthmus_net::{Credentials, Identity, Role, grpc, seen};
use isthmus_raw::syn;
use isthmus_wire::proto::enrolment_server::EnrolmentServer;
use isthmus_wire::proto::registry_server::{Registry, RegistryServer};
use isthmus_wire::proto::{self, attach_down, attach_up};
use isthmus_wire::{GridName, Label, VirtualAddress};
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use crate::attach;
use crate::cache::Cache;
use crate::config::GatewayConfig;
use crate::enrolment::EnrolmentService;
use crate::roster::{Effect, Roster};
use crate::sessions::{Down, Sessions};
use crate::upstream::{self, Patience, Upstream};

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
}

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
    pub(crate) sessions: Sessions,
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

    pub(crate) fn announcements(&self) -> Vec<attach_up::Kind> {
        self.roster().announcements()
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
            self.tell_agents(address);
        }
    }

    /// Every contact may have changed.
    pub(crate) fn forget_contacts(&self) {
        let told = lock(&self.cache).all_changed();
        for address in told {
            self.tell_agents(address);
        }
    }

    fn tell_agents(&self, address: VirtualAddress) {
        let sessions: Vec<_> = self.roster().sessions().collect();
        for session in sessions {
            let changed = proto::ContactChanged { virtual_address: address.ip().into() };
            self.sessions.send(session, attach_down::Kind::ContactChanged(changed));
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
        let passenger = Passenger { flights: &self.flights, key, flight };
        passenger.flight.get_or_init(|| self.ask(request)).await.clone()
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
        let lookup = |mut client: proto::registry_client::RegistryClient<_>| {
            let request = request.clone();
            async move { client.lookup(request).await }
        };
        self.upstream.registry("look a node up", Patience::Answer, lookup).await
    }

    fn own_contact(&self, node: proto::Node) -> proto::LookupReply {
        // Within a site the plan depends on nothing else.
        let end = proto::End { node: node.name.clone(), ..proto::End::default() };
        let facts = proto::Facts { acceptor: Some(end.clone()), ..proto::Facts::default() };
        proto::LookupReply { node: Some(node), plan: Some(plan_from_facts(&end, &facts)), facts: None }
    }

    /// What a plan goes by that begins at a node of this site.
    fn end(&self, node: &Label) -> proto::End {
        let contact = self.roster().contact(node).cloned().unwrap_or_default();
        proto::End {
            node: GridName { node: node.clone(), site: self.site.clone() }.to_string(),
            inbound: self.hello.inbound,
            outside_address: seen::let_in_at(
                &contact.outside_address,
                self.hello.inbound(),
                contact.seen.as_ref(),
            ),
            seen: contact.seen,
            attached: true,
            // Known to the broker alone, and to no plan.
            virtual_address: 0,
            can_traverse: contact.can_traverse,
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
    let (upstream, outbox) = Upstream::new();
    let hello = proto::GatewayUp {
        site: site.to_string(),
        inbound: proto::Inbound::from(config.inbound).into(),
        address: listener.local_addr().map(|address| address.to_string()).unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let gateway = Arc::new(Gateway {
        credentials,
        site: site.clone(),
        hello,
        upstream,
        sessions: Sessions::default(),
        roster: Mutex::new(Roster::new(site)),
        cache: Mutex::default(),
        flights: Mutex::default(),
    });
    let routes = Routes::new(RegistryServer::new(Service(gateway.clone())))
        .add_service(EnrolmentServer::new(EnrolmentService(gateway.clone())));
    ready();
    let serving = grpc::serve(listener, tls, routes, async {
        shutdown.await;
        gateway.sessions.remove_all();
    });
    tokio::select! {
        result = serving => Ok(result?),
        () = upstream::run(gateway.clone(), outbox) => Ok(()),
    }
}

/// One of those who wait for a flight; it ends with the first who leaves, be it
/// with the answer or because the agent has gone.
struct Passenger<'a> {
    flights: &'a Mutex<Flights>,
    key: FlightKey,
    flight: Flight,
}

impl Drop for Passenger<'_> {
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
        let from = grpc::peer(&request).map(|peer| peer.address.ip());
        let from = from.ok_or_else(|| Status::internal("a connection without an address"))?;
        attach::attach(&self.0, &caller, from, request.into_inner()).await.map(Response::new)
    }

    async fn lookup(
        &self,
        request: Request<proto::LookupRequest>,
    ) -> Result<Response<proto::LookupReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        let mut reply = self.0.find(request.get_ref()).await?;
        if let Some(facts) = reply.facts.take() {
            reply.plan = Some(plan_from_facts(&self.0.end(caller.name()), &facts));
        }
        Ok(Response::new(reply))
    }

    async fn rendezvous(
        &self,
        request: Request<proto::RendezvousRequest>,
    ) -> Result<Response<proto::RendezvousReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        let request = request.into_inner();
        self.0.check_initiator(&caller, request.initiator)?;
        if request.syn.len() > syn::MAX_LEN {
            return Err(Status::invalid_argument(format!("a SYN of {} bytes", request.syn.len())));
        }
        let rendezvous = |mut client: proto::registry_client::RegistryClient<_>| {
            let request = request.clone();
            async move { client.rendezvous(request).await }
        };
        let reply = self.0.upstream.registry("arrange a meeting", Patience::Connection, rendezvous).await?;
        Ok(Response::new(reply))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainReply>, Status> {
        grpc::caller(&request)?;
        let request = request.into_inner();
        let explain = |mut client: proto::registry_client::RegistryClient<_>| {
            let request = request.clone();
            async move { client.explain(request).await }
        };
        self.0.upstream.registry("explain a plan", Patience::Connection, explain).await.map(Response::new)
    }

    async fn probe(
        &self,
        request: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        let request = request.into_inner();
        self.0.check_initiator(&caller, request.initiator)?;
        let probe = |mut client: proto::registry_client::RegistryClient<_>| {
            let request = request.clone();
            async move { client.probe(request).await }
        };
        let reply = self.0.upstream.registry("have this node probed", Patience::Connection, probe).await?;
        Ok(Response::new(reply))
    }

    async fn measure(
        &self,
        request: Request<proto::MeasureRequest>,
    ) -> Result<Response<proto::MeasureReply>, Status> {
        grpc::caller(&request)?;
        let request = request.into_inner();
        let measure = |mut client: proto::registry_client::RegistryClient<_>| {
            let request = request.clone();
            async move { client.measure(request).await }
        };
        self.0
            .upstream
            .registry("have a way measured", Patience::Connection, measure)
            .await
            .map(Response::new)
    }

    async fn grid(&self, request: Request<proto::GridRequest>) -> Result<Response<proto::GridReply>, Status> {
        grpc::caller(&request)?;
        let grid = |mut client: proto::registry_client::RegistryClient<_>| async move {
            client.grid(proto::GridRequest {}).await
        };
        self.0.upstream.registry("list the grid", Patience::Connection, grid).await.map(Response::new)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
