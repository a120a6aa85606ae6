//! A grid with a real broker and a real relay, and its sites as the broker sees them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_broker::BrokerConfig;
use isthmus_broker::state::{ADMIN_DIRECTORY, State};
use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::signed::contact::sign_contact;
use isthmus_identity::{Credentials, Identity, Role};
use isthmus_relay::{Listens, RelayConfig};
use isthmus_rpc::grpc;
use isthmus_rpc::port::Port;
use isthmus_service::upgrade::Upgrades;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{
    AttachDown, AttachUp, DialRequest, GatewayUp, ListRequest, NodeUp, Relay, RelayFilter, RendezvousRequest,
    attach_down, attach_up, dial_request, list_request, rendezvous_reply, rendezvous_request,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn in_time<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// A service that ends when this is dropped or stopped.
pub(crate) struct Service {
    stop_tx: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn stop(self) {
        drop(self.stop_tx);
        in_time("a service ends", self.task).await.unwrap();
    }
}

pub(crate) async fn start_broker(directory: &Path, address: SocketAddr) -> Service {
    // The port of a broker that has just ended may take a moment.
    let binding = async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let listener = in_time("the broker's port", binding).await;
    start_broker_at(directory, listener.into())
}

pub(crate) fn start_broker_at(directory: &Path, port: Port) -> Service {
    let state = State::load(directory).unwrap();
    let (stop_tx, stop_rx) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let config = BrokerConfig::default();
        let shutdown = async { drop(stop_rx.await) };
        isthmus_broker::run(port, state, &config, || (), shutdown).await.unwrap();
    });
    Service { stop_tx, task }
}

/// How a relay listens that has a port of its own.
pub(crate) fn alone() -> Listens {
    Listens::Alone(Arc::new(Upgrades::none()))
}

pub(crate) async fn start_relay(credentials: Credentials) -> (Service, SocketAddr) {
    start_relay_at("127.0.0.1:0".parse().unwrap(), alone(), credentials).await
}

pub(crate) async fn start_relay_at(
    listen: SocketAddr,
    listens: Listens,
    credentials: Credentials,
) -> (Service, SocketAddr) {
    let config = RelayConfig { listen, ..RelayConfig::default() };
    let (stop_tx, stop_rx) = oneshot::channel::<()>();
    let (ready_tx, ready_rx) = oneshot::channel();
    let task = tokio::spawn(async move {
        let ready = |address| ready_tx.send(address).unwrap();
        let shutdown = async { drop(stop_rx.await) };
        isthmus_relay::run(config, credentials, listens, ready, shutdown).await.unwrap();
    });
    let address = in_time("the relay is ready", ready_rx).await.unwrap();
    (Service { stop_tx, task }, address)
}

pub(crate) fn issue(state: &State, role: Role, site: Option<&str>, name: Option<&str>) -> Credentials {
    issue_to(state, role, (site, name, None))
}

fn issue_to(
    state: &State,
    role: Role,
    (site, name, owner): (Option<&str>, Option<&str>, Option<&str>),
) -> Credentials {
    let label = |text: &str| text.parse().unwrap();
    let owner = owner.map(|owner| owner.parse().unwrap());
    let identity = Identity::new(role, site.map(label), name.map(label), owner).unwrap();
    let request = SigningRequest::new().unwrap();
    let certificate = state.authority.sign(&identity, request.public_key(), SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, state.authority.certificate_pem(), &state.grid.address).unwrap()
}

/// A site with one node, as its gateway presents it to the broker.
pub(crate) struct Site {
    pub(crate) client: RegistryClient<Channel>,
    down: Streaming<AttachDown>,
    pub(crate) virtual_address: u32,
    _up_tx: mpsc::Sender<AttachUp>,
}

impl Site {
    pub(crate) async fn attach(state: &State, name: &str) -> Self {
        let credentials = issue(state, Role::Gateway, Some(name), None);
        let agent = issue_to(state, Role::Agent, (Some(name), Some("n1"), Some("ada")));
        let channel = grpc::connect(credentials.upstream(), "broker", &credentials).await.unwrap();
        let mut client = RegistryClient::new(channel);
        let (up_tx, up_rx) = mpsc::channel(4);
        let gateway =
            GatewayUp { site: name.into(), address: "192.0.2.1:7710".into(), ..GatewayUp::default() };
        let address = "192.0.2.2:7730".to_owned();
        let signed = sign_contact(&agent, credentials.identity(), (1, [1; 16]), vec![address.clone()]);
        let node = NodeUp {
            node: "n1".into(),
            address,
            signed: Some(signed.unwrap()),
            host_name: "node1".into(),
            owner: "ada".into(),
            slots: 1,
            version: env!("CARGO_PKG_VERSION").into(),
            architecture: "x86_64".into(),
            ..NodeUp::default()
        };
        for kind in [attach_up::Kind::GatewayUp(gateway), attach_up::Kind::NodeUp(node)] {
            up_tx.send(AttachUp { kind: Some(kind) }).await.unwrap();
        }
        let down = client.attach(ReceiverStream::new(up_rx)).await.unwrap().into_inner();
        let mut site = Self { client, down, virtual_address: 0, _up_tx: up_tx };
        site.virtual_address = site
            .receive("a welcome", |kind| match kind {
                attach_down::Kind::Welcome(welcome) => Some(welcome.virtual_address),
                _ => None,
            })
            .await;
        site
    }

    /// Waits for a message that `wanted` accepts; drops others.
    async fn receive<T>(&mut self, what: &str, wanted: impl Fn(attach_down::Kind) -> Option<T>) -> T {
        let hearing = async {
            loop {
                let message = self.down.message().await.unwrap().expect("the broker goes on");
                if let Some(found) = message.kind.and_then(&wanted) {
                    return found;
                }
            }
        };
        in_time(what, hearing).await
    }

    async fn dial_request(&mut self) -> DialRequest {
        self.receive("a request to dial", |kind| match kind {
            attach_down::Kind::Dial(dial) => Some(dial),
            _ => None,
        })
        .await
    }
}

/// The broker's list of relays, asked for over `channel`.
async fn listed(channel: Channel) -> Vec<Relay> {
    let records = Some(list_request::Records::Relays(RelayFilter::default()));
    let request = ListRequest { records, ..ListRequest::default() };
    RegistryClient::new(channel).list(request).await.unwrap().into_inner().relays
}

/// The broker's list of relays, asked for by an administrator over a new connection.
pub(crate) async fn relays(directory: &Path) -> Vec<Relay> {
    let admin = Credentials::load(&directory.join(ADMIN_DIRECTORY)).unwrap();
    let channel = grpc::connect(admin.upstream(), "broker", &admin).await.unwrap();
    in_time("a list", listed(channel)).await
}

/// Waits until the broker lists a relay that `wanted` accepts.
pub(crate) async fn until(directory: &Path, what: &str, wanted: impl Fn(&Relay) -> bool) {
    let admin = Credentials::load(&directory.join(ADMIN_DIRECTORY)).unwrap();
    let asking = async {
        loop {
            if let Ok(channel) = grpc::connect(admin.upstream(), "broker", &admin).await
                && listed(channel).await.iter().any(&wanted)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(what, asking).await;
}

/// Two agents of two sites connect to the relay as the broker arranges it.
pub(crate) async fn meet(alpha: &mut Site, beta: &mut Site) -> (TcpStream, TcpStream) {
    let request = RendezvousRequest {
        destination: beta.virtual_address,
        initiator: alpha.virtual_address,
        way: Some(rendezvous_request::Way::Relay(rendezvous_request::Relay::default())),
        ..RendezvousRequest::default()
    };
    let reply = alpha.client.rendezvous(request).await.unwrap().into_inner();
    let dial = beta.dial_request().await;
    let (Some(rendezvous_reply::Way::Relay(near)), Some(dial_request::Way::Relay(far))) =
        (reply.way, dial.way)
    else {
        panic!("not a relay")
    };
    assert_eq!((dial.node.as_str(), &far.address), ("n1", &near.address));
    let mut initiator = TcpStream::connect(&near.address).await.unwrap();
    initiator.write_all(&near.ticket).await.unwrap();
    let mut acceptor = TcpStream::connect(&far.address).await.unwrap();
    acceptor.write_all(&far.ticket).await.unwrap();
    (initiator, acceptor)
}

pub(crate) async fn assert_joined(one: &mut TcpStream, other: &mut TcpStream) {
    for message in [b"ping", b"pong"] {
        one.write_all(message).await.unwrap();
        let mut received = [0; 4];
        in_time("a message", other.read_exact(&mut received)).await.unwrap();
        assert_eq!(&received, message);
    }
}
