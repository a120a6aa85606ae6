//! Putting a connected socket in the place of the program's own.

use std::ffi::c_int;

use crate::numbers::{self, Numbers};
use crate::options;
use crate::owner;
use crate::sys::{self, Errno, Fd, OwnedFd, Result};

/// Replaces the socket behind `fd`, whose cookie was `cookie`, by `new`, under every number by
/// which the process holds that socket. `new` gets its options, flags and epoll registrations.
/// Returns one of the numbers.
///
/// # Errors
/// `EBADF` if the program has closed the socket meanwhile.
pub(crate) fn replace(numbers: &mut Numbers, fd: Fd, cookie: u64, new: Fd) -> Result<Fd> {
    let fd = numbers.check(fd, cookie).ok_or(Errno(libc::EBADF))?;
    options::carry(fd, new);
    options::carry_flags(fd, new);
    numbers::turn();
    numbers.unwatch(fd);
    let replaced =
        numbers::ring(fd).try_for_each(|number| sys::replace(new, number, close_on_exec(number)).map(drop));
    owner::named(fd);
    numbers.renew(fd, sys::cookie(new));
    numbers.watch_again(fd);
    numbers::turn();
    replaced.map(|()| fd)
}

/// Puts `new` in the place of a connection just accepted. `new` gets what that connection would
/// have from its listener, and what the program asked accept4 for.
///
/// # Errors
/// If `accepted` is not open any more.
pub(crate) fn replace_accepted(listener: Fd, accepted: Fd, new: &OwnedFd, flags: c_int) -> Result<()> {
    leave_nothing(accepted);
    options::carry(listener, new.raw());
    // What a connection doesn't get from its listener.
    let _ = sys::set_int(new.raw(), libc::SOL_SOCKET, libc::SO_PRIORITY, 0);
    let status = sys::fcntl(new.raw(), libc::F_GETFL, 0)? & !libc::O_NONBLOCK;
    let wanted = if flags & libc::SOCK_NONBLOCK == 0 { status } else { status | libc::O_NONBLOCK };
    sys::fcntl(new.raw(), libc::F_SETFL, i64::from(wanted))?;
    let close_on_exec = if flags & libc::SOCK_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
    sys::replace(new.raw(), accepted, close_on_exec)?;
    owner::named(accepted);
    Ok(())
}

/// Has a connection that the program doesn't see, such as a knock, end by a reset when it is
/// closed. As the end that closes first, it would keep the listener's port for a minute
/// (`TIME_WAIT`). A server that is started anew may want that port.
pub(crate) fn leave_nothing(accepted: Fd) {
    let mut at_once = [0; 8];
    at_once[..4].copy_from_slice(&1_i32.to_ne_bytes());
    let _ = sys::set_option(accepted, libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
}

fn close_on_exec(fd: Fd) -> c_int {
    match sys::fcntl(fd, libc::F_GETFD, 0) {
        Ok(flags) if flags & libc::FD_CLOEXEC != 0 => libc::O_CLOEXEC,
        Ok(_) | Err(_) => 0,
    }
}
