//! Loopback connections of an agent: knocks, and programs' ends of connections that
//! the agent carries. A Unix socket pair would be cheaper for the latter, but
//! programs set TCP options on their sockets.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Mutex;
use std::time::Duration;

use isthmus_wire::address::KNOCK_SOURCE;
use nix::errno::Errno;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::listen;
use crate::lock;

/// How long the kernel may take to connect two sockets over loopback.
const DEADLINE: Duration = Duration::from_secs(5);

/// An unconnected socket bound to [`KNOCK_SOURCE`], with its address. Buffer sizes
/// are in bytes, 0 for the kernel's default.
///
/// # Errors
/// As `socket(2)` and `bind(2)`.
pub fn socket(send_buffer: u32, receive_buffer: u32) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
    if send_buffer > 0 {
        socket.set_send_buffer_size(send_buffer as usize)?;
    }
    if receive_buffer > 0 {
        socket.set_recv_buffer_size(receive_buffer as usize)?;
    }
    socket.bind(&SocketAddrV4::new(KNOCK_SOURCE, 0).into())?;
    let own = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket, own))
}

/// Connects a socket over loopback. If the listener has room, the kernel has
/// connected it by the second call, and nothing is waited for.
///
/// # Errors
/// As `connect(2)`.
pub async fn connect(socket: Socket, to: SocketAddr) -> io::Result<std::net::TcpStream> {
    let to = to.into();
    let under_way = |error: &io::Error| {
        [Errno::EINPROGRESS, Errno::EALREADY].iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
    };
    let connected = socket.connect(&to).or_else(|error| match under_way(&error) {
        true => socket.connect(&to),
        false => Err(error),
    });
    match connected {
        Ok(()) => Ok(socket.into()),
        Err(error) if under_way(&error) => {
            let stream = TcpStream::from_std(socket.into())?;
            stream.writable().await?;
            match stream.take_error()? {
                None => stream.into_std(),
                Some(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Makes pairs of connected loopback sockets by one listener. Connections of other
/// processes to it are closed when the next pair is made.
#[derive(Debug)]
pub struct PairMaker {
    listener: TcpListener,
    address: SocketAddr,
    /// Which call waits for the other end of which connection. Each call accepts
    /// for all.
    waiting: Mutex<HashMap<SocketAddr, oneshot::Sender<TcpStream>>>,
}

/// Both ends of a connection over loopback.
#[derive(Debug)]
pub struct Pair {
    /// The program's end. Its peer address is [`KNOCK_SOURCE`], by which a shim
    /// recognises it.
    pub program: std::net::TcpStream,
    /// The agent's end.
    pub agent: TcpStream,
}

impl PairMaker {
    /// Binds the listener.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn bind() -> io::Result<Self> {
        let listener = listen(SocketAddrV4::new(KNOCK_SOURCE, 0).into())?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, waiting: Mutex::default() })
    }

    /// Makes a pair. Buffer sizes are set on the program's end before it
    /// connects, because they decide on window scaling.
    ///
    /// # Errors
    /// As `connect(2)`, or `TimedOut`.
    pub async fn pair(&self, send_buffer: u32, receive_buffer: u32) -> io::Result<Pair> {
        // Bound first, so that this connection differs from those of other
        // processes on this machine.
        let (socket, own) = socket(send_buffer, receive_buffer)?;
        let (agent_tx, mut agent_rx) = oneshot::channel();
        lock(&self.waiting).insert(own, agent_tx);
        let made = tokio::time::timeout(DEADLINE, async {
            let program = connect(socket, self.address).await?;
            // Most often the connection is in the queue already, before the runtime
            // reports it.
            while let Ok((stream, peer)) = SockRef::from(&self.listener).accept() {
                stream.set_nonblocking(true)?;
                self.give(TcpStream::from_std(stream.into())?, peer.as_socket());
            }
            loop {
                tokio::select! {
                    biased;
                    agent = &mut agent_rx => {
                        let agent = agent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                        return Ok(Pair { program, agent });
                    }
                    accepted = self.listener.accept() => {
                        let (stream, peer) = accepted?;
                        self.give(stream, Some(peer));
                    }
                }
            }
        })
        .await;
        lock(&self.waiting).remove(&own);
        made.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Gives an accepted connection to the call that made it; closes it if none did.
    fn give(&self, stream: TcpStream, peer: Option<SocketAddr>) {
        let agent_tx = peer.and_then(|peer| lock(&self.waiting).remove(&peer));
        if let Some(agent_tx) = agent_tx {
            // The receiver is gone if the pair's deadline has passed.
            let _ = agent_tx.send(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn pairs_are_connected_and_other_connections_closed() {
        let maker = PairMaker::bind().unwrap();
        let mut other = TcpStream::connect(maker.address).await.unwrap();
        for round in 0..10u8 {
            let mut pair = maker.pair(0, 0).await.unwrap();
            assert_eq!(pair.program.peer_addr().unwrap().ip(), KNOCK_SOURCE);
            pair.program.write_all(&[round]).unwrap();
            assert_eq!(pair.agent.read_u8().await.unwrap(), round);
        }
        assert_eq!(other.read(&mut [0]).await.unwrap(), 0);
    }
}
