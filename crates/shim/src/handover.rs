//! Putting a connected socket in the place of the program's own.

use std::ffi::c_int;

use crate::descriptors::Holders;
use crate::options;
use crate::sys::{self, Errno, Fd, Identity, OwnedFd, Result};

/// Replaces the socket behind `fd`, whose cookie was `cookie`, by `new`, under
/// every number by which the process holds it, with its options, flags and
/// epoll registrations.
///
/// # Errors
/// `EBADF` if the program has closed the socket meanwhile.
pub(crate) fn replace(fd: Fd, cookie: u64, new: &OwnedFd) -> Result<()> {
    if sys::cookie(fd) != cookie {
        return Err(Errno(libc::EBADF));
    }
    let identity = sys::identity(fd)?;
    replace_held(&Holders::find(identity), identity, new)
}

/// As [`replace`], of a socket whose holders are known. The number that was
/// first found gives options and flags.
///
/// # Errors
/// `EBADF` if nobody holds the socket.
pub(crate) fn replace_held(holders: &Holders, identity: Identity, new: &OwnedFd) -> Result<()> {
    let fds = holders.sockets.as_slice();
    let first = *fds.first().ok_or(Errno(libc::EBADF))?;
    options::carry(first, new.raw());
    options::carry_flags(first, new.raw());
    let registrations = holders.registrations(identity);
    // A registration belongs to an open file, not to a number: the old one's
    // would stay behind, out of reach, as long as any copy is open.
    for registration in registrations.as_slice() {
        let nothing = libc::epoll_event { events: 0, u64: 0 };
        let _ = sys::epoll_ctl(registration.epoll, libc::EPOLL_CTL_DEL, registration.fd, nothing);
    }
    for fd in fds {
        sys::dup3(new.raw(), *fd, close_on_exec(*fd))?;
    }
    for registration in registrations.as_slice() {
        let event = libc::epoll_event { events: registration.events, u64: registration.data };
        let _ = sys::epoll_ctl(registration.epoll, libc::EPOLL_CTL_ADD, registration.fd, event);
    }
    Ok(())
}

/// Puts `new` in the place of a connection just accepted, with what it would
/// have from its listener and what the program asked accept4 for.
///
/// # Errors
/// If `accepted` is not open any more.
pub(crate) fn replace_accepted(listener: Fd, accepted: Fd, new: &OwnedFd, flags: c_int) -> Result<()> {
    options::carry(listener, new.raw());
    // What a connection doesn't get from its listener.
    let _ = sys::set_int(new.raw(), libc::SOL_SOCKET, libc::SO_PRIORITY, 0);
    let status = sys::fcntl(new.raw(), libc::F_GETFL, 0)? & !libc::O_NONBLOCK;
    let wanted = if flags & libc::SOCK_NONBLOCK == 0 { status } else { status | libc::O_NONBLOCK };
    sys::fcntl(new.raw(), libc::F_SETFL, i64::from(wanted))?;
    let close_on_exec = if flags & libc::SOCK_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
    sys::dup3(new.raw(), accepted, close_on_exec).map(drop)
}

fn close_on_exec(fd: Fd) -> c_int {
    match sys::fcntl(fd, libc::F_GETFD, 0) {
        Ok(flags) if flags & libc::FD_CLOEXEC != 0 => libc::O_CLOEXEC,
        Ok(_) | Err(_) => 0,
    }
}
