//! Broker and relay at one port of one process.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use isthmus_broker::state::State;
use isthmus_identity::credentials::ALPN_H2;
use isthmus_identity::{Identity, Role};
use isthmus_relay::Listens;
use isthmus_rpc::port::{Port, Share};
use isthmus_wire::reflect;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::grid::{
    Service, Site, assert_joined, in_time, issue, meet, relays, start_broker_at, start_relay_at, until,
};

/// A grid whose broker and relay share a port.
struct Grid {
    directory: TempDir,
    state: State,
    address: SocketAddr,
    share: Share,
    broker: Service,
}

impl Grid {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State::create(directory.path(), "demo", &address.to_string(), SystemTime::now()).unwrap();
        let members = ["agent/alpha/n1/ada", "agent/beta/n1/ada", "relay//r1/"];
        let members = members.map(|path| Identity::from_uri(&format!("isthmus:///{path}")).unwrap());
        isthmus_broker::enrol_without_tokens(&state, &members).await.unwrap();
        let share = Share::default();
        let broker = start_broker_at(directory.path(), Port::new(listener, Some(share.clone())));
        Self { directory, state, address, share, broker }
    }

    async fn start_relay(&self) -> Service {
        let credentials = issue(&self.state, Role::Relay, None, Some("r1"));
        let listens = Listens::WithBroker(self.share.clone());
        let (relay, listening) = start_relay_at(self.address, listens, credentials).await;
        assert_eq!(listening, self.address);
        let own = self.address.to_string();
        until(self.directory.path(), "the relay is known", |relay| relay.up && relay.address == own).await;
        relay
    }

    /// Two agents' connections, spliced by the relay. The sites' gateways use the relay's port,
    /// too.
    async fn joined(&self) -> (TcpStream, TcpStream) {
        let mut alpha = Site::attach(&self.state, "alpha").await;
        let mut beta = Site::attach(&self.state, "beta").await;
        let (mut initiator, mut acceptor) = meet(&mut alpha, &mut beta).await;
        assert_eq!(initiator.peer_addr().unwrap(), self.address);
        assert_joined(&mut initiator, &mut acceptor).await;
        (initiator, acceptor)
    }

    /// A connection from the loopback address `from`.
    async fn connect(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((IpAddr::from(from), 0).into()).unwrap();
        in_time("a connection", socket.connect(self.address)).await.unwrap()
    }

    /// Asserts that the relay tells a client the address from which it sees the client.
    async fn assert_relay_answers(&self, from: [u8; 4]) {
        let mut asking = self.connect(from).await;
        asking.write_all(&reflect::encode_question(None)).await.unwrap();
        let mut answer = [0; reflect::ANSWER_LEN];
        in_time("the relay's answer", asking.read_exact(&mut answer)).await.unwrap();
        assert_eq!(reflect::decode_answer(&answer), Ok(asking.local_addr().unwrap()));
    }

    /// Asserts that the broker completes a handshake with a gateway.
    async fn assert_broker_answers(&self, from: [u8; 4]) {
        let gateway = issue(&self.state, Role::Gateway, Some("alpha"), None);
        let tls = gateway.client_config(&[ALPN_H2]).unwrap();
        let connecting = tls.connect("broker".try_into().unwrap(), self.connect(from).await);
        let stream = in_time("the broker's handshake", connecting).await.unwrap();
        assert_eq!(stream.identity().unwrap().role(), Role::Broker);
    }

    /// The first bytes of a handshake with the broker.
    async fn client_hello(&self) -> Vec<u8> {
        let gateway = issue(&self.state, Role::Gateway, Some("alpha"), None);
        let tls = gateway.client_config(&[ALPN_H2]).unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(nobody.local_addr().unwrap()).await.unwrap();
        let connecting =
            tokio::spawn(async move { tls.connect("broker".try_into().unwrap(), tcp).await.map(drop) });
        let mut hello = vec![0; 16 * 1024];
        let length = in_time("a hello", nobody.accept()).await.unwrap().0.read(&mut hello).await.unwrap();
        connecting.abort();
        hello.truncate(length);
        hello
    }
}

/// Waits until the other end closes the connection.
async fn until_closed(what: &str, stream: &mut TcpStream) {
    // What was not read when it was closed makes it a reset.
    let _ = in_time(what, stream.read_to_end(&mut Vec::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_both_get_through_and_strangers_do_not() {
    let grid = Grid::start().await;
    let relay = grid.start_relay().await;
    let (mut initiator, mut acceptor) = grid.joined().await;
    let here = [127, 0, 0, 1];
    let mut no_ticket = [0; 64];
    no_ticket[0] = b'I';
    let mut no_record = vec![22, 3, 1, 0, 5];
    no_record.extend([0xff; 5]);
    for (what, garbage) in [
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("zeros", vec![0; 64]),
        ("what begins as a ticket", no_ticket.to_vec()),
        ("what begins as TLS", no_record),
    ] {
        let mut stranger = grid.connect(here).await;
        stranger.write_all(&garbage).await.unwrap();
        until_closed(what, &mut stranger).await;
        grid.assert_relay_answers(here).await;
        grid.assert_broker_answers(here).await;
    }
    assert_joined(&mut acceptor, &mut initiator).await;
    relay.stop().await;
    grid.broker.stop().await;
}

/// The broker serves on while its relay is away, as during the relay's restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_relay_the_broker_serves_and_tickets_find_nobody() {
    let grid = Grid::start().await;
    let here = [127, 0, 0, 1];
    for _ in 0..2 {
        let mut asking = grid.connect(here).await;
        asking.write_all(&reflect::encode_question(None)).await.unwrap();
        until_closed("a question to nobody", &mut asking).await;
        grid.assert_broker_answers(here).await;
        assert!(relays(grid.directory.path()).await.iter().all(|relay| !relay.up));

        let relay = grid.start_relay().await;
        grid.assert_relay_answers(here).await;
        relay.stop().await;
        let directory = grid.directory.path();
        let gone = async {
            while relays(directory).await.iter().any(|relay| relay.up) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        in_time("the relay is gone", gone).await;
    }
    grid.broker.stop().await;
}

/// Tests that measure, which run one at a time.
mod alone {
    use super::*;

    /// 900 connections from one address send nothing, the start of a ticket, or the start of a
    /// handshake. The services end them after 10 s at the earliest.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_flood_from_one_address_delays_no_other() {
        let grid = Grid::start().await;
        let relay = grid.start_relay().await;
        let hello = grid.client_hello().await;
        let begun: [&[u8]; 3] = [&[], b"ISTR", &hello];
        let began = Instant::now();
        let mut flood = Vec::new();
        for first in begun.iter().cycle().take(900) {
            let mut stream = grid.connect([127, 0, 0, 1]).await;
            stream.write_all(first).await.unwrap();
            flood.push(stream);
        }
        grid.assert_relay_answers([127, 0, 0, 2]).await;
        grid.assert_broker_answers([127, 0, 0, 2]).await;
        assert!(began.elapsed() < Duration::from_secs(8), "after {:?}", began.elapsed());
        let is_open = |stream: &&TcpStream| match stream.try_read(&mut [0; 4096]) {
            Ok(read) => read > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        let open = flood.iter().filter(is_open).count();
        assert!(open > 300, "only {open} of the flood are held");
        relay.stop().await;
        grid.broker.stop().await;
    }
}
