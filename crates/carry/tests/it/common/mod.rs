//! Two agents' ends over real sockets and real TLS, and programs at both.

#![allow(dead_code, reason = "the example many_streams uses a part")]

pub(crate) mod ends;
pub(crate) mod rules;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use isthmus_carry::Traffic;
use isthmus_carry::plane::Plane;
use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::secured::{ClientTls, Secured, ServerTls};
use isthmus_identity::{Authority, Credentials, Identity, Role};
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};

/// Much longer than any test takes: a hang becomes a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counts {
    pub(crate) fn both(&self) -> (u64, u64) {
        (self.sent.load(Relaxed), self.received.load(Relaxed))
    }
}

impl Traffic for Counts {
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Relaxed);
    }
}

pub(crate) fn plane() -> Plane {
    Plane::start(NonZeroUsize::new(2).unwrap()).unwrap().0
}

fn credentials(authority: &Authority, name: &str) -> Credentials {
    let site = Some("alpha".parse().unwrap());
    let owner = Some("ada".parse().unwrap());
    let identity = Identity::new(Role::Agent, site, Some(name.parse().unwrap()), owner).unwrap();
    let request = SigningRequest::new().unwrap();
    let certificate = authority.sign(&identity, request.public_key(), SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "127.0.0.1:1").unwrap()
}

/// The two ends of a new TCP connection.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

/// TLS of two agents.
pub(crate) struct Agents {
    connector: ClientTls,
    acceptor: ServerTls,
}

impl Agents {
    pub(crate) fn new() -> Self {
        let authority = Authority::create("test", SystemTime::now()).unwrap();
        Self {
            connector: credentials(&authority, "n1").client_config(&[]).unwrap(),
            acceptor: credentials(&authority, "n2").server_config(&[]).unwrap(),
        }
    }

    /// Both ends of a TLS connection over two connected sockets.
    pub(crate) async fn secure(&self, (a, b): (TcpStream, TcpStream)) -> (Secured, Secured) {
        let name = ServerName::try_from("n2.alpha").unwrap();
        let (a, b) = tokio::join!(self.connector.connect(name, a), self.acceptor.accept(b));
        (a.unwrap(), b.unwrap())
    }

    pub(crate) async fn secured(&self) -> (Secured, Secured) {
        self.secure(pair().await).await
    }
}

/// Bytes in which no two places look alike.
pub(crate) fn filled(size: usize) -> Vec<u8> {
    (0..size).map(|index| ((index * 31) >> 4) as u8).collect()
}

pub(crate) fn counts() -> Arc<Counts> {
    Arc::default()
}
