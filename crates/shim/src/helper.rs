//! The thread that exchanges placeholders for connections. It is there only
//! while something is pending, takes no signals, and has a small stack.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use isthmus_wire::address::REFUSED;
use isthmus_wire::shim::{Handover, Reply};

use crate::agent::{Exchange, Kept};
use crate::descriptors::Holders;
use crate::ends::{self, Ends};
use crate::failed;
use crate::handover;
use crate::job::{Job, job};
use crate::lock;
use crate::pending::{self, Ask, GIVEN_UP, List, Pending};
use crate::sockaddr::{Family, Inet};
use crate::sys::{self, Errno, Fd, OwnedFd, Result};
use crate::table;

/// How long to leave an agent alone that has too many requests to take.
const RETRY: Duration = Duration::from_millis(5);
/// Enough for the helper itself; a program's thread-local storage comes on top.
const STACK: usize = 256 << 10;
/// How long the kernel may take to refuse a connect over loopback.
const REFUSAL: Duration = Duration::from_millis(500);

/// Starts the helper unless it is there.
///
/// # Errors
/// If the process may not have one more thread or descriptor.
pub(crate) fn ensure(list: &mut List) -> Result<()> {
    if list.wake.is_some() {
        return Ok(());
    }
    table::make_room();
    let (ours, helpers) = sys::socket_pair(libc::SOCK_DGRAM)?;
    list.wake = Some((Kept::new(ours.raised())?, Kept::new(helpers.raised())?));
    // Signals are blocked here, because the list is locked, and the thread
    // inherits that.
    if start_thread(Some(STACK)).or_else(|_| start_thread(None)).is_err() {
        list.wake = None;
        return Err(Errno(libc::EAGAIN));
    }
    Ok(())
}

/// Has the helper look at the list again.
pub(crate) fn wake(list: &List) {
    if let Some((ours, _)) = &list.wake
        && ours.intact()
    {
        // A full pair is as good: the helper has not looked yet.
        let _ = sys::send(ours.raw(), &[1]);
    }
}

fn start_thread(stack: Option<usize>) -> Result<()> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: `attributes` is writable.
    if unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) } != 0 {
        return Err(Errno(libc::ENOMEM));
    }
    let attributes = attributes.as_mut_ptr();
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED) };
    if let Some(size) = stack {
        // SAFETY: initialised above.
        unsafe { libc::pthread_attr_setstacksize(attributes, size) };
    }
    let mut thread: libc::pthread_t = 0;
    // SAFETY: `attributes` is initialised and `run` lives as long as the shim.
    let error = unsafe { libc::pthread_create(&raw mut thread, attributes, run, std::ptr::null_mut()) };
    // SAFETY: initialised above, and not used again.
    unsafe { libc::pthread_attr_destroy(attributes) };
    if error == 0 { Ok(()) } else { Err(Errno(error)) }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    lock::block_signals();
    // SAFETY: the name is a C string of less than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"isthmus-connect".as_ptr()) };
    // Ranks keep processors busy by polling for what this thread brings.
    let _ = sys::ask_for_short_slices();
    if let Some(job) = job() {
        let mut round = Round::default();
        while round.plan(job) {
            round.wait();
            round.settle();
        }
    }
    std::ptr::null_mut()
}

/// What the helper waits for between two looks at the list.
#[derive(Default)]
struct Round {
    fds: Vec<libc::pollfd>,
    /// Cookies in the order of `fds`, which starts with the wake socket.
    cookies: Vec<u64>,
    /// Cookies of requests that failed before anything came of them.
    failed: Vec<(u64, Errno)>,
    until: Option<Instant>,
}

impl Round {
    /// Sends what is to be sent and notes what to wait for; `false` once
    /// nothing is pending, and the thread must end.
    fn plan(&mut self, job: &Job) -> bool {
        self.fds.clear();
        self.cookies.clear();
        self.failed.clear();
        self.until = None;
        let now = sys::now();
        pending::with(|list| {
            list.items.retain(|pending| pending.cookie != GIVEN_UP);
            if list.items.is_empty() {
                list.wake = None;
                return false;
            }
            let wake = list.wake.as_ref().filter(|(_, helpers)| helpers.intact());
            self.fds.push(poll_entry(wake.map_or(-1, |(_, helpers)| helpers.raw())));
            if wake.is_none() {
                // The program closed it; look again now and then.
                self.wake_at(now + RETRY);
            }
            for pending in &mut list.items {
                self.plan_one(job, pending, now);
            }
            true
        })
    }

    fn plan_one(&mut self, job: &Job, pending: &mut Pending, now: Instant) {
        if now >= pending.deadline {
            self.failed.push((pending.cookie, Errno(libc::ETIMEDOUT)));
            self.wake_at(now);
            return;
        }
        self.wake_at(pending.deadline);
        if let Ask::Later(request, at) = &pending.ask {
            if *at > now {
                self.wake_at(*at);
                return;
            }
            match Exchange::begin_without_waiting(job, request) {
                Ok(exchange) => pending.ask = Ask::Sent(exchange.raised()),
                Err(Errno(libc::EAGAIN)) => {
                    pending.ask = Ask::Later(*request, now + RETRY);
                    self.wake_at(now + RETRY);
                    return;
                }
                Err(errno) => {
                    self.failed.push((pending.cookie, errno));
                    self.wake_at(now);
                    return;
                }
            }
        }
        let (Ask::Sent(exchange) | Ask::Parent(exchange, _)) = &pending.ask else { return };
        self.fds.push(poll_entry(exchange.raw()));
        self.cookies.push(pending.cookie);
    }

    fn wake_at(&mut self, time: Instant) {
        self.until = Some(self.until.map_or(time, |until| until.min(time)));
    }

    fn wait(&mut self) {
        let timeout = self.until.map(|until| until.saturating_duration_since(sys::now()));
        let _ = sys::poll(&mut self.fds, timeout);
        if let Some(wake) = self.fds.first()
            && wake.revents & libc::POLLIN != 0
        {
            let mut buffer = [0; 64];
            while sys::read(wake.fd, &mut buffer).is_ok() {}
        }
    }

    fn settle(&mut self) {
        for (cookie, errno) in self.failed.drain(..) {
            finish(cookie, Err(errno));
        }
        for (fd, cookie) in self.fds.iter().skip(1).zip(&self.cookies) {
            if fd.revents != 0 {
                collect(*cookie);
            }
        }
    }
}

fn poll_entry(fd: Fd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Reads the reply to one request and does what it says.
fn collect(cookie: u64) {
    let ask = pending::with(|list| {
        let pending = list.items.iter_mut().find(|pending| pending.cookie == cookie)?;
        Some(std::mem::replace(&mut pending.ask, Ask::Answered))
    });
    let put_back = |ask: Ask| {
        pending::with(|list| {
            if let Some(pending) = list.items.iter_mut().find(|pending| pending.cookie == cookie) {
                pending.ask = ask;
            }
        });
    };
    let reply = match &ask {
        Some(Ask::Sent(exchange) | Ask::Parent(exchange, _)) => exchange.collect(),
        Some(Ask::Later(..) | Ask::Answered) | None => Err(Errno(libc::EAGAIN)),
    };
    match (reply, ask) {
        (Ok((reply, socket)), _) => finish(cookie, connected(reply, socket)),
        (Err(Errno(libc::EAGAIN | libc::EINTR)), Some(ask)) => put_back(ask),
        // The parent has ended, or closed its socket.
        (Err(_), Some(Ask::Parent(_, own))) => put_back(*own),
        (Err(errno), _) => finish(cookie, Err(errno)),
    }
}

/// What a reply to a connect says.
///
/// # Errors
/// The error that the program's connect is to report.
pub(crate) fn connected(reply: Reply, socket: Option<OwnedFd>) -> Result<(Reply, OwnedFd)> {
    match (reply.errno, reply.handover, socket) {
        (0, Handover::Socket, Some(socket)) => Ok((reply, socket)),
        // The kernel drops what finds no free descriptor.
        (0, Handover::Socket, None) => Err(Errno(libc::ENOBUFS)),
        (0, _, _) => Err(Errno(libc::EPROTO)),
        (errno, _, _) => Err(Errno(errno)),
    }
}

/// Exchanges the placeholder of a pending connect for what came of it.
fn finish(cookie: u64, outcome: Result<(Reply, OwnedFd)>) {
    // A refusal takes the kernel a moment, so it comes before the lock.
    let (replacement, outcome) = match outcome {
        Ok((reply, socket)) => (Some(socket), Ok(reply)),
        Err(errno) => (refused_socket().ok(), Err(errno)),
    };
    // The program may look at numbers as soon as it sees the outcome.
    let replacement = replacement.map(OwnedFd::raised);
    pending::with(|list| {
        let Some(index) = list.items.iter().position(|pending| pending.cookie == cookie) else { return };
        let pending = list.items.swap_remove(index);
        for channel in pending.child_channels.iter().filter(|channel| channel.intact()) {
            // One that ended meanwhile needs nothing.
            let _ = match (&outcome, &replacement) {
                (Ok(reply), Some(socket)) => {
                    sys::send_with(channel.raw(), &reply.encode(), socket.raw()).map(drop)
                }
                (Ok(_), None) => Ok(()),
                (Err(errno), _) => sys::send(channel.raw(), &Reply::error(errno.0).encode()).map(drop),
            };
        }
        if let Some(replacement) = replacement {
            exchange(&pending, &replacement, outcome);
        }
    });
}

fn exchange(pending: &Pending, replacement: &OwnedFd, outcome: Result<Reply>) {
    let holders = Holders::find(pending.identity);
    let Some(first) = holders.sockets.as_slice().first().copied() else { return };
    // The program may have shut the placeholder down, or begun anew.
    if sys::cookie(first) != pending.cookie || sys::tcp_state(first) != Ok(sys::SYN_SENT) {
        return;
    }
    let new_cookie = sys::cookie(replacement.raw());
    match outcome {
        Ok(Reply { peer, local, .. }) => {
            ends::remember(new_cookie, Ends { peer, local, family: pending.family }, true);
        }
        Err(Errno(libc::ECONNREFUSED)) => {}
        Err(Errno(errno)) => failed::note(new_cookie, errno),
    }
    let local = sys::local_name(first);
    let old = OwnedFd::copy_of(first);
    let _ = handover::replace_held(&holders, pending.identity, replacement);
    // Unless the program has set another one meanwhile.
    if let Some([raised, before]) = pending.syn_counts
        && sys::get_int(replacement.raw(), libc::IPPROTO_TCP, libc::TCP_SYNCNT) == Ok(raised)
    {
        let _ = sys::set_int(replacement.raw(), libc::IPPROTO_TCP, libc::TCP_SYNCNT, before);
    }
    if let Ok(old) = old {
        wake_sleepers(old.raw());
    }
    // A program that tries again with the same socket finds its port kept.
    if outcome.is_err()
        && pending.source_port != 0
        && let Ok(local) = local
    {
        let _ = sys::bind(replacement.raw(), &local);
    }
}

/// Wakes threads that sleep in poll or select on the old socket, so that they
/// look at the new one: setting this option, even to what it is, says that
/// there is room to write. The old socket must stay as it is, because a
/// forked process may still wait for its connection.
fn wake_sleepers(old: Fd) {
    if let Ok(value) = sys::get_int(old, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) {
        let _ = sys::set_int(old, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value);
    }
}

/// A socket whose connect was refused, with the error still to be reported.
fn refused_socket() -> Result<OwnedFd> {
    /// Nothing listens on any port of the address.
    const PORT: u16 = 1;
    let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK)?;
    let nowhere = Inet { family: Family::V4, ip: REFUSED, port: PORT }.encode();
    match sys::connect(socket.raw(), &nowhere) {
        Ok(_) | Err(Errno(libc::EINPROGRESS)) => {}
        Err(errno) => return Err(errno),
    }
    // poll reports the error and leaves it there.
    let mut fds = [libc::pollfd { fd: socket.raw(), events: libc::POLLOUT, revents: 0 }];
    sys::poll(&mut fds, Some(REFUSAL))?;
    Ok(socket)
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
