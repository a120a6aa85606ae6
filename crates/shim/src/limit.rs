//! Descriptors beyond the program's limit.
//!
//! A program may use all descriptors of its limit. A program that has reached it can still connect:
//! the kernel needs no further number for that. To accept, the kernel needs one. The shim needs two
//! more for a moment, and one for each request that waits for a reply. It takes them from between
//! the program's soft limit and its hard limit, as far as they are in the way.

use std::ffi::{c_int, c_void};

use crate::errno::{Errno, Fd, Result};
use crate::lock::{self, Lock};
use crate::raw;

/// Descriptors by which the soft limit is raised, apart from those for requests.
const HEADROOM: u64 = 64;
/// Requests use at most one in so many of the program's descriptors, if the hard limit lets them
/// give way.
const SHARE: u64 = 8;
/// Requests use at most one in so many of the program's descriptors, if the hard limit is too near
/// to give way.
const SMALL_SHARE: u64 = 64;
/// So many requests may always wait, however few descriptors the program may have.
const LEAST: u64 = 16;

/// The threads that are beyond the limit, and the limit that was raised for them.
static BEYOND: Lock<Beyond> = Lock::new(Beyond { threads: 0, raised: None });

struct Beyond {
    threads: usize,
    raised: Option<Raised>,
}

/// The soft limit as the program has set it, and as it is for the moment.
#[derive(Clone, Copy)]
struct Raised {
    from: u64,
    to: u64,
}

/// Calls `action`, and calls it again with a raised limit if no descriptor was left.
pub(crate) fn or_beyond(mut action: impl FnMut() -> Result<c_int>) -> Result<c_int> {
    match action() {
        Err(Errno(libc::EMFILE)) => beyond(action),
        other => other,
    }
}

/// Calls `action`, which gives the number `fd` another file. Calls it again with the limit above
/// `fd` if that is needed. The program may have got the number while the limit was raised, or has
/// lowered the limit since.
pub(crate) fn or_above(fd: Fd, mut action: impl FnMut() -> Result<c_int>) -> Result<c_int> {
    let number = u64::try_from(fd).unwrap_or(0);
    match action() {
        Err(Errno(libc::EBADF)) if current().is_some_and(|limit| limit.rlim_cur <= number) => {
            raised(number + 1, action)
        }
        other => other,
    }
}

/// Calls `action` with the soft limit raised, as far as the hard limit allows.
pub(crate) fn beyond<R>(action: impl FnOnce() -> R) -> R {
    raised(0, action)
}

/// Calls `action` with the soft limit raised so that `count` descriptors have room beyond the
/// program's limit, as far as the hard limit allows.
pub(crate) fn beyond_by<R>(count: u64, action: impl FnOnce() -> R) -> R {
    let limit = of_program().unwrap_or(0);
    raised(limit.saturating_add(count).saturating_add(HEADROOM), action)
}

/// Calls `action` with the soft limit raised to `least` or more, as far as the hard limit allows.
fn raised<R>(least: u64, action: impl FnOnce() -> R) -> R {
    // A handler that leaves by siglongjmp(3) would leave the limit raised.
    let mask = lock::block_signals();
    BEYOND.with(|beyond| {
        beyond.threads += 1;
        let Some(limit) = current() else { return };
        let room = if beyond.threads == 1 { far_beyond(&limit) } else { 0 };
        let to = room.max(least).min(limit.rlim_max);
        if to > limit.rlim_cur && set(&libc::rlimit { rlim_cur: to, ..limit }) {
            beyond.raised = Some(Raised { from: beyond.programs(limit.rlim_cur), to });
        }
    });
    let result = action();
    BEYOND.with(|beyond| {
        beyond.threads = beyond.threads.saturating_sub(1);
        if beyond.threads == 0 {
            beyond.lower();
        }
    });
    lock::restore_signals(mask);
    result
}

impl Beyond {
    /// The soft limit as the program has set it, where the kernel has `now`. While the limit is
    /// raised, the program may set another one.
    fn programs(&self, now: u64) -> u64 {
        self.raised.filter(|raised| raised.to == now).map_or(now, |raised| raised.from)
    }

    fn lower(&mut self) {
        if let Some(Raised { from, to }) = self.raised.take()
            && let Some(limit) = current()
            // The limit stays if the program has set another one meanwhile.
            && limit.rlim_cur == to
        {
            let _ = set(&libc::rlimit { rlim_cur: from, ..limit });
        }
    }
}

/// Takes the lock on the count before a fork.
pub(crate) fn before_fork() {
    BEYOND.before_fork(|_| {});
}

/// Releases the lock on the count in the parent after a fork.
pub(crate) fn after_fork_in_parent() {
    BEYOND.after_fork(|_| {});
}

/// Releases the lock on the count in the child after a fork, and lowers the limit. The threads that
/// were beyond it are the parent's. The child has the limit that they raised.
pub(crate) fn after_fork_in_child() {
    BEYOND.after_fork(|beyond| {
        beyond.threads = 0;
        beyond.lower();
    });
}

/// How many requests may wait for replies at once.
pub(crate) fn share() -> u64 {
    current().map_or(LEAST, |limit| share_of(&limit))
}

fn share_of(limit: &libc::rlimit) -> u64 {
    let can_give_way = limit.rlim_max >= far_beyond(limit);
    (limit.rlim_cur / if can_give_way { SHARE } else { SMALL_SHARE }).max(LEAST)
}

/// Whether there are descriptors for what is useful but not needed: there are enough, or the limit
/// can be raised.
pub(crate) fn is_ample() -> bool {
    const ENOUGH: u64 = 4096;
    current().is_some_and(|limit| limit.rlim_cur >= ENOUGH || limit.rlim_max >= far_beyond(&limit))
}

fn far_beyond(limit: &libc::rlimit) -> u64 {
    limit.rlim_cur.saturating_add(limit.rlim_cur / SHARE).saturating_add(HEADROOM)
}

/// The soft limit as the program has set it, even while it is raised. `None` if the kernel doesn't
/// tell.
pub(crate) fn of_program() -> Option<u64> {
    let limit = current()?;
    Some(BEYOND.with(|beyond| beyond.programs(limit.rlim_cur)))
}

/// The limits of descriptors that the process has now; `None` if the kernel doesn't tell.
pub(crate) fn current() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let null = std::ptr::null::<libc::rlimit>();
    // SAFETY: `limit` is writable; nothing is set.
    let known = unsafe { raw::call!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, null, &raw mut limit) };
    (known == 0).then_some(limit)
}

fn set(limit: &libc::rlimit) -> bool {
    let null = std::ptr::null_mut::<c_void>();
    // SAFETY: `limit` is readable; nothing is asked for.
    unsafe { raw::call!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, std::ptr::from_ref(limit), null) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{self, OwnedFd};
    use std::sync::{Mutex, PoisonError};

    /// Held by tests that change the limit: the process has only one.
    static LIMIT: Mutex<()> = Mutex::new(());

    #[test]
    fn what_requests_may_use() {
        const INFINITY: u64 = libc::RLIM_INFINITY;
        for (rlim_cur, rlim_max, want) in [
            (1024, 524_288, 128),
            (1024, 1216, 128),
            (1024, 1215, 16),
            (1024, 1024, 16),
            (100, 4096, 16),
            (1 << 20, 1 << 20, 16_384),
            (INFINITY, INFINITY, INFINITY / SHARE),
        ] {
            assert_eq!(share_of(&libc::rlimit { rlim_cur, rlim_max }), want, "{rlim_cur} of {rlim_max}");
        }
    }

    #[test]
    fn room_beyond_the_limit_is_there_for_a_moment() {
        let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current().unwrap();
        let within = beyond(|| current().unwrap());
        assert_eq!(within.rlim_cur, far_beyond(&before).min(before.rlim_max));
        assert_eq!(current().unwrap().rlim_cur, before.rlim_cur);
    }

    #[test]
    fn a_number_above_the_limit_gets_another_file() {
        let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current().unwrap();
        let [open, other] = [0; 2].map(|_| sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap());
        let number = sys::fcntl(open.raw(), libc::F_DUPFD_CLOEXEC, 700).map(OwnedFd::from_raw).unwrap();
        assert!(set(&libc::rlimit { rlim_cur: 700, ..before }));
        let replaced = sys::replace(other.raw(), number.raw(), libc::O_CLOEXEC);
        let after = current().unwrap().rlim_cur;
        assert!(set(&before));
        assert_eq!((replaced, after), (Ok(number.raw()), 700));
        assert_eq!(sys::cookie(number.raw()), sys::cookie(other.raw()));
    }

    #[test]
    fn a_limit_that_the_program_sets_meanwhile_stays() {
        let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current().unwrap();
        let own = libc::rlimit { rlim_cur: before.rlim_cur - 1, ..before };
        beyond(|| assert!(set(&own)));
        let after = current().unwrap().rlim_cur;
        assert!(set(&before));
        assert_eq!(after, own.rlim_cur);
    }

    #[test]
    fn a_limit_that_the_program_sets_meanwhile_stays_after_it_is_raised_again() {
        let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current().unwrap();
        assert!(set(&libc::rlimit { rlim_cur: 950, ..before }));
        beyond(|| {
            assert!(set(&libc::rlimit { rlim_cur: 960, ..before }));
            raised(1000, || assert_eq!(of_program(), Some(960)));
        });
        let after = current().unwrap().rlim_cur;
        assert!(set(&before));
        assert_eq!(after, 960);
    }
}
