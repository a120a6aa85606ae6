//! The thread that exchanges placeholders for connections. The thread is there only while something
//! is pending, and a tenth of a second more. It takes no signals and has a small stack.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use isthmus_wire::address::REFUSED;
use isthmus_wire::shim::Reply;

use crate::agent::Exchange;
use crate::ends::{self, Ends};
use crate::failed;
use crate::families;
use crate::handover;
use crate::job::{Job, job};
use crate::kept::Kept;
use crate::limit;
use crate::lock;
use crate::numbers::{self, NO_CONNECT};
use crate::owner;
use crate::pending::old::{AGAIN, Old};
use crate::pending::{self, Ask, List, Pending};
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Errno, Fd, OwnedFd, Result};
use crate::table;
use crate::wakers::Wakers;

/// How long to leave an agent alone that has too many requests to take more.
const RETRY: Duration = Duration::from_millis(5);
/// How often the helper looks whether the program has closed the descriptors that it waits with.
const LOOK: Duration = Duration::from_secs(1);
/// Most requests that are sent before replies are looked at again.
const SENT_AT_ONCE: usize = 64;
/// Most replies that are read before the list is looked at again.
const READ_AT_ONCE: usize = 64;
/// Bytes of stack for the helper itself. A program's thread-local storage comes on top.
const STACK: usize = 256 << 10;
/// How long the kernel may take to refuse a connect over loopback.
const REFUSAL: Duration = Duration::from_millis(500);

/// Starts the helper unless it runs already.
///
/// # Errors
/// If the process may not have one more thread or descriptor.
pub(crate) fn ensure(list: &mut List) -> Result<()> {
    if let Some(wakers) = &list.wakers {
        // The program may have closed the descriptors. The helper looks again within LOOK.
        return if wakers.are_intact() { Ok(()) } else { renew_wakers(list).map(drop) };
    }
    table::make_room();
    renew_wakers(list)?;
    // Signals are blocked here, because the list is locked, and the thread
    // inherits that.
    if start_thread(Some(STACK)).or_else(|_| start_thread(None)).is_err() {
        list.wakers = None;
        return Err(Errno(libc::EAGAIN));
    }
    Ok(())
}

/// Makes anew the descriptors that the helper waits with, and has it wait for all replies. Returns
/// the connects whose reply can't come any more.
fn renew_wakers(list: &mut List) -> Result<Vec<(u64, Errno)>> {
    let mut wakers = Wakers::new()?;
    wakers.each_kept(&mut |kept| list.numbers.own(kept.raw()));
    list.wakers = Some(wakers);
    let ids: Vec<u64> = list.items.keys().copied().collect();
    Ok(ids.into_iter().filter_map(|id| list.await_reply(id).err().map(|errno| (id, errno))).collect())
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

/// Most old sockets that are kept to wake their sleepers again. A thread that sleeps on a still
/// older socket sleeps on others, too, or has been woken.
const MOST_OLD: usize = 16;

/// What the helper does between two looks at the list.
#[derive(Default)]
struct Round {
    epoll: Fd,
    /// Ids of connects whose reply has come.
    replied: Vec<u64>,
    /// Connects that failed before a reply came, by id, with their errors.
    failed: Vec<(u64, Errno)>,
    until: Option<Instant>,
}

impl Round {
    /// Sends what is to be sent and notes what to wait for. `false` once nothing is pending: then
    /// the thread must end.
    fn plan(&mut self, job: &Job) -> bool {
        self.failed.clear();
        self.until = None;
        let now = sys::now();
        pending::with(|list| {
            if std::mem::take(&mut list.has_given_up) {
                list.items.retain(|_, pending| !pending.given_up);
            }
            self.wake_again(list, now);
            if list.items.is_empty() {
                list.later.clear();
                if list.old.is_empty() {
                    list.wakers = None;
                    return false;
                }
            }
            let intact = list.wakers.as_ref().is_some_and(Wakers::are_intact);
            if !intact {
                match renew_wakers(list) {
                    Ok(lost) => lost.into_iter().for_each(|(id, errno)| self.fail(id, errno, now)),
                    // There may be descriptors again in a moment.
                    Err(_) => self.wake_at(now + RETRY),
                }
            }
            self.wake_at(now + LOOK);
            self.epoll = list.wakers.as_ref().map_or(-1, |wakers| wakers.epoll());
            self.send(job, list, now);
            self.expire(list, now);
            true
        })
    }

    /// Sends requests that the agent had no room for before.
    fn send(&mut self, job: &Job, list: &mut List, now: Instant) {
        for _ in 0..SENT_AT_ONCE {
            let Some(id) = list.later.front().copied() else { return };
            // The next reply makes room.
            if !list.has_room() {
                return;
            }
            if let Some(pending) = list.items.get_mut(&id)
                && let Ask::Later(request) = &pending.ask
            {
                match Exchange::begin_without_waiting(job, request) {
                    Ok(exchange) => {
                        pending.ask = Ask::Sent(exchange.raised());
                        if let Err(errno) = list.await_reply(id) {
                            self.fail(id, errno, now);
                        }
                    }
                    Err(Errno(libc::EAGAIN)) => {
                        self.wake_at(now + RETRY);
                        return;
                    }
                    Err(errno) => self.fail(id, errno, now),
                }
            }
            list.later.pop_front();
        }
        self.wake_at(now);
    }

    /// Ends connects that take too long.
    fn expire(&mut self, list: &mut List, now: Instant) {
        if list.next_deadline.is_some_and(|next| next <= now) {
            let (late, others): (Vec<_>, Vec<_>) = list
                .items
                .iter()
                .map(|(id, pending)| (*id, pending.deadline))
                .partition(|(_, end)| *end <= now);
            late.into_iter().for_each(|(id, _)| self.fail(id, Errno(libc::ETIMEDOUT), now));
            list.next_deadline = others.into_iter().map(|(_, end)| end).min();
        }
        if let Some(next) = list.next_deadline {
            self.wake_at(next);
        }
    }

    /// Wakes threads that may have gone to sleep on a socket that has been exchanged.
    fn wake_again(&mut self, list: &mut List, now: Instant) {
        for old in &mut list.old {
            if old.next().is_some_and(|next| next <= now) {
                old.woken += 1;
                if old.socket.intact() {
                    wake_sleepers(old.socket.raw());
                }
            }
        }
        list.old.retain(|old| old.next().is_some());
        if let Some(next) = list.old.iter().filter_map(Old::next).min() {
            self.wake_at(next);
        }
    }

    fn fail(&mut self, id: u64, errno: Errno, now: Instant) {
        self.failed.push((id, errno));
        self.wake_at(now);
    }

    fn wake_at(&mut self, time: Instant) {
        self.until = Some(self.until.map_or(time, |until| until.min(time)));
    }

    fn wait(&mut self) {
        self.replied.clear();
        let timeout = self.until.map(|until| until.saturating_duration_since(sys::now()));
        let mut events = [libc::epoll_event { events: 0, u64: NO_CONNECT }; READ_AT_ONCE];
        let count = match sys::epoll_wait(self.epoll, &mut events, timeout) {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(Errno(libc::EINTR)) => 0,
            // The program has closed the epoll instance.
            Err(_) => {
                let _ = sys::poll(&mut [], Some(RETRY));
                0
            }
        };
        self.replied.extend(events.iter().take(count).map(|event| event.u64));
    }

    fn settle(&mut self) {
        for (id, errno) in std::mem::take(&mut self.failed) {
            finish(id, Err(errno));
        }
        for id in std::mem::take(&mut self.replied) {
            if id == NO_CONNECT {
                drain_wakes();
            } else {
                collect(id);
            }
        }
    }
}

fn drain_wakes() {
    pending::with(|list| {
        if let Some(wakers) = &list.wakers {
            wakers.drain();
        }
    });
}

/// Reads the reply to the request of one connect and does what the reply says.
fn collect(id: u64) {
    if let Some(outcome) = pending::with(|list| list.collect(id)) {
        finish(id, outcome);
    }
}

/// Exchanges the placeholder of a pending connect for the socket that the list holds. If the
/// connect has failed, that is a socket whose connect was refused.
fn finish(id: u64, outcome: Result<Reply>) {
    if outcome.is_err() {
        refuse(id);
    }
    pending::with(|list| {
        let Some(mut pending) = list.items.remove(&id).filter(|pending| !pending.given_up) else { return };
        let replacement = match std::mem::replace(&mut pending.ask, Ask::Answered(None)) {
            Ask::Answered(socket) => socket.filter(Kept::intact),
            Ask::Later(_) | Ask::Sent(_) | Ask::Parent(..) => None,
        };
        for channel in pending.child_channels.iter().filter(|channel| channel.intact()) {
            // A child that has ended meanwhile needs nothing.
            let _ = match (&outcome, &replacement) {
                (Ok(reply), Some(socket)) => {
                    sys::send_with(channel.raw(), &reply.encode(), socket.raw(), 0).map(drop)
                }
                (Ok(_), None) => Ok(()),
                (Err(errno), _) => sys::send(channel.raw(), &Reply::error(errno.0).encode()).map(drop),
            };
        }
        list.numbers.receive(pending.number);
        let number = list.numbers.check(pending.number, pending.cookie);
        let number = number.or_else(|| list.numbers.received(pending.cookie, id));
        // The program may have begun anew.
        let Some(number) = number.filter(|number| numbers::connect_of(*number) == id) else { return };
        let is_connected = outcome.is_ok() && replacement.is_some();
        let old = match replacement {
            Some(replacement) => exchange(list, &pending, number, &replacement, outcome),
            None => {
                fail_in_place(&pending, number);
                None
            }
        };
        if let Some(old) = old.filter(|_| limit::is_ample()) {
            list.keep(old, MOST_OLD);
        }
        if is_connected {
            list.numbers.forget(number);
        } else {
            list.numbers.end(number);
        }
    });
}

/// Has the placeholder itself fail, by ECONNRESET. Nothing is there to take its place: the program
/// has closed that, or has no descriptor left.
fn fail_in_place(pending: &Pending, number: Fd) {
    if sys::tcp_state(number) == Ok(sys::SYN_SENT) {
        let _ = sys::connect(number, &Storage::unspecified());
        set_syn_count_back(pending, number);
    }
}

/// Sets `TCP_SYNCNT` back, unless the program has set another count meanwhile.
fn set_syn_count_back(pending: &Pending, fd: Fd) {
    if let Some([raised, before]) = pending.syn_counts
        && sys::get_int(fd, libc::IPPROTO_TCP, libc::TCP_SYNCNT) == Ok(raised)
    {
        let _ = sys::set_int(fd, libc::IPPROTO_TCP, libc::TCP_SYNCNT, before);
    }
}

/// Puts `replacement` in the place of the placeholder. Returns the placeholder, which may have
/// sleepers.
fn exchange(
    list: &mut List,
    pending: &Pending,
    number: Fd,
    replacement: &Kept,
    outcome: Result<Reply>,
) -> Option<Old> {
    // The program may have shut the placeholder down.
    if sys::tcp_state(number) != Ok(sys::SYN_SENT) {
        return None;
    }
    let new_cookie = sys::cookie(replacement.raw());
    match outcome {
        Ok(Reply { peer, local, .. }) => {
            ends::remember(new_cookie, Ends { peer, local, family: pending.family }, true);
        }
        Err(Errno(libc::ECONNREFUSED)) => {}
        Err(Errno(errno)) => failed::note(new_cookie, errno),
    }
    let local = sys::local_name(number);
    let copy = OwnedFd::copy_of(number).ok();
    let lent =
        if copy.is_none() { list.wakers.as_ref().and_then(|wakers| wakers.lend(number)) } else { None };
    let replaced = handover::replace(&mut list.numbers, number, pending.cookie, replacement.raw());
    if replaced.is_ok() {
        owner::signal(number, outcome.is_err());
    }
    set_syn_count_back(pending, replacement.raw());
    if let Some(old) = copy.as_ref().map(OwnedFd::raw).or(lent) {
        wake_sleepers(old);
    }
    if let (Some(_), Some(wakers)) = (lent, &list.wakers) {
        wakers.take_back();
    }
    // A program that tries again with the same socket finds its port kept.
    if outcome.is_err()
        && pending.source_port != 0
        && let Ok(local) = local
    {
        let _ = sys::bind(replacement.raw(), &local);
    }
    // The old socket keeps the port that the program has bound it to.
    let times = if pending.source_port == 0 { AGAIN.len() } else { 1 };
    let socket = Kept::new(copy?).ok()?;
    Some(Old { socket, exchanged: sys::now(), woken: 0, times })
}

/// Wakes threads that sleep in poll or select on the old socket, so that they look at the new one.
/// Setting this option, even to the value that it has, says that there is room to write. The old
/// socket must stay as it is, because a forked process may still wait for its connection.
fn wake_sleepers(old: Fd) {
    if let Ok(value) = sys::get_int(old, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) {
        let _ = sys::set_int(old, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value);
    }
}

/// Has the list hold a socket for a connect that has failed. Its connect is refused, with the error
/// still to be reported.
fn refuse(id: u64) {
    /// Pause between two looks at the list.
    const LOOK: Duration = Duration::from_millis(1);
    let begun = pending::with(|list| {
        let pending = list.items.get_mut(&id)?;
        // Where the program has used all its descriptors, the socket needs the request's
        // descriptor.
        pending.ask = Ask::Answered(None);
        let socket = refused_socket(pending.family).ok()?;
        list.hold(id, socket);
        Some(sys::now())
    });
    // The refusal takes the kernel a moment.
    while begun.is_some_and(|begun| begun.elapsed() < REFUSAL) && !pending::with(|list| list.is_refused(id)) {
        let _ = sys::poll(&mut [], Some(LOOK));
    }
}

/// A socket that connects to an address where nothing listens.
fn refused_socket(family: Family) -> Result<OwnedFd> {
    /// Any port will do: nothing listens on a port of that address.
    const PORT: u16 = 1;
    let socket = families::socket(family, libc::SOCK_NONBLOCK)?;
    let nowhere = Inet { family, ip: REFUSED, port: PORT }.encode();
    match sys::connect(socket.raw(), &nowhere) {
        Ok(_) | Err(Errno(libc::EINPROGRESS)) => Ok(socket),
        Err(errno) => Err(errno),
    }
}
