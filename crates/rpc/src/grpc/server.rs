//! The server's side of [`grpc`](super).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use isthmus_identity::secured::{Secured, ServerTls};
use isthmus_net::keepalive;
use isthmus_service::unidentified::{Unidentified, UnidentifiedEntry};
use isthmus_service::{counters, listen};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tracing::{debug, warn};

use super::anonymous::{self, OnlyEnrolment};
use super::bounded::Bounded;
use super::in_connection::InConnection;
use super::members::{Calls, Members, Slot};
use super::peer::Peer;
use super::served::Served;
use super::settings::{server, without_pings};
use super::share::{FEW, MANY};
use super::{HANDSHAKE_TIMEOUT, PING_TIMEOUT};
use crate::calls::At;
use crate::packets;
use crate::port::Port;

/// How long calls in progress may go on after the shutdown began, before their connections are
/// closed.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Most handshakes in progress at once on a port of its own. A handshake takes up to 80 KiB, if the
/// client sends the largest messages that TLS allows.
const HANDSHAKES: usize = 4096;
/// Most connections that wait to be served after their handshake.
const INCOMING_BOUND: usize = 64;

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

/// Serves gRPC of a service at its port until `shutdown`. Calls in progress then have
/// `SHUTDOWN_GRACE` to end. A failed connection doesn't affect other connections.
///
/// # Errors
/// If the server itself fails.
pub async fn serve(
    at: At,
    port: impl Into<Port>,
    tls: ServerTls,
    routes: Routes,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let (streams_tx, streams_rx) = mpsc::channel(INCOMING_BOUND);
    let stop = CancellationToken::new();
    let _accepting = stop.clone().drop_guard();
    tokio::spawn(stop.clone().run_until_cancelled_owned(accept_all(port.into(), tls, streams_tx)));
    serve_streams(at, streams_rx, routes, async {
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
    at: At,
    streams_rx: mpsc::Receiver<Served>,
    routes: Routes,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    serve_streams_for(at, streams_rx, routes, PING_TIMEOUT, shutdown).await
}

/// Serves gRPC as [`serve_streams`] does. A ping to an identified client may stay unanswered for
/// this long.
///
/// # Errors
/// As [`serve_streams`].
pub async fn serve_streams_for(
    at: At,
    streams_rx: mpsc::Receiver<Served>,
    routes: Routes,
    ping_timeout: Duration,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let stop = CancellationToken::new();
    let cut = CancellationToken::new();
    let _cut_on_return = cut.clone().drop_guard();
    let (anonymous_tx, anonymous_rx) = mpsc::channel(INCOMING_BOUND);
    let (few_tx, few_rx) = mpsc::channel(INCOMING_BOUND);
    let (many_tx, many_rx) = mpsc::channel(INCOMING_BOUND);
    let (carried_tx, carried_rx) = mpsc::channel(INCOMING_BOUND);
    let servers = Servers { anonymous_tx, few_tx, many_tx, carried_tx };
    let sorting = sort(streams_rx, Bounds::new(at, cut), servers);
    let anonymous = anonymous::server()
        .layer(tower::layer::layer_fn(OnlyEnrolment))
        .add_routes(routes.clone())
        .serve_with_incoming_shutdown(incoming(anonymous_rx), stop.clone().cancelled_owned());
    let pinged = |calls| server().http2_keepalive_timeout(Some(ping_timeout)).max_concurrent_streams(calls);
    let few = identified(pinged(FEW), routes.clone(), few_rx, stop.clone());
    let many = identified(pinged(MANY), routes.clone(), many_rx, stop.clone());
    let carried = identified(without_pings().max_concurrent_streams(MANY), routes, carried_rx, stop.clone());
    let served = async { tokio::try_join!(anonymous, few, many, carried).map(drop) };
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

/// Serves the connections of members.
async fn identified(
    server: Server,
    routes: Routes,
    connections_rx: mpsc::Receiver<Io>,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    server
        .layer(tower::layer::layer_fn(InConnection))
        .layer(tower::layer::layer_fn(Bounded))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming(connections_rx), stop.cancelled_owned())
        .await
}

fn incoming(connections_rx: mpsc::Receiver<Io>) -> impl Stream<Item = io::Result<Io>> {
    ReceiverStream::new(connections_rx).map(Ok)
}

/// The servers that connections are passed to.
struct Servers {
    /// The server for peers without a certificate.
    anonymous_tx: mpsc::Sender<Io>,
    /// The server for members that may have few calls on a connection. `many_tx` is for those that
    /// may have many.
    few_tx: mpsc::Sender<Io>,
    many_tx: mpsc::Sender<Io>,
    /// The server for connections of trunks.
    carried_tx: mpsc::Sender<Io>,
}

/// Passes each connection to its server. Never returns, so that the servers don't end with
/// the sender.
async fn sort(mut streams_rx: mpsc::Receiver<Served>, bounds: Bounds, servers: Servers) {
    while let Some(stream) = streams_rx.recv().await {
        let Some(io) = Io::new(stream, &bounds) else { continue };
        let server_tx = match &io.slot {
            Some(_) if io.stream.may_pause() => &servers.carried_tx,
            Some(slot) if slot.share.each > FEW => &servers.many_tx,
            Some(_) => &servers.few_tx,
            None => &servers.anonymous_tx,
        };
        // Fails only while the server shuts down.
        let _ = server_tx.send(io).await;
    }
    std::future::pending().await
}

async fn accept_all(port: Port, tls: ServerTls, streams_tx: mpsc::Sender<Served>) {
    let unidentified = Unidentified::new("TLS handshakes", HANDSHAKES);
    port.serve_each(&unidentified, move |tcp, address, entry| {
        let (tls, streams_tx) = (tls.clone(), streams_tx.clone());
        async move {
            match accept(tcp, tls).await {
                Ok(stream) if packets::is_asked(&stream) => {
                    return packets::take_part(stream, address, entry).await;
                }
                // Fails only while the server shuts down.
                Ok(stream) => {
                    keepalive::bound_silence(stream.get_ref().0);
                    drop(streams_tx.send(stream.into()).await);
                }
                Err(error) => debug!(%address, %error, "connection refused"),
            }
            drop(entry);
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
    fn new(at: At, cut: CancellationToken) -> Self {
        let unidentified = Unidentified::new("connections without a certificate", anonymous::CONNECTIONS);
        Self { cut, unidentified, anonymous: anonymous::LIMIT, members: Members::at(at) }
    }
}

struct Io {
    stream: Served,
    peer: Peer,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Ready when the connection must make room for another one.
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The limits of a connection without a certificate; `None` for a member.
    anonymous: Option<Anonymous>,
    /// The member's place for the connection; `None` without a certificate.
    slot: Option<Slot>,
}

/// The limits of a connection without a certificate.
struct Anonymous {
    /// When the connection must end.
    limit: Pin<Box<Sleep>>,
    _entry: UnidentifiedEntry,
}

impl Io {
    /// Counts a connection; `None` if its identity has too many. A connection without a certificate
    /// is closed after a while, or when it is evicted.
    fn new(stream: Served, bounds: &Bounds) -> Option<Self> {
        let (address, local) = stream.addresses()?;
        let identity = stream.identity();
        let slot = identity.as_deref().map(|identity| bounds.members.connect(identity));
        if let (Some(None), Some(identity)) = (&slot, &identity) {
            counters::refused("too many connections");
            warn!(%address, caller = %identity, "connection refused: this identity has too many");
            return None;
        }
        let slot = slot.flatten();
        let (evicted, calls, anonymous) = match &slot {
            Some(slot) => (slot.evicted.clone(), slot.calls.clone(), None),
            None => {
                let entry = bounds.unidentified.enter(address.ip());
                let limit = Box::pin(sleep(bounds.anonymous));
                (entry.evicted(), Calls::default(), Some(Anonymous { limit, _entry: entry }))
            }
        };
        let evicted = Box::pin(evicted.cancelled_owned());
        let peer = Peer { identity, address, local, trunk: stream.trunk(), calls };
        let cut = Box::pin(bounds.cut.clone().cancelled_owned());
        Some(Self { stream, peer, cut, evicted, anonymous, slot })
    }

    /// Checks that the connection may go on. Reads and writes check, because a peer that reads
    /// nothing keeps the server in a write.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let aborted = |reason| Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason));
        if self.cut.as_mut().poll(cx).is_ready() {
            return aborted("the service has ended");
        }
        if self.evicted.as_mut().poll(cx).is_ready() {
            return aborted("too many connections of the same kind");
        }
        let Some(anonymous) = &mut self.anonymous else { return Ok(()) };
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

    use isthmus_identity::credentials::{ALPN_H2, SigningRequest, anonymous_client_config};
    use isthmus_identity::{Authority, Credentials, Identity};
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Without that bound, any host could use up the broker's descriptors.
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
            let bounds = Bounds { anonymous: enrolment, ..Bounds::new(At::Broker, CancellationToken::new()) };
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
