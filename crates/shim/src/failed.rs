//! Connects that failed otherwise than by a refusal.
//!
//! The kernel lets nobody set a socket's pending error, so the program gets a
//! socket that was refused (poll, epoll, read and write then behave by
//! themselves), and the two calls that report *why*, `getsockopt(SO_ERROR)`
//! and a second `connect`, report the error noted here.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::socklen_t;

use crate::lock::Lock;
use crate::sys::{self, Fd};

/// For how many sockets errors are kept until the program asks, counted over all that are made one
/// after the other. The error of an older one reads as a refusal. 1 MiB, mapped only when used.
const CAPACITY: usize = 1 << 16;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static FAILED: Lock<Failed> = Lock::new(Failed { entries: [(0, 0); CAPACITY] });

struct Failed {
    /// The cookie, 0 for a free entry, and the errno. Cookies count up, so a socket takes the place
    /// of the one that was made CAPACITY sockets before.
    entries: [(u64, c_int); CAPACITY],
}

/// Notes why the connect of the socket with this cookie failed.
pub(crate) fn note(cookie: u64, errno: c_int) {
    FAILED.with(|failed| {
        let (before, _) = std::mem::replace(failed.slot(cookie), (cookie, errno));
        if before == 0 {
            COUNT.fetch_add(1, Ordering::AcqRel);
        }
    });
}

/// Whether any error is noted that waits to be asked for. Costs one load.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Takes out the noted error of the socket with this cookie; `None` if there is none.
pub(crate) fn take(cookie: u64) -> Option<c_int> {
    if !any() || cookie == 0 {
        return None;
    }
    FAILED.with(|failed| {
        let slot = failed.slot(cookie);
        if slot.0 != cookie {
            return None;
        }
        COUNT.fetch_sub(1, Ordering::AcqRel);
        Some(std::mem::take(slot).1)
    })
}

/// Puts the noted error, if there is one, in the place of the error that `getsockopt(SO_ERROR)` has
/// just written.
///
/// # Safety
/// `value` and `len` are as they were passed to a getsockopt that succeeded.
pub(crate) unsafe fn report(fd: Fd, value: *mut c_int, len: *mut socklen_t) {
    // SAFETY: the caller's promise.
    let whole = unsafe { len.read_unaligned() } as usize >= size_of::<c_int>();
    if !whole {
        return;
    }
    // SAFETY: the call wrote an int there.
    let kernels = unsafe { value.read_unaligned() };
    if kernels != 0
        && let Some(errno) = take(sys::cookie(fd))
    {
        // SAFETY: as above.
        unsafe { value.write_unaligned(errno) };
    }
}

/// Takes the lock on the list before a fork.
pub(crate) fn before_fork() {
    FAILED.before_fork(|_| {});
}

/// Releases the list after a fork, in parent and child.
pub(crate) fn after_fork() {
    FAILED.after_fork(|_| {});
}

impl Failed {
    #[expect(clippy::indexing_slicing, reason = "the remainder is less than the length")]
    fn slot(&mut self, cookie: u64) -> &mut (u64, c_int) {
        &mut self.entries[(cookie % CAPACITY as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_once_and_the_list_is_bounded() {
        note(7, libc::EHOSTUNREACH);
        assert!(any());
        assert_eq!(take(8), None);
        assert_eq!(take(7), Some(libc::EHOSTUNREACH));
        assert_eq!(take(7), None);
        assert!(!any());
        for cookie in 1..=CAPACITY as u64 + 1 {
            note(cookie, libc::ETIMEDOUT);
        }
        assert_eq!(take(1), None, "pushed out by the last");
        assert_eq!(take(2), Some(libc::ETIMEDOUT));
        for cookie in 3..=CAPACITY as u64 + 1 {
            assert_eq!(take(cookie), Some(libc::ETIMEDOUT));
        }
        assert!(!any());
    }
}
