//! Descriptors: copying, watching and closing them.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use libc::epoll_event;

use crate::job::job;
use crate::{gate, interfaces, next, numbers, sys};

hooks! {
    /// close(2): of a socket of which the shim knows, ends its connect if no other number stands
    /// for it.
    fn close(fd: c_int) -> c_int {
        if numbers::is_known(fd) { gate::close(fd) } else { next::close(fd) }
    }

    /// close_range(2): leaves the shim's own descriptors open.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        match job() {
            Some(_) => gate::close_range(first, last, flags),
            None => next::close_range(first, last, flags),
        }
    }

    /// closefrom(3): leaves the shim's own descriptors open.
    fn closefrom(first: c_int) {
        match job() {
            Some(_) => gate::closefrom(c_uint::try_from(first).unwrap_or(0)),
            None => next::closefrom(first),
        }
    }

    /// epoll_create(2): notes that the process has an epoll instance.
    fn epoll_create(size: c_int) -> c_int {
        numbers::note_epoll();
        gate::with_room(|| next::epoll_create(size))
    }

    /// epoll_create1(2): notes that the process has an epoll instance.
    fn epoll_create1(flags: c_int) -> c_int {
        numbers::note_epoll();
        gate::with_room(|| next::epoll_create1(flags))
    }

    /// epoll_ctl(2): notes which instances watch a socket that may be exchanged.
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        if numbers::is_known(fd) {
            return gate::epoll_ctl(epoll, operation, fd, event);
        }
        let before = numbers::before();
        let result = next::epoll_ctl(epoll, operation, fd, event);
        if result == 0 && before.may_have_missed() {
            gate::watched(epoll, operation, fd, event);
        }
        result
    }

    /// dup(2): notes the new number of a socket that may be exchanged.
    fn dup(fd: c_int) -> c_int {
        if numbers::is_known(fd) {
            return gate::with_room(|| gate::duplicate(fd, || sys::dup(fd)));
        }
        let before = numbers::before();
        let new = gate::with_room(|| next::dup(fd));
        gate::renewed(new);
        if new >= 0 && before.may_have_missed() {
            gate::copied(fd, new);
        }
        new
    }

    /// dup2(2): notes the new number of a socket that may be exchanged.
    fn dup2(from: c_int, to: c_int) -> c_int {
        if numbers::is_known(from) || numbers::is_known(to) {
            return gate::duplicate_to(from, to, || sys::dup2(from, to));
        }
        let before = numbers::before();
        let new = next::dup2(from, to);
        if new >= 0 && before.may_have_missed() {
            gate::copied(from, new);
        }
        new
    }

    /// dup3(2): notes the new number of a socket that may be exchanged.
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        if numbers::is_known(from) || numbers::is_known(to) {
            return gate::duplicate_to(from, to, || sys::dup3(from, to, flags));
        }
        let before = numbers::before();
        let new = next::dup3(from, to, flags);
        if new >= 0 && before.may_have_missed() {
            gate::copied(from, new);
        }
        new
    }

    /// fcntl(2): notes new numbers, and lets flags and owners wait for an exchange.
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        gate::fcntl(fd, command, argument as c_long, || next::fcntl(fd, command, argument))
    }

    /// fcntl(2) of programs built for large files.
    fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        gate::fcntl(fd, command, argument as c_long, || next::fcntl64(fd, command, argument))
    }

    /// ioctl(2): answers for addresses of interfaces, and lets flags and owners wait for an
    /// exchange.
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        match job() {
            Some(_) if gate::changes_flags(request) && gate::is_busy(fd) => {
                gate::plainly(|| sys::ioctl_raw(fd, request, argument))
            }
            Some(job) => interfaces::ioctl(job, fd, request, argument),
            None => next::ioctl(fd, request, argument),
        }
    }
}
