//! connect(2): to this node through its twin, to another node through the agent.

use std::ffi::c_int;

use isthmus_wire::VirtualAddress;
use isthmus_wire::shim::Request;

use crate::abandoned;
use crate::blocking::{self, BlockingConnect, Call};
use crate::datagrams;
use crate::dual;
use crate::ends;
use crate::failed;
use crate::gate;
use crate::job::Job;
use crate::lock;
use crate::next;
use crate::options;
use crate::own_address::{self, bind_to_twin};
use crate::patience;
use crate::peer;
use crate::pending;
use crate::placeholder::{self, Start, Started};
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Errno, Fd, Result};

/// Where a connect call leads.
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
/// to be connected to natively. All signals are blocked; the thread's own mask is `mask`.
pub(crate) fn connect(job: &Job, fd: Fd, address: &Storage, mask: u64) -> Option<Result<Native>> {
    let kind = || sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE);
    let own = job.virtual_address;
    let destination = match destination(own, address) {
        Destination::Elsewhere => {
            own_address::confined(own, fd, address).map_or(Destination::Elsewhere, Destination::Own)
        }
        destination => destination,
    };
    match destination {
        Destination::Elsewhere => {
            datagrams::leave(job, fd);
            own_address::leave_twin(job, fd, address);
            None
        }
        Destination::Nowhere => {
            if ends::is_lent(fd) && !pending::elsewhere() {
                ends::forget(sys::cookie(fd));
                let _ = sys::connect(fd, address);
                return Some(own_address::unbind(fd).map(|()| Native::Done));
            }
            pending::cancel(fd);
            // A placeholder has stayed what it was.
            let was_exchanged = sys::tcp_state(fd).is_ok_and(|state| state != sys::SYN_SENT);
            let is_v6 = was_exchanged && ends::is_v6_to_program(job, fd);
            ends::forget(sys::cookie(fd));
            is_v6.then(|| dual::dissolve(fd).map(|()| Native::Done))
        }
        Destination::Own(inet) => {
            if !is_of(job, fd, inet.family) {
                return None;
            }
            datagrams::leave(job, fd);
            match kind() {
                Ok(libc::SOCK_STREAM) => {
                    bind_to_twin(job.virtual_address, fd, inet);
                }
                // Answers go to the twin, and not to 127.0.0.1.
                Ok(libc::SOCK_DGRAM) if bind_to_twin(job.virtual_address, fd, inet) => {
                    ends::lend(sys::cookie(fd));
                }
                Ok(_) | Err(_) => {}
            }
            Some(Ok(Native::Address(inet.with_ip(job.virtual_address.twin()).encode())))
        }
        Destination::Remote(inet) => {
            if !is_of(job, fd, inet.family) {
                return None;
            }
            let v6_only = inet.family == Family::Mapped
                && sys::get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Ok(1);
            if v6_only {
                return None;
            }
            match kind() {
                Ok(libc::SOCK_STREAM) => Some(remote(job, fd, inet, mask)),
                Ok(libc::SOCK_DGRAM) => Some(Ok(Native::Address(datagrams::connect(job, fd, inet)))),
                Ok(_) | Err(_) => None,
            }
        }
    }
}

/// Whether a socket is, to its program, one of this family.
fn is_of(job: &Job, fd: Fd, family: Family) -> bool {
    sys::get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(family.domain())
        || family == Family::Mapped && ends::is_v6_to_program(job, fd)
}

/// Begins to wait for the agent's answer. If another thread waits for it for the same socket, waits
/// for that thread.
fn wait(job: &Job, call: Call, request: &Request, mask: u64) -> Result<Native> {
    if let Some(blocking) = BlockingConnect::begin(job, call, request, mask)? {
        return Ok(Native::Wait(blocking));
    }
    // What follows owns nothing, and may be left by a signal's handler.
    unblocked(mask, || {
        blocking::for_other(job, call.fd)?;
        end_of_wait(job, call.fd)
    })
}

/// Calls `action` with the thread's own signal mask.
fn unblocked<R>(mask: u64, action: impl FnOnce() -> R) -> R {
    lock::restore_signals(mask);
    let result = action();
    lock::block_signals();
    result
}

/// Waits, as a blocking connect does, on a socket whose connect was begun before.
fn end_of_wait(job: &Job, fd: Fd) -> Result<Native> {
    if sys::tcp_state(fd)? == sys::SYN_SENT {
        pending::wait_for(fd, blocking::limit(fd).unwrap_or(patience::longest(job)))?;
    }
    outcome_of_wait(fd).map(|()| Native::Done)
}

/// What is left to do of a connect call.
pub(crate) enum Native {
    Done,
    /// To call the kernel's own connect, with this address.
    Address(Storage),
    /// To wait for the agent's answer.
    Wait(BlockingConnect),
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

fn remote(job: &Job, fd: Fd, inet: Inet, mask: u64) -> Result<Native> {
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
        return unblocked(mask, || end_of_wait(job, fd));
    }
    if state != sys::CLOSED {
        // The socket listens, is connected, or is connecting and doesn't block.
        let errno = sys::connect_at_once(fd, &placeholder::black_hole(job, inet.family)).err();
        return kernels_answer(fd, errno.unwrap_or(Errno(libc::EISCONN))).map(|()| Native::Done);
    }
    let source_port =
        sys::local_name(fd).ok().and_then(|name| Inet::parse(name.bytes())).map_or(0, |name| name.port);
    // With the lock held, no other thread closes the descriptor that this takes for a moment.
    let buffers = || options::buffers_set(fd);
    let [send_buffer, receive_buffer] =
        if pending::elsewhere() { buffers() } else { pending::with(|_| buffers()) };
    let is_v6 = inet.family == Family::Mapped;
    let (destination, port) = (inet.ip, inet.port);
    let request = Request::Connect { destination, port, source_port, send_buffer, receive_buffer, is_v6 };
    let call = Call { fd, cookie, inet, source_port, flags };
    if blocking {
        // An earlier non-blocking connect may have left an error.
        match sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
            // ECONNRESET is what unconnecting leaves, which connect ignores.
            0 | libc::ECONNRESET => wait(job, call, &request, mask),
            error => kernels_answer(fd, Errno(error)).map(|()| Native::Done),
        }
    } else {
        bind_to_twin(job.virtual_address, fd, inet);
        match placeholder::start(job, fd, inet, source_port, Start::Ask(request))? {
            Started::Pending => Err(Errno(libc::EINPROGRESS)),
            Started::Kernel(errno) => kernels_answer(fd, errno).map(|()| Native::Done),
            Started::Refused => wait(job, call, &request, mask),
        }
    }
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

/// The replacement for connect(2).
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
    // A handler that leaves by siglongjmp(3) must find nothing half done.
    let mask = lock::block_signals();
    abandoned::end();
    let decided = connect(job, fd, &storage, mask);
    match &decided {
        None => {
            if storage.domain() != libc::AF_UNSPEC {
                gate::settled(fd);
            }
            if storage.socket_address().is_some_and(|to| to.ip().is_loopback()) {
                peer::record(job, fd);
            }
        }
        Some(Ok(Native::Address(_))) => {
            gate::settled(fd);
            peer::record(job, fd);
        }
        Some(_) => {}
    }
    let result = match decided {
        None => None,
        Some(Ok(Native::Address(address))) => Some(Ok(Some(address))),
        Some(Ok(Native::Done)) => Some(Ok(None)),
        Some(Ok(Native::Wait(blocking))) => {
            // SAFETY: this frame owns nothing.
            let outcome = unsafe { blocking.wait() };
            Some(blocking.end(job, outcome).map(|()| None))
        }
        Some(Err(errno)) => Some(Err(errno)),
    };
    lock::restore_signals(mask);
    sys::set_errno(before);
    match result {
        // SAFETY: the caller's promise.
        None => unsafe { next::connect(fd, address, len) },
        // SAFETY: the address is readable for its length.
        Some(Ok(Some(address))) => unsafe { next::connect(fd, address.as_ptr(), address.len()) },
        Some(Ok(None)) => 0,
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
