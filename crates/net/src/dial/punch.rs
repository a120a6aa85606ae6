//! `punch`: both sides connect to each other at once, from ports whose outside
//! address they know (TCP simultaneous open, RFC 9293 section 3.5; RFC 5382
//! section 4.3 requires NATs to support it). After its own first segment, each
//! side's NAT or firewall takes the other's for an answer. So it is enough that one
//! of the two segments arrives second.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use isthmus_service::{Deadline, Late};
use isthmus_wire::{ConnectionId, reflect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::{DialError, SocketOptions, resolve};

/// Pause before a refused connect is retried. The other side's router may answer
/// with a reset until its own side has dialed.
const AGAIN: Duration = Duration::from_millis(30);
/// How many connections may wait at a punched port. Only a single one is expected, but other peers
/// may connect before it.
pub(super) const BACKLOG: u32 = 8;

/// A local port, and the address at which it is seen from outside.
#[derive(Debug)]
pub struct PunchPort {
    local: SocketAddr,
    seen: SocketAddr,
    round_trip: Duration,
    _holder: Holder,
}

/// The socket that reserves a port until it is dialed from.
#[derive(Debug)]
enum Holder {
    /// The connection to the relay that reported how the port is seen. The connection keeps the
    /// mapping in the NAT.
    Reflection {
        _stream: TcpStream,
    },
    Port {
        _socket: TcpSocket,
    },
}

impl PunchPort {
    /// Takes a port and asks a relay how the port is seen.
    ///
    /// # Errors
    /// [`DialError`], at the latest after `deadline`.
    pub async fn open(reflector: SocketAddr, deadline: Duration) -> Result<Self, DialError> {
        Self::ask(reflector, 0, None, deadline).await
    }

    /// Takes a port, asks a relay how the port is seen, and names a reach test, for which the relay
    /// may then dial this node.
    ///
    /// # Errors
    /// As [`PunchPort::open`].
    pub async fn open_for(
        reflector: SocketAddr,
        test: ConnectionId,
        deadline: Duration,
    ) -> Result<Self, DialError> {
        Self::ask(reflector, 0, Some(test), deadline).await
    }

    /// Takes this local port, and asks a relay how the port is seen; 0 stands for any port.
    ///
    /// # Errors
    /// As [`PunchPort::open`].
    pub async fn open_at(reflector: SocketAddr, port: u16, deadline: Duration) -> Result<Self, DialError> {
        Self::ask(reflector, port, None, deadline).await
    }

    async fn ask(
        to: SocketAddr,
        port: u16,
        test: Option<ConnectionId>,
        deadline: Duration,
    ) -> Result<Self, DialError> {
        let opening = async {
            let failed = |source| DialError::Connect { from: format!("port {port}"), to, source };
            let socket = socket((Ipv4Addr::UNSPECIFIED, port).into()).map_err(failed)?;
            let mut asked = Instant::now();
            let mut stream = socket.connect(to).await.map_err(failed)?;
            let connected = asked.elapsed();
            let local = stream.local_addr().map_err(failed)?;
            asked = Instant::now();
            stream.write_all(&reflect::encode_question(test)).await.map_err(failed)?;
            let mut answer = [0; reflect::ANSWER_LEN];
            stream.read_exact(&mut answer).await.map_err(failed)?;
            let round_trip = connected.min(asked.elapsed());
            let seen = reflect::decode_answer(&answer)
                .map_err(|error| DialError::Reflection { from: to.to_string(), reason: error.to_string() })?;
            Ok(Self { local, seen, round_trip, _holder: Holder::Reflection { _stream: stream } })
        };
        tokio::time::timeout(deadline, opening)
            .await
            .unwrap_or_else(|_| Err(DialError::TimedOut { to: to.to_string(), waited: deadline }))
    }

    /// Takes a port whose number is the same outside: without a NAT, or behind a NAT that preserves
    /// ports. No relay is asked.
    ///
    /// # Errors
    /// If no port is free, or `local` is no address of this node.
    pub fn predicted(local: IpAddr, seen: IpAddr) -> io::Result<Self> {
        let socket = socket((local, 0).into())?;
        let local = socket.local_addr()?;
        let seen = SocketAddr::new(seen, local.port());
        Ok(Self { local, seen, round_trip: Duration::ZERO, _holder: Holder::Port { _socket: socket } })
    }

    /// The port's address at this node.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The port's address as seen from outside, as a relay reported or as predicted.
    pub fn seen(&self) -> SocketAddr {
        self.seen
    }

    /// A further socket at the same port.
    pub(super) fn another(&self) -> io::Result<TcpSocket> {
        socket(self.local)
    }

    /// The shorter of the two round trips to the relay; 0 if no relay was asked.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Connects to the other side, which does the same. Tries again while the connection is
    /// refused. An incoming connection from the other side counts as well: if a side has no router,
    /// the two SYNs may never cross on the path.
    ///
    /// # Errors
    /// [`DialError`], at the latest after `deadline`.
    pub async fn connect(
        self,
        to: &str,
        options: SocketOptions,
        deadline: impl Into<Deadline>,
    ) -> Result<TcpStream, DialError> {
        let deadline = deadline.into();
        let to: SocketAddr = resolve(to).await?;
        let failed = |source| DialError::Connect { from: self.local.to_string(), to, source };
        let connected = async {
            tokio::select! {
                stream = accept(self.local, to, options) => stream,
                stream = connect(self.local, to, options) => stream,
            }
        };
        let late = |Late(waited)| DialError::TimedOut { to: to.to_string(), waited };
        let stream = deadline.bound(connected).await.map_err(late)?.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    }
}

/// Connects, again and again as long as the other side isn't ready.
pub(super) async fn connect(
    local: SocketAddr,
    to: SocketAddr,
    options: SocketOptions,
) -> io::Result<TcpStream> {
    loop {
        let socket = socket(local)?;
        options.apply(&socket)?;
        match socket.connect(to).await {
            Err(error) if is_early(&error) => tokio::time::sleep(AGAIN).await,
            connected => return connected,
        }
    }
}

/// Whether a failed connect came too early. Refused or reset: the other side hasn't dialed yet.
/// Address in use or not available: the other side has dialed, and its connection is about to be
/// accepted.
fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | AddrInUse | AddrNotAvailable)
}

/// Accepts the other side's connection, and closes all others.
async fn accept(local: SocketAddr, from: SocketAddr, options: SocketOptions) -> io::Result<TcpStream> {
    let socket = socket(local)?;
    options.apply(&socket)?;
    let listener = socket.listen(BACKLOG)?;
    loop {
        let (stream, peer) = listener.accept().await?;
        if peer == from {
            return Ok(stream);
        }
        tracing::debug!(%peer, expected = %from, "a connection from another address at a punched port, closed");
    }
}

/// A socket that shares its port with other sockets of this node.
pub(super) fn socket(local: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(local)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    /// Answers each connection with its source address.
    async fn reflector() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, from)) = listener.accept().await {
                let mut question = [0; reflect::QUESTION_LEN];
                stream.read_exact(&mut question).await.unwrap();
                assert_eq!(reflect::decode_question(&question), Ok(None));
                stream.write_all(&reflect::encode_answer(from)).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn two_ports_that_dial_each_other_connect() {
        let reflector = reflector().await;
        let near = PunchPort::open(reflector, SOON).await.unwrap();
        let far = PunchPort::open(reflector, SOON).await.unwrap();
        assert_eq!(near.local(), near.seen());
        let (near_seen, far_seen) = (near.seen().to_string(), far.seen().to_string());
        let options = SocketOptions::default();
        let (near, far) =
            tokio::join!(near.connect(&far_seen, options, SOON), far.connect(&near_seen, options, SOON));
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        near.write_all(b"there").await.unwrap();
        let mut got = [0; 5];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"there");
        assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
    }

    #[tokio::test]
    async fn predicted_ports_connect() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let near = PunchPort::predicted(loopback, loopback).unwrap();
        let far = PunchPort::predicted(loopback, loopback).unwrap();
        let (near_seen, far_seen) = (near.seen().to_string(), far.seen().to_string());
        let options = SocketOptions::default();
        let (near, far) =
            tokio::join!(near.connect(&far_seen, options, SOON), far.connect(&near_seen, options, SOON));
        assert_eq!(near.unwrap().peer_addr().unwrap(), far.unwrap().local_addr().unwrap());
    }

    #[tokio::test]
    async fn an_absent_peer_is_an_error_within_the_deadline() {
        let port = PunchPort::open(reflector().await, SOON).await.unwrap();
        let failed =
            port.connect("127.128.0.9:9", SocketOptions::default(), Duration::from_millis(200)).await;
        assert!(failed.unwrap_err().to_string().contains("127.128.0.9:9"));
    }
}
