//! The job's Unix socket, where shims ask for connections.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use isthmus_net::connection::Connection;
use isthmus_net::dial::SocketOptions;
use isthmus_net::{handover, mac};
use isthmus_reach::carrier::Carrier;
use isthmus_reach::{Purpose, ReachError, Security};
use isthmus_wire::preamble::{Preamble, Status};
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::shim::{End, Handover, REQUEST_LEN, Reply, Request};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, getsockopt, recv};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, Interest};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::carrying::introduction::JobIntroduction;
use crate::carrying::names::Ends;
use crate::carrying::pump::{End as PumpEnd, pump};
use crate::carrying::sockets::{cookie, inode};
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::observing::account::Joint;
use crate::observing::heartbeat;
use crate::starting::programs::{self, Uncarried};

/// How long a shim may take to say what it wants.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// What to answer, and the socket to hand over. This copy of it goes with the
/// answer: were it kept, the peer would never see the connection end.
#[derive(Debug)]
struct Connected {
    reply: Reply,
    socket: Option<OwnedFd>,
}

impl Connected {
    fn failed(errno: i32) -> Self {
        Self { reply: Reply::error(errno), socket: None }
    }
}

/// Serves shims until the job ends.
pub async fn serve(node: Arc<Node>, job: Arc<Job>, listener: AsyncFd<UnixListener>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.async_io(Interest::READABLE, UnixListener::accept) => accepted,
            () = job.ended.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (node, job) = (node.clone(), job.clone());
                tokio::spawn(async move {
                    if let Err(error) = answer(&node, &job, stream).await {
                        debug!(%error, "a shim's request came to nothing");
                    }
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a shim");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Reads a request. A shim sends it as soon as it has connected, so it mostly is
/// there; then nothing need be waited for, nor the socket be watched.
async fn request(stream: &UnixStream) -> io::Result<Request> {
    let mut bytes = [0; REQUEST_LEN];
    let there = match recv(stream.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => count,
        Err(Errno::EAGAIN) => 0,
        Err(error) => return Err(error.into()),
    };
    if there < REQUEST_LEN {
        let mut watched = watch(stream.try_clone()?)?;
        tokio::time::timeout(REQUEST_DEADLINE, watched.read_exact(&mut bytes[there..]))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
    Request::decode(&bytes).map_err(io::Error::other)
}

fn watch(stream: UnixStream) -> io::Result<tokio::net::UnixStream> {
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

async fn answer(node: &Arc<Node>, job: &Arc<Job>, stream: UnixStream) -> io::Result<()> {
    match request(&stream).await? {
        Request::Connect { destination, port, source_port, send_buffer, receive_buffer } => {
            let wanted = Wanted {
                destination: End { address: destination, port },
                source_port,
                options: SocketOptions { send_buffer, receive_buffer },
            };
            let given_up = CancellationToken::new();
            let connecting = async {
                tokio::select! {
                    connected = Connection::random().scope(connect(node, job, wanted, &given_up)) => connected,
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
                    // The acceptor's program may have accepted by now. To it
                    // the connection ends as one that is closed at once after
                    // it was made: in order, and not by a reset.
                    drop(connecting.await);
                    return Ok(());
                }
            };
            reply(&stream, &connected)
        }
        Request::Accept { knock_port, cookie } => {
            let Some(incoming) = job.sockets.knocks.fetch(knock_port).await else {
                return reply(&stream, &Connected::failed(libc::ECONNABORTED));
            };
            let handover = if incoming.socket.is_some() { Handover::Socket } else { Handover::Keep };
            if handover == Handover::Keep {
                job.sockets.names().insert(cookie, Ends { local: incoming.local, peer: incoming.peer });
            }
            let reply_to_shim = Reply { errno: 0, handover, peer: incoming.peer, local: incoming.local };
            let socket = incoming.socket.map(OwnedFd::from);
            reply(&stream, &Connected { reply: reply_to_shim, socket })
        }
        Request::Whois { cookie } => {
            let ends = job.sockets.names().find(cookie);
            let found = ends.map_or(Reply::error(libc::ENOENT), |Ends { local, peer }| Reply {
                errno: 0,
                handover: Handover::None,
                peer,
                local,
            });
            reply(&stream, &Connected { reply: found, socket: None })
        }
        Request::Starting { fd } => {
            let pid = getsockopt(&stream, PeerCredentials)?.pid();
            let looking = tokio::task::spawn_blocking(move || look_at(pid, fd));
            if let Ok(Some(found)) = looking.await {
                info!(job = %job.id, program = found.program, reason = ?found.hindrance, "not carried");
                job.news.uncarried(node.uncarried(found));
            }
            reply(&stream, &Connected { reply: Reply::error(0), socket: None })
        }
    }
}

/// Looks at a program that a process has open and waits with.
fn look_at(pid: i32, fd: u32) -> Option<Uncarried> {
    let held = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
    let path = std::fs::read_link(&held).ok()?;
    let hindrance = programs::hindrance(programs::open(&held).ok()?)?;
    Some(Uncarried { program: path.to_string_lossy().into_owned(), file: path, hindrance })
}

/// A socket that nothing was sent to has room for a reply.
fn reply(stream: &impl AsFd, connected: &Connected) -> io::Result<()> {
    let socket = connected.socket.as_ref().map(|socket| socket.as_fd());
    handover::send(stream, &connected.reply.encode(), socket)
}

struct Wanted {
    destination: End,
    source_port: u16,
    options: SocketOptions,
}

/// Makes a connection for a program.
async fn connect(
    node: &Arc<Node>,
    job: &Arc<Job>,
    wanted: Wanted,
    given_up: &CancellationToken,
) -> Connected {
    let Some(own) = node.own_address() else {
        warn!("no connection can be made: this agent was never attached");
        return Connected::failed(libc::ENETUNREACH);
    };
    let destination = wanted.destination;
    let Some(acceptor) = job.members.node(destination.address) else {
        info!(job = %job.id, destination = %destination.address, "not a node of the job");
        return Connected::failed(libc::EHOSTUNREACH);
    };
    // No program can listen there; between agents it means a heartbeat.
    if destination.port == heartbeat::PORT {
        return Connected::failed(libc::ECONNREFUSED);
    }
    let source_port = match wanted.source_port {
        0 => node.next_port(),
        port => port,
    };
    debug!(job = %job.id, %acceptor, port = destination.port, "a program connects");
    let preamble = Preamble {
        job: job.id,
        nonce: mac::new_nonce(),
        source: own.ip(),
        source_port,
        destination: destination.address,
        destination_port: destination.port,
    };
    let _under_way = job.account.begin();
    let mut introduction = JobIntroduction::new(&job.token, preamble);
    let purpose = Purpose {
        security: Security::AsPlanned(&node.tls().stream),
        options: wanted.options,
        introduction: Some(&mut introduction),
        given_up: Some(given_up),
    };
    let mut reaching = node.dialer().reach(destination.address, purpose).await;
    if let Ok(reached) = &mut reaching
        && let Err(status) = introduction.settle(&mut reached.carrier).await
    {
        reaching = Err(ReachError::Answered(status));
    }
    let reached = match reaching {
        Ok(reached) => reached,
        Err(error) => {
            let errno = errno(&error);
            if !matches!(errno, libc::ECONNREFUSED | libc::ECANCELED) {
                warn!(job = %job.id, %acceptor, port = destination.port, %error, "connection not made");
                job.news.send(job_news::Kind::ConnectFailed(proto::ConnectFailed {
                    initiator: node.name().to_string(),
                    acceptor: acceptor.to_string(),
                    reason: error.to_string(),
                }));
            }
            return Connected::failed(errno);
        }
    };
    if !reached.failures.is_empty() {
        job.news.send(job_news::Kind::WayFailed(proto::WayFailed {
            initiator: node.name().to_string(),
            acceptor: acceptor.to_string(),
            failures: reached.failures,
            dial: reached.dial.into(),
            relay: reached.relay.clone(),
        }));
    }
    let joint = Joint {
        acceptor: reached.node,
        dial: reached.dial,
        route: reached.route,
        relay: reached.relay,
        encrypted: matches!(reached.carrier, Carrier::Tls(_)),
    };
    let bytes = job.account.connected(joint, reached.setup);
    let ends = Ends { local: End { address: own.ip(), port: source_port }, peer: destination };
    match hand_over(node, job, reached.carrier, wanted.options, ends, bytes).await {
        Ok(connected) => {
            debug!(job = %job.id, "handed over");
            connected
        }
        Err(error) => {
            warn!(job = %job.id, %error, "connection made but not handed over");
            Connected::failed(error.raw_os_error().unwrap_or(libc::EIO))
        }
    }
}

async fn hand_over(
    node: &Arc<Node>,
    job: &Job,
    carrier: Carrier,
    options: SocketOptions,
    ends: Ends,
    bytes: Arc<crate::observing::account::Bytes>,
) -> io::Result<Connected> {
    let socket = match carrier {
        Carrier::Raw(stream) => stream.into_std()?,
        Carrier::Tls(tls) => {
            let pair = node.pairs().pair(options.send_buffer, options.receive_buffer).await?;
            pair.agent.set_nodelay(true)?;
            tokio::spawn(pump(pair.agent, *tls, bytes, PumpEnd::Initiator));
            pair.program
        }
    };
    job.sockets.names().insert(cookie(&socket)?, ends);
    job.sockets.handed_over(inode(&socket)?);
    let reply = Reply { errno: 0, handover: Handover::Socket, peer: ends.peer, local: ends.local };
    Ok(Connected { reply, socket: Some(socket.into()) })
}

/// What `connect` is to report.
fn errno(error: &ReachError) -> i32 {
    match error {
        ReachError::Answered(Status::Refused) => libc::ECONNREFUSED,
        ReachError::Answered(Status::TimedOut) => libc::ETIMEDOUT,
        ReachError::GivenUp => libc::ECANCELED,
        ReachError::Answered(_) | ReachError::Unknown(_) | ReachError::NoWay(_) => libc::EHOSTUNREACH,
    }
}

/// Binds the socket of a job, for its own user alone.
///
/// # Errors
/// As `bind(2)`.
pub fn bind(path: &std::path::Path) -> io::Result<AsyncFd<UnixListener>> {
    use std::os::unix::fs::PermissionsExt as _;
    // The job's directory is closed to others already.
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    // SAFETY: the listener keeps its descriptor for as long as it lives.
    Ok(unsafe { AsyncFd::register(listener) }?)
}
