//! The client's side of [`grpc`](super).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use isthmus_identity::credentials::{ALPN_H2, Credentials, CredentialsError, anonymous_client_config};
use isthmus_identity::identity::Identity;
use isthmus_identity::secured::{ClientTls, Secured};
use isthmus_net::dial::{self, SocketOptions};
use isthmus_net::keepalive;
use isthmus_plan::limits;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};

use super::{CONNECT_TIMEOUT, HANDSHAKE_TIMEOUT, KEEPALIVE_INTERVAL, PING_TIMEOUT};
use super::{misdirected, versions};
use crate::packets::{self, Progress};

/// The stage at which a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The set-up before anything was sent: names, certificates.
    Setup,
    /// The host name wasn't found.
    Resolve,
    /// Connecting to the server by TCP.
    Connect,
    /// The handshake of TLS.
    Handshake,
    /// The handshake of TLS, because another service of the grid is there.
    Misdirected,
    /// The handshake of TLS, because large packets vanish on the way; the reason has the remedies.
    Swallowed,
    /// The handshake of HTTP/2.
    Http,
}

/// Why a service could not be reached.
#[derive(Debug, Clone)]
pub struct ConnectError {
    /// The TLS name of the service, such as "broker" or "gateway.alpha".
    pub server_name: String,
    /// The address of the service as it was given, `HOST:PORT`.
    pub address: String,
    /// The source address of the connection; `None` if it got none.
    pub local: Option<IpAddr>,
    /// The stage that failed.
    pub stage: Stage,
    /// The cause of the failure.
    pub reason: String,
    /// Whether the connection stood, and the other end closed it. Another connection may last then.
    pub broke: bool,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server_name, address, local, stage, reason, broke: _ } = self;
        write!(f, "cannot reach {server_name} at {address}")?;
        if let Some(local) = local {
            write!(f, " from {local}")?;
        }
        write!(f, ": {reason}")?;
        f.write_str(match stage {
            Stage::Setup => "; check the address, HOST:PORT",
            Stage::Resolve => "; check the host name",
            Stage::Connect => "; check that it runs there and that no firewall stands between",
            Stage::Handshake => {
                "; check that the address is that of this service of this grid, and both clocks"
            }
            Stage::Misdirected => "; check the address",
            Stage::Swallowed => "",
            Stage::Http => "; check that the address is that of this service",
        })
    }
}

impl std::error::Error for ConnectError {}

/// Connects to a service of the grid at `address`, `HOST:PORT`, whose certificate
/// must be for `server_name`. If a call finds the channel broken, the channel
/// connects again, with the credentials of that moment.
///
/// # Errors
/// If the service can't be reached within `CONNECT_TIMEOUT` and
/// `HANDSHAKE_TIMEOUT`.
pub async fn connect(
    address: &str,
    server_name: &str,
    credentials: &Credentials,
) -> Result<Channel, ConnectError> {
    connect_with(address, server_name, credentials.client_config(&[ALPN_H2])).await
}

/// Connects as [`connect`] does. Also returns the identity of the service: the gateways of a site
/// share a TLS name.
///
/// # Errors
/// As [`connect`].
pub async fn connect_identified(
    address: &str,
    server_name: &str,
    credentials: &Credentials,
) -> Result<(Channel, Identity), ConnectError> {
    let tls = credentials.client_config(&[ALPN_H2]);
    let connector = connector(address, server_name, tls)?;
    let channel = connector.clone().channel().await?;
    let unknown = || connector.error(None, Stage::Handshake, "it has shown no certificate");
    let identity = connector.identity.get().cloned().ok_or_else(unknown)?;
    Ok((channel, identity))
}

/// Connects to a service without a certificate of the caller's own, to enrol.
///
/// # Errors
/// As [`connect`].
pub async fn connect_unidentified(
    address: &str,
    server_name: &str,
    authority: CertificateDer<'static>,
) -> Result<Channel, ConnectError> {
    connect_with(address, server_name, anonymous_client_config(authority, &[ALPN_H2])).await
}

async fn connect_with(
    address: &str,
    server_name: &str,
    tls: Result<ClientTls, CredentialsError>,
) -> Result<Channel, ConnectError> {
    connector(address, server_name, tls)?.channel().await
}

fn connector(
    address: &str,
    server_name: &str,
    tls: Result<ClientTls, CredentialsError>,
) -> Result<Connector, ConnectError> {
    let tls = tls.map_err(|error| ConnectError {
        server_name: server_name.to_owned(),
        address: address.to_owned(),
        local: None,
        stage: Stage::Setup,
        reason: error.to_string(),
        broke: false,
    })?;
    Ok(Connector::new(address, server_name, tls))
}

/// A channel over a single open connection. The channel ends with the connection.
///
/// # Errors
/// If the HTTP/2 handshake fails.
pub async fn channel_over<IO>(io: IO) -> Result<Channel, tonic::transport::Error>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    channel_by(endpoint()?, io).await
}

/// A channel over a single open connection, on which a ping may stay unanswered for this long.
///
/// # Errors
/// As [`channel_over`].
pub async fn channel_over_for<IO>(io: IO, ping_timeout: Duration) -> Result<Channel, tonic::transport::Error>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    channel_by(endpoint()?.keep_alive_timeout(ping_timeout), io).await
}

/// A channel over a single open connection within this machine, without pings. The kernel reports
/// the end of the other side, and a stopped process (Ctrl-Z) keeps its connection.
///
/// # Errors
/// As [`channel_over`].
pub async fn channel_within<IO>(io: IO) -> Result<Channel, tonic::transport::Error>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    channel_by(plain_endpoint()?, io).await
}

async fn channel_by<IO>(endpoint: Endpoint, io: IO) -> Result<Channel, tonic::transport::Error>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = Arc::new(Mutex::new(Some(io)));
    let connector = tower::service_fn(move |_: Uri| {
        let io = io.lock().ok().and_then(|mut slot| slot.take());
        async move {
            io.map(TokioIo::new)
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the connection has ended"))
        }
    });
    endpoint.connect_with_connector(connector).await
}

/// An endpoint with pings. The host of its URI has no meaning here: TLS checks the server's name.
fn endpoint() -> Result<Endpoint, tonic::transport::Error> {
    Ok(plain_endpoint()?
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect_timeout(CONNECT_TIMEOUT + limits::grown(HANDSHAKE_TIMEOUT, Some(CONNECT_TIMEOUT))))
}

/// An endpoint without pings. Every call names the versions that this end supports.
fn plain_endpoint() -> Result<Endpoint, tonic::transport::Error> {
    Endpoint::from_static("http://isthmus").user_agent(versions::own().to_string())
}

/// The longest segment of a connection in both directions, in bytes: IPv4 packets of 1280 bytes.
/// IPv6 wants every link to take them (RFC 8200, section 5). So services stay connected over nearly
/// all ways that swallow large packets. What they send each other is little.
const SEGMENT: u16 = 1240;
/// How long a handshake is silent before the segments of [`SHORTER`] are tried. No more segments
/// are tried, because the server may be slow since many connect at once.
const HANGING: Duration = Duration::from_secs(5);
const SHORTER: &[u16] = &[500];

/// Opens the connections of a channel to one server.
#[derive(Clone)]
struct Connector {
    address: Arc<str>,
    server_name: Arc<str>,
    tls: ClientTls,
    /// The service's identity, from the first handshake on.
    identity: Arc<OnceLock<Identity>>,
}

impl Connector {
    fn new(address: &str, server_name: &str, tls: ClientTls) -> Self {
        let (address, server_name) = (address.into(), server_name.into());
        Self { address, server_name, tls, identity: Arc::default() }
    }

    async fn channel(self) -> Result<Channel, ConnectError> {
        let connector = self.clone();
        let service = tower::service_fn(move |_: Uri| {
            let connector = connector.clone();
            async move { connector.dial().await.map(TokioIo::new) }
        });
        let connected = match endpoint() {
            Ok(endpoint) => endpoint.connect_with_connector(service).await,
            Err(error) => Err(error),
        };
        connected.map_err(|error| self.unwrap_error(&error))
    }

    /// Finds the error of [`Connector::dial`] among the causes of tonic's error.
    fn unwrap_error(&self, error: &tonic::transport::Error) -> ConnectError {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        let mut last = String::new();
        while let Some(error) = cause {
            if let Some(ours) = error.downcast_ref::<ConnectError>() {
                return ours.clone();
            }
            last = error.to_string();
            cause = error.source();
        }
        ConnectError { broke: true, ..self.error(None, Stage::Http, last) }
    }

    fn error(&self, local: Option<IpAddr>, stage: Stage, reason: impl fmt::Display) -> ConnectError {
        ConnectError {
            server_name: self.server_name.to_string(),
            address: self.address.to_string(),
            local,
            stage,
            reason: reason.to_string(),
            broke: false,
        }
    }

    async fn dial(self) -> Result<Secured, ConnectError> {
        let name = ServerName::try_from(self.server_name.to_string())
            .map_err(|error| self.error(None, Stage::Setup, error))?;
        let begun = Instant::now();
        let tcp = match timeout(CONNECT_TIMEOUT, self.connect_tcp()).await {
            Ok(tcp) => tcp?,
            Err(_) => {
                let reason = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
                return Err(self.error(None, Stage::Connect, reason));
            }
        };
        let local = tcp.local_addr().ok().map(|address| address.ip());
        // A name's resolution is in it, too; that only makes the limit longer.
        let limit = limits::grown(HANDSHAKE_TIMEOUT, Some(begun.elapsed()));
        let handshake = self.tls.connect(name, tcp);
        let shorter = |segment| shake(self.clone(), segment);
        let looking = packets::look(HANGING, SHORTER, handshake, shorter);
        match timeout(limit, looking).await {
            Ok(Ok(Ok(stream))) => {
                keepalive::bound_silence(stream.get_ref().0);
                if let Some(identity) = stream.identity() {
                    self.identity.get_or_init(|| identity.clone());
                }
                Ok(stream)
            }
            Ok(Err(hole)) => {
                let on = format!("on the way from {} to this machine", self.server_name);
                Err(self.error(local, Stage::Swallowed, hole.text(&on)))
            }
            Ok(Ok(Err(error))) => {
                if let Some(reason) = misdirected::reason(&error, &self.server_name) {
                    return Err(self.error(local, Stage::Misdirected, reason));
                }
                let broke = is_broken(&error);
                Err(ConnectError { broke, ..self.error(local, Stage::Handshake, error) })
            }
            Err(_) => {
                let reason = format!("no TLS answer within {limit:?}");
                Err(self.error(local, Stage::Handshake, reason))
            }
        }
    }

    /// Tries the host's addresses in their order.
    async fn connect_tcp(&self) -> Result<TcpStream, ConnectError> {
        let addresses = lookup_host(&*self.address).await.map_err(|error| {
            let stage = if self.address.contains(':') { Stage::Resolve } else { Stage::Setup };
            self.error(None, stage, error)
        })?;
        let mut failure = self.error(None, Stage::Resolve, "the name has no address");
        let options = SocketOptions { segment: Some(SEGMENT), ..SocketOptions::default() };
        for address in addresses {
            match dial::connect(address, options).await {
                Ok(tcp) => return Ok(tcp),
                Err(error) => failure = self.error(source_towards(address), Stage::Connect, error),
            }
        }
        Err(failure)
    }
}

/// Makes a handshake over a connection with shorter segments. Nothing else is sent.
async fn shake(connector: Connector, segment: u16) -> io::Result<()> {
    let ends = (&*connector.address, &*connector.server_name);
    packets::connect(ends, &connector.tls, (Some(segment), CONNECT_TIMEOUT), &Progress::default())
        .await
        .map(drop)
}

/// Whether the other end closed the connection, rather than refused the handshake.
fn is_broken(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// The source address that the kernel would choose. Only the routing table is read; nothing is
/// sent.
fn source_towards(address: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect(address).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}
