//! The agent as a service: sets it up and runs it until shutdown.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use isthmus_carry::plane::Plane;
use isthmus_carry::trunk::figures::keep_counted;
use isthmus_identity::Credentials;
use isthmus_identity::credentials::CredentialsError;
use isthmus_identity::peers::Peers;
use isthmus_net::loopback::{PairMaker, Sources};
use isthmus_net::rails;
use isthmus_reach::carrier::{GRPC_PROTOCOL, MEASURE_PROTOCOL};
use isthmus_reach::probing::Probing;
use isthmus_reach::raw::{self, RawHelper};
use isthmus_reach::retry;
use isthmus_reach::{Dialer, Relays as _, Signatures};
use isthmus_rpc::calls::{At, guarded};
use isthmus_rpc::connection::{self, Connection};
use isthmus_rpc::grpc::Served;
use isthmus_rpc::rendezvous::{Order, OrderWay, Peer};
use isthmus_rpc::{grpc, packets};
use isthmus_service::kept::keep;
use isthmus_service::listen;
use isthmus_service::unidentified::Unidentified;
use isthmus_service::upgrade::Upgrades;
use isthmus_wire::patience;
use isthmus_wire::proto;
use isthmus_wire::proto::local_server::LocalServer;
use isthmus_wire::proto::peer_server::PeerServer;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tracing::{debug, info, warn};

use crate::accepting::incoming::Reception;
use crate::carrying::black_hole::BlackHole;
use crate::config::{AgentConfig, DEFAULT_PORT, LAST_PORT};
use crate::jobs::calls::ping_timeout;
use crate::jobs::job_directory;
use crate::jobs::local::{self, LocalService};
use crate::jobs::lost_gateway;
use crate::jobs::node::ClientTls;
use crate::jobs::node::{Carrying, Facilities, Node, interface_of};
use crate::jobs::peers::PeerService;
use crate::jobs::stop;
use crate::jobs::verify;
use crate::observing::heartbeat::beat::Heartbeats;
use crate::observing::leftovers;
use crate::observing::measure;
use crate::pilots::serving::{self, Pilots};
use crate::requirements::{check_kernel, find_shim, towards};
use crate::runtime_directory::{self, LOCAL_SOCKET};
use crate::starting::limits;
use crate::trunks::{TRUNK_PROTOCOL, anew};
use crate::upgrade;
use crate::uplink::known::Known;
use crate::uplink::opener::AttachError;
use crate::uplink::upstream::{self, Upstream};

/// How many connections, orders to dial or orders to measure may wait in one queue.
const QUEUE: usize = 1024;
/// How long the first byte of a connection to the agent's port may take.
const FIRST_BYTE_DEADLINE: Duration = Duration::from_secs(10);
/// Most connections at once whose peers have shown no certificate and no job's token. A job
/// connects all its ranks at the same time, each for a few round trips.
const UNIDENTIFIED: usize = 4096;
/// How long an initiator may take to connect at a rendezvous and send its first byte.
const RENDEZVOUS_TIMEOUT: Duration = Duration::from_secs(20);
/// Most threads that carry bytes. A trunk stays on one thread.
const WORKERS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Serves the calls of other agents and of the node's own users. Once `stopped`, answers the calls
/// in progress, and ends.
///
/// A job's patience isn't known here, so the pings wait for the longest. An agent with less
/// patience ends its connection sooner.
async fn serve(
    node: &Arc<Node>,
    pilots: &Option<Arc<Pilots>>,
    (calls_rx, local_listener): (mpsc::Receiver<Served>, UnixListener),
    stopped: &CancellationToken,
) -> anyhow::Result<()> {
    let service = PeerService { node: node.clone(), pilots: pilots.clone() };
    let peers = Routes::new(guarded(At::Agent, PeerServer::new(service)));
    let service = LocalService { node: node.clone(), pilots: pilots.clone() };
    let users = guarded(At::AgentSocket, LocalServer::new(service));
    let patient = ping_timeout(patience::LONGEST);
    let serving_peers = async {
        let serving =
            grpc::serve_streams_for(At::Agent, calls_rx, peers, patient, stopped.clone().cancelled_owned());
        serving.await.context("agent's port")
    };
    let serving_users = async {
        let incoming = UnixListenerStream::new(local_listener);
        let server = tonic::transport::Server::builder().add_service(users);
        let serving = server.serve_with_incoming_shutdown(incoming, stopped.clone().cancelled_owned());
        serving.await.context("agent's Unix socket")
    };
    tokio::try_join!(serving_peers, serving_users).map(drop)
}

/// Runs the agent until `shutdown`; calls `ready` once it is attached. Another program can replace
/// this one through `upgrades`.
///
/// # Errors If the agent can't be set up, or the gateway refuses it.
pub async fn run(
    config: AgentConfig,
    credentials: Credentials,
    upgrades: Arc<Upgrades>,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let hangups = upgrade::hangups(&upgrades).await.context("cannot take signals")?;
    let identity = credentials.identity().clone();
    let (Some(name), Some(owner)) = (identity.grid_name(), identity.owner()) else {
        bail!("these credentials are for {identity}, not for an agent");
    };
    let runtime_directory = runtime_directory::prepare(config.runtime_directory.as_deref())?;
    if let Err(error) = limits::raise_descriptors() {
        warn!(%error, "cannot raise the number of open files: many connections may fail");
    }
    config.check()?;
    let gateways = Known::new(config.known_gateways(), credentials.upstream(), name.node.as_str());
    let gateways = gateways.map_err(anyhow::Error::msg)?;
    let own_ip = towards(&gateways.all()).await?;
    let (listener, listen) = bind(&config, own_ip)?;
    let local_socket = runtime_directory.join(LOCAL_SOCKET);
    let local_listener =
        local::bind(&local_socket).with_context(|| format!("cannot listen on {}", local_socket.display()))?;
    tokio::spawn(leftovers::remove_former(job_directory::sweep(&runtime_directory)));
    let isthmus = std::env::current_exe().context("cannot find the isthmus binary")?;
    let facilities = Facilities {
        name,
        owner: owner.clone(),
        shim: find_shim(&config, &isthmus)?,
        isthmus,
        local_socket: local_socket.clone(),
        interface: interface_of(own_ip),
        incarnation: anew::incarnation(),
    };
    check_kernel();
    let raw = raw::start(config.raw.as_deref(), &facilities.isthmus, &listener).await;
    let node_up = announcement(&config, &facilities, SocketAddr::new(own_ip, listen.port()), raw.is_some())?;
    let (dials_tx, dials_rx) = mpsc::channel(QUEUE);
    let (measures_tx, measures_rx) = mpsc::channel(QUEUE);
    let gateways = (gateways, config.return_interval());
    let announced = (node_up.clone(), facilities.incarnation);
    let (upstream, attachment) =
        upstream::upstream(credentials.clone(), gateways, announced, dials_tx, measures_tx);
    let pilots = serving::start(&config, (&facilities.name, &facilities.isthmus), &credentials, &upstream)?;
    let tls = client_tls(&credentials)?;
    let signatures = Signatures::new(&credentials)?;
    let (probing, dialer) = dialing(&upstream, node_up, listen.port(), (raw, signatures));
    let heartbeats = Heartbeats::start().context("cannot start a thread")?;
    let sockets = local_sockets()?;
    let (calls_tx, calls_rx) = mpsc::channel(QUEUE);
    let (carrying, mut failure_rx) = carrying(&config, calls_tx)?;
    let node = Arc::new(Node::new(facilities, upstream.clone(), dialer, tls, sockets, heartbeats, carrying));
    let server_tls =
        credentials.server_config(&[TRUNK_PROTOCOL, GRPC_PROTOCOL, MEASURE_PROTOCOL, packets::PROTOCOL])?;
    let reception = Reception { node: node.clone(), tls: server_tls, ordered: None };
    info!(node = %node.name(), %listen, socket = %local_socket.display(), "agent starts");

    let stopped = CancellationToken::new();
    let announce = async {
        upstream.attached().await;
        ready();
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = attachment.run() => ended.map_err(|error: AttachError| anyhow::anyhow!("{error}")),
        () = accept_all(listener, reception.clone()) => Ok(()),
        () = dial_out(dials_rx, reception) => Ok(()),
        never = background(&node, &probing, measures_rx, credentials.peers()) => match never {},
        never = watch_pilots(pilots.as_deref()) => match never {},
        ended = serve(&node, &pilots, (calls_rx, local_listener), &stopped) => ended,
        Some(error) = failure_rx.recv() => Err(error).context("the data plane"),
        never = keep_counted(|| node.trunks().peers().by_site()) => match never {},
        never = upgrade::watch(node.clone(), upgrades, hangups) => match never {},
        () = announce => Ok(()),
        () = stop::in_order(&node, shutdown, &stopped) => Ok(()),
    };
    // After a shutdown there is no job left to end.
    stop::end_jobs(&node).await;
    // A socket that is left would look like that of a running agent.
    let _ = std::fs::remove_file(&local_socket);
    ended
}

/// Watches the scheduler of this agent's pilots, if it submits some.
async fn watch_pilots(pilots: Option<&Pilots>) -> Infallible {
    match pilots {
        Some(pilots) => pilots.watch().await,
        None => std::future::pending().await,
    }
}

/// Runs the parts that never end. A failure of such a part is no reason to end a job.
async fn background(
    node: &Arc<Node>,
    probing: &Probing,
    measures_rx: mpsc::Receiver<proto::MeasureOrder>,
    peers: &Peers,
) -> Infallible {
    let measures_rx = Mutex::new(measures_rx);
    tokio::select! {
        never = keep("probing", || probing.watch()) => never,
        never = keep("the loss of gateways", || lost_gateway::watch(node)) => never,
        never = keep("measuring", || measure::carry_out(node, &measures_rx)) => never,
        never = keep("the check of peers", || verify::keep_verified(node, peers)) => never,
        never = keep("dials that failed", || retry::watch(node.dialer(), &node.tls().grpc)) => never,
    }
}

/// Makes what programs' sockets are connected to on this node.
fn local_sockets() -> anyhow::Result<(Sources, PairMaker, BlackHole)> {
    let loopback = Sources::bind().context("cannot reserve a port on loopback")?;
    let pairs = PairMaker::bind(loopback.clone()).context("cannot listen on loopback")?;
    let black_hole = BlackHole::new().context("cannot make the black-hole listener")?;
    Ok((loopback, pairs, black_hole))
}

/// Starts the data plane. The receiver gets the failure of a worker.
fn carrying(
    config: &AgentConfig,
    calls_tx: mpsc::Sender<Served>,
) -> anyhow::Result<(Carrying, mpsc::Receiver<std::io::Error>)> {
    let workers = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(WORKERS);
    let (plane, failure_rx) = Plane::start(workers).context("cannot start the data plane")?;
    let rails = config.rails.clone();
    rails::warn_of_absent(&rails);
    Ok((Carrying { plane, rails, bbr: config.bbr, calls_tx }, failure_rx))
}

/// TLS for the connections that this agent opens.
fn client_tls(credentials: &Credentials) -> Result<ClientTls, CredentialsError> {
    Ok(ClientTls {
        trunk: credentials.client_config(&[TRUNK_PROTOCOL])?,
        grpc: credentials.client_config(&[GRPC_PROTOCOL])?,
        measure: credentials.client_config(&[MEASURE_PROTOCOL])?,
        packets: credentials.client_config(&[packets::PROTOCOL])?.without_resumption(),
    })
}

/// The announcement of this node to the gateway; `own` is the address it listens on.
fn announcement(
    config: &AgentConfig,
    facilities: &Facilities,
    own: SocketAddr,
    can_traverse: bool,
) -> anyhow::Result<proto::NodeUp> {
    Ok(proto::NodeUp {
        node: facilities.name.node.to_string(),
        address: config.address.clone().unwrap_or_else(|| own.to_string()),
        host_name: nix::unistd::gethostname()?.to_string_lossy().into_owned(),
        owner: facilities.owner.to_string(),
        slots: config.slots(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        outside_address: config.outside_address(own.ip(), own.port()).unwrap_or_default(),
        can_traverse,
        submits: config.submit.map(|submit| submit.as_str().to_owned()).unwrap_or_default(),
        pilot: config.pilot.map(|id| id.0.to_vec()).unwrap_or_default(),
        ..proto::NodeUp::default()
    })
}

/// Makes the parts that measure how the node is reached, and that dial other nodes.
fn dialing(
    upstream: &Upstream,
    node_up: proto::NodeUp,
    port: u16,
    (raw, signatures): (Option<Arc<RawHelper>>, Signatures),
) -> (Probing, Dialer) {
    let probing = Probing {
        control: Arc::new(upstream.clone()),
        rendezvous: Arc::default(),
        outside: Arc::default(),
        address: node_up.address,
        outside_address: node_up.outside_address,
        port,
    };
    let dialer = Dialer {
        control: Arc::new(upstream.clone()),
        address: probing.address.clone(),
        rendezvous: probing.rendezvous.clone(),
        outside: probing.outside.clone(),
        raw,
        failures: Arc::default(),
        signatures: Arc::new(signatures),
    };
    (probing, dialer)
}

/// Listens on the configured port, or on the first free one of `port_range`. Without either setting
/// it takes the default port, or another one if another user's agent has the default.
fn bind(config: &AgentConfig, own_ip: IpAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let ip = config.listen.map_or(own_ip, |listen| listen.ip());
    let (ports, wanted): (Vec<u16>, String) = match (config.port_range, config.listen) {
        (Some(range), _) => (range.ports().collect(), format!("[agent] port_range {range}")),
        (None, Some(listen)) => (vec![listen.port()], format!("[agent] listen {listen}")),
        // In the end the kernel chooses.
        (None, None) => ((DEFAULT_PORT..=LAST_PORT).chain([0]).collect(), "the agents' own".to_owned()),
    };
    for port in ports {
        match listen::listen(SocketAddr::new(ip, port)) {
            Ok(listener) => {
                let listen = listener.local_addr()?;
                return Ok((listener, listen));
            }
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error).with_context(|| format!("cannot listen on {ip}:{port}")),
        }
    }
    bail!("every port of {wanted} is in use at {ip}; give others")
}

async fn accept_all(listener: TcpListener, reception: Reception) {
    let unidentified = Unidentified::new("the agent's port", UNIDENTIFIED);
    let node = reception.node.clone();
    // The initiators only see that nothing answers.
    let tell = |exhausted| {
        for job in node.jobs() {
            job.news.short(&node.name().to_string(), exhausted);
        }
    };
    listen::serve_or_tell(listener, &unidentified, tell, |stream, _, place| {
        reception.clone().receive(stream, FIRST_BYTE_DEADLINE, Some(place))
    })
    .await;
}

/// Takes the acceptor's part of dials that the broker orders.
async fn dial_out(mut dials_rx: mpsc::Receiver<Order>, reception: Reception) {
    while let Some(order) = dials_rx.recv().await {
        let connection = Connection::of_order(&order);
        let order = Arc::new(order);
        let reception = Reception { ordered: Some(order.clone()), ..reception.clone() };
        tokio::spawn(connection::scope_of(connection, async move {
            debug!(way = %order.way, "ordered to dial for another node");
            match reception.node.dialer().accept(&order).await {
                Ok(Some(stream)) => match (&order.way, &order.initiator) {
                    (OrderWay::SiteTrunk(_), Peer::Node(initiator)) => {
                        reception.receive_over_gateways(stream, *initiator, RENDEZVOUS_TIMEOUT).await;
                    }
                    _ => reception.receive(stream, RENDEZVOUS_TIMEOUT, None).await,
                },
                Ok(None) => {}
                Err(error) => {
                    debug!(initiator = %order.initiator, way = %order.way, %error, "cannot dial for another node");
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_second_user_s_agent_takes_another_port() {
        // An address of this test alone: other tests' agents may run.
        let ip = IpAddr::V4(Ipv4Addr::new(127, 77, 30, 1));
        let config = AgentConfig::default();
        let (_first, first_at) = bind(&config, ip).unwrap();
        let (_second, second_at) = bind(&config, ip).unwrap();
        assert_eq!((first_at.port(), second_at.port()), (DEFAULT_PORT, DEFAULT_PORT + 1));
        // A configured address isn't replaced by another.
        let asked = AgentConfig { listen: Some(first_at), ..AgentConfig::default() };
        let error = bind(&asked, ip).unwrap_err().to_string();
        assert!(error.contains("[agent] listen 127.77.30.1:7730"), "{error}");
    }
}
