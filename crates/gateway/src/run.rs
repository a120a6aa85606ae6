//! The gateway as a process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::Kept;
use isthmus_carry::trunk::figures::keep_counted;
use isthmus_identity::credentials::ALPN_H2;
use isthmus_identity::{Credentials, Role};
use isthmus_rpc::calls::{At, guarded};
use isthmus_rpc::{grpc, packets};
use isthmus_service::kept::keep;
use isthmus_service::upgrade::Upgrades;
use isthmus_splice::address;
use isthmus_splice::admission::{self, Intake, Limits, Outside, Pairs};
use isthmus_splice::succession;
use isthmus_wire::bounds::{ENROLMENT_BYTES, MESSAGE_BYTES};
use isthmus_wire::proto::enrolment_server::EnrolmentServer;
use isthmus_wire::proto::own_gateway_server::OwnGatewayServer;
use isthmus_wire::proto::registry_server::RegistryServer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tonic::service::Routes;
use tracing::info;

use crate::config::GatewayConfig;
use crate::enrolment::EnrolmentService;
use crate::error::GatewayError;
use crate::far_agents::FarAgents;
use crate::gateway::Gateway;
use crate::inside;
use crate::outside;
use crate::own::OwnGatewayService;
use crate::registry::RegistryService;
use crate::relaying::Relay;
use crate::site_trunks::{self, SiteTrunks};
use crate::streams::{ARRIVALS, Streams};
use crate::upstream::{self, Outbox, Upstream};

/// How often the broker receives those findings of agents that no plan depends on. The broker
/// chooses the nearest relay by them.
const SEEN_INTERVAL: Duration = Duration::from_secs(60);
/// Most connections that stand and aren't served yet.
const INCOMING: usize = 64;

/// Runs a gateway on a listener until `shutdown`. It calls `ready` once agents can connect. While
/// the broker is away, the agents' calls wait for the broker. The gateway takes over the sockets
/// that a former program left in `upgrades`. Through `upgrades` another program replaces this one.
///
/// # Errors
/// If the gateway can't start, or its server fails.
pub async fn run(
    listener: TcpListener,
    credentials: Credentials,
    config: &GatewayConfig,
    upgrades: Arc<Upgrades>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), GatewayError> {
    let identity = credentials.identity();
    let (Role::Gateway, Some(site)) = (identity.role(), identity.site().cloned()) else {
        return Err(GatewayError::NotAGateway(identity.to_string()));
    };
    let tls = credentials.enrolling_server_config(&[ALPN_H2, packets::PROTOCOL])?;
    let (outside, listening) = listen_outside(config, &upgrades)?.unzip();
    isthmus_service::listen::raise_descriptor_limit();
    let (plane, mut failure_rx) =
        succession::start_plane(config.workers, &upgrades).map_err(GatewayError::Plane)?;
    let (keys_tx, keys_rx) = watch::channel(None);
    let (arrivals_tx, arrivals_rx) = mpsc::channel(ARRIVALS);
    let (grpc_tx, grpc_rx) = mpsc::channel(INCOMING);
    let (upstream, outbox) = Upstream::new();
    let far_agents = FarAgents::new(credentials.client_config(&[])?);
    let new = || SiteTrunks::new(&credentials, plane.clone(), config);
    let site_trunks = config.site_trunk.then(new).transpose()?;
    let own = (upstream, Streams::new(keys_tx, arrivals_tx, far_agents), site_trunks);
    let gateway = Arc::new(Gateway::new(credentials, site, config, listener.local_addr().ok(), own));
    ready();
    let accepting = inside::accept(listener, tls, grpc_tx, gateway.clone());
    let serving = grpc::serve_streams(At::Gateway, grpc_rx, routes(&gateway), async {
        shutdown.await;
        gateway.sessions.remove_all();
    });
    let claims = Arc::default();
    let relay =
        (outside.is_some() && config.relay.offer).then(|| Relay::new(&config.relay, Arc::clone(&claims)));
    let (relay, relaying) = relay.unzip();
    let intake = Intake {
        outside: outside.map(Outside::Own),
        arrivals_rx,
        pairs: Pairs::InsideWithOutside,
        relaying,
        reach_tests: gateway.outside.reach_tests.clone(),
        encrypted: config.site_trunk.then(|| outside::encrypted(&gateway)),
        patience: succession::patience(&upgrades),
    };
    let limits = Limits::default();
    let splicing = admission::serve(intake, limits, keys_rx, plane.clone(), claims, std::future::pending());
    tokio::select! {
        result = serving => Ok(result?),
        () = accepting => Ok(()),
        () = splicing => Ok(()),
        result = attach(&gateway, config, listening, outbox) => result,
        never = keep("the test of the port outside", || outside::watch(&gateway)), if listening.is_some() => match never {},
        never = relaying_for_others(relay.as_ref(), &gateway) => match never {},
        never = keep("dials that have failed", || site_trunks::dialing::retry(&gateway)) => match never {},
        never = keep("how this gateway is seen from outside", || site_trunks::dialing::watch(&gateway)) => match never {},
        never = keep("what the broker is told", || send_seen(&gateway)) => match never {},
        never = keep_counted(|| by_site(&gateway)) => match never {},
        never = succession::serve(upgrades, plane) => match never {},
        Some(error) = failure_rx.recv() => Err(GatewayError::Plane(error)),
    }
}

/// Relays for other sites, if this gateway does; never returns.
async fn relaying_for_others(relay: Option<&Relay>, gateway: &Gateway) -> Infallible {
    match relay {
        Some(relay) => keep("what this gateway relays for other sites", || relay.offer(gateway)).await,
        None => std::future::pending().await,
    }
}

/// The listener for other sites and its address; `None` if none is configured.
fn listen_outside(
    config: &GatewayConfig,
    upgrades: &Upgrades,
) -> Result<Option<(TcpListener, SocketAddr)>, GatewayError> {
    config.check()?;
    let Some(address) = config.outside else { return Ok(None) };
    let failed = |cause| GatewayError::Outside { address, cause };
    let listener = upgrades.listen(address).map_err(failed)?;
    let listening = listener.local_addr().map_err(failed)?;
    info!(%listening, "listening for other sites");
    Ok(Some((listener, listening)))
}

fn routes(gateway: &Arc<Gateway>) -> Routes {
    let registry = RegistryServer::new(RegistryService(gateway.clone()));
    let enrolment = EnrolmentServer::new(EnrolmentService(gateway.clone()));
    let own = OwnGatewayServer::new(OwnGatewayService::new(gateway.clone()));
    Routes::new(guarded(At::Gateway, registry.max_decoding_message_size(MESSAGE_BYTES)))
        .add_service(guarded(At::Gateway, own.max_decoding_message_size(MESSAGE_BYTES)))
        .add_service(guarded(At::Gateway, enrolment.max_decoding_message_size(ENROLMENT_BYTES)))
}

/// Finds the outside address, and keeps the gateway attached to the broker.
async fn attach(
    gateway: &Arc<Gateway>,
    config: &GatewayConfig,
    listening: Option<SocketAddr>,
    outbox: Outbox,
) -> Result<(), GatewayError> {
    if let Some(listening) = listening {
        let configured = config.outside_address.clone();
        let found = address::of(configured, listening, gateway.credentials.upstream()).await;
        let _ = gateway.outside_address.set(found.map_err(GatewayError::NoAddress)?);
    }
    upstream::run(gateway.clone(), outbox).await;
    Ok(())
}

/// The trunks with other sites, each with its site's name.
fn by_site(gateway: &Gateway) -> Vec<(String, Arc<Kept>)> {
    gateway.site_trunks.as_ref().map(|trunks| trunks.by_site()).unwrap_or_default()
}

/// Sends the broker the findings that can wait; never returns.
async fn send_seen(gateway: &Gateway) {
    loop {
        tokio::time::sleep(SEEN_INTERVAL).await;
        let effects = gateway.roster().seen_due();
        gateway.carry_out(effects);
    }
}
