//! Pending non-blocking connects.
//!
//! The program's own socket stands in for the connection: it connects to the agent's black hole and
//! really is in SYN_SENT. So poll, select, epoll, read, write and a second connect behave as usual.
//! A helper thread (`helper`) exchanges the socket for the real connection.
//!
//! Calls that change what the socket's numbers stand for wait until the exchange is done
//! ([`gate`](crate::gate)).

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use isthmus_wire::shim::Request;

use crate::agent::{Asked, Exchange};
use crate::job::Job;
use crate::kept::Kept;
use crate::lock::Lock;
use crate::numbers::{self, NO_CONNECT, Numbers, State};
use crate::sockaddr::Family;
use crate::standing;
use crate::sys::{self, Errno, Fd, Result};
use crate::wakers::Wakers;

mod list;
pub(crate) mod old;

use old::Old;

/// One non-blocking connect under way.
pub(crate) struct Pending {
    /// A number of the program's own socket.
    pub(crate) number: Fd,
    /// The cookie of the program's own socket.
    pub(crate) cookie: u64,
    /// Whether the helper is to drop this connect.
    pub(crate) given_up: bool,
    /// The family in which the program wrote the address.
    pub(crate) family: Family,
    /// Port that the program's socket was bound to; 0 if it wasn't.
    pub(crate) source_port: u16,
    /// How far the request to the agent has come.
    pub(crate) ask: Ask,
    /// When the connect fails with `ETIMEDOUT` unless a reply has come.
    pub(crate) deadline: Instant,
    /// `TCP_SYNCNT` as the shim has raised it, and as the program had it; `None` if the shim hasn't
    /// changed it.
    pub(crate) syn_counts: Option<[c_int; 2]>,
    /// Ways to forked processes that wait for this connection, too.
    pub(crate) child_channels: Vec<Kept>,
    /// Both ends of the way to the process that is just being forked; `None` at any other time.
    pub(crate) fork_channel: Option<(Kept, Kept)>,
}

/// How far a request to the agent has come.
pub(crate) enum Ask {
    /// The request is to be sent when the agent has room for it.
    Later(Request),
    Sent(Exchange),
    /// The reply has come. The helper is about to put this socket in the place of the program's;
    /// `None` if there is none.
    Answered(Option<Kept>),
    /// A parent process waits for the same connection and will pass it on. If the parent ends
    /// first, this process goes on with its own request, the second field.
    Parent(Exchange, Box<Ask>),
}

/// All connects under way.
pub(crate) struct List {
    /// The non-blocking connects by id. What close may come to allocates and frees nothing: a
    /// signal handler may call close.
    pub(crate) items: BTreeMap<u64, Pending>,
    last_id: u64,
    /// How many threads wait in connect. Each has an id, and no entry in `items`.
    waiters: usize,
    /// Ids of the connects that the agent had no room for, in the order of their calls.
    pub(crate) later: VecDeque<u64>,
    /// Whether some connects are given up.
    pub(crate) has_given_up: bool,
    /// The earliest deadline of all connects, or a time before it; `None` if there is none.
    pub(crate) next_deadline: Option<Instant>,
    /// What the helper waits with. The helper's thread is there as long as this is.
    pub(crate) wakers: Option<Wakers>,
    /// Placeholders that were exchanged a moment ago.
    pub(crate) old: VecDeque<Old>,
    /// The connection to the agent that stays; `None` if there is none.
    standing: Option<Kept>,
    pub(crate) numbers: Numbers,
}

/// Id of the process that the list is about.
static PROCESS: AtomicI32 = AtomicI32::new(0);
static LIST: Lock<List> = Lock::new(List {
    items: BTreeMap::new(),
    last_id: NO_CONNECT,
    waiters: 0,
    later: VecDeque::new(),
    has_given_up: false,
    next_deadline: None,
    wakers: None,
    old: VecDeque::new(),
    standing: None,
    numbers: Numbers::new(),
});

/// Notes that the list is about this process.
pub(crate) fn settle() {
    // SAFETY: takes nothing.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Whether this is a child that shares its parent's memory (vfork), or was forked past the C
/// library. The list isn't about the descriptors of such a child.
pub(crate) fn elsewhere() -> bool {
    // SAFETY: takes nothing.
    PROCESS.load(Ordering::Relaxed) != unsafe { libc::getpid() }
}

/// Calls `action` on the list with its lock held.
pub(crate) fn with<R>(action: impl FnOnce(&mut List) -> R) -> R {
    LIST.with(action)
}

/// Waits until a pending socket is connected or has failed, as a blocking
/// connect on it would.
///
/// # Errors
/// `EINTR` after a signal, `EALREADY` if the limit passed.
pub(crate) fn wait_for(fd: Fd, limit: Duration) -> Result<()> {
    let mut fds = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
    let ready: c_int = sys::poll(&mut fds, Some(limit))?;
    if ready == 0 { Err(Errno(libc::EALREADY)) } else { Ok(()) }
}

/// Notes that the calling thread begins to wait in connect. From here on, calls that change what
/// the number stands for wait for the exchange. Returns the wait's id, which is [`NO_CONNECT`] in a
/// process that the list isn't about. `None` if another thread waits already.
///
/// # Errors
/// If the number isn't open.
pub(crate) fn begin_waiting(fd: Fd) -> Result<Option<u64>> {
    if elsewhere() {
        return Ok(Some(NO_CONNECT));
    }
    with(|list| {
        list.find(fd)?;
        if list.is_awaited(fd) {
            return Ok(None);
        }
        list.last_id += 1;
        list.waiters += 1;
        list.numbers.begin(fd, list.last_id);
        Ok(Some(list.last_id))
    })
}

/// Sends the request of the wait `id`, for the socket of this number.
///
/// # Errors
/// As [`Exchange::begin`].
pub(crate) fn ask(job: &Job, id: u64, fd: Fd, request: &Request) -> Result<Asked> {
    if id == NO_CONNECT {
        return Exchange::begin(job, request).map(|exchange| exchange.without_waiting().into_asked());
    }
    let asked = with(|list| {
        let exchange = Exchange::begin_without_waiting(job, request)?;
        Ok(list.wait_for(id, fd, exchange))
    });
    match asked {
        // The agent's queue of requests is full.
        Err(Errno(libc::EAGAIN)) => {
            let exchange = Exchange::begin(job, request)?.without_waiting();
            Ok(with(|list| list.wait_for(id, fd, exchange)))
        }
        other => other,
    }
}

/// How many waits have ended.
pub(crate) static ENDED: AtomicU32 = AtomicU32::new(0);

/// Notes that the thread with the wait `id` has stopped waiting, and has threads that wait for it
/// look again. If `left` is given, the socket that it waited for under this number is as it was.
pub(crate) fn end_waiting(id: u64, left: Option<Fd>) {
    if id != NO_CONNECT && !elsewhere() {
        with(|list| {
            list.waiters = list.waiters.saturating_sub(1);
            if let Some(number) = left.and_then(|fd| numbers::with_connect(id, fd)) {
                list.numbers.end(number);
            }
        });
    }
    ENDED.fetch_add(1, Ordering::AcqRel);
    sys::futex_wake(&ENDED);
}

/// Whether another thread waits in connect for this socket.
pub(crate) fn is_awaited(fd: Fd) -> bool {
    numbers::state(fd) == State::Busy && !elsewhere() && with(|list| list.is_awaited(fd))
}

/// Makes the connection to the agent that stays, unless it is there.
pub(crate) fn stand(job: &Job) {
    if elsewhere() || standing::is_there() {
        return;
    }
    let before = sys::errno();
    // Without an agent there is nothing to keep.
    if let Ok(exchange) = Exchange::begin(job, &Request::Stand) {
        let kept = exchange.raised().into_kept();
        with(|list| list.stand(Some(kept)));
    }
    sys::set_errno(before);
}

/// Drops a connect that the program gave up. Closing the request cancels it at
/// the agent.
pub(crate) fn cancel(fd: Fd) {
    if numbers::state(fd) == State::Busy && !elsewhere() {
        with(|list| {
            list.give_up(numbers::connect_of(fd));
            list.numbers.end(fd);
        });
    }
}

/// Takes the lock on the list before a fork, and makes the channels on which the child gets its
/// connections. The agent hands each connection over once, to the parent.
pub(crate) fn before_fork() {
    LIST.before_fork(|list| {
        for pending in list.items.values_mut() {
            pending.fork_channel = sys::socket_pair(libc::SOCK_STREAM)
                .and_then(|(ours, childs)| Ok((Kept::new(ours.raised())?, Kept::new(childs.raised())?)))
                .ok();
        }
    });
}

/// Releases the lock on the list in the parent after a fork.
pub(crate) fn after_fork_in_parent() {
    LIST.after_fork(|list| {
        for pending in list.items.values_mut() {
            if let Some((ours, _)) = pending.fork_channel.take() {
                list.numbers.own(ours.raw());
                pending.child_channels.push(ours);
            }
        }
    });
}

/// Releases the lock on the list in the child after a fork. The child has no helper until
/// `start_helper` starts one, and its parent is to pass on the connections that it gets.
pub(crate) fn after_fork_in_child(start_helper: impl FnOnce(&mut List) -> Result<()>) {
    settle();
    LIST.after_fork(|list| {
        // This is done also where nothing is pending: the parent's helper may not have looked yet.
        list.wakers = None;
        list.later.clear();
        list.old.clear();
        if std::mem::take(&mut list.waiters) > 0 {
            // The threads that wait are not in the child.
            list.end_lost();
        }
        if list.items.is_empty() {
            return;
        }
        let now = sys::now();
        for pending in list.items.values_mut() {
            // These lead to the child's siblings.
            pending.child_channels.clear();
            let mut own = std::mem::replace(&mut pending.ask, Ask::Answered(None));
            let Some((_, childs)) = pending.fork_channel.take() else {
                // There was no descriptor for a channel. The reply is the parent's: here the connect
                // fails with ETIMEDOUT.
                pending.deadline = now;
                list.next_deadline = Some(now);
                continue;
            };
            if let Ask::Answered(socket) = &mut own {
                // The parent passes the connection on.
                *socket = None;
            }
            pending.ask = Ask::Parent(Exchange::by_proxy(childs), Box::new(own));
        }
        if start_helper(list).is_err() {
            list.items.clear();
            list.end_lost();
        }
    });
}
