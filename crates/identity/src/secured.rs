//! TLS connections whose peer's certificate is checked after the handshake, and for as
//! long as they last ([`peers`](crate::peers)).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use isthmus_service::unidentified::Turns;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, CommonState, HandshakeKind, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::credentials::material::Current;
use crate::credentials::unrevoked::with_refusal;
use crate::peers::{Certified, Peers, REVOKED_HERE, Refusal, WatchedCertificate};
use crate::tls::resumption::Sessions;
use crate::tls::{self, Parts, Stream};
use crate::{Identity, audit};

/// How long a refused client is read from; [`UNREAD`] bounds the bytes.
const READING: Duration = Duration::from_secs(1);
const UNREAD: u64 = 64 * 1024;

/// TLS of a server, with the peers that it refuses.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    peers: Peers,
    turns: Arc<Turns>,
}

impl ServerTls {
    pub(crate) fn new(config: ServerConfig, peers: Peers) -> Self {
        Self { config: Arc::new(config), peers, turns: Arc::default() }
    }

    /// The configuration, for a handshake of which the caller checks the peer itself.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Does the server's part of a handshake, once the client has begun the handshake and it is the
    /// turn of the client's source. The caller bounds the time.
    ///
    /// # Errors
    /// If the handshake fails, or the client's certificate has ended or is revoked.
    pub async fn accept(&self, mut tcp: TcpStream) -> io::Result<Secured> {
        let from = tcp.peer_addr()?;
        let read = tls::first_message(&mut tcp).await?;
        let turn = self.turns.take(from.ip()).await;
        let shaken = with_refusal(tls::accept_read(self.config.clone(), tcp, read)).await;
        drop(turn);
        let secured = match shaken {
            (Ok(stream), _) => Secured::new(stream, &self.peers),
            (Err((_, tcp)), Some(refusal)) => {
                let_read(tcp).await;
                Err(refused(refusal))
            }
            (Err((error, _)), None) => Err(error),
        };
        if let Err(error) = &secured
            && let Some(refusal) = error.get_ref().and_then(|error| error.downcast_ref::<Refusal>())
        {
            let entry = audit::Entry::refused("connection", refusal);
            entry.by(refusal.identity()).from(Some(from)).record();
        }
        secured
    }
}

/// TLS of a client, with the peers that it refuses.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    peers: Peers,
    sessions: Option<Arc<Sessions>>,
}

impl ClientTls {
    /// TLS with this configuration. `current` is the client's own certificate, if it has one.
    pub(crate) fn new(mut config: ClientConfig, peers: Peers, current: Option<Arc<Current>>) -> Self {
        let sessions = current.map(|current| Arc::new(Sessions::new(current)));
        config.resumption = match &sessions {
            Some(sessions) => Resumption::store(sessions.clone()),
            None => Resumption::disabled(),
        };
        Self { config: Arc::new(config), peers, sessions }
    }

    /// The configuration, for a handshake of which the caller checks the peer itself.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// The certificates of the peers.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// TLS with the same settings, but every handshake is a full one, in which both ends show their
    /// present certificates.
    #[must_use]
    pub fn without_resumption(&self) -> Self {
        let mut config = (*self.config).clone();
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config), peers: self.peers.clone(), sessions: None }
    }

    /// Does the client's part of a handshake. If a resumed session is refused, all sessions are
    /// forgotten, so that the next handshake is a full one.
    ///
    /// # Errors
    /// If the handshake fails, or the server's certificate has ended or is revoked.
    pub async fn connect(&self, name: ServerName<'static>, tcp: TcpStream) -> io::Result<Secured> {
        let stream = tls::connect(self.config.clone(), name, tcp).await?;
        let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        let secured = Secured::new(stream, &self.peers);
        if let (Err(_), true, Some(sessions)) = (&secured, resumed, &self.sessions) {
            sessions.forget();
        }
        secured
    }
}

/// A TLS connection. Once the peer's certificate has ended or is revoked, reads and
/// writes fail.
#[derive(Debug)]
pub struct Secured {
    stream: Stream,
    /// The check of the peer's certificate; `None` for a client without a certificate.
    peer: Option<WatchedCertificate>,
    /// Why the connection must end, once it must.
    ended: Option<Refusal>,
    peers: Peers,
}

impl Secured {
    fn new(stream: Stream, peers: &Peers) -> io::Result<Self> {
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let peer = match certificate {
            None => None,
            Some(certificate) => {
                let certified = Certified::read(certificate).map_err(io::Error::other)?;
                Some(peers.accept(certified, SystemTime::now()).map_err(refused)?)
            }
        };
        Ok(Self { stream, peer, ended: None, peers: peers.clone() })
    }

    /// The peer's identity; `None` for a client without a certificate.
    pub fn identity(&self) -> Option<&Identity> {
        self.peer.as_ref().map(WatchedCertificate::identity)
    }

    /// The socket, and the state of TLS.
    pub fn get_ref(&self) -> (&TcpStream, &CommonState) {
        self.stream.get_ref()
    }

    /// What the stream holds, and the check of the peer, which is no longer made here.
    pub fn into_parts(self) -> (Parts, Option<WatchedCertificate>) {
        (self.stream.into_parts(), self.peer)
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let (Some(peer), None) = (&mut self.peer, &self.ended)
            && let Poll::Ready(refusal) = Pin::new(peer).poll(cx)
        {
            self.ended = Some(refusal);
        }
        self.ended.clone().map_or(Ok(()), |refusal| Err(refused(refusal)))
    }
}

/// Lets the client read the alert that was sent. If the client's data were left unread, the kernel
/// would reset the connection. Then the client might not see the alert.
async fn let_read(mut tcp: TcpStream) {
    let reading = async {
        tcp.shutdown().await?;
        tokio::io::copy(&mut (&mut tcp).take(UNREAD), &mut tokio::io::sink()).await
    };
    let _ = timeout(READING, reading).await;
}

/// Whether an error says that the peer has refused this end's certificate as revoked.
fn is_revoked_here(error: &io::Error) -> bool {
    let alert = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(alert, Some(rustls::Error::AlertReceived(AlertDescription::CertificateRevoked)))
}

fn refused(reason: Refusal) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        match ready!(Pin::new(&mut self.stream).poll_read(cx, buffer)) {
            // A server refuses after the client's last message of the handshake (TLS 1.3).
            Err(error) if is_revoked_here(&error) => {
                self.peers.set_revoked_here(true);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, REVOKED_HERE)))
            }
            result => Poll::Ready(result),
        }
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
