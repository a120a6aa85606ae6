//! The server's side of [`grpc`](super).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Status};
use tracing::{debug, warn};

use super::in_connection::InConnection;
use super::{HANDSHAKE_TIMEOUT, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};
use crate::{Identity, listen};

/// How long calls in progress may continue after the shutdown began, before their
/// connections are closed.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Handshakes in progress at once; further connections wait in the listen
/// queue. 256 × a P-256 handshake of about 1 ms is a quarter second of work.
const MAX_HANDSHAKES: usize = 256;
/// Connections that wait to be served after their handshake.
const INCOMING_BOUND: usize = 64;
/// Calls at once on one connection. A gateway sends all its agents' lookups
/// over one; beyond this they wait at the sender.
const MAX_CONCURRENT_CALLS: u32 = 4096;

/// How long a connection without a certificate may last. It serves one exchange of a
/// join token, which takes seconds.
const ENROLMENT: Duration = Duration::from_secs(60);

/// The other end of a served connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The identity in its certificate; none if it showed none.
    pub identity: Option<Arc<Identity>>,
    /// Its address as this end sees it.
    pub address: SocketAddr,
    /// The address that it connected to.
    pub local: SocketAddr,
}

/// The identity of a request's caller, by its certificate.
///
/// # Errors
/// UNAUTHENTICATED if it showed no certificate.
pub fn caller<T>(request: &Request<T>) -> Result<Arc<Identity>, Status> {
    peer(request).and_then(|peer| peer.identity.clone()).ok_or_else(|| {
        Status::unauthenticated("this call needs a certificate of the grid; run `isthmus join` first")
    })
}

/// The other end of a request's connection, if that uses TLS.
pub fn peer<T>(request: &Request<T>) -> Option<&Peer> {
    request.extensions().get::<Peer>()
}

/// Does the server's part of a TLS handshake, within `HANDSHAKE_TIMEOUT`.
///
/// # Errors
/// If the handshake fails or takes too long.
pub async fn accept(tcp: TcpStream, tls: Arc<ServerConfig>) -> io::Result<TlsStream<TcpStream>> {
    tcp.set_nodelay(true)?;
    timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls).accept(tcp)).await.unwrap_or_else(|_| {
        let reason = format!("no TLS handshake within {} s", HANDSHAKE_TIMEOUT.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    })
}

/// Serves gRPC on a listener until `shutdown`. Calls in progress then have
/// `SHUTDOWN_GRACE` to end. A failed connection doesn't affect the others.
///
/// # Errors
/// If the server itself fails.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    routes: Routes,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let (streams_tx, streams_rx) = mpsc::channel(INCOMING_BOUND);
    let stop = CancellationToken::new();
    let _accepting = stop.clone().drop_guard();
    tokio::spawn(stop.clone().run_until_cancelled_owned(accept_all(listener, tls, streams_tx)));
    serve_streams(streams_rx, routes, async {
        shutdown.await;
        stop.cancel();
    })
    .await
}

/// Serves gRPC on TLS connections that the caller has accepted, until `shutdown`
/// as in [`serve`].
///
/// # Errors
/// If the server itself fails.
pub async fn serve_streams(
    streams_rx: mpsc::Receiver<TlsStream<TcpStream>>,
    routes: Routes,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let stop = CancellationToken::new();
    let cut = CancellationToken::new();
    let _cut_on_return = cut.clone().drop_guard();
    let incoming = ReceiverStream::new(streams_rx).filter_map(|stream| Io::new(stream, &cut, ENROLMENT));
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(MAX_CONCURRENT_CALLS)
        .layer(tower::layer::layer_fn(InConnection))
        .add_routes(routes)
        .serve_with_incoming_shutdown(Forever(incoming), stop.clone().cancelled_owned());
    let ending = async {
        shutdown.await;
        stop.cancel();
        sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        result = server => result,
        () = ending => Ok(()),
    }
}

/// A stream that never ends, so that the server doesn't end with the sender.
struct Forever<S>(S);

impl<S: Stream + Unpin> Stream for Forever<S> {
    type Item = Result<S::Item, io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match Pin::new(&mut self.0).poll_next(cx) {
            Poll::Ready(Some(item)) => Poll::Ready(Some(Ok(item))),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

async fn accept_all(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    streams_tx: mpsc::Sender<TlsStream<TcpStream>>,
) {
    listen::serve_each(listener, MAX_HANDSHAKES, |tcp, address, slot| {
        let (tls, streams_tx) = (tls.clone(), streams_tx.clone());
        async move {
            let result = accept(tcp, tls).await;
            drop(slot);
            match result {
                // Fails only while the server shuts down.
                Ok(stream) => drop(streams_tx.send(stream).await),
                Err(error) => debug!(%address, %error, "connection refused"),
            }
        }
    })
    .await;
}

struct Io {
    stream: TlsStream<TcpStream>,
    peer: Peer,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Until when it may last; `None` with a certificate.
    limit: Option<Pin<Box<Sleep>>>,
}

impl Io {
    /// None if the certificate is valid but names no identity of a grid. Without a
    /// certificate, the connection is closed after `enrolment`.
    fn new(stream: TlsStream<TcpStream>, cut: &CancellationToken, enrolment: Duration) -> Option<Self> {
        let (tcp, session) = stream.get_ref();
        let (address, local) = (tcp.peer_addr().ok()?, tcp.local_addr().ok()?);
        let identity = match session.peer_certificates().and_then(|chain| chain.first()) {
            None => None,
            Some(certificate) => match Identity::from_certificate(certificate) {
                Ok(identity) => Some(Arc::new(identity)),
                Err(error) => {
                    warn!(%address, %error, "connection refused");
                    return None;
                }
            },
        };
        let limit = identity.is_none().then(|| Box::pin(sleep(enrolment)));
        let peer = Peer { identity, address, local };
        Some(Self { stream, peer, cut: Box::pin(cut.clone().cancelled_owned()), limit })
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the service has ended"));
        }
        match self.limit.as_mut().map(|limit| limit.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "it lasts too long without a certificate"))
            }
            Some(Poll::Pending) | None => Ok(()),
        }
    }
}

impl Connected for Io {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rustls::pki_types::ServerName;
    use tokio::io::AsyncReadExt as _;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::credentials::{ALPN_H2, SigningRequest, anonymous_client_config};
    use crate::{Authority, Credentials, Identity};

    /// Otherwise any host could use up the broker's descriptors.
    #[tokio::test]
    async fn a_connection_without_a_certificate_is_closed_after_a_while() {
        let authority = Authority::create("demo", SystemTime::now()).unwrap();
        let issue = |uri: &str| {
            let request = SigningRequest::new().unwrap();
            let identity = Identity::from_uri(uri).unwrap();
            let certificate = authority.sign_request(&identity, &request.der, SystemTime::now()).unwrap();
            Credentials::new(&request, &certificate, authority.certificate_pem(), "").unwrap()
        };
        let broker = issue("isthmus:///broker//broker/").enrolling_server_config(&[ALPN_H2]).unwrap();
        let identified = issue("isthmus:///agent/alpha/n1/").client_config(&[ALPN_H2]).unwrap();
        let unidentified = anonymous_client_config(authority.certificate().clone(), &[ALPN_H2]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for (client, closed) in [(unidentified, true), (identified, false)] {
            let connect = async {
                let tcp = TcpStream::connect(address).await.unwrap();
                let name = ServerName::try_from("broker").unwrap();
                TlsConnector::from(client).connect(name, tcp).await.unwrap()
            };
            let serve = async { accept(listener.accept().await.unwrap().0, broker.clone()).await.unwrap() };
            let (_client, served) = tokio::join!(connect, serve);
            let enrolment = Duration::from_millis(50);
            let mut served = Io::new(served, &CancellationToken::new(), enrolment).unwrap();
            let read = timeout(enrolment * 10, served.read_u8()).await;
            let kind = read.ok().map(|read| read.unwrap_err().kind());
            assert_eq!(kind, closed.then_some(io::ErrorKind::TimedOut));
        }
    }
}
