//! Two connected pumps over real sockets and real TLS.

use std::sync::Arc;
use std::time::SystemTime;

use isthmus_net::credentials::SigningRequest;
use isthmus_net::{Authority, Credentials, Identity, Role};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use std::sync::atomic::Ordering::Relaxed;

fn credentials(authority: &Authority, name: &str) -> Credentials {
    let site = Some("alpha".parse().unwrap());
    let identity =
        Identity::new(Role::Agent, site, Some(name.parse().unwrap()), Some("ada".parse().unwrap())).unwrap();
    let request = SigningRequest::new().unwrap();
    let certificate = authority.sign(&identity, request.public_key(), SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "127.0.0.1:1").unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

/// Two agents' ends of a TLS connection.
async fn secured() -> (Secured, Secured) {
    let authority = Authority::create("test", SystemTime::now()).unwrap();
    let connector = credentials(&authority, "n1").client_config(&[]).unwrap();
    let acceptor = credentials(&authority, "n2").server_config(&[]).unwrap();
    let (a, b) = pair().await;
    let name = ServerName::try_from("n2.alpha").unwrap();
    let (a, b) = tokio::join!(connector.connect(name, a), acceptor.accept(b));
    (a.unwrap(), b.unwrap())
}

/// Both programs' ends, the count of bytes, and the two pumps.
async fn two_pumps() -> (TcpStream, TcpStream, Arc<Bytes>, [tokio::task::JoinHandle<()>; 2]) {
    let (a, b) = secured().await;
    let (near, near_agent) = pair().await;
    let (far, far_agent) = pair().await;
    let bytes = Arc::new(Bytes::default());
    let pumps = [
        tokio::spawn(pump(near_agent, a, bytes.clone(), End::Initiator)),
        tokio::spawn(pump(far_agent, b, Arc::default(), End::Acceptor)),
    ];
    (near, far, bytes, pumps)
}

#[tokio::test]
async fn everything_arrives_both_ways_at_once() {
    const SIZE: usize = 8 << 20;
    let (near, far, bytes, pumps) = two_pumps().await;
    let data = |seed: usize| (0..SIZE).map(|index| ((index * 31 + seed) >> 3) as u8).collect::<Vec<_>>();
    let exchange = |stream: TcpStream, own: usize, other: usize| async move {
        let (mut reading, mut writing) = stream.into_split();
        let write = async {
            writing.write_all(&data(own)).await.unwrap();
            writing.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(write, reading.read_to_end(&mut got));
        read.unwrap();
        assert!(got == data(other));
    };
    tokio::join!(exchange(near, 1, 2), exchange(far, 2, 1));
    for pump in pumps {
        pump.await.unwrap();
    }
    assert_eq!((bytes.sent.load(Relaxed), bytes.received.load(Relaxed)), (SIZE as u64, SIZE as u64));
}

#[tokio::test]
async fn one_direction_may_end_before_the_other() {
    let (mut near, mut far, _, _) = two_pumps().await;
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    let mut question = String::new();
    far.read_to_string(&mut question).await.unwrap();
    assert_eq!(question, "question");
    far.write_all(b"answer").await.unwrap();
    drop(far);
    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
}

#[tokio::test]
async fn a_reset_stays_a_reset() {
    let (near, mut far, _, _) = two_pumps().await;
    socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
    drop(near);
    let error = far.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// Fits into a socket's receive buffer: data that a sender hasn't sent when it is
/// reset is lost on any network.
const HELD: usize = 40_000;

fn filled(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index >> 4) as u8).collect()
}

/// Programs that answer and close while the other one still sends.
#[tokio::test]
async fn data_before_a_close_arrives_though_the_closed_end_had_unread_data() {
    let mut rounds = tokio::task::JoinSet::new();
    for _ in 0..10 {
        rounds.spawn(async {
            let (mut near, far, _, pumps) = two_pumps().await;
            let (mut reading, mut writing) = far.into_split();
            let late = tokio::spawn(async move { while writing.write_all(&[7; 999]).await.is_ok() {} });
            // By then all buffers on the way hold data.
            let mut unread = vec![0; 4 << 20];
            near.read_exact(&mut unread).await.unwrap();
            // Closing with unread data is a reset. On one thread nothing arrives in
            // between.
            let near = near.into_std().unwrap();
            assert_eq!(std::io::Write::write(&mut &near, &filled(HELD)).unwrap(), HELD);
            while std::io::Read::read(&mut &near, &mut unread).is_ok() {}
            drop(near);
            let mut got = Vec::new();
            let end = reading.read_to_end(&mut got).await;
            assert!(got == filled(HELD), "{} bytes, then {end:?}", got.len());
            end.unwrap();
            // The writer gets an error, because the reader is gone.
            late.await.unwrap();
            for pump in pumps {
                pump.await.unwrap();
            }
        });
    }
    while let Some(round) = rounds.join_next().await {
        round.unwrap();
    }
}

#[tokio::test]
async fn data_before_a_reset_arrives_before_the_reset() {
    for _ in 0..20 {
        let (mut near, mut far, _, pumps) = two_pumps().await;
        far.write_all(b"unread").await.unwrap();
        near.readable().await.unwrap();
        near.write_all(&filled(HELD)).await.unwrap();
        drop(near);
        let mut got = Vec::new();
        let error = far.read_to_end(&mut got).await.unwrap_err();
        assert_eq!((got.len(), error.kind()), (HELD, io::ErrorKind::ConnectionReset));
        for pump in pumps {
            pump.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_cut_network_is_a_reset_after_the_data() {
    let (mut near, near_agent) = pair().await;
    let (a, mut peer) = secured().await;
    let pump = pump(near_agent, a, Arc::default(), End::Initiator);
    let pump = tokio::spawn(pump);
    // The other agent dies: its end closes without a TLS end.
    peer.write_all(b"last bytes").await.unwrap();
    peer.flush().await.unwrap();
    drop(peer);
    let mut got = Vec::new();
    let error = near.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((got.as_slice(), error.kind()), (&b"last bytes"[..], io::ErrorKind::ConnectionReset));
    pump.await.unwrap();
}
