//! Interfaces and routes as the kernel tells them by rtnetlink(7).
//!
//! What a program receives is edited: one address stands for the node, its virtual address, as in
//! [`interfaces`](crate::interfaces). Addresses of the site's network are left out.
//!
//! Only sockets that were made for such questions are looked at. A call on any other socket costs
//! two loads.

use libc::{c_int, msghdr, ssize_t};

use crate::job::{Job, job};

mod messages;

use messages::{Hidden, Shown};

/// Receives by `call` into `room` bytes at `buffer`, and edits what has come. Receives once more if
/// nothing is left of it.
///
/// # Safety
/// `call` writes no more than `room` bytes at `buffer`, and returns how many have come.
pub(crate) unsafe fn receive(
    buffer: *mut u8,
    room: usize,
    flags: c_int,
    mut call: impl FnMut() -> ssize_t,
) -> ssize_t {
    loop {
        let received = call();
        let (Some(job), Ok(len @ 1..)) = (job(), usize::try_from(received)) else { return received };
        let is_whole = len <= room && flags & libc::MSG_PEEK == 0;
        // SAFETY: the kernel has written there, by the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, len.min(room)) };
        let left = edit(job, bytes, if is_whole { Hidden::Removed } else { Hidden::Noop });
        if !is_whole {
            return received;
        }
        // To the program, no bytes would be the end.
        if left > 0 {
            return ssize_t::try_from(left).unwrap_or(received);
        }
    }
}

/// Receives as recvmsg(2) by `call`, and edits what has come.
///
/// # Safety
/// As recvmsg(2).
pub(crate) unsafe fn receive_message(
    message: *mut msghdr,
    flags: c_int,
    mut call: impl FnMut() -> ssize_t,
) -> ssize_t {
    if message.is_null() {
        return call();
    }
    // SAFETY: the caller's promise.
    let before = unsafe { message.read_unaligned() };
    // SAFETY: the caller's promise. What is beyond the first part is left as it is.
    let first = (before.msg_iovlen > 0).then(|| unsafe { before.msg_iov.read_unaligned() });
    let Some(first) = first.filter(|first| !first.iov_base.is_null()) else { return call() };
    let from_the_start = || {
        // SAFETY: the caller's promise. The call before may have changed it.
        unsafe { message.write_unaligned(before) };
        call()
    };
    // SAFETY: the caller's promise.
    unsafe { receive(first.iov_base.cast(), first.iov_len, flags, from_the_start) }
}

fn edit(job: &Job, bytes: &mut [u8], hidden: Hidden) -> usize {
    if !messages::have_addresses(bytes) {
        return bytes.len();
    }
    Shown::of(job).edit(bytes, hidden)
}
