//! Connects that wait for the agent.
//!
//! The thread that calls connect waits itself. A second thread that connects the same socket waits
//! for the first, as in the kernel: both get the outcome.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use isthmus_wire::shim::Request;

use crate::abandoned;
use crate::agent::{self, Asked, Exchange};
use crate::ends::{self, Ends};
use crate::handover;
use crate::job::Job;
use crate::lock;
use crate::next;
use crate::numbers;
use crate::own_address::bind_to_twin;
use crate::patience;
use crate::pending;
use crate::placeholder::{self, Start};
use crate::sockaddr::Inet;
use crate::sys::{self, Errno, Fd, Result};

/// A program's call of connect(2).
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) fd: Fd,
    /// The cookie of the socket that is connected.
    pub(crate) cookie: u64,
    pub(crate) inet: Inet,
    /// Port that the socket was bound to; 0 if it wasn't.
    pub(crate) source_port: u16,
    /// The socket's file status flags.
    pub(crate) flags: c_int,
}

/// A connect that the program waits for. It is plain data, because a thread that is cancelled while
/// it waits unwinds through nothing that owns anything.
#[derive(Clone, Copy)]
pub(crate) struct BlockingConnect {
    call: Call,
    /// The wait's id, by which the socket is known whatever numbers the program closes meanwhile.
    id: u64,
    /// The request as it was sent. Once it is noted ([`abandoned`]), it may have another number.
    asked: Asked,
    deadline: Instant,
    /// Whether the program set the deadline (`SO_SNDTIMEO`).
    limited: bool,
    /// The thread's signal mask. All signals are blocked except while the thread waits. A handler
    /// may leave the call by siglongjmp(3), and nothing would tell what is left open.
    mask: u64,
}

/// How often a thread that waits looks whether its request has another number. Whenever the kernel
/// wakes the thread, it looks up anew what stands under the number that the thread has named.
const LOOK: Duration = Duration::from_secs(1);

impl BlockingConnect {
    /// Asks the agent for the connection. `None` if another thread has done so for this socket.
    ///
    /// # Errors
    /// As [`Exchange::begin`], and if the number isn't open.
    pub(crate) fn begin(job: &Job, call: Call, request: &Request, mask: u64) -> Result<Option<Self>> {
        let limit = limit(call.fd);
        let patience = patience::of(job, call.fd);
        let Some(id) = pending::begin_waiting(call.fd)? else { return Ok(None) };
        let asked = pending::ask(job, id, call.fd, request)
            .inspect_err(|_| pending::end_waiting(id, Some(call.fd)))?;
        Ok(Some(Self {
            call,
            id,
            asked,
            deadline: sys::now() + limit.map_or(patience, |limit| limit.min(patience)),
            limited: limit.is_some_and(|limit| limit < patience),
            mask,
        }))
    }

    /// Waits for the agent's answer, as a cancellation point.
    ///
    /// # Safety
    /// No frame from here to the program's call owns anything.
    pub(crate) unsafe fn wait(mut self) -> Result<()> {
        let this = (&raw mut self).cast();
        let mut cleanup = next::Cleanup::new();
        let mask = lock::as_set(self.mask);
        abandoned::begin(self.id, this as usize);
        // SAFETY: both live until the pop below, or until the thread ends.
        unsafe { next::cleanup_push(&mut cleanup, given_up_by_cancel, this) };
        let outcome = loop {
            let left = self.deadline.saturating_duration_since(sys::now());
            if left.is_zero() {
                break Err(Errno(libc::ETIMEDOUT));
            }
            let asked = self.asked();
            // What stands for something else now would be waited for in vain.
            if !asked.is_intact() {
                break Ok(());
            }
            // SAFETY: this frame owns nothing, by the caller's promise.
            let ready = unsafe { await_input(asked.raw(), &sys::timespec(left.min(LOOK)), &mask) };
            if ready > 0 {
                // Under its old number the request may have come to stand for something else.
                if self.asked().raw() == asked.raw() {
                    break Ok(());
                }
                continue;
            }
            // A connect with a limit of its own is never restarted by the
            // kernel, either.
            let restarted = || !self.limited && agent::all_handlers_restart();
            if ready < 0 && (sys::errno() != libc::EINTR || !restarted()) {
                break Err(Errno(sys::errno()));
            }
        };
        // SAFETY: the one that was pushed above.
        unsafe { next::cleanup_pop(&mut cleanup) };
        outcome
    }

    /// Ends the call after the wait, which had this outcome.
    ///
    /// # Errors
    /// The error that the program's connect is to report.
    pub(crate) fn end(self, job: &Job, outcome: Result<()>) -> Result<()> {
        let result = self.conclude(job, outcome);
        pending::end_waiting(self.id, result.is_err().then_some(self.call.fd));
        result
    }

    fn conclude(self, job: &Job, outcome: Result<()>) -> Result<()> {
        let Call { cookie, inet, source_port, flags, .. } = self.call;
        let errno = match outcome {
            Ok(()) => return self.collect(),
            Err(Errno(libc::ETIMEDOUT)) if self.limited => libc::EINPROGRESS,
            Err(Errno(errno)) => errno,
        };
        let exchange = self.take();
        // The kernel's own connect goes on behind the program's back, too.
        if matches!(errno, libc::EINPROGRESS | libc::EINTR)
            && flags & libc::O_NONBLOCK == 0
            && let Some(number) = self.number().filter(|number| sys::cookie(*number) == cookie)
        {
            bind_to_twin(job.virtual_address, number, inet);
            // Without a placeholder the connect is given up.
            let _ = placeholder::start(job, number, inet, source_port, Start::Asked(exchange));
        }
        Err(Errno(errno))
    }

    /// Reads the agent's answer and does what it says.
    fn collect(self) -> Result<()> {
        // With the lock held, no other thread closes the socket before it is in its place.
        pending::with(|list| {
            let (reply, socket) = self.take().collect()?;
            let (reply, socket) = agent::connected(reply, socket)?;
            let ends = Ends { peer: reply.peer, local: reply.local, family: self.call.inet.family };
            ends::remember(sys::cookie(socket.raw()), ends, false);
            let number = self.number().and_then(|number| {
                list.numbers.receive(number);
                list.numbers.check(number, self.call.cookie)
            });
            let Some(number) = number else { return self.without_number() };
            let number = handover::replace(&mut list.numbers, number, self.call.cookie, socket.raw())?;
            list.numbers.forget(number);
            Ok(())
        })
    }

    /// The request under the number that it has now.
    fn asked(&self) -> Asked {
        abandoned::asked(self.id).unwrap_or(self.asked)
    }

    /// Takes over the request; not to be called twice.
    fn take(&self) -> Exchange {
        Exchange::from_asked(abandoned::take(self.id).unwrap_or(self.asked))
    }

    /// A number of the socket; `None` if it has none. The program may have closed the number with
    /// which it called connect.
    fn number(&self) -> Option<Fd> {
        if self.id == numbers::NO_CONNECT {
            Some(self.call.fd)
        } else {
            numbers::with_connect(self.id, self.call.fd)
        }
    }

    /// What the call reports if the connection has come for a socket that isn't waited for under
    /// any number.
    fn without_number(&self) -> Result<()> {
        if sys::cookie(self.call.fd) == self.call.cookie {
            // Another thread has dissolved the connect.
            return Err(Errno(libc::ECONNABORTED));
        }
        // The program has closed the socket meanwhile, of which the kernel's connect takes no
        // notice.
        Ok(())
    }
}

/// Waits as ppoll(2) until there is something to read.
///
/// # Safety
/// This is a cancellation point: no frame of the thread owns anything.
unsafe fn await_input(fd: Fd, left: &libc::timespec, mask: &libc::sigset_t) -> c_int {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry, and a time and a mask that live through the call.
    let ready = unsafe { next::ppoll(&raw mut entry, 1, left, mask) };
    let in_set = usize::try_from(fd).is_ok_and(|fd| fd < libc::FD_SETSIZE);
    if ready >= 0 || sys::errno() != libc::EINVAL || !in_set {
        return ready;
    }
    // With a soft limit of 0, ppoll takes no entry at all.
    // SAFETY: all-zero is a valid, empty set.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    let null = std::ptr::null_mut();
    // SAFETY: the number is below FD_SETSIZE. The set, the time and the mask live through the call.
    unsafe {
        libc::FD_SET(fd, &raw mut set);
        next::pselect(fd.saturating_add(1), &raw mut set, null, null, left, mask)
    }
}

/// Gives up a connect whose thread was cancelled. Closing the request cancels it at the agent.
unsafe extern "C" fn given_up_by_cancel(blocking: *mut c_void) {
    // SAFETY: `BlockingConnect::wait` passed itself, and its frame is still there.
    let blocking = unsafe { blocking.cast::<BlockingConnect>().read() };
    drop(blocking.take());
    pending::end_waiting(blocking.id, Some(blocking.call.fd));
    lock::restore_signals(blocking.mask);
}

/// Waits until another thread that waits for this socket has its outcome.
///
/// # Errors
/// `EINTR` after a signal, `EALREADY` if the limit passed.
pub(crate) fn for_other(job: &Job, fd: Fd) -> Result<()> {
    let limit = limit(fd);
    let deadline = sys::now() + limit.unwrap_or(patience::longest(job));
    loop {
        let seen = pending::ENDED.load(Ordering::Acquire);
        if !pending::is_awaited(fd) {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(sys::now());
        if left.is_zero() {
            return Err(Errno(libc::EALREADY));
        }
        match sys::futex_wait(&pending::ENDED, seen, left) {
            Err(Errno(libc::EINTR)) if limit.is_some() || !agent::all_handlers_restart() => {
                return Err(Errno(libc::EINTR));
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// How long a blocking connect may take by the socket's `SO_SNDTIMEO`; `None` without a limit.
pub(crate) fn limit(fd: Fd) -> Option<Duration> {
    let mut bytes = [0; 16];
    sys::get_option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &mut bytes).ok()?;
    let (seconds, micros) = bytes.split_at(8);
    let seconds = u64::from_ne_bytes(seconds.try_into().ok()?);
    let micros = u64::from_ne_bytes(micros.try_into().ok()?);
    let timeout = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    (!timeout.is_zero()).then_some(timeout)
}
