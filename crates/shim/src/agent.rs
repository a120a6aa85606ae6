//! One question to the node's agent: a connection to its Unix socket, one
//! request, one reply.

use std::time::{Duration, Instant};

use isthmus_wire::shim::{Handover, REPLY_LEN, Reply, Request};

use crate::job::Job;
use crate::kept::Kept;
use crate::lock;
use crate::standing;
use crate::sys::{self, Errno, Fd, Identity, OwnedFd, Result};

/// How long the agent may take to answer from its own state.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(10);
/// How long the agent may take to confirm what it is told, without which the program goes on as
/// well.
const TELL_DEADLINE: Duration = Duration::from_secs(1);

/// A request that was sent and not yet answered. Dropping this cancels it.
#[derive(Debug)]
pub(crate) struct Exchange(Kept);

/// An exchange as plain data, which owns no descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    fd: Fd,
    identity: Identity,
}

impl Asked {
    /// The descriptor to poll for the reply.
    pub(crate) fn raw(self) -> Fd {
        self.fd
    }

    /// Whether the number still stands for the exchange.
    pub(crate) fn is_intact(self) -> bool {
        sys::identity(self.fd) == Ok(self.identity)
    }

    /// No exchange: the descriptor is -1.
    pub(crate) const NONE: Self = Self { fd: -1, identity: Identity { device: 0, inode: 0, kind: 0 } };
}

impl Exchange {
    /// An exchange whose reply another process passes on.
    pub(crate) fn by_proxy(socket: Kept) -> Self {
        Self(socket)
    }

    /// Sends a request. Waits while the agent's queue of requests is full.
    ///
    /// # Errors
    /// `ENETDOWN` if there is no agent, or it runs as another user; `ENOBUFS` if
    /// there is no descriptor left to reach it with.
    pub(crate) fn begin(job: &Job, request: &Request) -> Result<Self> {
        Self::start(job, request, libc::SOCK_STREAM)
    }

    /// Sends a request without waiting.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); `EAGAIN` if the agent has too many requests
    /// to take yet.
    pub(crate) fn begin_without_waiting(job: &Job, request: &Request) -> Result<Self> {
        Self::start(job, request, libc::SOCK_STREAM | libc::SOCK_NONBLOCK)
    }

    fn start(job: &Job, request: &Request, kind: i32) -> Result<Self> {
        let socket = match standing::socket(kind) {
            Some(socket) => socket.map_err(out_of_descriptors)?,
            None => Self::connect(job, kind)?,
        };
        let bytes = request.encode();
        // A fresh Unix socket has room for a request.
        match sys::send(socket.raw(), &bytes) {
            Ok(sent) if sent == bytes.len() => Ok(Self(Kept::new(socket)?)),
            _ => Err(Errno(libc::ENETDOWN)),
        }
    }

    /// Connects to the agent's socket, or gets a socket over the connection that stays.
    fn connect(job: &Job, kind: i32) -> Result<OwnedFd> {
        let socket = sys::socket(libc::AF_UNIX, kind).map_err(out_of_descriptors)?;
        set_timeout(socket.raw(), libc::SO_SNDTIMEO, LOOKUP_DEADLINE);
        loop {
            match sys::connect(socket.raw(), &job.agent) {
                Ok(_) => break,
                Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::EAGAIN)) if kind & libc::SOCK_NONBLOCK != 0 => {
                    return Err(Errno(libc::EAGAIN));
                }
                Err(_) => return Err(Errno(libc::ENETDOWN)),
            }
        }
        if sys::peer_is_trusted(socket.raw()) { Ok(socket) } else { Err(Errno(libc::ENETDOWN)) }
    }

    /// Turns the exchange into plain data, which closes nothing when it is dropped.
    pub(crate) fn into_asked(self) -> Asked {
        let Self(mut kept) = self;
        let asked = Asked { fd: kept.raw(), identity: kept.identity };
        std::mem::forget(kept.fd.take());
        asked
    }

    /// Makes an exchange of its plain data again; not to be called twice.
    pub(crate) fn from_asked(asked: Asked) -> Self {
        Self(Kept { fd: Some(OwnedFd::from_raw(asked.fd)), identity: asked.identity })
    }

    /// Waits for an answer that the agent gives from its own state. Signals don't interrupt it.
    ///
    /// # Errors
    /// `ENETDOWN` if the agent went away, `ETIMEDOUT` if it took too long.
    pub(crate) fn lookup(&self) -> Result<(Reply, Option<OwnedFd>)> {
        self.wait_until(sys::now() + LOOKUP_DEADLINE)
    }

    fn wait_until(&self, deadline: Instant) -> Result<(Reply, Option<OwnedFd>)> {
        loop {
            let left = deadline.saturating_duration_since(sys::now()).max(Duration::from_millis(1));
            set_timeout(self.0.raw(), libc::SO_RCVTIMEO, left);
            match self.collect() {
                Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::EAGAIN)) => return Err(Errno(libc::ETIMEDOUT)),
                other => return other,
            }
        }
    }

    /// Reads the reply.
    ///
    /// # Errors
    /// `EAGAIN` if there is none yet, `EINTR` after a signal, `ENETDOWN` if
    /// the agent ended or sent an invalid reply.
    pub(crate) fn collect(&self) -> Result<(Reply, Option<OwnedFd>)> {
        if !self.0.intact() {
            return Err(Errno(libc::ENETDOWN));
        }
        let mut bytes = [0; REPLY_LEN];
        match sys::receive(self.0.raw(), &mut bytes) {
            Ok((REPLY_LEN, socket)) => {
                Reply::decode(&bytes).map(|reply| (reply, socket)).map_err(|_| Errno(libc::EPROTO))
            }
            Err(errno @ Errno(libc::EAGAIN | libc::EINTR)) => Err(errno),
            Ok(_) | Err(_) => Err(Errno(libc::ENETDOWN)),
        }
    }

    /// Turns a waiting exchange into one that [`collect`](Self::collect)s
    /// without waiting.
    pub(crate) fn without_waiting(self) -> Self {
        let flags = sys::fcntl(self.0.raw(), libc::F_GETFL, 0).unwrap_or(0);
        let _ = sys::fcntl(self.0.raw(), libc::F_SETFL, i64::from(flags | libc::O_NONBLOCK));
        self
    }

    /// Moves the exchange to a descriptor out of the program's way.
    pub(crate) fn raised(self) -> Self {
        Self(self.0.raised())
    }

    /// The descriptor of the exchange, which is kept open.
    pub(crate) fn into_kept(self) -> Kept {
        self.0
    }

    /// The descriptor of the exchange, to be moved.
    pub(crate) fn kept_mut(&mut self) -> &mut Kept {
        &mut self.0
    }

    /// The descriptor to poll for the reply.
    pub(crate) fn raw(&self) -> Fd {
        self.0.raw()
    }
}

/// Asks the agent for something that it answers from its own state.
///
/// # Errors
/// As [`Exchange::begin`] and [`Exchange::lookup`].
pub(crate) fn look_up(job: &Job, request: &Request) -> Result<(Reply, Option<OwnedFd>)> {
    uninterrupted(|| Exchange::begin(job, request)?.lookup())
}

/// Tells the agent something, and waits until it has confirmed that.
///
/// # Errors
/// As [`Exchange::begin`] and [`Exchange::lookup`].
pub(crate) fn tell(job: &Job, request: &Request) -> Result<()> {
    uninterrupted(|| Exchange::begin(job, request)?.wait_until(sys::now() + TELL_DEADLINE).map(|_| ()))
}

/// The socket that a reply to a connect brings, with the reply.
///
/// # Errors
/// The error that the program's connect is to report.
pub(crate) fn connected(reply: Reply, socket: Option<OwnedFd>) -> Result<(Reply, OwnedFd)> {
    match (reply.errno, reply.handover, socket) {
        (0, Handover::Socket, Some(socket)) => Ok((reply, socket)),
        // The kernel drops a socket for which it finds no free descriptor.
        (0, Handover::Socket, None) => Err(Errno(libc::ENOBUFS)),
        (0, _, _) => Err(Errno(libc::EPROTO)),
        (errno, _, _) => Err(Errno(errno)),
    }
}

/// Calls `action` with signals blocked: a handler that leaves by siglongjmp(3) would leave
/// descriptors of `action` open.
fn uninterrupted<R>(action: impl FnOnce() -> R) -> R {
    let mask = lock::block_signals();
    let result = action();
    lock::restore_signals(mask);
    result
}

fn set_timeout(fd: Fd, option: i32, timeout: Duration) {
    let mut bytes = [0; 16];
    let (seconds, micros) = bytes.split_at_mut(8);
    seconds.copy_from_slice(&timeout.as_secs().to_ne_bytes());
    micros.copy_from_slice(&u64::from(timeout.subsec_micros()).to_ne_bytes());
    let _ = sys::set_option(fd, libc::SOL_SOCKET, option, &bytes);
}

fn out_of_descriptors(errno: Errno) -> Errno {
    match errno {
        Errno(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Errno(libc::ENOBUFS),
        other => other,
    }
}

/// Whether every signal handler of the program has `SA_RESTART`, so that the
/// kernel would have restarted an interrupted connect.
pub(crate) fn all_handlers_restart() -> bool {
    const LAST_SIGNAL: i32 = 64;
    (1..=LAST_SIGNAL).all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only asks; `action` is writable.
        if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
            return true;
        }
        // SAFETY: zeroed before, and all-zero is a valid `sigaction`.
        let action = unsafe { action.assume_init() };
        matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
            || action.sa_flags & libc::SA_RESTART != 0
    })
}
