//! getaddrinfo_a(3): names that are resolved while the program goes on. The C library does so
//! within itself. The names of nodes need no waiting: they are resolved at once, and the C
//! library gets the other ones. It passes over empty entries, and notifies the program once
//! all are done.

use std::ffi::{c_int, c_void};

use crate::job::Job;
use crate::next::{self, Request};
use crate::resolve;

/// The mode of netdb.h by which getaddrinfo_a(3) waits.
const GAI_WAIT: c_int = 0;
const GAI_NOWAIT: c_int = 1;

/// The replacement for getaddrinfo_a(3).
///
/// # Safety
/// As getaddrinfo_a(3).
pub(crate) unsafe fn addresses(
    job: &Job,
    mode: c_int,
    list: *const *mut Request,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    let all = usize::try_from(count).ok().filter(|_| !list.is_null()).unwrap_or(0);
    // SAFETY: an entry of the program's list, of which each is null or a request.
    let request = |index: usize| unsafe { *list.add(index) };
    // SAFETY: the caller's promise.
    let is_node = |request: *mut Request| unsafe {
        request.as_ref().is_some_and(|request| resolve::is_node(job, request.name, request.hints))
    };
    if !matches!(mode, GAI_WAIT | GAI_NOWAIT) || !(0..all).map(request).any(is_node) {
        // SAFETY: the caller's promise.
        return unsafe { next::getaddrinfo_a(mode, list, count, event) };
    }
    let others: Vec<*mut Request> = (0..all)
        .map(|index| {
            let one = request(index);
            if !is_node(one) {
                return one;
            }
            // SAFETY: a node's, so not null; the caller's promise.
            unsafe {
                let Request { name, service, hints, found, status } = &mut *one;
                *status = resolve::addresses(job, *name, *service, *hints, found);
            }
            std::ptr::null_mut()
        })
        .collect();
    // SAFETY: as many entries as before; the rest is the caller's promise.
    unsafe { next::getaddrinfo_a(mode, others.as_ptr(), count, event) }
}
