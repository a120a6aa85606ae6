//! Loopback connections of an agent: knocks, and programs' ends of connections that
//! the agent carries. A Unix socket pair would be cheaper for the latter, but
//! programs set TCP options on their sockets.
//!
//! Other users of the machine can't interfere: all these connections come from one
//! port, which only the agent's user can bind, from a new address each.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_service::lock;
use isthmus_wire::address::{PAIR_LISTENER, agents};
use nix::errno::Errno;
use socket2::{Domain, SockFilter, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// How long the kernel may take to connect two sockets over loopback.
const DEADLINE: Duration = Duration::from_secs(5);
/// How many source addresses are tried before a connect fails. Each may have a connection to the
/// same destination already.
const ATTEMPTS: usize = 256;
/// Most connections that may wait to be accepted. Each call accepts for all calls.
const BACKLOG: i32 = 4096;

/// Buffer sizes of a socket in bytes; 0 is the kernel's default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Buffers {
    /// The size of the send buffer (`SO_SNDBUF`).
    pub send: u32,
    /// The size of the receive buffer (`SO_RCVBUF`).
    pub receive: u32,
}

/// The addresses that loopback connections of this agent come from: a single port, many addresses
/// (127.128.0.0/16).
#[derive(Debug, Clone)]
pub struct Sources(Arc<Port>);

#[derive(Debug)]
struct Port {
    port: u16,
    /// A socket that is bound to the port at all addresses, with `SO_REUSEPORT`. So the kernel
    /// refuses the port to the sockets of every other user (socket(7)).
    _holder: Socket,
    next: AtomicU32,
}

impl Sources {
    /// Reserves a port.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn bind() -> io::Result<Self> {
        let holder = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        holder.set_reuse_port(true)?;
        holder.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into())?;
        let port = holder.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?.port();
        Ok(Self(Arc::new(Port { port, _holder: holder, next: AtomicU32::new(0) })))
    }

    /// Connects over loopback. `expect` gets the address that the connection is to come from,
    /// before the connection is made. If `expect` returns `None`, the address is skipped.
    ///
    /// If the listener has room, the kernel connects at once, and nothing is waited for.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub async fn connect<T>(
        &self,
        to: SocketAddr,
        buffers: Buffers,
        mut expect: impl FnMut(SocketAddrV4) -> Option<T>,
    ) -> io::Result<(std::net::TcpStream, T)> {
        for _ in 0..ATTEMPTS {
            let from = SocketAddrV4::new(agents(self.0.next.fetch_add(1, Ordering::Relaxed)), self.0.port);
            let Some(expected) = expect(from) else { continue };
            match connect(bound(from, buffers)?, to).await {
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
                connected => return connected.map(|stream| (stream, expected)),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!("each of {ATTEMPTS} addresses has a connection to {to} already"),
        ))
    }
}

fn bound(from: SocketAddrV4, buffers: Buffers) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
    if buffers.send > 0 {
        socket.set_send_buffer_size(buffers.send as usize)?;
    }
    if buffers.receive > 0 {
        socket.set_recv_buffer_size(buffers.receive as usize)?;
    }
    socket.set_reuse_port(true)?;
    socket.bind(&from.into())?;
    // A program that gets the socket finds the option as on a socket of its own.
    socket.set_reuse_port(false)?;
    Ok(socket)
}

async fn connect(socket: Socket, to: SocketAddr) -> io::Result<std::net::TcpStream> {
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

/// Makes pairs of connected loopback sockets by a listener. A filter drops the segments of other
/// users, so that they can't fill the listener's queue.
#[derive(Debug)]
pub struct PairMaker {
    sources: Sources,
    listener: TcpListener,
    filtered: bool,
    address: SocketAddr,
    pending: Mutex<PendingPairs>,
}

/// The calls that wait for the other end of their connection, by the address it comes from.
type PendingPairs = HashMap<SocketAddr, oneshot::Sender<TcpStream>>;

/// Both ends of a connection over loopback.
#[derive(Debug)]
pub struct Pair {
    /// The program's end. Both its addresses are of 127.128.0.0/16, by which a shim recognises this
    /// end.
    pub program: std::net::TcpStream,
    /// The end of the agent.
    pub agent: TcpStream,
}

impl PairMaker {
    /// Binds the listener.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn bind(sources: Sources) -> io::Result<Self> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
        listener.bind(&SocketAddrV4::new(PAIR_LISTENER, 0).into())?;
        // Before it listens, so that no other connection is ever in its queue.
        let filtered = attach(&listener, &segments_from(sources.0.port))?;
        listener.listen(BACKLOG)?;
        let listener = TcpListener::from_std(listener.into())?;
        let address = listener.local_addr()?;
        Ok(Self { sources, listener, filtered, address, pending: Mutex::default() })
    }

    /// Makes a pair. Buffer sizes are set on the program's end before it connects, because they
    /// decide about window scaling.
    ///
    /// # Errors
    /// As `connect(2)`, or `TimedOut`.
    pub async fn pair(&self, buffers: Buffers) -> io::Result<Pair> {
        let made = tokio::time::timeout(DEADLINE, async {
            let expect = |from| self.expect(SocketAddr::V4(from));
            let (program, mut expected) = tokio::select! {
                biased;
                connected = self.sources.connect(self.address, buffers, expect) => connected?,
                // Without a filter, other users' connects may have filled the queue.
                error = self.accept_all(), if !self.filtered => return Err(error),
            };
            // Most often the connection is in the queue already, before the runtime
            // reports it.
            while let Ok((stream, peer)) = SockRef::from(&self.listener).accept() {
                stream.set_nonblocking(true)?;
                self.give(TcpStream::from_std(stream.into())?, peer.as_socket());
            }
            loop {
                tokio::select! {
                    biased;
                    agent = &mut expected.agent_rx => {
                        let agent = agent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                        // Accepted sockets have the listener's filter.
                        if self.filtered {
                            SockRef::from(&agent).detach_filter()?;
                        }
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
        made.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Accepts connections until accepting fails; returns that error.
    async fn accept_all(&self) -> io::Error {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => self.give(stream, Some(peer)),
                Err(error) => return error,
            }
        }
    }

    fn expect(&self, from: SocketAddr) -> Option<Expected<'_>> {
        let (agent_tx, agent_rx) = oneshot::channel();
        let mut pending = lock(&self.pending);
        if pending.contains_key(&from) {
            return None;
        }
        pending.insert(from, agent_tx);
        Some(Expected { pending: &self.pending, from, agent_rx })
    }

    /// Gives an accepted connection to the call that made it. Closes the connection if no call did.
    fn give(&self, stream: TcpStream, peer: Option<SocketAddr>) {
        let agent_tx = peer.and_then(|peer| lock(&self.pending).remove(&peer));
        if let Some(agent_tx) = agent_tx {
            // The receiver is gone if the pair's deadline has passed.
            let _ = agent_tx.send(stream);
        }
    }
}

/// A connection that the listener is to accept.
struct Expected<'a> {
    pending: &'a Mutex<PendingPairs>,
    from: SocketAddr,
    agent_rx: oneshot::Receiver<TcpStream>,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        lock(self.pending).remove(&self.from);
    }
}

const LOAD_HALF: u16 = 0x28;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// A filter (classic BPF) for a TCP socket that lets only segments from this port through. The
/// kernel applies it from the TCP header on, which begins with the source port.
fn segments_from(port: u16) -> [SockFilter; 4] {
    [
        SockFilter::new(LOAD_HALF, 0, 0, 0),
        SockFilter::new(JUMP_EQUAL, 0, 1, port.into()),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// Drops each segment that arrives at this socket, also the first of a connection. Returns `false`
/// if the kernel doesn't let this user do so.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn drop_all(socket: &Socket) -> io::Result<bool> {
    attach(socket, &[SockFilter::new(RETURN, 0, 0, 0)])
}

/// Attaches a filter to a socket. Returns `false` if the kernel doesn't let this user do so: some
/// kernels refuse filters of users other than root.
fn attach(socket: &Socket, filter: &[SockFilter]) -> io::Result<bool> {
    match socket.attach_filter(filter) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::info!(%error, "the kernel refuses socket filters of this user: other users can delay connections over loopback");
            Ok(false)
        }
        attached => attached.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use isthmus_wire::address::is_agents;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn pairs_are_connected() {
        let maker = PairMaker::bind(Sources::bind().unwrap()).unwrap();
        for round in 0..10u8 {
            let mut pair = maker.pair(Buffers::default()).await.unwrap();
            for end in [pair.program.local_addr().unwrap(), pair.program.peer_addr().unwrap()] {
                let SocketAddr::V4(end) = end else { panic!("{end}") };
                assert!(is_agents(*end.ip()), "{end}");
            }
            pair.program.set_nonblocking(false).unwrap();
            pair.program.write_all(&[round]).unwrap();
            assert_eq!(pair.agent.read_u8().await.unwrap(), round);
            pair.agent.write_all(&[round]).await.unwrap();
            let mut byte = [0];
            pair.program.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [round]);
        }
        assert!(lock(&maker.pending).is_empty());
    }

    /// An address from which the listener has a connection is passed over.
    #[tokio::test]
    async fn an_address_in_use_is_skipped() {
        let sources = Sources::bind().unwrap();
        let maker = PairMaker::bind(sources.clone()).unwrap();
        let mut kept = Vec::new();
        for _ in 0..10 {
            kept.push(maker.pair(Buffers::default()).await.unwrap());
        }
        sources.0.next.store(0, Ordering::Relaxed);
        let pair = maker.pair(Buffers::default()).await.unwrap();
        let from = |pair: &Pair| pair.program.local_addr().unwrap();
        assert!(kept.iter().all(|other| from(other) != from(&pair)));
    }

    /// The port is refused to another user, whatever options its socket has.
    #[test]
    fn another_user_cannot_bind_the_port() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: changing the user needs root");
            return;
        }
        let sources = Sources::bind().unwrap();
        let to_bind = SocketAddrV4::new(agents(77), sources.0.port);
        let bind = move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&to_bind.into()).map_err(|error| error.kind())
        };
        assert_eq!(bind(), Ok(()));
        // The system call changes the user of this thread alone.
        let other = std::thread::spawn(move || {
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
            bind()
        });
        assert_eq!(other.join().unwrap(), Err(io::ErrorKind::AddrInUse));
    }

    /// Tests that measure, which run one at a time.
    mod alone {
        use super::*;

        /// Another user makes more connects than the queue has room for.
        #[tokio::test]
        async fn other_connects_to_the_listener_neither_fill_its_queue_nor_are_accepted() {
            let maker = PairMaker::bind(Sources::bind().unwrap()).unwrap();
            if !maker.filtered {
                eprintln!("not tested: the kernel refuses filters of this user");
                return;
            }
            let short = SockRef::from(&maker.listener).try_clone().unwrap();
            // A second listen(2) changes the room in the queue.
            short.listen(8).unwrap();
            let others: Vec<_> = (0..32)
                .map(|_| {
                    let other = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
                    other.bind(&SocketAddrV4::new(agents(0), 0).into()).unwrap();
                    let pending = other.connect(&maker.address.into()).unwrap_err();
                    assert_eq!(pending.raw_os_error(), Some(Errno::EINPROGRESS as i32));
                    other
                })
                .collect();
            // TCP sends a segment again after a second.
            let before = std::time::Instant::now();
            for _ in 0..10 {
                maker.pair(Buffers::default()).await.unwrap();
            }
            assert!(before.elapsed() < Duration::from_secs(1), "a segment was sent again");
            for other in others {
                assert!(other.peer_addr().is_err(), "connected");
            }
        }
    }
}
