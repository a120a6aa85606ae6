//! Calls that change what descriptors stand for.
//!
//! On numbers that concern the shim ([`numbers`]) they wait while a socket is exchanged,
//! and what they change is noted. They make their system calls by themselves: another
//! preloaded library might wait for a lock of its own, or call a hooked function. None of
//! them waits with the lock held. What closes a file may linger, so it comes after.

use std::ffi::{c_int, c_long, c_uint};

use libc::msghdr;

use crate::abandoned;
use crate::job::job;
use crate::numbers::{self, State};
use crate::pending::{self, List};
use crate::sys::{self, Errno, Fd, OwnedFd, Result};

/// Calls `action` while no exchange is going on; without the list where it isn't about
/// this process's descriptors.
fn gated(action: impl FnOnce(Option<&mut List>) -> Result<c_int>) -> c_int {
    let before = sys::errno();
    let result = if pending::elsewhere() { action(None) } else { pending::with(|list| action(Some(list))) };
    // What comes after the call may have changed it.
    sys::set_errno(before);
    sys::plain(result)
}

/// The kernel has given out a number: it stands for something new.
pub(crate) fn renewed(fd: Fd) {
    if fd >= 0 && numbers::is_known(fd) && !pending::elsewhere() {
        let before = sys::errno();
        pending::with(|list| list.left(fd));
        sys::set_errno(before);
    }
}

/// The program has made a socket.
pub(crate) fn made(fd: Fd, domain: c_int, kind: c_int, protocol: c_int) {
    let kind = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_tcp = kind == libc::SOCK_STREAM && matches!(domain, libc::AF_INET | libc::AF_INET6);
    if !is_tcp {
        renewed(fd);
        if fd >= 0 && (domain, protocol) == (libc::AF_NETLINK, libc::NETLINK_ROUTE) && !pending::elsewhere() {
            numbers::note_netlink(fd);
        }
    } else if fd >= 0 && !pending::elsewhere() {
        let before = sys::errno();
        // Another thread may have closed it and be giving the number to a copy.
        pending::with(|list| {
            list.left(fd);
            numbers::note_socket(fd);
        });
        sys::set_errno(before);
    }
}

/// An idle socket will never be connected to another node.
pub(crate) fn settled(fd: Fd) {
    if numbers::state(fd) == State::Idle && !pending::elsewhere() {
        let before = sys::errno();
        pending::with(|list| list.numbers.forget(fd));
        sys::set_errno(before);
    }
}

/// Whether changing a socket's options or flags must wait for an exchange.
pub(crate) fn is_busy(fd: Fd) -> bool {
    numbers::state(fd) == State::Busy
}

/// Calls `action`, which changes options or flags of a socket.
pub(crate) fn plainly(action: impl FnOnce() -> Result<c_int>) -> c_int {
    gated(|_| action())
}

/// close(2) of a number that is known.
pub(crate) fn close(fd: Fd) -> c_int {
    abandoned::end();
    ungated(|| {
        let is_own = |list: &mut List| {
            let is_own = list.owns(fd);
            if !is_own {
                list.left(fd);
            }
            is_own
        };
        // To the program a number of the shim's own is not in use.
        if !pending::elsewhere() && pending::with(is_own) { Err(Errno(libc::EBADF)) } else { sys::close(fd) }
    })
}

/// close_range(2); the shim's own numbers stay open.
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags != 0 || pending::elsewhere() {
        return ungated(|| sys::close_range(first, last, flags));
    }
    ungated(|| {
        let mut from = first;
        while let Some(own) = pending::with(|list| leave_until_own(list, from, last)) {
            if own > from {
                sys::close_range(from, own - 1, 0)?;
            }
            if own == last {
                return Ok(0);
            }
            from = own + 1;
        }
        sys::close_range(from, last, 0)
    })
}

/// Notes that numbers of a range are about to be closed, up to the first of the shim's own,
/// which it returns.
fn leave_until_own(list: &mut List, first: c_uint, last: c_uint) -> Option<c_uint> {
    for (fd, number) in numbers::known(first, last) {
        if list.owns(fd) {
            return Some(number);
        }
        list.left(fd);
    }
    None
}

/// Makes a call that takes no lock.
fn ungated(call: impl FnOnce() -> Result<c_int>) -> c_int {
    let before = sys::errno();
    let result = call();
    sys::set_errno(before);
    sys::plain(result)
}

/// Calls `duplicate`, which makes another number for what `fd` stands for.
pub(crate) fn duplicate(fd: Fd, duplicate: impl FnOnce() -> Result<c_int>) -> c_int {
    gated(|list| {
        let new = duplicate()?;
        if let Some(list) = list {
            list.left(new);
            list.numbers.join(fd, new);
        }
        Ok(new)
    })
}

/// Calls `duplicate`, which makes `to` stand for what `from` does.
pub(crate) fn duplicate_to(from: Fd, to: Fd, duplicate: impl FnOnce() -> Result<c_int>) -> c_int {
    let mut replaced = None;
    let result = gated(|list| match list {
        Some(list) if from != to => {
            list.make_way(to);
            replaced = OwnedFd::copy_of(to).ok();
            let new = duplicate()?;
            list.left(to);
            list.numbers.join(from, to);
            Ok(new)
        }
        Some(_) | None => duplicate(),
    });
    let errno = sys::errno();
    // The last one of its file may linger.
    drop(replaced);
    sys::set_errno(errno);
    result
}

/// Calls `open`, which gives out a number; once more, if the shim's own were in the way.
pub(crate) fn with_room(mut open: impl FnMut() -> c_int) -> c_int {
    let fd = open();
    if fd >= 0 || sys::errno() != libc::EMFILE || job().is_none() || pending::elsewhere() {
        return fd;
    }
    let has_room = pending::with(List::give_way);
    sys::set_errno(libc::EMFILE);
    if has_room { open() } else { fd }
}

/// The program is about to send a message, perhaps with sockets in it.
///
/// # Safety
/// As sendmsg(2).
pub(crate) unsafe fn sends(message: *const msghdr) {
    if message.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let message = unsafe { message.read_unaligned() };
    if message.msg_control.is_null() || job().is_none() || pending::elsewhere() {
        return;
    }
    let end = (message.msg_control as usize).saturating_add(message.msg_controllen);
    // SAFETY: the control messages are readable, by the caller's promise.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !at.is_null() {
        // SAFETY: as above.
        let header = unsafe { at.read_unaligned() };
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: only computes.
            let (first, head) = unsafe { (libc::CMSG_DATA(at).cast::<Fd>(), libc::CMSG_LEN(0)) };
            let bytes = (header.cmsg_len as usize).saturating_sub(head as usize);
            let bytes = bytes.min(end.saturating_sub(first as usize));
            for index in 0..(bytes / size_of::<Fd>()).min(MOST_SENT) {
                // SAFETY: within the control messages.
                let fd = unsafe { first.add(index).read_unaligned() };
                if numbers::is_known(fd) {
                    pending::with(|list| list.numbers.send(fd));
                }
            }
        }
        // SAFETY: as above; there is none after the end.
        at = unsafe { libc::CMSG_NXTHDR(&raw const message, at) };
    }
}

/// Descriptors that the kernel takes in one message (`SCM_MAX_FD`).
const MOST_SENT: usize = 253;

/// fcntl(2); `next` hands it on.
pub(crate) fn fcntl(fd: Fd, command: c_int, argument: c_long, next: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            if numbers::is_known(fd) {
                return with_room(|| duplicate(fd, || sys::fcntl(fd, command, argument)));
            }
            let new = next();
            renewed(new);
            new
        }
        libc::F_SETFD | libc::F_SETFL if is_busy(fd) => plainly(|| sys::fcntl(fd, command, argument)),
        _ => next(),
    }
}

/// epoll_ctl(2) for a number that is known.
///
/// # Safety
/// As epoll_ctl(2).
pub(crate) unsafe fn epoll_ctl(epoll: Fd, operation: c_int, fd: Fd, event: *mut libc::epoll_event) -> c_int {
    gated(|list| {
        // SAFETY: the caller's promise.
        let done = unsafe { sys::epoll_ctl_raw(epoll, operation, fd, event) }?;
        if let Some(list) = list {
            // SAFETY: null, or the kernel has just read it.
            let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
            list.numbers.watched(epoll, operation, fd, event);
        }
        Ok(done)
    })
}
