//! The server's side of [`grpc`](super).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Status};
use tracing::{debug, warn};

use super::anonymous::{self, OnlyEnrolment};
use super::in_connection::InConnection;
use super::member::{Counting, Members, Slot, Unfinished};
use super::served::Served;
use super::{HANDSHAKE_TIMEOUT, KEEPALIVE_INTERVAL, PING_TIMEOUT};
use crate::secured::{Secured, ServerTls};
use crate::unidentified::{Place, Unidentified};
use crate::{Identity, keepalive, listen, packets};

/// How long calls in progress may continue after the shutdown began, before their
/// connections are closed.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Handshakes in progress at once on a port of its own. One takes up to 80 KiB, if
/// the client sends the largest messages that TLS allows.
const HANDSHAKES: usize = 4096;
/// Connections that wait to be served after their handshake.
const INCOMING_BOUND: usize = 64;
/// Calls at once on one connection. A gateway sends all its agents' lookups
/// over one; beyond this they wait at the sender.
const MAX_CONCURRENT_CALLS: u32 = 4096;
/// Bytes of all headers of one call: some 300 are used.
const HEADER_BYTES: u32 = 8 * 1024;

/// The other end of a served connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The identity in its certificate; none if it showed none.
    pub identity: Option<Arc<Identity>>,
    /// Its address as this end sees it.
    pub address: SocketAddr,
    /// The address that it connected to.
    pub local: SocketAddr,
    /// The id of the trunk that carries it, if one does.
    pub trunk: Option<[u8; 16]>,
    pub(super) unfinished: Unfinished,
}

/// The identity of a request's caller, by its certificate.
///
/// # Errors
/// UNAUTHENTICATED if it showed no certificate.
pub fn caller<T>(request: &Request<T>) -> Result<Arc<Identity>, Status> {
    peer(request).and_then(|peer| peer.identity.clone()).ok_or_else(no_certificate)
}

pub(super) fn no_certificate() -> Status {
    Status::unauthenticated("this call needs a certificate of the grid; run `isthmus join` first")
}

/// The other end of a request's connection, if that uses TLS.
pub fn peer<T>(request: &Request<T>) -> Option<&Peer> {
    request.extensions().get::<Peer>()
}

/// Does the server's part of a TLS handshake, within `HANDSHAKE_TIMEOUT`.
///
/// # Errors
/// If the handshake fails or takes too long, or the client's certificate has ended or
/// is revoked.
pub async fn accept(tcp: TcpStream, tls: ServerTls) -> io::Result<Secured> {
    tcp.set_nodelay(true)?;
    // A connection that sends nothing takes no memory for a session.
    let handshake = async {
        listen::first_byte(&tcp, HANDSHAKE_TIMEOUT).await?;
        Box::pin(tls.accept(tcp)).await
    };
    timeout(HANDSHAKE_TIMEOUT, handshake).await.unwrap_or_else(|_| {
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
    tls: ServerTls,
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

/// Serves gRPC on connections that the caller has accepted, until `shutdown`
/// as in [`serve`].
///
/// # Errors
/// If the server itself fails.
pub async fn serve_streams(
    streams_rx: mpsc::Receiver<Served>,
    routes: Routes,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    serve_streams_for(streams_rx, routes, PING_TIMEOUT, shutdown).await
}

/// The same, if a ping to an identified client may stay unanswered for so long.
///
/// # Errors
/// As [`serve_streams`].
pub async fn serve_streams_for(
    streams_rx: mpsc::Receiver<Served>,
    routes: Routes,
    ping_timeout: Duration,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let stop = CancellationToken::new();
    let cut = CancellationToken::new();
    let _cut_on_return = cut.clone().drop_guard();
    let (identified_tx, identified_rx) = mpsc::channel(INCOMING_BOUND);
    let (anonymous_tx, anonymous_rx) = mpsc::channel(INCOMING_BOUND);
    let (carried_tx, carried_rx) = mpsc::channel(INCOMING_BOUND);
    let sorting = sort(streams_rx, Bounds::new(cut), [identified_tx, anonymous_tx, carried_tx]);
    let anonymous = anonymous::server()
        .layer(tower::layer::layer_fn(OnlyEnrolment))
        .add_routes(routes.clone())
        .serve_with_incoming_shutdown(incoming(anonymous_rx), stop.clone().cancelled_owned());
    let identified = server()
        .http2_keepalive_timeout(Some(ping_timeout))
        .max_concurrent_streams(MAX_CONCURRENT_CALLS)
        .layer(tower::layer::layer_fn(InConnection))
        .layer(tower::layer::layer_fn(Counting))
        .add_routes(routes.clone())
        .serve_with_incoming_shutdown(incoming(identified_rx), stop.clone().cancelled_owned());
    let carried = without_pings()
        .max_concurrent_streams(MAX_CONCURRENT_CALLS)
        .layer(tower::layer::layer_fn(InConnection))
        .layer(tower::layer::layer_fn(Counting))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming(carried_rx), stop.clone().cancelled_owned());
    let served = async { tokio::try_join!(identified, anonymous, carried).map(drop) };
    let ending = async {
        shutdown.await;
        stop.cancel();
        sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        result = served => result,
        () = sorting => Ok(()),
        () = ending => Ok(()),
    }
}

/// What holds for all connections.
pub(super) fn server() -> Server {
    without_pings()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
}

/// The same for connections that may pause.
fn without_pings() -> Server {
    Server::builder().http2_max_header_list_size(HEADER_BYTES)
}

fn incoming(connections_rx: mpsc::Receiver<Io>) -> impl Stream<Item = io::Result<Io>> {
    ReceiverStream::new(connections_rx).map(Ok)
}

/// Passes each connection to the server for peers with a certificate, to the one for
/// peers without, or to the one for connections of trunks. Never returns, so that the
/// servers don't end with the sender.
async fn sort(
    mut streams_rx: mpsc::Receiver<Served>,
    bounds: Bounds,
    [identified_tx, anonymous_tx, carried_tx]: [mpsc::Sender<Io>; 3],
) {
    while let Some(stream) = streams_rx.recv().await {
        let Some(io) = Io::new(stream, &bounds) else { continue };
        let server_tx = match io.peer.identity {
            Some(_) if io.stream.may_pause() => &carried_tx,
            Some(_) => &identified_tx,
            None => &anonymous_tx,
        };
        // Fails only while the server shuts down.
        let _ = server_tx.send(io).await;
    }
    std::future::pending().await
}

async fn accept_all(listener: TcpListener, tls: ServerTls, streams_tx: mpsc::Sender<Served>) {
    let unidentified = Unidentified::new("TLS handshakes", HANDSHAKES);
    listen::serve_each(listener, &unidentified, |tcp, address, place| {
        let (tls, streams_tx) = (tls.clone(), streams_tx.clone());
        async move {
            match accept(tcp, tls).await {
                Ok(stream) if packets::is_asked(&stream) => {
                    return packets::take_part(stream, address, place).await;
                }
                // Fails only while the server shuts down.
                Ok(stream) => {
                    keepalive::bound_silence(stream.get_ref().0);
                    drop(streams_tx.send(stream.into()).await);
                }
                Err(error) => debug!(%address, %error, "connection refused"),
            }
            drop(place);
        }
    })
    .await;
}

/// The bounds of all connections of a server.
struct Bounds {
    cut: CancellationToken,
    unidentified: Arc<Unidentified>,
    /// How long a connection without a certificate may last.
    anonymous: Duration,
    members: Arc<Members>,
}

impl Bounds {
    fn new(cut: CancellationToken) -> Self {
        let unidentified = Unidentified::new("connections without a certificate", anonymous::CONNECTIONS);
        Self { cut, unidentified, anonymous: anonymous::LIMIT, members: Arc::default() }
    }
}

struct Io {
    stream: Served,
    peer: Peer,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Only without a certificate.
    anonymous: Option<Anonymous>,
    /// Only with a certificate.
    _slot: Option<Slot>,
}

/// The limits of a connection without a certificate.
struct Anonymous {
    /// Until when it may last.
    limit: Pin<Box<Sleep>>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    _place: Place,
}

impl Io {
    /// None if the identity has too many connections. Without a certificate, the connection is closed after a
    /// while, or when it is evicted.
    fn new(stream: Served, bounds: &Bounds) -> Option<Self> {
        let (address, local) = stream.addresses()?;
        let identity = stream.identity();
        let anonymous = identity.is_none().then(|| {
            let place = bounds.unidentified.enter(address.ip());
            let evicted = Box::pin(place.evicted().cancelled_owned());
            Anonymous { limit: Box::pin(sleep(bounds.anonymous)), evicted, _place: place }
        });
        let slot = identity.as_deref().map(|identity| bounds.members.connect(identity));
        if let (Some(None), Some(identity)) = (&slot, &identity) {
            warn!(%address, %identity, "connection refused: this identity has too many");
            return None;
        }
        let slot = slot.flatten();
        let unfinished = slot.as_ref().map(|slot| slot.unfinished.clone()).unwrap_or_default();
        let peer = Peer { identity, address, local, trunk: stream.trunk(), unfinished };
        let cut = Box::pin(bounds.cut.clone().cancelled_owned());
        Some(Self { stream, peer, cut, anonymous, _slot: slot })
    }

    /// Whether the connection may go on. Reads and writes check, because a peer that
    /// reads nothing keeps the server in a write.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the service has ended"));
        }
        let Some(anonymous) = &mut self.anonymous else { return Ok(()) };
        if anonymous.evicted.as_mut().poll(cx).is_ready() {
            let reason = "too many connections without a certificate";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason));
        }
        if anonymous.limit.as_mut().poll(cx).is_ready() {
            let reason = "it lasts too long without a certificate";
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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
        let identified = issue("isthmus:///agent/alpha/n1/anna").client_config(&[ALPN_H2]).unwrap();
        let unidentified = anonymous_client_config(authority.certificate().clone(), &[ALPN_H2]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for (client, closed, writes) in [
            (unidentified.clone(), true, false),
            (identified.clone(), false, false),
            // The client reads nothing.
            (unidentified, true, true),
            (identified, false, true),
        ] {
            let connect = async {
                let tcp = TcpStream::connect(address).await.unwrap();
                let name = ServerName::try_from("broker").unwrap();
                client.connect(name, tcp).await.unwrap()
            };
            let serve = async { accept(listener.accept().await.unwrap().0, broker.clone()).await.unwrap() };
            let (_client, served) = tokio::join!(connect, serve);
            let enrolment = Duration::from_millis(50);
            let bounds = Bounds { anonymous: enrolment, ..Bounds::new(CancellationToken::new()) };
            let mut served = Io::new(served.into(), &bounds).unwrap();
            let using = async {
                if !writes {
                    return served.read_u8().await;
                }
                loop {
                    served.write_all(&[0; 1 << 16]).await?;
                }
            };
            let limit = if closed { Duration::from_secs(60) } else { enrolment * 10 };
            let used = timeout(limit, using).await;
            let kind = used.ok().map(|used| used.unwrap_err().kind());
            assert_eq!(kind, closed.then_some(io::ErrorKind::TimedOut), "writes: {writes}");
        }
    }
}
