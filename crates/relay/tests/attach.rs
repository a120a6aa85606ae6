//! The relay with a real broker: two agents are spliced by the tickets that the broker
//! makes, and their connection outlives the broker.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_broker::BrokerConfig;
use isthmus_broker::state::{ADMIN_DIRECTORY, State};
use isthmus_net::credentials::SigningRequest;
use isthmus_net::upgrade::Upgrades;
use isthmus_net::{Credentials, Identity, Role, grpc};
use isthmus_relay::RelayConfig;
use isthmus_wire::proto::administration_client::AdministrationClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{
    AttachDown, AttachUp, DialRequest, GatewayUp, ListRequest, NodeUp, Relay, RelayFilter, RendezvousRequest,
    RevokeRequest, attach_down, attach_up, dial_request, list_request, rendezvous_reply, rendezvous_request,
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

async fn in_time<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// A service that ends when this is dropped or stopped.
struct Service {
    stop_tx: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Service {
    async fn stop(self) {
        drop(self.stop_tx);
        in_time("a service ends", self.task).await.unwrap();
    }
}

async fn start_broker(directory: &Path, address: SocketAddr) -> Service {
    let state = State::load(directory).unwrap();
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
    let (stop_tx, stop_rx) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let config = BrokerConfig::default();
        let shutdown = async { drop(stop_rx.await) };
        isthmus_broker::run(listener, state, &config, || (), shutdown).await.unwrap();
    });
    Service { stop_tx, task }
}

async fn start_relay(credentials: Credentials) -> (Service, SocketAddr) {
    let config = RelayConfig { listen: "127.0.0.1:0".parse().unwrap(), ..RelayConfig::default() };
    let (stop_tx, stop_rx) = oneshot::channel::<()>();
    let (ready_tx, ready_rx) = oneshot::channel();
    let task = tokio::spawn(async move {
        let ready = |address| ready_tx.send(address).unwrap();
        let shutdown = async { drop(stop_rx.await) };
        isthmus_relay::run(config, credentials, Arc::new(Upgrades::none()), ready, shutdown).await.unwrap();
    });
    let address = in_time("the relay is ready", ready_rx).await.unwrap();
    (Service { stop_tx, task }, address)
}

fn issue(state: &State, role: Role, site: Option<&str>, name: Option<&str>) -> Credentials {
    let label = |text: &str| text.parse().unwrap();
    let identity = Identity::new(role, site.map(label), name.map(label), None).unwrap();
    let request = SigningRequest::new().unwrap();
    let certificate = state.authority.sign(&identity, request.public_key(), SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, state.authority.certificate_pem(), &state.grid.address).unwrap()
}

/// A site with one node, as its gateway presents it to the broker.
struct Site {
    client: RegistryClient<Channel>,
    down: Streaming<AttachDown>,
    virtual_address: u32,
    _up_tx: mpsc::Sender<AttachUp>,
}

impl Site {
    async fn attach(state: &State, name: &str) -> Self {
        let credentials = issue(state, Role::Gateway, Some(name), None);
        let channel = grpc::connect(credentials.upstream(), "broker", &credentials).await.unwrap();
        let mut client = RegistryClient::new(channel);
        let (up_tx, up_rx) = mpsc::channel(4);
        let gateway =
            GatewayUp { site: name.into(), address: "192.0.2.1:7710".into(), ..GatewayUp::default() };
        let node = NodeUp {
            node: "n1".into(),
            address: "192.0.2.2:7730".into(),
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

    /// Waits for a message of some kind; drops others.
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

/// The broker's list of relays.
async fn listed(channel: Channel) -> Vec<Relay> {
    let records = Some(list_request::Records::Relays(RelayFilter::default()));
    let request = ListRequest { records, ..ListRequest::default() };
    RegistryClient::new(channel).list(request).await.unwrap().into_inner().relays
}

/// The same for an administrator, over a connection of its own.
async fn relays(directory: &Path) -> Vec<Relay> {
    let admin = Credentials::load(&directory.join(ADMIN_DIRECTORY)).unwrap();
    let channel = grpc::connect(admin.upstream(), "broker", &admin).await.unwrap();
    in_time("a list", listed(channel)).await
}

/// Waits until the broker lists the relay in this state.
async fn until(directory: &Path, what: &str, wanted: impl Fn(&Relay) -> bool) {
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
async fn meet(alpha: &mut Site, beta: &mut Site) -> (TcpStream, TcpStream) {
    let request = RendezvousRequest {
        destination: beta.virtual_address,
        initiator: alpha.virtual_address,
        way: Some(rendezvous_request::Way::Relay(rendezvous_request::Relay::default())),
        segment: 0,
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

async fn assert_joined(one: &mut TcpStream, other: &mut TcpStream) {
    for message in [b"ping", b"pong"] {
        one.write_all(message).await.unwrap();
        let mut received = [0; 4];
        in_time("a message", other.read_exact(&mut received)).await.unwrap();
        assert_eq!(&received, message);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spliced_connection_outlives_the_broker() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let state = State::create(directory, "demo", &address.to_string(), SystemTime::now()).unwrap();
    let nodes = ["alpha", "beta"].map(|site| {
        let uri = format!("isthmus:///agent/{site}/n1/ada");
        Identity::from_uri(&uri).unwrap()
    });
    isthmus_broker::enrol_without_tokens(&state, &nodes).await.unwrap();
    let broker = start_broker(directory, address).await;
    let (relay, listening) = start_relay(issue(&state, Role::Relay, None, Some("r1"))).await;
    until(directory, "the relay is known", |relay| {
        relay.up && relay.name == "r1" && relay.address == listening.to_string()
    })
    .await;

    let mut alpha = Site::attach(&state, "alpha").await;
    let mut beta = Site::attach(&state, "beta").await;
    let (mut initiator, mut acceptor) = meet(&mut alpha, &mut beta).await;
    assert_joined(&mut initiator, &mut acceptor).await;
    until(directory, "a report of the connection", |relay| relay.connections == 1 && relay.bytes == 8).await;

    drop((alpha, beta));
    broker.stop().await;
    assert_joined(&mut acceptor, &mut initiator).await;

    let broker = start_broker(directory, address).await;
    until(directory, "the relay is known again", |relay| relay.up && relay.name == "r1").await;
    assert_joined(&mut initiator, &mut acceptor).await;
    let mut alpha = Site::attach(&state, "alpha").await;
    let mut beta = Site::attach(&state, "beta").await;
    let (mut second_initiator, mut second_acceptor) = meet(&mut alpha, &mut beta).await;
    assert_joined(&mut second_initiator, &mut second_acceptor).await;

    drop((alpha, beta));
    relay.stop().await;
    broker.stop().await;
}

/// It is refused by the broker, before and after the broker's restart, and gets no further
/// connections. What it carries goes on: the ends decide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_relay_gets_no_further_connections() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let state = State::create(directory, "demo", &address.to_string(), SystemTime::now()).unwrap();
    let members = ["agent/alpha/n1/ada", "agent/beta/n1/ada", "relay//r1/"];
    let members = members.map(|path| Identity::from_uri(&format!("isthmus:///{path}")).unwrap());
    isthmus_broker::enrol_without_tokens(&state, &members).await.unwrap();
    let broker = start_broker(directory, address).await;
    let credentials = issue(&state, Role::Relay, None, Some("r1"));
    let (relay, _) = start_relay(credentials.clone()).await;
    until(directory, "the relay is known", |relay| relay.up && relay.name == "r1").await;
    let mut alpha = Site::attach(&state, "alpha").await;
    let mut beta = Site::attach(&state, "beta").await;
    let (mut initiator, mut acceptor) = meet(&mut alpha, &mut beta).await;
    assert_joined(&mut initiator, &mut acceptor).await;

    let admin = Credentials::load(&directory.join(ADMIN_DIRECTORY)).unwrap();
    let channel = grpc::connect(admin.upstream(), "broker", &admin).await.unwrap();
    let request = RevokeRequest { name: "r1.relay".to_owned(), ..RevokeRequest::default() };
    in_time("an answer", AdministrationClient::new(channel).revoke(request)).await.unwrap();
    assert_eq!(relays(directory).await, [], "at once");
    let request = RendezvousRequest {
        destination: beta.virtual_address,
        initiator: alpha.virtual_address,
        way: Some(rendezvous_request::Way::Relay(rendezvous_request::Relay::default())),
        segment: 0,
    };
    let refused = alpha.client.rendezvous(request).await.unwrap_err();
    assert!(refused.message().contains("no relay is attached"), "{refused}");
    assert_joined(&mut acceptor, &mut initiator).await;

    drop((alpha, beta));
    broker.stop().await;
    let broker = start_broker(directory, address).await;
    let channel = grpc::connect(credentials.upstream(), "broker", &credentials).await.unwrap();
    let mut client = RegistryClient::new(channel);
    in_time("an answer", client.attach(tokio_stream::empty())).await.unwrap_err();
    assert_eq!(relays(directory).await, []);
    assert_joined(&mut initiator, &mut acceptor).await;
    relay.stop().await;
    broker.stop().await;
}

#[tokio::test]
async fn a_relay_does_not_start_with_wrong_settings() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broker = taken.local_addr().unwrap().to_string();
    let state = State::create(directory.path(), "demo", &broker, SystemTime::now()).unwrap();
    let here = || RelayConfig { listen: "127.0.0.1:0".parse().unwrap(), ..RelayConfig::default() };
    let relay = || issue(&state, Role::Relay, None, Some("r1"));
    for (name, config, credentials, want) in [
        ("another role", here(), issue(&state, Role::Gateway, Some("alpha"), None), "not of a relay"),
        (
            "a port that is taken",
            RelayConfig { listen: taken.local_addr().unwrap(), ..here() },
            relay(),
            "cannot listen on 127.0.0.1:",
        ),
        (
            "nowhere that agents could reach",
            RelayConfig { listen: "0.0.0.0:0".parse().unwrap(), ..here() },
            relay(),
            "and agents can't reach it at either: set `address",
        ),
    ] {
        let running = isthmus_relay::run(
            config,
            credentials,
            Arc::new(Upgrades::none()),
            |_| (),
            std::future::pending(),
        );
        let error = in_time(name, running).await.expect_err(name).to_string();
        assert!(error.contains(want), "{name}: {error}");
    }
}
