//! Tests of intake and data plane over real sockets on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_carry::plane::{Plane, Totals};
use isthmus_rpc::connection::new_id;
use isthmus_service::clock::unix_seconds;
use isthmus_service::listen::listen;
use isthmus_service::mac::Secret;
use isthmus_splice::admission::{self, Intake, Limits};
use isthmus_splice::matcher::Bounds;
use isthmus_splice::{ReachTests, TicketKey};
use isthmus_wire::ticket::{Side, TICKET_LEN, Ticket};
use isthmus_wire::{ConnectionId, hello, reflect};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// How long a test waits before it fails, much longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

/// A relay on a loopback port of its own.
struct Relay {
    address: SocketAddr,
    key: Secret,
    plane: Arc<Plane>,
    keys_tx: watch::Sender<Option<TicketKey>>,
    reach_tests: Arc<ReachTests>,
    /// Ends the relay when it is dropped.
    _stop_tx: oneshot::Sender<()>,
}

impl Relay {
    async fn start(limits: Limits) -> Self {
        let key = Secret::random();
        Self::start_with(limits, Some(key), None).await
    }

    /// Starts a relay. If `key` is `None`, one is made up, and the test has to send it to the
    /// relay.
    async fn start_with(limits: Limits, key: Option<Secret>, patience: Option<Duration>) -> Self {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let (plane, _failure_rx) = Plane::start(NonZeroUsize::new(2).unwrap()).unwrap();
        let plane = Arc::new(plane);
        let (keys_tx, keys_rx) = watch::channel(key.clone().map(TicketKey::from));
        let key = key.unwrap_or_else(Secret::random);
        let (stop_tx, stop_rx) = oneshot::channel::<()>();
        let intake = Intake { patience, ..Intake::open(listener) };
        let reach_tests = intake.reach_tests.clone();
        let serving = admission::serve(intake, limits, keys_rx, Arc::clone(&plane), Arc::default(), async {
            let _ = stop_rx.await;
        });
        tokio::spawn(serving);
        Self { address, key, plane, keys_tx, reach_tests, _stop_tx: stop_tx }
    }

    fn ticket(&self, connection: ConnectionId, side: Side) -> [u8; TICKET_LEN] {
        self.ticket_by(SystemTime::now(), connection, side)
    }

    /// A ticket of a broker whose clock shows this.
    fn ticket_by(&self, now: SystemTime, connection: ConnectionId, side: Side) -> [u8; TICKET_LEN] {
        let expiry_unix_seconds = unix_seconds(now) + 60;
        self.key.seal_ticket(&Ticket { connection, side, expiry_unix_seconds })
    }

    /// Connects to the relay and sends these bytes.
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// Connects to the relay and shows a ticket for one side.
    async fn come(&self, connection: ConnectionId, side: Side) -> TcpStream {
        self.send(&self.ticket(connection, side)).await
    }

    /// A new spliced pair: the initiator's and the acceptor's end.
    async fn pair(&self) -> (TcpStream, TcpStream) {
        let connection = new_id();
        (self.come(connection, Side::Initiator).await, self.come(connection, Side::Acceptor).await)
    }

    /// Waits until the counters fulfil a condition.
    async fn until(&self, what: &str, reached: impl Fn(Totals) -> bool) {
        let waiting = async {
            while !reached(self.plane.totals()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let reached = timeout(PATIENCE, waiting).await;
        assert!(reached.is_ok(), "never: {what}; {:?}", self.plane.totals());
    }
}

/// The remaining bytes of a stream, and how it ended.
async fn rest(stream: &mut TcpStream) -> (Vec<u8>, io::Result<()>) {
    let mut bytes = Vec::new();
    let outcome = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("ends in time");
    (bytes, outcome.map(drop))
}

/// Asserts that a connection was refused without a byte. It is closed, or reset if the relay had
/// not read all.
async fn assert_refused(mut stream: TcpStream, what: &str) {
    let (bytes, outcome) = rest(&mut stream).await;
    assert!(bytes.is_empty(), "{what}");
    if let Err(error) = outcome {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{what}");
    }
}

/// Bytes that look random and are the same for the same seed (xorshift64).
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[0]
        })
        .collect()
}

async fn receive(stream: &mut (impl tokio::io::AsyncRead + Unpin), length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("arrives in time").unwrap();
    bytes
}

#[tokio::test]
async fn two_sides_are_spliced_in_either_order() {
    let relay = Relay::start(Limits::default()).await;
    for first in [Side::Initiator, Side::Acceptor] {
        let connection = new_id();
        let mut one = relay.come(connection, first).await;
        let mut other = relay.come(connection, first.other()).await;
        one.write_all(b"hello").await.unwrap();
        assert_eq!(receive(&mut other, 5).await, b"hello");
        other.write_all(b"yes?").await.unwrap();
        assert_eq!(receive(&mut one, 4).await, b"yes?");
    }
    relay.until("counted", |totals| totals == Totals { connections: 2, running: 0, bytes: 18 }).await;
}

/// Clients that come before the broker's key wait for it, if the intake has the patience.
#[tokio::test]
async fn tickets_wait_for_the_first_key() {
    for patience in [None, Some(PATIENCE)] {
        let relay = Relay::start_with(Limits::default(), None, patience).await;
        let connection = new_id();
        let mut initiator = relay.come(connection, Side::Initiator).await;
        let mut acceptor = relay.come(connection, Side::Acceptor).await;
        if patience.is_none() {
            assert_refused(initiator, "no key").await;
            continue;
        }
        relay.keys_tx.send_replace(Some(relay.key.clone().into()));
        initiator.write_all(b"x").await.unwrap();
        assert_eq!(receive(&mut acceptor, 1).await, b"x");
    }
    let relay = Relay::start_with(Limits::default(), None, Some(SHORT)).await;
    assert_refused(relay.come(new_id(), Side::Initiator).await, "at the deadline").await;
}

#[tokio::test]
async fn bytes_sent_with_the_ticket_are_not_lost() {
    let relay = Relay::start(Limits::default()).await;
    let connection = new_id();
    let early = noise(1, 100_000);
    let ticket = relay.ticket(connection, Side::Initiator);
    let mut initiator = relay.send(&[&ticket[..], &early].concat()).await;
    initiator.shutdown().await.unwrap();
    let mut acceptor = relay.come(connection, Side::Acceptor).await;
    let (bytes, outcome) = rest(&mut acceptor).await;
    assert!(bytes == early && outcome.is_ok());
}

#[tokio::test]
async fn a_ticket_may_come_in_pieces() {
    let relay = Relay::start(Limits::default()).await;
    let connection = new_id();
    let ticket = relay.ticket(connection, Side::Acceptor);
    let mut acceptor = TcpStream::connect(relay.address).await.unwrap();
    acceptor.set_nodelay(true).unwrap();
    for byte in ticket {
        acceptor.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut initiator = relay.come(connection, Side::Initiator).await;
    initiator.write_all(b"x").await.unwrap();
    assert_eq!(receive(&mut acceptor, 1).await, b"x");
}

#[tokio::test]
async fn one_direction_ends_before_the_other() {
    let relay = Relay::start(Limits::default()).await;
    let (mut initiator, mut acceptor) = relay.pair().await;
    initiator.write_all(b"question").await.unwrap();
    initiator.shutdown().await.unwrap();
    let (bytes, outcome) = rest(&mut acceptor).await;
    assert!(bytes == b"question" && outcome.is_ok());
    acceptor.write_all(b"answer").await.unwrap();
    assert_eq!(receive(&mut initiator, 6).await, b"answer");
    assert_eq!(relay.plane.totals().running, 1);
    acceptor.shutdown().await.unwrap();
    let (bytes, outcome) = rest(&mut initiator).await;
    assert!(bytes.is_empty() && outcome.is_ok());
    relay.until("ended", |totals| totals.running == 0).await;
}

#[tokio::test]
async fn a_reset_is_passed_on_after_what_was_sent_before() {
    let relay = Relay::start(Limits::default()).await;
    let (mut initiator, mut acceptor) = relay.pair().await;
    acceptor.write_all(b"last bytes").await.unwrap();
    assert_eq!(receive(&mut initiator, 10).await, b"last bytes");
    acceptor.set_zero_linger().unwrap();
    drop(acceptor);
    let (bytes, outcome) = rest(&mut initiator).await;
    assert!(bytes.is_empty());
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::ConnectionReset);
    relay.until("ended", |totals| totals.running == 0).await;
}

#[tokio::test]
async fn a_reset_is_passed_on_by_an_end_that_sends_no_more() {
    let relay = Relay::start(Limits::default()).await;
    let (mut initiator, mut acceptor) = relay.pair().await;
    acceptor.shutdown().await.unwrap();
    let (bytes, outcome) = rest(&mut initiator).await;
    assert!(bytes.is_empty() && outcome.is_ok());
    acceptor.set_zero_linger().unwrap();
    drop(acceptor);
    relay.until("ended", |totals| totals.running == 0).await;
    // A reader whose peer had ended before does not notice a reset; a writer does.
    let writing = async { while initiator.write_all(&[0; 1024]).await.is_ok() {} };
    timeout(PATIENCE, writing).await.expect("writing fails");
}

#[tokio::test]
async fn a_client_that_asks_receives_its_outside_address() {
    let relay = Relay::start(Limits::default()).await;
    let mut stream = relay.send(&reflect::encode_question(None)).await;
    let (answer, outcome) = rest(&mut stream).await;
    outcome.unwrap();
    let seen = reflect::decode_answer(answer.as_slice().try_into().unwrap()).unwrap();
    assert_eq!(seen, stream.local_addr().unwrap());
    relay.until("nothing is joined", |totals| totals.connections == 0).await;
}

#[tokio::test]
async fn an_expected_reach_test_is_noticed_without_an_answer() {
    let relay = Relay::start(Limits::default()).await;
    let (expected, other) = (new_id(), new_id());
    let mut reach_test = relay.reach_tests.expect(expected);
    for number in [other, expected] {
        let mut stream = relay.send(&hello::REACH_TEST.encode(number)).await;
        let mut answer = Vec::new();
        assert_eq!(stream.read_to_end(&mut answer).await.unwrap(), 0, "closed without an answer");
    }
    reach_test.came().await;
    assert!(!relay.reach_tests.come(expected), "it is used up");
}

#[tokio::test]
async fn wrong_tickets_are_refused_at_once() {
    let relay = Relay::start(Limits::default()).await;
    let connection = new_id();
    let good = relay.ticket(connection, Side::Initiator);
    let expired = Ticket { connection, side: Side::Initiator, expiry_unix_seconds: 1_000_000_000 };
    let mut changed = good;
    changed[5] = 1;
    let table: [(&str, [u8; TICKET_LEN]); 5] = [
        ("another relay's key", Secret::random().seal_ticket(&Ticket::decode(&good).unwrap().0)),
        ("expired", relay.key.seal_ticket(&expired)),
        ("another side than was signed", changed),
        ("HTTP", *b"GET / HTTP/1.1\r\nHost: relay.example\r\nUser-Agent: curl/7.88.10\r\n\r"),
        ("zeroes", [0; TICKET_LEN]),
    ];
    for (what, ticket) in table {
        assert_refused(relay.send(&ticket).await, what).await;
    }
    // None of the refused tickets has used up the genuine ones.
    let mut initiator = relay.send(&good).await;
    assert_refused(relay.send(&good).await, "a second time").await;
    let mut acceptor = relay.come(connection, Side::Acceptor).await;
    initiator.write_all(b"x").await.unwrap();
    assert_eq!(receive(&mut acceptor, 1).await, b"x");
    assert_refused(relay.come(connection, Side::Acceptor).await, "after they were paired").await;
}

#[tokio::test]
async fn a_connection_without_a_ticket_is_closed_at_the_deadline() {
    let relay = Relay::start(Limits { handshake_deadline: SHORT, ..Limits::default() }).await;
    assert_refused(relay.send(b"").await, "silent").await;
    assert_refused(relay.send(&relay.ticket(new_id(), Side::Initiator)[..63]).await, "short").await;
}

#[tokio::test]
async fn a_side_without_its_other_side_is_closed_at_the_deadline() {
    let matching = Bounds { patience: SHORT, ..Bounds::default() };
    let relay = Relay::start(Limits { matching, ..Limits::default() }).await;
    let connection = new_id();
    assert_refused(relay.come(connection, Side::Initiator).await, "alone").await;
    assert_refused(relay.come(connection, Side::Acceptor).await, "too late").await;
}

#[tokio::test]
async fn silent_connections_do_not_block_others() {
    let relay = Relay::start(Limits { handshakes: 4, ..Limits::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(relay.send(b"I").await);
    }
    let (mut initiator, mut acceptor) = relay.pair().await;
    initiator.write_all(b"x").await.unwrap();
    assert_eq!(receive(&mut acceptor, 1).await, b"x");
    assert_refused(silent.remove(0), "the oldest").await;
}

/// A far client's ticket takes a round trip longer than that of a near flood.
#[tokio::test]
async fn a_flood_from_one_address_drops_no_slow_client_from_another() {
    let relay = Relay::start(Limits { handshakes: 8, ..Limits::default() }).await;
    let connection = new_id();
    let far = TcpSocket::new_v4().unwrap();
    far.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut far = far.connect(relay.address).await.unwrap();
    let mut flood = Vec::new();
    for _ in 0..32 {
        flood.push(relay.send(b"I").await);
    }
    assert_refused(flood.remove(0), "the oldest of the flood").await;
    far.write_all(&relay.ticket(connection, Side::Initiator)).await.unwrap();
    let mut acceptor = relay.come(connection, Side::Acceptor).await;
    far.write_all(b"x").await.unwrap();
    assert_eq!(receive(&mut acceptor, 1).await, b"x");
}

/// The ranks of one site connect from one address, all at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_a_thousand_from_one_address_loses_none() {
    isthmus_service::listen::raise_descriptor_limit();
    let relay = Arc::new(Relay::start(Limits::default()).await);
    // Meanwhile other clients hold what they can.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(relay.send(b"I").await);
    }
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let relay = Arc::clone(&relay);
        tasks.spawn(async move {
            let (mut initiator, mut acceptor) = relay.pair().await;
            initiator.write_all(b"x").await.unwrap();
            assert_eq!(receive(&mut acceptor, 1).await, b"x");
            (initiator, acceptor)
        });
    }
    assert_eq!(tasks.join_all().await.len(), 500);
}

#[tokio::test]
async fn a_new_key_counts_at_once() {
    let mut relay = Relay::start(Limits::default()).await;
    relay.key = Secret::random();
    relay.keys_tx.send_replace(Some(relay.key.clone().into()));
    let (mut initiator, mut acceptor) = relay.pair().await;
    initiator.write_all(b"x").await.unwrap();
    assert_eq!(receive(&mut acceptor, 1).await, b"x");
}

#[tokio::test]
async fn tickets_expire_by_the_clock_of_the_broker() {
    let relay = Relay::start(Limits::default()).await;
    let brokers = SystemTime::now() - Duration::from_secs(3600);
    let refused = relay.ticket_by(brokers, new_id(), Side::Initiator);
    assert_refused(relay.send(&refused).await, "expired by this machine's clock").await;
    let key = TicketKey::received(relay.key.clone(), unix_seconds(brokers), SystemTime::now());
    relay.keys_tx.send_replace(Some(key));
    let id = new_id();
    let mut initiator = relay.send(&relay.ticket_by(brokers, id, Side::Initiator)).await;
    let mut acceptor = relay.send(&relay.ticket_by(brokers, id, Side::Acceptor)).await;
    initiator.write_all(b"x").await.unwrap();
    assert_eq!(receive(&mut acceptor, 1).await, b"x");
}

#[tokio::test]
async fn a_receiver_that_does_not_read_holds_the_sender_back() {
    let relay = Relay::start(Limits::default()).await;
    let (mut initiator, mut acceptor) = relay.pair().await;
    let chunk = noise(7, 1 << 20);
    let mut sent = 0;
    // This ends when neither the sockets nor the relay take any more.
    while let Ok(written) =
        timeout(Duration::from_millis(200), initiator.write(&chunk[sent % chunk.len()..])).await
    {
        sent += written.unwrap();
        assert!(sent < 1 << 30, "the relay keeps it all in memory");
    }
    initiator.shutdown().await.unwrap();
    let (bytes, outcome) = rest(&mut acceptor).await;
    assert!(outcome.is_ok());
    assert_eq!(bytes.len(), sent);
    assert!(bytes.iter().enumerate().all(|(index, byte)| *byte == chunk[index % chunk.len()]));
    relay.until("counted", |totals| totals.bytes == sent as u64).await;
}

#[tokio::test]
async fn small_and_large_messages_take_turns() {
    let relay = Relay::start(Limits::default()).await;
    let (mut initiator, mut acceptor) = relay.pair().await;
    for (round, length) in [1, 3 << 20, 64, 64 << 10, 1, 1, 1, 1, 1, 1 << 20, 70_000, 1].iter().enumerate() {
        let message = noise(round as u64, *length);
        let (_, received) = tokio::join!(initiator.write_all(&message), receive(&mut acceptor, *length));
        assert!(received == message, "there, round {round}");
        let (_, received) = tokio::join!(acceptor.write_all(&message), receive(&mut initiator, *length));
        assert!(received == message, "and back, round {round}");
    }
}

/// Pieces that come close together are gathered. The last ones wait for no more of them, and what is answered
/// doesn't wait.
#[tokio::test]
async fn a_stream_of_small_pieces_arrives_whole() {
    let relay = Relay::start(Limits::default()).await;
    let (initiator, mut acceptor) = relay.pair().await;
    initiator.set_nodelay(true).unwrap();
    let mut near = initiator.into_std().unwrap();
    for round in 0..3 {
        let message = noise(round, 500_000);
        let pieces = message.clone();
        near.set_nonblocking(false).unwrap();
        let sending = std::thread::spawn(move || {
            for piece in pieces.chunks(300) {
                std::io::Write::write_all(&mut near, piece).unwrap();
                // Some 60 µs, so that the piece isn't read along with others before the plane gathers.
                std::thread::sleep(Duration::from_micros(1));
            }
            near
        });
        assert!(receive(&mut acceptor, message.len()).await == message, "round {round}");
        near = sending.join().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut initiator = TcpStream::from_std(near).unwrap();
        for turn in 0..50 {
            acceptor.write_all(&[turn]).await.unwrap();
            assert_eq!(receive(&mut initiator, 1).await, [turn]);
            initiator.write_all(&[turn]).await.unwrap();
            assert_eq!(receive(&mut acceptor, 1).await, [turn]);
        }
        near = initiator.into_std().unwrap();
    }
    drop(near);
    assert!(rest(&mut acceptor).await.0.is_empty());
}

/// A read stops at urgent data, and splice(2) doesn't get past it. Bytes behind that data that came
/// along with it cause no event of their own.
#[tokio::test]
async fn urgent_data_holds_nothing_back() {
    let relay = Relay::start(Limits::default()).await;
    for length in [10, 300_000] {
        let (mut initiator, mut acceptor) = relay.pair().await;
        let message = noise(length, usize::try_from(length).unwrap());
        for round in 0..20 {
            let reading = receive(&mut acceptor, 3 * message.len());
            let writing = async {
                initiator.write_all(&message).await.unwrap();
                initiator.write_all(&message).await.unwrap();
                initiator.writable().await.unwrap();
                SockRef::from(&initiator).send_out_of_band(b"!").unwrap();
                initiator.write_all(&message).await.unwrap();
            };
            let (received, ()) = tokio::join!(reading, writing);
            assert!(received == [&message[..], &message, &message].concat(), "{length}, round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_connections_at_once() {
    let relay = Arc::new(Relay::start(Limits::default()).await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200_u64 {
        let relay = Arc::clone(&relay);
        tasks.spawn(async move {
            let length = usize::try_from(number * number * 8).unwrap() + 1;
            let (there, back) = (noise(number, length), noise(number + 1000, length));
            let (initiator, acceptor) = relay.pair().await;
            let (mut from_acceptor, mut to_acceptor) = initiator.into_split();
            let (mut from_initiator, mut to_initiator) = acceptor.into_split();
            let (sent, sent_back, received_there, received_back) = tokio::join!(
                to_acceptor.write_all(&there),
                to_initiator.write_all(&back),
                receive(&mut from_initiator, length),
                receive(&mut from_acceptor, length),
            );
            sent.unwrap();
            sent_back.unwrap();
            assert!(received_there == there && received_back == back, "connection {number}");
            2 * length as u64
        });
    }
    let bytes: u64 = tasks.join_all().await.iter().sum();
    let want = Totals { connections: 200, running: 0, bytes };
    relay.until("all ended and counted", |totals| totals == want).await;
}

#[tokio::test]
async fn ending_the_relay_resets_what_runs() {
    let relay = Relay::start(Limits::default()).await;
    let (mut initiator, mut acceptor) = relay.pair().await;
    initiator.write_all(b"x").await.unwrap();
    assert_eq!(receive(&mut acceptor, 1).await, b"x");
    drop(relay);
    for mut end in [initiator, acceptor] {
        let (_, outcome) = rest(&mut end).await;
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
