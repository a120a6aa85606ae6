//! The connection to the agent that stays.
//!
//! A process can lose the way to its agent by the socket's path. It may change its root directory,
//! give up its user, or forbid itself most system calls. Before that the shim makes a connection
//! that stays. For each later request the shim sends the agent one of a pair of sockets over that
//! connection.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::kept::Kept;
use crate::sys::{self, Errno, Fd, OwnedFd, Result};

/// The descriptor number of the connection, with its inode in `INODE`; -1 if there is none. The
/// list of pending connects has the descriptor.
static NUMBER: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Notes the descriptor of the connection that stays; `None` if there is none.
pub(crate) fn note(kept: Option<&Kept>) {
    INODE.store(kept.map_or(0, Kept::inode), Ordering::Relaxed);
    NUMBER.store(kept.map_or(-1, Kept::raw), Ordering::Release);
}

/// Whether there is a connection that stays.
pub(crate) fn is_there() -> bool {
    number().is_some()
}

/// The number of the connection that stays; `None` if it doesn't stand for that any more.
fn number() -> Option<Fd> {
    let fd = NUMBER.load(Ordering::Acquire);
    let is_intact = |fd| sys::identity(fd).is_ok_and(|found| found.inode == INODE.load(Ordering::Relaxed));
    (fd >= 0 && is_intact(fd)).then_some(fd)
}

/// A socket whose other end the agent has got over the connection that stays; `None` if there is no
/// such connection. `kind` says whether the socket waits.
pub(crate) fn socket(kind: c_int) -> Option<Result<OwnedFd>> {
    let fd = number()?;
    let waits = kind & libc::SOCK_NONBLOCK == 0;
    let (ours, theirs) = match sys::socket_pair(libc::SOCK_STREAM) {
        Ok(pair) => pair,
        Err(errno) => return Some(Err(errno)),
    };
    if waits {
        let _ = sys::fcntl(ours.raw(), libc::F_SETFL, 0);
    }
    loop {
        match sys::send_with(fd, &[0], theirs.raw(), if waits { 0 } else { libc::MSG_DONTWAIT }) {
            Ok(_) => return Some(Ok(ours)),
            Err(Errno(libc::EINTR)) => {}
            Err(errno @ Errno(libc::EAGAIN)) => {
                // A call that waits has waited for as long as an agent may take.
                return Some(Err(if waits { Errno(libc::ENETDOWN) } else { errno }));
            }
            // The connection has ended, because the agent has.
            Err(_) => return None,
        }
    }
}
