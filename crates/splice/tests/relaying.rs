//! A gateway's port outside that relays for others as well.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_carry::Share;
use isthmus_carry::plane::Plane;
use isthmus_rpc::connection::new_id;
use isthmus_service::listen::listen;
use isthmus_service::mac::Secret;
use isthmus_splice::admission::{self, Intake, Limits, Pairs, Relaying};
use isthmus_splice::matcher::Bounds;
use isthmus_wire::ConnectionId;
use isthmus_wire::ticket::{Side, Ticket};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a test waits before it fails, much longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a side waits for its other side.
const WAIT: Duration = Duration::from_millis(200);

/// A port outside, with the keys of the gateway's own tickets and of those for relayed connections.
struct Port {
    address: SocketAddr,
    own: Secret,
    relays: Secret,
    share: Arc<Share>,
}

impl Port {
    fn open(bytes_per_second: Option<u64>, most: u64) -> Self {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let (plane, _failure_rx) = Plane::start(NonZeroUsize::new(2).unwrap()).unwrap();
        let (own, relays) = (Secret::random(), Secret::random());
        let share = Arc::new(Share::new(bytes_per_second.and_then(NonZeroU64::new)));
        let keys = watch::channel(Some(relays.clone().into())).1;
        let intake = Intake {
            pairs: Pairs::InsideWithOutside,
            relaying: Some(Relaying { keys, most, share: share.clone() }),
            ..Intake::open(listener)
        };
        let limits = Limits { matching: Bounds { patience: WAIT, ..Bounds::default() }, ..Limits::default() };
        let keys = watch::channel(Some(own.clone().into())).1;
        let serving =
            admission::serve(intake, limits, keys, Arc::new(plane), Arc::default(), std::future::pending());
        tokio::spawn(serving);
        Self { address, own, relays, share }
    }

    /// Shows a ticket for one side, sealed with this key.
    async fn come(&self, key: &Secret, connection: ConnectionId, side: Side) -> TcpStream {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let ticket = key.seal_ticket(&Ticket { connection, side, expiry_unix_seconds: now + 60 });
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&ticket).await.unwrap();
        stream
    }

    /// Both ends of a connection, with tickets sealed with these keys.
    async fn pair(&self, [one, other]: [&Secret; 2]) -> (TcpStream, TcpStream) {
        let connection = new_id();
        let initiator = self.come(one, connection, Side::Initiator).await;
        (initiator, self.come(other, connection, Side::Acceptor).await)
    }
}

/// Whether what one end sends reaches the other. If not, both are closed.
async fn are_joined((mut one, mut other): (TcpStream, TcpStream)) -> bool {
    let mut byte = [0];
    let _ = one.write_all(b"x").await;
    let read = timeout(PATIENCE, other.read(&mut byte)).await.expect("it comes or ends in time");
    matches!(read, Ok(1))
}

#[tokio::test]
async fn a_ticket_of_one_kind_is_not_good_for_the_other() {
    let port = Port::open(None, 16);
    for (name, keys, want) in [
        ("relayed", [&port.relays, &port.relays], true),
        ("both from outside with the gateway's own", [&port.own, &port.own], false),
        ("one of each", [&port.own, &port.relays], false),
        ("another's", [&Secret::random(), &port.relays], false),
    ] {
        assert_eq!(are_joined(port.pair(keys).await).await, want, "{name}");
    }
    assert_eq!(port.share.totals().connections, 1);
}

#[tokio::test]
async fn no_more_are_joined_than_the_share_has() {
    let port = Port::open(None, 1);
    let (mut one, mut other) = port.pair([&port.relays; 2]).await;
    one.write_all(b"x").await.unwrap();
    let mut byte = [0];
    timeout(PATIENCE, other.read_exact(&mut byte)).await.unwrap().unwrap();
    assert!(!are_joined(port.pair([&port.relays; 2]).await).await, "a second one");
    drop((one, other));
    let ended = async {
        while port.share.totals().running > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the first one ends");
    assert!(are_joined(port.pair([&port.relays; 2]).await).await, "after the first one");
}

/// Tests that measure: they run one at a time.
mod alone {
    use std::time::Instant;

    use super::*;

    /// Bytes per second of all.
    const ALL: u64 = 8_000_000;
    /// What each connection sends: two need a second.
    const EACH: usize = 4_000_000;

    #[tokio::test(flavor = "multi_thread")]
    async fn connections_share_the_rate() {
        let port = Port::open(Some(ALL), 16);
        let pairs = [port.pair([&port.relays; 2]).await, port.pair([&port.relays; 2]).await];
        let begun = Instant::now();
        let sending = pairs.map(|(mut one, mut other)| {
            tokio::spawn(async move {
                let bytes = vec![0; EACH];
                let mut got = vec![0; EACH];
                let (sent, received) = tokio::join!(one.write_all(&bytes), other.read_exact(&mut got));
                sent.and(received.map(drop)).unwrap();
            })
        });
        for one in sending {
            timeout(PATIENCE, one).await.unwrap().unwrap();
        }
        // The kernel doesn't pace the first ten segments, which are long over loopback.
        assert!(begun.elapsed() >= Duration::from_millis(600), "{:?}", begun.elapsed());
    }
}
