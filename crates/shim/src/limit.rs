//! A program may use all descriptors of its limit. One that has reached it can still
//! connect and accept: the kernel needs no further number for that, or one. The shim needs
//! two more for a moment, and one for each request that waits for a reply. It takes them
//! from between the program's soft limit and its hard one, as far as they are in the way.

use std::ffi::{c_int, c_void};

use crate::lock::Lock;
use crate::raw;
use crate::sys::{Errno, Result};

/// How far beyond, apart from requests.
const HEADROOM: u64 = 64;
/// Of the descriptors that the program may have, requests use at most one of so many, if
/// they can give way.
const SHARE: u64 = 8;
/// The same if they can't.
const SMALL_SHARE: u64 = 64;
/// They may always use so many.
const LEAST: u64 = 16;

/// How many threads are beyond the limit, and what it was before the first.
static BEYOND: Lock<(usize, Option<libc::rlimit>)> = Lock::new((0, None));

/// Calls `action`, and again beyond the limit if that was reached.
pub(crate) fn or_beyond(mut action: impl FnMut() -> Result<c_int>) -> Result<c_int> {
    match action() {
        Err(Errno(libc::EMFILE)) => beyond(action),
        other => other,
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

/// How many requests may wait for replies at once.
pub(crate) fn share() -> u64 {
    current().map_or(LEAST, |limit| share_of(&limit))
}

fn share_of(limit: &libc::rlimit) -> u64 {
    let can_give_way = limit.rlim_max >= far_beyond(limit);
    (limit.rlim_cur / if can_give_way { SHARE } else { SMALL_SHARE }).max(LEAST)
}

/// Whether descriptors may be kept that are only of use: there are enough, or the limit can be
/// raised.
pub(crate) fn is_ample() -> bool {
    const ENOUGH: u64 = 4096;
    current().is_some_and(|limit| limit.rlim_cur >= ENOUGH || limit.rlim_max >= far_beyond(&limit))
}

fn far_beyond(limit: &libc::rlimit) -> u64 {
    limit.rlim_cur.saturating_add(limit.rlim_cur / SHARE).saturating_add(HEADROOM)
}

fn raise() -> Option<libc::rlimit> {
    let limit = current()?;
    let raised = far_beyond(&limit).min(limit.rlim_max);
    (raised > limit.rlim_cur && set(&libc::rlimit { rlim_cur: raised, ..limit })).then_some(limit)
}

/// The limits as they are.
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
        let before = current().unwrap();
        let within = beyond(|| current().unwrap());
        assert_eq!(within.rlim_cur, far_beyond(&before).min(before.rlim_max));
        assert_eq!(current().unwrap().rlim_cur, before.rlim_cur);
    }
}
