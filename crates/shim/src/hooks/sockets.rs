//! Sockets: making and connecting them, and what they are.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

use crate::ends::Side;
use crate::job::job;
use crate::sockaddr::Storage;
use crate::{connect, dual, failed, gate, keepalive, listen, multicast, next, nodelay, sys};

/// Whether a name can be written where a program wants it.
///
/// # Safety
/// `len` is null or valid.
unsafe fn has_room(address: *const sockaddr, len: *const socklen_t) -> bool {
    // SAFETY: not null, so valid by the caller's promise.
    !address.is_null() && !len.is_null() && unsafe { len.read_unaligned() }.cast_signed() >= 0
}

hooks! {
    /// connect(2): connects to other nodes through the agent.
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        match job() {
            Some(job) => connect::hook(job, fd, address, len),
            None => next::connect(fd, address, len),
        }
    }

    /// bind(2): binds to the twin in place of the node's own address.
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        match job() {
            Some(job) => listen::bind(job, fd, address, len),
            None => next::bind(fd, address, len),
        }
    }

    /// listen(2): listens on loopback only, if the socket is at any address.
    fn listen(fd: c_int, backlog: c_int) -> c_int {
        if job().is_some() {
            listen::confine(fd);
        }
        let result = next::listen(fd, backlog);
        if result == 0 {
            gate::settled(fd);
        }
        result
    }

    /// accept(2): exchanges an agent's knock for the connection behind it.
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        match job() {
            Some(job) if address.is_null() || has_room(address, len) => {
                listen::accept(job, fd, address, len, 0)
            }
            // The kernel says what is wrong with the pointers.
            Some(_) | None => next::accept(fd, address, len),
        }
    }

    /// accept4(2): exchanges an agent's knock for the connection behind it.
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        match job() {
            Some(job) if address.is_null() || has_room(address, len) => {
                listen::accept(job, fd, address, len, flags)
            }
            Some(_) | None => next::accept4(fd, address, len, flags),
        }
    }

    /// socket(2): notes a socket that may be connected to another node.
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        let fd = gate::with_room(|| next::socket(domain, kind, protocol));
        if job().is_some() {
            gate::made(fd, domain, kind, protocol);
        }
        fd
    }

    /// getsockname(2): tells the node's virtual address.
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        let Some(job) = job().filter(|_| has_room(address, len)) else {
            return next::getsockname(fd, address, len);
        };
        let mut name = Storage::new();
        let result = next::getsockname(fd, name.as_mut_ptr(), name.len_mut());
        if result == 0 {
            listen::report_name(job, fd, Side::Local, &name, address, len);
        }
        result
    }

    /// getpeername(2): tells the virtual address of the other end's node.
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        let Some(job) = job().filter(|_| has_room(address, len)) else {
            return next::getpeername(fd, address, len);
        };
        let mut name = Storage::new();
        let result = next::getpeername(fd, name.as_mut_ptr(), name.len_mut());
        if result == 0 {
            listen::report_name(job, fd, Side::Peer, &name, address, len);
        }
        result
    }

    /// getsockopt(2): tells the errors of failed connects, and the options as the program set them.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
        let result = next::getsockopt(fd, level, name, value, len);
        if level == libc::SOL_SOCKET && name == libc::SO_ERROR && result == 0 && failed::any() {
            failed::report(fd, value.cast(), len);
        }
        if result == 0 && keepalive::shows(level, name) && job().is_some() {
            keepalive::report(fd, name, value.cast(), len);
        }
        if result == 0 && nodelay::is(level, name) && job().is_some() {
            nodelay::report(fd, value.cast(), len);
        }
        match job() {
            Some(job) => dual::read(job, fd, (level, name), value, len, result),
            None => result,
        }
    }

    /// setsockopt(2): merges the options of keepalives with those that isthmus has set.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
        if level == libc::IPPROTO_IP
            && let Some(value) = job().and_then(|job| multicast::named(job, (level, name), value, len))
        {
            return next::setsockopt(fd, level, name, value.as_ptr(), value.len());
        }
        if keepalive::depends_on(level, name) && job().is_some() {
            let set = || keepalive::set(fd, (level, name), value, len);
            return if gate::is_busy(fd) { gate::plainly(set) } else { sys::plain(set()) };
        }
        let result = if gate::is_busy(fd) {
            gate::plainly(|| sys::set_option_raw(fd, level, name, value, len))
        } else {
            next::setsockopt(fd, level, name, value, len)
        };
        if result == 0 && nodelay::is(level, name) && job().is_some() {
            nodelay::settle(fd, value.cast());
        }
        match job() {
            Some(job) => dual::set(job, fd, (level, name), value, len, result),
            None => result,
        }
    }
}
