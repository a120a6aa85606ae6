//! Connections at the end of a certificate. The certificates here end within seconds.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::io;
use std::time::{Duration, SystemTime};

use isthmus_identity::authority::SERVICE_VALIDITY;
use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::peers::Certified;
use isthmus_identity::secured::{ClientTls, Secured, ServerTls};
use isthmus_identity::{Authority, Credentials, Identity, tls};
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Life of the short certificates, which are written in whole seconds. A busy machine makes some
/// handshakes meanwhile.
const SHORT: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(60);

struct Grid(Authority);

impl Grid {
    fn new() -> Self {
        Self(Authority::create("demo", SystemTime::now() - 2 * SERVICE_VALIDITY).unwrap())
    }

    /// A certificate that ends after `life`.
    fn certificate(&self, uri: &str, life: Duration) -> (SigningRequest, String) {
        let request = SigningRequest::new().unwrap();
        let issued = SystemTime::now() + life - SERVICE_VALIDITY;
        let pem = self.0.sign_request(&Identity::from_uri(uri).unwrap(), &request.der, issued).unwrap();
        (request, pem)
    }

    fn member(&self, uri: &str, life: Duration) -> Credentials {
        let (request, pem) = self.certificate(uri, life);
        Credentials::new(&request, &pem, self.0.certificate_pem(), "").unwrap()
    }
}

const N1: &str = "isthmus:///agent/alpha/n1/anna";
const N2: &str = "isthmus:///agent/beta/n2/anna";

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

fn n2() -> ServerName<'static> {
    ServerName::try_from("n2.beta").unwrap()
}

async fn handshake(client: &ClientTls, server: &ServerTls) -> (io::Result<Secured>, io::Result<Secured>) {
    let (a, b) = sockets().await;
    let (client, mut server) = tokio::join!(client.connect(n2(), a), server.accept(b));
    let Ok(mut client) = client else { return (client, server) };
    // The first byte brings the tickets for resumption.
    if let Ok(server) = &mut server {
        server.write_all(b"x").await.unwrap();
        client.read_u8().await.unwrap();
    }
    (Ok(client), server)
}

fn kind(stream: &io::Result<Secured>) -> Option<HandshakeKind> {
    stream.as_ref().unwrap().get_ref().1.handshake_kind()
}

/// Waits until the certificate that this end shows has ended.
async fn end_of(shown_to: &Secured) {
    let der = shown_to.get_ref().1.peer_certificates().unwrap()[0].clone();
    let left = Certified::read(&der).unwrap().ends.duration_since(SystemTime::now());
    sleep(left.unwrap_or_default() + Duration::from_millis(20)).await;
}

#[tokio::test]
async fn a_resumed_session_ends_with_the_client_s_certificate() {
    let grid = Grid::new();
    let server = grid.member(N2, SERVICE_VALIDITY).server_config(&[]).unwrap();
    let client = grid.member(N1, SHORT).client_config(&[]).unwrap();
    let (_, first) = handshake(&client, &server).await;
    assert_eq!(kind(&first), Some(HandshakeKind::Full));
    let (_, second) = handshake(&client, &server).await;
    assert_eq!(kind(&second), Some(HandshakeKind::Resumed));
    end_of(second.as_ref().unwrap()).await;

    // TLS alone accepts it: it doesn't verify the certificate again.
    let (a, b) = sockets().await;
    let (a, b) = tokio::join!(tls::connect(client.config(), n2(), a), tls::accept(server.config(), b));
    a.unwrap();
    assert_eq!(b.unwrap().get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));

    let refused = handshake(&client, &server).await.1.unwrap_err().to_string();
    assert!(refused.contains("certificate of agent n1.alpha ended at"), "{refused}");
}

#[tokio::test]
async fn a_renewed_client_makes_a_full_handshake() {
    let grid = Grid::new();
    let server = grid.member(N2, SERVICE_VALIDITY).server_config(&[]).unwrap();
    let n1 = grid.member(N1, SHORT);
    let client = n1.client_config(&[]).unwrap();
    let (_open, former) = handshake(&client, &server).await;
    let (request, pem) = grid.certificate(N1, SERVICE_VALIDITY);
    n1.renew(&request, &pem).unwrap();
    let (_, present) = handshake(&client, &server).await;
    assert_eq!(kind(&present), Some(HandshakeKind::Full));
    end_of(former.as_ref().unwrap()).await;
    let (_, resumed) = handshake(&client, &server).await;
    assert_eq!(kind(&resumed), Some(HandshakeKind::Resumed));
    // The handshake with the new certificate extended the first connection.
    let idle = timeout(Duration::from_millis(200), former.unwrap().read_u8()).await;
    assert!(idle.is_err(), "{idle:?}");
}

#[tokio::test]
async fn a_resumed_session_ends_with_the_server_s_certificate() {
    let grid = Grid::new();
    let n2 = grid.member(N2, SHORT);
    let server = n2.server_config(&[]).unwrap();
    let client = grid.member(N1, SERVICE_VALIDITY).client_config(&[]).unwrap();
    let (first, _kept) = handshake(&client, &server).await;
    let (request, pem) = grid.certificate(N2, SERVICE_VALIDITY);
    n2.renew(&request, &pem).unwrap();
    end_of(first.as_ref().unwrap()).await;
    let refused = handshake(&client, &server).await.0.unwrap_err().to_string();
    assert!(refused.contains("certificate of agent n2.beta ended at"), "{refused}");
    let (again, _kept) = handshake(&client, &server).await;
    assert_eq!(kind(&again), Some(HandshakeKind::Full));
}

#[tokio::test]
async fn an_open_connection_ends_with_either_certificate() {
    let grid = Grid::new();
    for (near_life, far_life) in [(SHORT, SERVICE_VALIDITY), (SERVICE_VALIDITY, SHORT)] {
        let server = grid.member(N2, far_life).server_config(&[]).unwrap();
        let client = grid.member(N1, near_life).client_config(&[]).unwrap();
        let (client, server) = handshake(&client, &server).await;
        let (mut checks, _other) = match near_life {
            SHORT => (server.unwrap(), client.unwrap()),
            _ => (client.unwrap(), server.unwrap()),
        };
        let ended = timeout(LIMIT, checks.read_u8()).await.unwrap().unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::PermissionDenied, "{ended}");
    }
}
