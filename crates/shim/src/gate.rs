//! Calls that change what descriptors stand for.
//!
//! On numbers that concern the shim ([`numbers`]), these calls wait while a socket is exchanged.
//! What they change is noted. They make their system calls by themselves: another preloaded library
//! might wait for a lock of its own, or call a hooked function. No call waits with the lock held.
//! Closing the last descriptor of a file may linger, so it comes after the lock is released.

use std::ffi::{c_int, c_long, c_uint, c_ulong};

use libc::msghdr;

use crate::abandoned;
use crate::descriptors;
use crate::job::job;
use crate::kept::Kept;
use crate::numbers::{self, State};
use crate::owner;
use crate::pending::{self, List};
use crate::sys::{self, Errno, Fd, OwnedFd, Result};

/// Calls `action` while no exchange is going on. It gets the list, or `None` where the call isn't
/// about this process's descriptors.
fn gated(action: impl FnOnce(Option<&mut List>) -> Result<c_int>) -> c_int {
    let before = sys::errno();
    let result = if pending::elsewhere() { action(None) } else { pending::with(|list| action(Some(list))) };
    // What comes after the call may have changed `errno`.
    sys::set_errno(before);
    sys::plain(result)
}

/// Notes that the kernel has given out a number, which stands for something new.
pub(crate) fn renewed(fd: Fd) {
    if fd >= 0 && numbers::is_known(fd) && !pending::elsewhere() {
        let before = sys::errno();
        pending::with(|list| list.left(fd));
        sys::set_errno(before);
    }
}

/// Notes that the program has made a socket.
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
        // Another thread may have closed the socket and be giving its number to a copy.
        pending::with(|list| {
            list.left(fd);
            numbers::note_socket(fd);
        });
        sys::set_errno(before);
    }
}

/// Notes that an idle socket will never be connected to another node.
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

/// Whether a request of ioctl(2) changes flags or the owner of a descriptor.
pub(crate) fn changes_flags(request: c_ulong) -> bool {
    /// A request of sockios.h that the libc crate lacks, as is the next.
    const FIOSETOWN: c_ulong = 0x8901;
    const SIOCSPGRP: c_ulong = 0x8902;
    matches!(request, libc::FIONBIO | libc::FIOASYNC | libc::FIOCLEX | libc::FIONCLEX | FIOSETOWN | SIOCSPGRP)
}

/// Calls `action`, which changes options or flags of a socket.
pub(crate) fn plainly(action: impl FnOnce() -> Result<c_int>) -> c_int {
    gated(|_| action())
}

/// Replacement for close(2), for a number that is known.
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

/// Replacement for close_range(2), which leaves the shim's own numbers open.
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags != 0 || pending::elsewhere() {
        return ungated(|| sys::close_range(first, last, flags));
    }
    ungated(|| {
        let mut next = Some(first);
        while let Some(first) = next {
            // These are closed after the lock is released.
            let mut lingering = [const { None }; MOST_LINGERING];
            next = pending::with(|list| close_some(list, first, last, &mut lingering))?;
        }
        Ok(0)
    })
}

/// Replacement for closefrom(3), which leaves the shim's own numbers open.
pub(crate) fn closefrom(first: c_uint) {
    let before = sys::errno();
    // Linux before 5.9 and some sandboxes have no close_range(2).
    if close_range(first, c_uint::MAX, 0) != 0 {
        descriptors::each_within(first, c_uint::MAX, |fd| {
            close(fd);
        });
    }
    sys::set_errno(before);
}

/// Closes the numbers of a range, but the shim's own. The lock is held meanwhile, so that the shim
/// gets no new number in that range. Sockets that may linger stay open in `lingering`. Returns where
/// to go on, if there are more of these sockets than have room there.
///
/// # Errors
/// As close_range(2).
fn close_some(
    list: &mut List,
    first: c_uint,
    last: c_uint,
    lingering: &mut [Option<Kept>],
) -> Result<Option<c_uint>> {
    let mut next = None;
    descriptors::each_within(first, last, |fd| {
        if next.is_some() || is_among(lingering, fd) || !sys::lingers(fd) {
            return;
        }
        match lingering.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                // Without a descriptor for the copy, the socket lingers here.
                *place = OwnedFd::copy_of(fd).and_then(Kept::new).ok();
                place.iter().for_each(|kept| list.numbers.own(kept.raw()));
            }
            None => next = c_uint::try_from(fd).ok(),
        }
    });
    let last = next.map_or(last, |next| next.saturating_sub(1));
    let mut from = Some(first);
    for (fd, number) in numbers::known(first, last) {
        if let Some(first) = from
            && (is_among(lingering, fd) || list.owns(fd))
        {
            if number > first {
                close_all(list, first, number - 1)?;
            }
            from = (number < last).then(|| number.saturating_add(1));
        }
    }
    from.map_or(Ok(()), |from| close_all(list, from, last))?;
    Ok(next)
}

/// Most sockets that close_range keeps open at once until the lock is released.
const MOST_LINGERING: usize = 32;

fn is_among(kept: &[Option<Kept>], fd: Fd) -> bool {
    kept.iter().flatten().any(|kept| kept.raw() == fd)
}

/// Closes the numbers of a range, none of which is the shim's own.
fn close_all(list: &mut List, first: c_uint, last: c_uint) -> Result<()> {
    sys::close_range(first, last, 0)?;
    numbers::known(first, last).for_each(|(fd, _)| list.left(fd));
    Ok(())
}

/// Makes a call that takes no lock, and keeps `errno` unless the call fails.
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

/// Puts right the number `new`, which the program made of `fd` while nothing was known of `fd`. If
/// the socket of `fd` has been exchanged meanwhile, `new` stands for the old socket. Nobody waits
/// for that socket any more, so `new` is made a copy of `fd` again.
pub(crate) fn copied(fd: Fd, new: Fd) {
    let before = sys::errno();
    if !pending::elsewhere() {
        pending::with(|list| {
            let (now, then) = (sys::cookie(fd), sys::cookie(new));
            let is_left = now != 0 && then != now && sys::tcp_state(new) == Ok(sys::SYN_SENT);
            if is_left && !list.items.values().any(|pending| pending.cookie == then) {
                let flags = sys::fcntl(new, libc::F_GETFD, 0).unwrap_or(0);
                let closes = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
                let _ = sys::replace(fd, new, closes);
            }
        });
    }
    sys::set_errno(before);
}

/// Calls `duplicate`, which makes `to` stand for what `from` stands for.
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
    // The last descriptor of a file may linger when it is closed.
    drop(replaced);
    sys::set_errno(errno);
    result
}

/// Calls `open`, which gives out a number. Calls it again as long as the shim's own numbers are in
/// the way.
pub(crate) fn with_room(mut open: impl FnMut() -> c_int) -> c_int {
    // The helper may take the room again, for the next request.
    const TRIES: usize = 50;
    let mut fd = open();
    for _ in 0..TRIES {
        if fd >= 0 || sys::errno() != libc::EMFILE || job().is_none() || pending::elsewhere() {
            break;
        }
        let has_room = pending::with(List::give_way);
        sys::set_errno(libc::EMFILE);
        if !has_room {
            break;
        }
        fd = open();
    }
    fd
}

/// Notes sockets in a message that the program is about to send.
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

/// Most descriptors that the kernel takes in one message (`SCM_MAX_FD`).
const MOST_SENT: usize = 253;

/// Replacement for fcntl(2); `next` makes the call as it is.
pub(crate) fn fcntl(fd: Fd, command: c_int, argument: c_long, mut next: impl FnMut() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            if numbers::is_known(fd) {
                return with_room(|| duplicate(fd, || sys::fcntl(fd, command, argument)));
            }
            let before = numbers::before();
            let new = with_room(next);
            renewed(new);
            if new >= 0 && before.may_have_missed() {
                copied(fd, new);
            }
            new
        }
        libc::F_SETFD | libc::F_SETFL | libc::F_SETOWN | owner::F_SETOWN_EX | owner::F_SETSIG
            if is_busy(fd) =>
        {
            plainly(|| sys::fcntl(fd, command, argument))
        }
        _ => next(),
    }
}

/// Replacement for epoll_ctl(2), for a number that is known.
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

/// Repeats an epoll_ctl(2) that was made while nothing was known of the number. If the socket has
/// been exchanged meanwhile, that call reached the old socket.
///
/// # Safety
/// As epoll_ctl(2).
pub(crate) unsafe fn watched(epoll: Fd, operation: c_int, fd: Fd, event: *mut libc::epoll_event) {
    let before = sys::errno();
    let again = |operation| {
        // SAFETY: the caller's promise.
        unsafe { sys::epoll_ctl_raw(epoll, operation, fd, event) }
    };
    if !pending::elsewhere() {
        pending::with(|_| match operation {
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
                // A registration that watches alone (EPOLLEXCLUSIVE) can't be modified.
                again(libc::EPOLL_CTL_MOD).or_else(|_| again(libc::EPOLL_CTL_ADD))
            }
            other => again(other),
        })
        // An error may say that the registration was as it should be.
        .ok();
    }
    sys::set_errno(before);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that stays in the middle of its connect, as long as a test needs, and the listener
    /// whose queue is full.
    fn placeholder() -> (OwnedFd, OwnedFd) {
        let full = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        let address = crate::sockaddr::Inet {
            family: crate::sockaddr::Family::V4,
            ip: std::net::Ipv4Addr::LOCALHOST,
            port: 0,
        };
        sys::bind(full.raw(), &address.encode()).unwrap();
        // SAFETY: no pointer is passed.
        assert_eq!(unsafe { libc::listen(full.raw(), 0) }, 0);
        let name = sys::local_name(full.raw()).unwrap();
        loop {
            let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK).unwrap();
            let _ = sys::connect(socket.raw(), &name);
            if sys::tcp_state(socket.raw()) == Ok(sys::SYN_SENT) {
                return (socket, full);
            }
            // It fills the queue.
            std::mem::forget(socket);
        }
    }

    #[test]
    fn a_connect_at_once_waits_for_a_tick_at_most_and_leaves_the_time_as_it_was() {
        let (_placeholder, full) = placeholder();
        let name = sys::local_name(full.raw()).unwrap();
        let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        let mut set = [0; size_of::<libc::timeval>()];
        // 600 seconds.
        set[..8].copy_from_slice(&600_u64.to_ne_bytes());
        sys::set_option(socket.raw(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, &set).unwrap();
        let begun = sys::now();
        assert_eq!(sys::connect_at_once(socket.raw(), &name), Err(Errno(libc::EINPROGRESS)));
        assert_eq!(sys::connect_at_once(socket.raw(), &name), Err(Errno(libc::EALREADY)));
        assert!(begun.elapsed().as_secs() < 60);
        let mut has = [0; size_of::<libc::timeval>()];
        sys::get_option(socket.raw(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, &mut has).unwrap();
        assert_eq!(has, set);
    }

    #[test]
    fn what_a_call_has_done_to_a_socket_that_is_gone_is_done_again() {
        let (old, _full) = placeholder();
        let new = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        let epolls = [0, libc::EPOLLEXCLUSIVE].map(|flag| (sys::epoll_create().unwrap(), flag));
        let number = old.raw();
        pending::settle();
        let missed = numbers::before();
        // A dup and registrations that are on their way while the socket is exchanged.
        let copy = OwnedFd::copy_of(number).unwrap();
        let event = |flag| libc::epoll_event { events: (libc::EPOLLIN | flag) as u32, u64: 7 };
        for (epoll, flag) in &epolls {
            sys::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, number, event(*flag)).unwrap();
        }
        numbers::turn();
        sys::dup3(new.raw(), number, libc::O_CLOEXEC).unwrap();
        numbers::turn();
        assert!(missed.may_have_missed() && !numbers::before().may_have_missed());
        let cookie = sys::cookie(new.raw());
        assert_ne!(sys::cookie(copy.raw()), cookie);
        copied(number, copy.raw());
        assert_eq!(sys::cookie(copy.raw()), cookie);
        let flags = sys::fcntl(copy.raw(), libc::F_GETFD, 0).unwrap();
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        let identity = sys::identity(new.raw()).unwrap();
        for (epoll, flag) in &epolls {
            let mut event = event(*flag);
            // SAFETY: a valid event.
            unsafe { watched(epoll.raw(), libc::EPOLL_CTL_ADD, number, &raw mut event) };
            let mut found = Vec::new();
            crate::descriptors::each_watch(identity, |watch| {
                found.push((watch.epoll, watch.number, watch.data))
            });
            assert!(found.contains(&(epoll.raw(), number, 7)), "{found:?}");
        }
        // A copy that is as it should be stays.
        let [(epoll, _), _] = &epolls;
        let other = OwnedFd::copy_of(epoll.raw()).unwrap();
        copied(number, other.raw());
        assert_eq!(sys::identity(other.raw()), sys::identity(epoll.raw()));
    }
}
