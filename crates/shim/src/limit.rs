//! A program at its limit of descriptors can still connect and accept:
//! the kernel needs no further number for that, or one. The shim needs two more
//! for a moment, and takes them from between the program's soft limit and its
//! hard one.

use std::ffi::{c_int, c_void};

use crate::lock::Lock;
use crate::sys::{self, Errno, Fd, Result};

/// How far beyond.
const HEADROOM: u64 = 64;

/// How many threads are beyond the limit, and what it was before the first.
static BEYOND: Lock<(usize, Option<libc::rlimit>)> = Lock::new((0, None));

/// Calls `action`, and again beyond the limit if that was reached.
pub(crate) fn or_beyond(mut action: impl FnMut() -> Result<c_int>) -> Result<c_int> {
    match action() {
        Err(Errno(libc::EMFILE)) => beyond(action),
        other => other,
    }
}

/// Whether no descriptor is left, tested by a dup of `fd`.
pub(crate) fn is_reached(fd: Fd) -> bool {
    match sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) {
        Ok(copy) => {
            let _ = sys::close(copy);
            false
        }
        Err(Errno(errno)) => errno == libc::EMFILE,
    }
}

/// Calls `action` with the soft limit raised, as far as the hard one lets it.
pub(crate) fn beyond<R>(action: impl FnOnce() -> R) -> R {
    BEYOND.with(|(count, before)| {
        *count += 1;
        if *count == 1 {
            *before = raise();
        }
    });
    let result = action();
    BEYOND.with(|(count, before)| {
        *count = count.saturating_sub(1);
        if *count == 0
            && let Some(before) = before.take()
        {
            let _ = set(&before);
        }
    });
    result
}

/// Keeps the count consistent over a fork.
pub(crate) fn before_fork() {
    BEYOND.before_fork(|_| {});
}

/// Releases the count after a fork, in parent and child.
pub(crate) fn after_fork() {
    BEYOND.after_fork(|_| {});
}

fn raise() -> Option<libc::rlimit> {
    let limit = current()?;
    let raised = limit.rlim_cur.saturating_add(HEADROOM).min(limit.rlim_max);
    (raised > limit.rlim_cur && set(&libc::rlimit { rlim_cur: raised, ..limit })).then_some(limit)
}

/// The limits as they are.
pub(crate) fn current() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let null = std::ptr::null::<libc::rlimit>();
    // SAFETY: `limit` is writable; nothing is set.
    let known = unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, null, &raw mut limit) };
    (known == 0).then_some(limit)
}

fn set(limit: &libc::rlimit) -> bool {
    let null = std::ptr::null_mut::<c_void>();
    // SAFETY: `limit` is readable; nothing is asked for.
    unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, std::ptr::from_ref(limit), null) == 0
    }
}
