//! What strangers may take of a service: connections, memory, time.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_identity::credentials::{ALPN_H2, SigningRequest};
use isthmus_identity::tls::{self, Stream};
use isthmus_identity::{Authority, Credentials, Identity};
use isthmus_rpc::calls::At;
use isthmus_rpc::grpc;
use isthmus_service::listen;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::enrolment_server::{Enrolment, EnrolmentServer};
use isthmus_wire::proto::{Certificate, EndPilotReply, EndPilotRequest, JoinRequest, RenewRequest};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::frames::{
    self, DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, call, cancelled, endless_headers, frame,
};

pub(crate) const SOON: Duration = Duration::from_secs(30);
const JOIN: &str = "/isthmus.v1.Enrolment/Join";

/// A service that answers each call.
struct Answers;

#[tonic::async_trait]
impl Enrolment for Answers {
    async fn join(&self, _: Request<JoinRequest>) -> Result<Response<Certificate>, Status> {
        Ok(Response::new(Certificate::default()))
    }

    async fn end_pilot(&self, _: Request<EndPilotRequest>) -> Result<Response<EndPilotReply>, Status> {
        Ok(Response::new(EndPilotReply::default()))
    }

    async fn renew(&self, _: Request<RenewRequest>) -> Result<Response<Certificate>, Status> {
        Ok(Response::new(Certificate::default()))
    }
}

pub(crate) struct Service {
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
}

pub(crate) fn issue(authority: &Authority, uri: &str) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let identity = Identity::from_uri(uri).unwrap();
    let certificate = authority.sign_request(&identity, &request.der, SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "").unwrap()
}

impl Service {
    pub(crate) async fn start() -> Self {
        listen::raise_descriptor_limit();
        let authority = Authority::create("demo", SystemTime::now()).unwrap();
        let broker = issue(&authority, "isthmus:///broker//broker/");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = broker.enrolling_server_config(&[ALPN_H2]).unwrap();
        let routes = Routes::new(EnrolmentServer::new(Answers));
        tokio::spawn(async move {
            grpc::serve(At::Broker, listener, tls, routes, std::future::pending()).await.unwrap();
        });
        Self { authority, address }
    }

    /// A TCP connection from the loopback address `from`.
    async fn connect(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((IpAddr::from(from), 0).into()).unwrap();
        timeout(SOON, socket.connect(self.address)).await.unwrap().unwrap()
    }

    /// A TLS connection without a certificate from this address, after the first HTTP/2 frames.
    async fn anonymous(&self, from: [u8; 4]) -> Stream {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate().clone()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        self.tls(Arc::new(config), from).await
    }

    pub(crate) async fn tls(&self, config: Arc<ClientConfig>, from: [u8; 4]) -> Stream {
        let name = ServerName::try_from("broker").unwrap();
        let connecting = tls::connect(config, name, self.connect(from).await);
        let mut stream = timeout(SOON, connecting).await.unwrap().unwrap();
        stream.write_all(&frames::preface()).await.unwrap();
        stream
    }

    /// Asserts that honest clients get their answers: a party that joins, and a party that renews.
    /// They must not wait until strangers' handshakes end, after 10 s.
    async fn assert_serves(&self, while_: &str) {
        let authority = self.authority.certificate().clone();
        let address = self.address.to_string();
        let serving = async {
            let channel = grpc::connect_unidentified(&address, "broker", authority).await.unwrap();
            EnrolmentClient::new(channel).join(JoinRequest::default()).await.unwrap();
            let agent = issue(&self.authority, "isthmus:///agent/alpha/n1/anna");
            let channel = grpc::connect(&address, "broker", &agent).await.unwrap();
            EnrolmentClient::new(channel).renew(RenewRequest::default()).await.unwrap();
        };
        assert!(timeout(Duration::from_secs(8), serving).await.is_ok(), "not served while {while_}");
    }
}

/// A client's first message of TLS.
fn client_hello() -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = ServerName::try_from("broker").unwrap();
    let mut hello = Vec::new();
    rustls::ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
    hello
}

/// Reads a frame: its kind and payload.
pub(crate) async fn next_frame(stream: &mut Stream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).await?;
    Ok((head[3], payload))
}

/// Waits until the service ends the connection. Returns the kinds of the frames that
/// it sent.
pub(crate) async fn until_closed(stream: &mut Stream) -> Vec<u8> {
    let mut kinds = Vec::new();
    let reading = async {
        while let Ok((kind, _)) = next_frame(stream).await {
            kinds.push(kind);
            if kind == GOAWAY {
                break;
            }
        }
    };
    assert!(timeout(SOON, reading).await.is_ok(), "not closed after {kinds:?}");
    kinds
}

#[tokio::test]
async fn small_bounds_hold_without_a_certificate() {
    let service = Service::start().await;
    let mut stream = service.anonymous([127, 0, 0, 1]).await;
    let (kind, payload) = next_frame(&mut stream).await.unwrap();
    assert_eq!(kind, SETTINGS);
    let settings: Vec<(u16, u32)> = payload
        .chunks_exact(6)
        .map(|part| {
            (u16::from_be_bytes([part[0], part[1]]), u32::from_be_bytes([part[2], part[3], part[4], part[5]]))
        })
        .collect();
    // SETTINGS_MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_HEADER_LIST_SIZE
    for (id, most) in [(3, 4), (4, 16 * 1024), (6, 8 * 1024)] {
        let (_, value) = settings.iter().find(|(found, _)| *found == id).unwrap();
        assert!(*value <= most, "setting {id}: {value}");
    }
}

/// Tests that measure, which run one at a time.
mod alone {
    use super::*;

    /// With 256 connections that make no handshake, neither broker nor gateway used to accept
    /// another one.
    #[tokio::test]
    async fn connections_without_a_handshake_keep_none_out() {
        let service = Service::start().await;
        let mut held = Vec::new();
        for index in 0..600 {
            let mut stream = service.connect([127, 0, 0, 1]).await;
            // Silence, and the beginning of a TLS record.
            if index % 2 == 0 {
                stream.write_all(&[22, 3, 1]).await.unwrap();
            }
            held.push(stream);
        }
        service.assert_serves("600 connections are silent").await;
    }

    #[tokio::test]
    async fn the_oldest_anonymous_connection_of_the_greediest_source_ends() {
        let service = Service::start().await;
        let mut far = service.anonymous([127, 0, 0, 2]).await;
        let mut first = service.anonymous([127, 0, 0, 1]).await;
        let mut held = Vec::new();
        // The bound is 512, or less if there are few descriptors.
        for _ in 0..600 {
            held.push(service.anonymous([127, 0, 0, 1]).await);
        }
        until_closed(&mut first).await;
        service.assert_serves("600 anonymous connections stand").await;
        far.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
        let answered = async {
            while let Ok(next) = next_frame(&mut far).await {
                if next == (PING, vec![7; 8]) {
                    return true;
                }
            }
            false
        };
        assert!(timeout(SOON, answered).await.unwrap(), "the only connection of its source was closed");
    }

    /// Each handshake that was begun cost the service its part of the cryptography. Honest
    /// handshakes waited for that: 5 to 15 s with an agent.
    #[tokio::test]
    async fn handshakes_that_one_source_begins_take_no_turn_of_others() {
        let service = Service::start().await;
        let hello = client_hello();
        let mut silent = Vec::new();
        for _ in 0..600 {
            let mut stream = service.connect([127, 0, 0, 1]).await;
            stream.write_all(&hello).await.unwrap();
            silent.push(stream);
        }
        // A connection from another source comes after the silent connections: once it is served,
        // all were accepted.
        service.anonymous([127, 0, 0, 2]).await;
        let answered = || {
            let is_answered =
                |stream: &&TcpStream| SockRef::from(*stream).peek(&mut [MaybeUninit::uninit()]).is_ok();
            silent.iter().filter(is_answered).count()
        };
        let most_are = async {
            while answered() < 256 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // This is before the first silent connections end, after 10 s.
        timeout(Duration::from_secs(8), most_are).await.unwrap();
        service.anonymous([127, 0, 0, 2]).await;
        assert_eq!(answered(), 256, "one source has more handshakes under way");
    }

    /// Rapid reset (CVE-2023-44487), CONTINUATION flood (CVE-2024-27316), empty frames
    /// (CVE-2019-9518), and calls beyond the bound. The service ends the connection.
    #[tokio::test]
    async fn http2_tricks_end_the_connection() {
        let service = Service::start().await;
        let odd = |count: u32| (0..count).map(|index| 2 * index + 1);
        let tricks: [(&str, Vec<u8>); 4] = [
            ("calls that are cancelled", odd(2000).flat_map(|stream| cancelled(stream, JOIN)).collect()),
            ("headers without an end", endless_headers(200)),
            (
                "empty frames",
                [call(1, JOIN), (0..2000).flat_map(|_| frame(DATA, 0, 1, &[])).collect()].concat(),
            ),
            ("calls beyond the bound", odd(2000).flat_map(|stream| call(stream, JOIN)).collect()),
        ];
        for (trick, bytes) in tricks {
            let mut stream = service.anonymous([127, 0, 0, 1]).await;
            // Fails if the service closes before all is sent.
            let _ = timeout(SOON, stream.write_all(&bytes)).await.unwrap();
            let kinds = until_closed(&mut stream).await;
            let expected = [SETTINGS, GOAWAY, RST_STREAM, HEADERS, PING, 8];
            assert!(kinds.iter().all(|kind| expected.contains(kind)), "{trick}: {kinds:?}");
            service.assert_serves(trick).await;
        }
    }

    /// A client that reads nothing can have the service hold no more than a few buffers.
    #[tokio::test]
    async fn a_client_that_reads_nothing_is_held_back() {
        let service = Service::start().await;
        let mut stream = service.anonymous([127, 0, 0, 1]).await;
        let pings: Vec<u8> = (0..4096).flat_map(|_| frame(PING, 0, 0, &[1; 8])).collect();
        let mut sent = 0;
        let sending = async {
            while stream.write_all(&pings).await.is_ok() {
                sent += pings.len();
            }
        };
        // Ends with an error, or blocks because the service reads no more.
        let _ = timeout(Duration::from_secs(2), sending).await;
        assert!(sent < 64 << 20, "{sent} bytes were taken");
        service.assert_serves("a client reads nothing").await;
    }
}
