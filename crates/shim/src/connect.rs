//! connect(2): to this node through its twin, to another node through the agent.

use std::ffi::{c_int, c_void};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use isthmus_wire::VirtualAddress;
use isthmus_wire::shim::Request;

use crate::agent::{self, Asked, Exchange};
use crate::datagrams;
use crate::ends::{self, Ends};
use crate::failed;
use crate::gate;
use crate::handover;
use crate::helper;
use crate::job::Job;
use crate::next;
use crate::options;
use crate::patience;
use crate::peer;
use crate::pending::{self, Start, Started};
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Errno, Fd, Result};

/// The target of a connect call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// An address that isthmus doesn't handle.
    Elsewhere,
    Own(Inet),
    Remote(Inet),
    /// `AF_UNSPEC`: dissolve the connection.
    Nowhere,
}

/// The replacement for the kernel's connect; `None` leaves the call to the
/// kernel, with the address as the program gave it. An address in the answer is
/// to be connected to natively.
pub(crate) fn connect(job: &Job, fd: Fd, address: &Storage) -> Option<Result<Native>> {
    match destination(job.virtual_address, address) {
        Destination::Elsewhere => None,
        Destination::Nowhere => {
            pending::cancel(fd);
            None
        }
        Destination::Own(inet) => {
            let domain = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).ok()?;
            if domain != inet.family.domain() {
                return None;
            }
            let twin = inet.with_ip(job.virtual_address.twin());
            bind_to_twin(job.virtual_address, fd, inet);
            Some(Ok(Native::Address(twin.encode())))
        }
        Destination::Remote(inet) => {
            let option = |name| sys::get_int(fd, libc::SOL_SOCKET, name);
            if option(libc::SO_DOMAIN) != Ok(inet.family.domain()) {
                return None;
            }
            let v6_only = inet.family == Family::Mapped
                && sys::get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Ok(1);
            if v6_only {
                return None;
            }
            match option(libc::SO_TYPE) {
                Ok(libc::SOCK_STREAM) => Some(remote(job, fd, inet)),
                Ok(libc::SOCK_DGRAM) => Some(Ok(Native::Address(datagrams::connect(job, fd, inet)))),
                Ok(_) | Err(_) => None,
            }
        }
    }
}

/// The rest of a connect call.
pub(crate) enum Native {
    Done,
    /// The kernel's own connect, to this address.
    Address(Storage),
    /// To wait for the agent.
    Wait(Waiting),
}

fn destination(own: VirtualAddress, address: &Storage) -> Destination {
    let Some(inet) = Inet::parse(address.bytes()) else {
        let nowhere = address.domain() == libc::AF_UNSPEC && address.len() >= 2;
        return if nowhere { Destination::Nowhere } else { Destination::Elsewhere };
    };
    match VirtualAddress::new(inet.ip) {
        None => Destination::Elsewhere,
        Some(address) if address == own => Destination::Own(inet),
        Some(_) => Destination::Remote(inet),
    }
}

/// Binds an unbound socket to its node's twin, so that the other end
/// sees the node's virtual address; the port is chosen at connect, when the
/// kernel knows which are free for this destination.
fn bind_to_twin(own: VirtualAddress, fd: Fd, inet: Inet) {
    let unbound = |name: Inet| name.ip == Ipv4Addr::UNSPECIFIED && name.port == 0;
    if sys::local_name(fd).ok().and_then(|name| Inet::parse(name.bytes())).is_some_and(unbound) {
        let _ = sys::set_int(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        let _ = sys::bind(fd, &Inet { port: 0, ..inet.with_ip(own.twin()) }.encode());
    }
}

fn remote(job: &Job, fd: Fd, inet: Inet) -> Result<Native> {
    let flags = sys::fcntl(fd, libc::F_GETFL, 0)?;
    let blocking = flags & libc::O_NONBLOCK == 0;
    // Another thread may close the number at any time from here on: whatever
    // stands under it later is this socket only if it has this cookie.
    let cookie = sys::cookie(fd);
    if cookie == 0 {
        return Err(Errno(libc::EBADF));
    }
    let state = sys::tcp_state(fd)?;
    if state == sys::SYN_SENT && blocking {
        helper::wait_for(fd, send_timeout(fd).unwrap_or(patience::longest(job)))?;
        return outcome_of_wait(fd).map(|()| Native::Done);
    }
    if state != sys::CLOSED {
        // Never waits: the socket listens, is connected, or is connecting and
        // doesn't block.
        let errno = sys::connect(fd, &pending::black_hole(job, inet.family)).err();
        return kernels_answer(fd, errno.unwrap_or(Errno(libc::EISCONN))).map(|()| Native::Done);
    }
    let source_port =
        sys::local_name(fd).ok().and_then(|name| Inet::parse(name.bytes())).map_or(0, |name| name.port);
    let [send_buffer, receive_buffer] = options::buffers_set(fd);
    let is_v6 = inet.family == Family::Mapped;
    let (destination, port) = (inet.ip, inet.port);
    let request = Request::Connect { destination, port, source_port, send_buffer, receive_buffer, is_v6 };
    if blocking {
        // The pending error of an earlier non-blocking connect.
        match sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
            // ECONNRESET is what unconnecting leaves, which connect ignores.
            0 | libc::ECONNRESET => {
                Waiting::begin(job, fd, cookie, inet, source_port, &request, flags).map(Native::Wait)
            }
            error => kernels_answer(fd, Errno(error)).map(|()| Native::Done),
        }
    } else {
        bind_to_twin(job.virtual_address, fd, inet);
        match pending::start(job, fd, inet, source_port, Start::Ask(request))? {
            Started::Pending => Err(Errno(libc::EINPROGRESS)),
            Started::Kernel(errno) => kernels_answer(fd, errno).map(|()| Native::Done),
            Started::Refused => {
                Waiting::begin(job, fd, cookie, inet, source_port, &request, flags).map(Native::Wait)
            }
        }
    }
}

/// A connect that the program waits for: plain data, because a thread that is
/// cancelled while it waits unwinds through nothing that owns anything.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    fd: Fd,
    cookie: u64,
    inet: Inet,
    source_port: u16,
    flags: c_int,
    asked: Asked,
    deadline: Instant,
    /// The program set the deadline (`SO_SNDTIMEO`).
    limited: bool,
}

impl Waiting {
    fn begin(
        job: &Job,
        fd: Fd,
        cookie: u64,
        inet: Inet,
        source_port: u16,
        request: &Request,
        flags: c_int,
    ) -> Result<Self> {
        let limit = send_timeout(fd);
        let patience = patience::of(job, fd);
        let asked = Exchange::begin(job, request)?.without_waiting();
        pending::begin_waiting(fd)?;
        let asked = asked.into_asked();
        Ok(Self {
            fd,
            cookie,
            inet,
            source_port,
            flags,
            asked,
            deadline: sys::now() + limit.map_or(patience, |limit| limit.min(patience)),
            limited: limit.is_some_and(|limit| limit < patience),
        })
    }

    /// Waits for the agent's answer, as a cancellation point.
    ///
    /// # Safety
    /// No frame from here to the program's call owns anything.
    unsafe fn wait(mut self) -> Result<()> {
        let this = (&raw mut self).cast();
        let mut cleanup = next::Cleanup::new();
        // SAFETY: both live until the pop below, or until the thread ends.
        unsafe { next::cleanup_push(&mut cleanup, given_up_by_cancel, this) };
        let outcome = loop {
            let left = self.deadline.saturating_duration_since(sys::now());
            if left.is_zero() {
                break Err(Errno(libc::ETIMEDOUT));
            }
            // Rounded up: not to look too early again and again.
            let left = c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX).saturating_add(1);
            let mut entry = libc::pollfd { fd: self.asked.raw(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            let ready = unsafe { next::poll(&raw mut entry, 1, left) };
            if ready > 0 {
                break Ok(());
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

    fn end(self, job: &Job, outcome: Result<()>) -> Result<()> {
        let result = self.conclude(job, outcome);
        if result.is_err() {
            pending::end_waiting(self.fd, self.cookie);
        }
        result
    }

    fn conclude(self, job: &Job, outcome: Result<()>) -> Result<()> {
        let Self { fd, cookie, inet, source_port, flags, .. } = self;
        let exchange = Exchange::from_asked(self.asked);
        let errno = match outcome {
            Ok(()) => {
                let (reply, socket) = exchange.collect()?;
                let (reply, socket) = helper::connected(reply, socket)?;
                let ends = Ends { peer: reply.peer, local: reply.local, family: inet.family };
                ends::remember(sys::cookie(socket.raw()), ends, false);
                return pending::with(|list| {
                    if sys::cookie(fd) != cookie {
                        return Err(Errno(libc::EBADF));
                    }
                    let fd = handover::replace(&mut list.numbers, fd, cookie, &socket)?;
                    list.numbers.forget(fd);
                    Ok(())
                });
            }
            // The kernel's own connect goes on behind the program's back, too.
            Err(Errno(libc::ETIMEDOUT)) if self.limited => libc::EINPROGRESS,
            Err(Errno(libc::EINTR)) => libc::EINTR,
            Err(errno) => return Err(errno),
        };
        if flags & libc::O_NONBLOCK == 0 && sys::cookie(fd) == cookie {
            let _ = sys::fcntl(fd, libc::F_SETFL, i64::from(flags | libc::O_NONBLOCK));
            bind_to_twin(job.virtual_address, fd, inet);
            // Without a placeholder the connect is given up.
            let _ = pending::start(job, fd, inet, source_port, Start::Asked(exchange));
            let _ = sys::fcntl(fd, libc::F_SETFL, i64::from(flags));
        }
        Err(Errno(errno))
    }
}

/// The thread was cancelled: closing the request cancels it at the agent.
unsafe extern "C" fn given_up_by_cancel(waiting: *mut c_void) {
    // SAFETY: `Waiting::wait` passed itself, and its frame is still there.
    let waiting = unsafe { waiting.cast::<Waiting>().read() };
    drop(Exchange::from_asked(waiting.asked));
    pending::end_waiting(waiting.fd, waiting.cookie);
}

/// The kernel's answer to a connect on a socket that was used before, corrected
/// where the shim has replaced the socket.
fn kernels_answer(fd: Fd, errno: Errno) -> Result<()> {
    let cookie = sys::cookie(fd);
    match errno {
        Errno(libc::EISCONN) if ends::take_just_connected(cookie) => Ok(()),
        Errno(libc::ECONNREFUSED) => Err(failed::take(cookie).map_or(errno, Errno)),
        Errno(_) => Err(errno),
    }
}

/// The result of a blocking connect on a socket whose connect was pending.
fn outcome_of_wait(fd: Fd) -> Result<()> {
    match sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 if sys::tcp_state(fd) == Ok(sys::CLOSED) => Err(Errno(libc::ECONNABORTED)),
        0 => {
            ends::take_just_connected(sys::cookie(fd));
            Ok(())
        }
        error => kernels_answer(fd, Errno(error)),
    }
}

/// `SO_SNDTIMEO`, which bounds a blocking connect; `None` if there is none.
fn send_timeout(fd: Fd) -> Option<Duration> {
    let mut bytes = [0; 16];
    sys::get_option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &mut bytes).ok()?;
    let (seconds, micros) = bytes.split_at(8);
    let seconds = u64::from_ne_bytes(seconds.try_into().ok()?);
    let micros = u64::from_ne_bytes(micros.try_into().ok()?);
    let timeout = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    (!timeout.is_zero()).then_some(timeout)
}

/// connect(2).
///
/// # Safety
/// As connect(2): `address` is null or readable for `len` bytes.
pub(crate) unsafe fn hook(
    job: &Job,
    fd: c_int,
    address: *const libc::sockaddr,
    len: libc::socklen_t,
) -> c_int {
    let before = sys::errno();
    // SAFETY: the caller's promise.
    let Some(storage) = (unsafe { Storage::from_program(address, len) }) else {
        // SAFETY: the caller's promise.
        return unsafe { next::connect(fd, address, len) };
    };
    match connect(job, fd, &storage) {
        None => {
            if storage.domain() != libc::AF_UNSPEC {
                gate::settled(fd);
            }
            if storage.socket_address().is_some_and(|to| to.ip().is_loopback()) {
                peer::record(job, fd);
            }
            sys::set_errno(before);
            // SAFETY: the caller's promise.
            unsafe { next::connect(fd, address, len) }
        }
        Some(Ok(Native::Done)) => {
            sys::set_errno(before);
            0
        }
        Some(Ok(Native::Wait(waiting))) => {
            // SAFETY: this frame owns nothing.
            let outcome = unsafe { waiting.wait() };
            match waiting.end(job, outcome) {
                Ok(()) => {
                    sys::set_errno(before);
                    0
                }
                Err(Errno(errno)) => {
                    sys::set_errno(errno);
                    -1
                }
            }
        }
        Some(Ok(Native::Address(address))) => {
            gate::settled(fd);
            peer::record(job, fd);
            sys::set_errno(before);
            // SAFETY: `address` is readable for its length.
            unsafe { next::connect(fd, address.as_ptr(), address.len()) }
        }
        Some(Err(Errno(errno))) => {
            sys::set_errno(errno);
            -1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockaddr::Family;

    #[test]
    fn destinations() {
        let own = VirtualAddress::new([240, 64, 1, 2].into()).unwrap();
        for family in [Family::V4, Family::Mapped] {
            let inet = |ip: [u8; 4]| Inet { family, ip: ip.into(), port: 9 };
            for (ip, want) in [
                ([240, 64, 1, 2], Destination::Own(inet([240, 64, 1, 2]))),
                ([240, 64, 1, 3], Destination::Remote(inet([240, 64, 1, 3]))),
                ([240, 128, 0, 1], Destination::Elsewhere),
                ([127, 0, 0, 1], Destination::Elsewhere),
                ([127, 64, 1, 2], Destination::Elsewhere),
                ([0, 0, 0, 0], Destination::Elsewhere),
            ] {
                assert_eq!(destination(own, &inet(ip).encode()), want, "{family:?} {ip:?}");
            }
        }
        assert_eq!(destination(own, &Storage::unspecified()), Destination::Nowhere);
        assert_eq!(destination(own, &Storage::unix(b"/x").unwrap()), Destination::Elsewhere);
    }
}
