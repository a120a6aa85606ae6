//! The job's Unix socket: serves the shims' requests.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_net::dial::SocketOptions;
use isthmus_net::handover::{self, Received};
use isthmus_rpc::connection::Connection;
use isthmus_service::exhausted::{self, Exhausted, Spell};
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::shim::{Endpoint, Handover, REQUEST_LEN, Reply, Request};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, getsockopt, recv};
use socket2::{Domain, SockRef, Type};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, Interest};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::carrying::connect::{ConnectRequest, Connected, connect};
use crate::carrying::names::Ends;
use crate::carrying::notices;
use crate::carrying::sockets::cookie;
use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// How long a shim's request may take to arrive.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// Serves the shims of a job's processes until the job ends.
pub(crate) async fn serve(node: Arc<Node>, job: Arc<Job>, listener: AsyncFd<UnixListener>) {
    let mut unserved = Unserved::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.async_io(Interest::READABLE, UnixListener::accept) => accepted,
            () = job.ended.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                unserved.served();
                tokio::spawn(served(node.clone(), job.clone(), stream));
            }
            Err(error) => {
                unserved.failed(&node, &job, &error);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Serves one shim. The future is boxed, because a request of kind `Stand` leads back to this
/// function.
fn served(node: Arc<Node>, job: Arc<Job>, stream: UnixStream) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if let Err(error) = answer(&node, &job, stream).await {
            debug!(%error, "a shim's request failed");
            tell(&node, &job, &error);
        }
    })
}

/// Serves a standing connection until it ends: the process sends a socket over it for each of its
/// requests.
async fn stand(node: &Arc<Node>, job: &Arc<Job>, stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    // SAFETY: the stream keeps its descriptor for as long as it lives.
    let stream = unsafe { AsyncFd::register_with_interest(stream, Interest::READABLE) }?;
    loop {
        let received = tokio::select! {
            received = stream.async_io(Interest::READABLE, handover::receive) => received?,
            () = job.ended.cancelled() => return Ok(()),
        };
        match received {
            Received::End => return Ok(()),
            Received::Byte(None) => {}
            Received::Byte(Some(socket)) => {
                let has = SockRef::from(&socket);
                if has.domain()? == Domain::UNIX && has.r#type()? == Type::STREAM {
                    tokio::spawn(served(node.clone(), job.clone(), socket.into()));
                }
            }
        }
    }
}

/// A time in which connections of processes can't be accepted.
#[derive(Debug, Default)]
struct Unserved {
    spell: Spell,
    /// Since when no process could be served; `None` while all are.
    since: Option<Instant>,
    is_given_up: bool,
}

impl Unserved {
    fn served(&mut self) {
        (self.since, self.is_given_up) = (None, false);
    }

    /// Notes that a process can't be served, so a call of it waits. Tells the user, and gives up
    /// after the time for which a kernel tries to connect.
    fn failed(&mut self, node: &Node, job: &Job, error: &io::Error) {
        let now = Instant::now();
        if self.spell.failed(now).is_zero() {
            warn!(job = %job.id, error = exhausted::text(error), "cannot accept a shim");
            tell(node, job, error);
        }
        let since = *self.since.get_or_insert(now);
        if !self.is_given_up && now.saturating_duration_since(since) >= job.connect_limits.kernel {
            self.is_given_up = true;
            let own = node.name().to_string();
            job.news.send(job_news::Kind::ConnectFailed(proto::ConnectFailed {
                reason: match Exhausted::of(error) {
                    Some(exhausted) => format!("{own} {exhausted}"),
                    None => error.to_string(),
                },
                acceptor: "its own agent".to_owned(),
                initiator: own,
                given_up: true,
            }));
        }
    }
}

/// Tells the user if the cause of this error is that a resource has run out.
fn tell(node: &Node, job: &Job, error: &io::Error) {
    if let Some(exhausted) = Exhausted::of(error) {
        job.news.short(&node.name().to_string(), exhausted);
    }
}

/// Reads a request. A shim sends it as soon as it has connected. So mostly the request has arrived,
/// and the socket needs no registration with the runtime.
async fn request(stream: &UnixStream) -> io::Result<Request> {
    let mut bytes = [0; REQUEST_LEN];
    let arrived = match recv(stream.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => count,
        Err(Errno::EAGAIN) => 0,
        Err(error) => return Err(error.into()),
    };
    if arrived < REQUEST_LEN {
        let mut watched = watch(stream.try_clone()?)?;
        tokio::time::timeout(REQUEST_DEADLINE, watched.read_exact(&mut bytes[arrived..]))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
    Request::decode(&bytes).map_err(io::Error::other)
}

fn watch(stream: UnixStream) -> io::Result<tokio::net::UnixStream> {
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

/// Answers a process that has accepted this knock with the connection behind it. `knocks` is the
/// cookie of the process's end of the knock.
async fn accepted(job: &Job, knock: SocketAddrV4, knocks: u64, is_v6: bool) -> io::Result<Connected> {
    let Some(incoming) = job.sockets.knocks.fetch(knock).await else {
        return Ok(Connected::failed(libc::ECONNABORTED));
    };
    let (local, peer) = (incoming.local, incoming.peer);
    let socket = match incoming.socket.map(|held| held.take()) {
        Some(None) => return Ok(Connected::failed(libc::ECONNABORTED)),
        Some(socket) => socket,
        None => None,
    };
    let handover = match &socket {
        Some(socket) => {
            if is_v6 {
                job.sockets.names().is_v6(cookie(socket)?);
            }
            Handover::Socket
        }
        None => {
            job.sockets.names().insert(knocks, Ends { local, peer, is_v6 });
            Handover::Keep
        }
    };
    let reply_to_shim = Reply { errno: 0, handover, peer, local, is_v6 };
    let socket = socket.map(OwnedFd::from);
    Ok(Connected { reply: reply_to_shim, socket })
}

async fn answer(node: &Arc<Node>, job: &Arc<Job>, stream: UnixStream) -> io::Result<()> {
    match request(&stream).await? {
        Request::Connect { destination, port, source_port, send_buffer, receive_buffer, is_v6 } => {
            let connect_request = ConnectRequest {
                destination: Endpoint { address: destination, port },
                source_port,
                options: SocketOptions { send_buffer, receive_buffer, ..SocketOptions::default() },
                is_v6,
            };
            let given_up = CancellationToken::new();
            let connecting = async {
                tokio::select! {
                    connected = Connection::random().scope(connect(node, job, connect_request, &given_up)) => connected,
                    () = job.ended.cancelled() => Connected::failed(libc::ENETDOWN),
                }
            };
            tokio::pin!(connecting);
            let mut stream = watch(stream)?;
            let mut byte = [0];
            let connected = tokio::select! {
                connected = &mut connecting => connected,
                // The shim closed its end: the program gave up.
                _ = stream.read(&mut byte) => {
                    given_up.cancel();
                    // The acceptor's program may have accepted by now. Its connection then ends in
                    // order, not by a reset.
                    drop(connecting.await);
                    return Ok(());
                }
            };
            reply(&stream, &connected)
        }
        Request::Accept { knock, cookie: knocks, is_v6 } => {
            reply(&stream, &accepted(job, knock, knocks, is_v6).await?)
        }
        Request::Whois { cookie } => {
            let ends = job.sockets.names().find(cookie);
            let found = ends.map_or(Reply::error(libc::ENOENT), |Ends { local, peer, is_v6 }| Reply {
                errno: 0,
                handover: Handover::None,
                peer,
                local,
                is_v6,
            });
            reply(&stream, &Connected { reply: found, socket: None })
        }
        Request::Stand => stand(node, job, stream).await,
        notice => {
            if let Ok(process) = u32::try_from(getsockopt(&stream, PeerCredentials)?.pid()) {
                notices::noticed(node, job, process, notice).await;
            }
            // Nobody waits for the reply to this notice.
            if matches!(notice, Request::Collected { .. }) {
                return Ok(());
            }
            reply(&stream, &Connected { reply: Reply::error(0), socket: None })
        }
    }
}

/// Sends the reply to a request. It is the only message on its socket, which therefore has room for
/// it.
fn reply(stream: &impl AsFd, connected: &Connected) -> io::Result<()> {
    let socket = connected.socket.as_ref().map(|socket| socket.as_fd());
    handover::send(stream, &connected.reply.encode(), socket)
}

/// Binds the socket of a job, for its own user only.
///
/// # Errors
/// As `bind(2)`.
pub(crate) fn bind(path: &std::path::Path) -> io::Result<AsyncFd<UnixListener>> {
    use std::os::unix::fs::PermissionsExt as _;
    // The job's directory is closed to others already.
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    // SAFETY: the listener keeps its descriptor for as long as it lives.
    Ok(unsafe { AsyncFd::register(listener) }?)
}
