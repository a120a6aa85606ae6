//! Pending non-blocking connects.
//!
//! The program's own socket stands in for the connection: it connects to the
//! agent's black hole and really is in SYN_SENT, so that poll, select, epoll,
//! read, write and a second connect behave as usual. A helper thread
//! (`helper`) exchanges it for the real one.
//!
//! While any connect is pending, calls that change what a descriptor stands
//! for wait for the helper's exchange to be whole ([`gate`]); while none is,
//! that costs them one load.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Instant;

use isthmus_wire::address::BLACK_HOLE;
use isthmus_wire::shim::Request;

use crate::agent::{Exchange, Kept};
use crate::descriptors::Holders;
use crate::helper;
use crate::job::Job;
use crate::lock::Lock;
use crate::patience;
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Errno, Fd, Identity, Result};

/// One connect under way.
pub(crate) struct Pending {
    /// Cookie of the program's own socket, [`GIVEN_UP`] once it is that.
    pub(crate) cookie: u64,
    /// The same for the descriptor table.
    pub(crate) identity: Identity,
    /// How the program wrote the address.
    pub(crate) family: Family,
    /// Port that the program's socket was bound to, or 0.
    pub(crate) source_port: u16,
    /// Where the request stands.
    pub(crate) ask: Ask,
    /// When to give up.
    pub(crate) deadline: Instant,
    /// `TCP_SYNCNT` as the shim has raised it, and as the program had it.
    pub(crate) syn_counts: Option<[c_int; 2]>,
    /// Ways to forked processes that wait for the same connection.
    pub(crate) child_channels: Vec<Kept>,
    /// The way to the process that is just being forked, both ends of it.
    pub(crate) fork_channel: Option<(Kept, Kept)>,
}

/// Where a request stands.
pub(crate) enum Ask {
    /// To be sent, not before this time.
    Later(Request, Instant),
    Sent(Exchange),
    /// Answered; the helper is about to exchange the socket.
    Answered,
    /// A parent process waits for the same connection and will pass it on. If
    /// it ends first, this process goes on from where it was.
    Parent(Exchange, Box<Ask>),
}

/// All connects under way, and what wakes the helper.
pub(crate) struct List {
    pub(crate) items: Vec<Pending>,
    /// The helper's end and ours of a pair of sockets; a thread is there as
    /// long as this is.
    pub(crate) wake: Option<(Kept, Kept)>,
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Threads that wait in connect.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// The process that the list is about.
static PROCESS: AtomicI32 = AtomicI32::new(0);
static LIST: Lock<List> = Lock::new(List { items: Vec::new(), wake: None });

/// Whether any connect is pending: two loads.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0 || WAITING.load(Ordering::Acquire) != 0
}

/// A thread begins to wait in connect: from here on every close is checked.
pub(crate) fn begin_waiting() {
    WAITING.fetch_add(1, Ordering::AcqRel);
}

/// The thread has stopped waiting.
pub(crate) fn end_waiting() {
    // A forked child starts from none.
    let _ = WAITING.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
}

/// Records the process id.
pub(crate) fn settle() {
    // SAFETY: takes nothing.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Whether this is a child that shares its parent's memory (vfork), or was
/// forked past the C library: its descriptors are not those that the list is
/// about.
fn elsewhere() -> bool {
    // SAFETY: takes nothing.
    PROCESS.load(Ordering::Relaxed) != unsafe { libc::getpid() }
}

/// Calls `action` on the list and keeps the count.
pub(crate) fn with<R>(action: impl FnOnce(&mut List) -> R) -> R {
    LIST.with(|list| {
        let result = action(list);
        COUNT.store(list.items.len(), Ordering::Release);
        result
    })
}

pub(crate) enum Start {
    Ask(Request),
    /// The request is sent already.
    Asked(Exchange),
}

/// Result of connecting the placeholder.
pub(crate) enum Started {
    /// The connect is under way; the program's call reports `EINPROGRESS`.
    Pending,
    /// The kernel answered the program's call by itself: the socket is or was
    /// connected, is connecting, or has an error to report.
    Kernel(Errno),
    /// There is no placeholder: the call must block until the connection is made.
    Refused,
}

/// Sends the program's own socket to the black hole and lists it as pending.
///
/// # Errors
/// If there is no agent; the socket is as it was.
pub(crate) fn start(job: &Job, fd: Fd, inet: Inet, source_port: u16, start: Start) -> Result<Started> {
    if elsewhere() {
        return Ok(Started::Refused);
    }
    let cookie = sys::cookie(fd);
    let identity = sys::identity(fd)?;
    let black_hole = black_hole(job, inet.family);
    let patience = patience::of(job, fd);
    // The agent tells why it gives up. The kernel must not be first.
    let syn_counts = (patience == patience::longest(job))
        .then(|| {
            let raised = patience::syn_count(patience);
            let before = sys::get_int(fd, libc::IPPROTO_TCP, libc::TCP_SYNCNT).ok()?;
            sys::set_int(fd, libc::IPPROTO_TCP, libc::TCP_SYNCNT, raised).ok().map(|_| [raised, before])
        })
        .flatten();
    // The kernel would put off the SYN until the first write.
    let _ = sys::set_int(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 0);
    with(|list| {
        match sys::connect(fd, &black_hole) {
            Err(Errno(libc::EINPROGRESS)) => {}
            Err(
                errno @ Errno(
                    libc::EALREADY
                    | libc::EISCONN
                    | libc::ECONNREFUSED
                    | libc::ECONNABORTED
                    | libc::ETIMEDOUT,
                ),
            ) => return Ok(Started::Kernel(errno)),
            Ok(_) | Err(_) => return Ok(Started::Refused),
        }
        if sys::tcp_state(fd) != Ok(sys::SYN_SENT) || helper::ensure(list).is_err() {
            dissolve(fd);
            return Ok(Started::Refused);
        }
        let now = sys::now();
        let ask = match start {
            Start::Asked(exchange) => Ask::Sent(exchange.without_waiting().raised()),
            Start::Ask(request) => match Exchange::begin_without_waiting(job, &request) {
                Ok(exchange) => Ask::Sent(exchange.raised()),
                Err(Errno(libc::EAGAIN)) => Ask::Later(request, now),
                Err(errno) => {
                    dissolve(fd);
                    return Err(errno);
                }
            },
        };
        list.items.push(Pending {
            cookie,
            identity,
            family: inet.family,
            source_port,
            ask,
            deadline: now + patience,
            syn_counts,
            child_channels: Vec::new(),
            fork_channel: None,
        });
        helper::wake(list);
        Ok(Started::Pending)
    })
}

/// The agent's black hole as a socket of this family reaches it.
pub(crate) fn black_hole(job: &Job, family: Family) -> Storage {
    Inet { family, ip: BLACK_HOLE, port: job.black_hole_port }.encode()
}

/// Undoes the connect of a socket.
pub(crate) fn dissolve(fd: Fd) {
    let _ = sys::connect(fd, &Storage::unspecified());
    // Leaving SYN_SENT counts as a reset connection.
    let _ = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR);
}

/// Drops a connect that the program gave up. Closing the request cancels it at
/// the agent.
pub(crate) fn cancel(fd: Fd) {
    let cookie = sys::cookie(fd);
    with(|list| list.give_up(cookie));
}

/// Calls `action`, which changes what descriptors stand for, while no
/// exchange is going on; `action` reports failure by a negative value and
/// `errno`. It makes its system call by itself: another preloaded library
/// might wait for a lock of its own, or call a hooked function. `replaced` is
/// the number that stands for something else afterwards, if any.
pub(crate) fn gated(replaced: Option<Fd>, action: impl FnOnce() -> c_int) -> c_int {
    if elsewhere() {
        return action();
    }
    let before = sys::errno();
    let (result, errno) = with(|list| {
        let run = || {
            sys::set_errno(before);
            let result = action();
            (result, sys::errno())
        };
        let Some(fd) = replaced else { return run() };
        if list.owns(fd) {
            // To the program this number is not in use.
            return (-1, libc::EBADF);
        }
        let cookie = sys::cookie(fd);
        let outcome = run();
        if outcome.0 >= 0 && cookie != 0 {
            list.released(cookie);
        }
        outcome
    });
    sys::set_errno(errno);
    result
}

/// Whether a command of fcntl makes another descriptor or changes this one.
pub(crate) fn changes_descriptor(command: c_int) -> bool {
    matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETFD | libc::F_SETFL)
}

/// Moves the shim's own descriptor away from a number that the program wants
/// to use (dup2).
pub(crate) fn make_way(fd: Fd) {
    if elsewhere() {
        return;
    }
    with(|list| {
        if list.owns(fd) {
            list.each_kept(&mut |kept| {
                if kept.raw() == fd {
                    kept.relocate();
                }
            });
            helper::wake(list);
        }
    });
}

impl List {
    /// All descriptors of the shim's own. Like all that close may come to, it
    /// allocates nothing and frees nothing: a signal handler may call close.
    fn each_kept(&mut self, action: &mut dyn FnMut(&mut Kept)) {
        if let Some((ours, helpers)) = &mut self.wake {
            action(ours);
            action(helpers);
        }
        for pending in &mut self.items {
            pending.ask.each_kept(action);
            pending.child_channels.iter_mut().for_each(&mut *action);
        }
    }

    /// Whether a number is one of the shim's own.
    fn owns(&mut self, fd: Fd) -> bool {
        let mut found = false;
        self.each_kept(&mut |kept| found |= kept.raw() == fd);
        found
    }

    /// Records that a number no longer stands for the socket of a cookie:
    /// with the last one the connect is given up.
    fn released(&mut self, cookie: u64) {
        if let Some(pending) = self.items.iter().find(|pending| pending.cookie == cookie)
            && Holders::find(pending.identity).sockets.as_slice().is_empty()
        {
            self.give_up(cookie);
        }
    }

    /// Makes the helper drop a connect.
    fn give_up(&mut self, cookie: u64) {
        for pending in self.items.iter_mut().filter(|pending| pending.cookie == cookie) {
            pending.cookie = GIVEN_UP;
        }
        helper::wake(self);
    }
}

/// No socket has this cookie.
pub(crate) const GIVEN_UP: u64 = 0;

impl Ask {
    fn each_kept(&mut self, action: &mut dyn FnMut(&mut Kept)) {
        match self {
            Self::Sent(exchange) => action(exchange.kept_mut()),
            Self::Parent(exchange, own) => {
                action(exchange.kept_mut());
                own.each_kept(action);
            }
            Self::Later(..) | Self::Answered => {}
        }
    }
}

/// Keeps the list consistent over a fork, and makes the channels on which the child gets
/// its connections: the agent hands each over once, to the parent.
pub(crate) fn before_fork() {
    LIST.before_fork(|list| {
        for pending in &mut list.items {
            pending.fork_channel = sys::socket_pair(libc::SOCK_STREAM)
                .and_then(|(ours, childs)| Ok((Kept::new(ours.raised())?, Kept::new(childs.raised())?)))
                .ok();
        }
    });
}

/// Releases the list in the parent.
pub(crate) fn after_fork_in_parent() {
    LIST.after_fork(|list| {
        for pending in &mut list.items {
            pending.child_channels.extend(pending.fork_channel.take().map(|(ours, _)| ours));
        }
    });
}

/// In the child there is no helper, and the parent is to pass on what it gets.
pub(crate) fn after_fork_in_child() {
    settle();
    WAITING.store(0, Ordering::Release);
    LIST.after_fork(|list| {
        if list.items.is_empty() {
            return;
        }
        list.wake = None;
        for pending in &mut list.items {
            // These lead to the child's siblings.
            pending.child_channels.clear();
            if let Some((_, childs)) = pending.fork_channel.take() {
                let own = std::mem::replace(&mut pending.ask, Ask::Answered);
                pending.ask = Ask::Parent(Exchange::by_proxy(childs), Box::new(own));
            }
        }
        // A connect without a channel fails with ETIMEDOUT.
        if helper::ensure(list).is_err() {
            list.items.clear();
        }
        COUNT.store(list.items.len(), Ordering::Release);
    });
}
