//! IPv6 sockets of programs that the kernel has as IPv4 ones.
//!
//! A connection between nodes is one of IPv4. An IPv6 socket that it takes the place of
//! goes on being one to the program: its names are v4-mapped ([`ends`]), and its options
//! of level `IPPROTO_IPV6` are those of IPv4 that mean the same (ipv6(7), ip(7)).

use std::ffi::{c_int, c_void};

use libc::socklen_t;

use crate::ends;
use crate::families::{same, socket};
use crate::handover;
use crate::job::Job;
use crate::next;
use crate::pending;
use crate::sockaddr::{Family, Storage};
use crate::sys::{self, Errno, Fd, Result};

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET};

/// Whether a call on an option of IPv6 has failed because the kernel's socket is an IPv4 one.
fn is_foreign(level: c_int, result: c_int) -> bool {
    level == IPPROTO_IPV6 && result != 0 && matches!(sys::errno(), libc::ENOPROTOOPT | libc::EOPNOTSUPP)
}

/// Completes getsockopt(2), after the kernel's own call has returned `result`.
///
/// # Safety
/// As getsockopt(2).
pub(crate) unsafe fn read(
    job: &Job,
    fd: Fd,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    len: *mut socklen_t,
    result: c_int,
) -> c_int {
    if level == SOL_SOCKET && name == libc::SO_DOMAIN && result == 0 && ends::is_v6_to_program(job, fd) {
        // SAFETY: the kernel has written there.
        unsafe { write(libc::AF_INET6, value, len) };
        return result;
    }
    if !is_foreign(level, result) || !ends::is_v6_to_program(job, fd) {
        return result;
    }
    if name == libc::IPV6_V6ONLY {
        // SAFETY: the kernel has read the length.
        unsafe { write(0, value, len) };
        return 0;
    }
    // SAFETY: the caller's promise.
    same(name).map_or(result, |name| unsafe { next::getsockopt(fd, IPPROTO_IP, name, value, len) })
}

/// Writes an int for the program, cut to the room there is.
///
/// # Safety
/// `len` is valid, and `value` writable for as much as it says.
unsafe fn write(number: c_int, value: *mut c_void, len: *mut socklen_t) {
    let bytes = number.to_ne_bytes();
    // SAFETY: the caller's promise.
    let count = unsafe { len.read_unaligned() }.min(bytes.len() as socklen_t);
    // SAFETY: both have at least so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), count as usize) };
    // SAFETY: the caller's promise.
    unsafe { len.write_unaligned(count) };
}

/// Completes setsockopt(2), after the kernel's own call has returned `result`.
///
/// # Safety
/// As setsockopt(2).
pub(crate) unsafe fn set(
    job: &Job,
    fd: Fd,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
    result: c_int,
) -> c_int {
    if !is_foreign(level, result) || !ends::is_v6_to_program(job, fd) {
        return result;
    }
    let is_whole = !value.is_null() && len as usize >= size_of::<c_int>();
    // SAFETY: an int can be read there.
    let number = is_whole.then(|| unsafe { value.cast::<c_int>().read_unaligned() });
    match (name, number) {
        (libc::IPV6_ADDRFORM, Some(libc::AF_INET)) => {
            ends::becomes_v4(fd);
            0
        }
        // The socket is bound, or the value isn't valid.
        (libc::IPV6_V6ONLY | libc::IPV6_ADDRFORM, _) => {
            sys::set_errno(libc::EINVAL);
            -1
        }
        (name, _) => same(name).map_or(result, |name| {
            // SAFETY: the caller's promise.
            unsafe { next::setsockopt(fd, IPPROTO_IP, name, value, len) }
        }),
    }
}

/// Dissolves the connection of a program's IPv6 socket that the kernel has as an IPv4 one. The
/// program may then connect it to any address.
///
/// # Errors
/// `ENOBUFS` if there is no descriptor left.
pub(crate) fn dissolve(fd: Fd) -> Result<()> {
    let cookie = sys::cookie(fd);
    sys::connect(fd, &Storage::unspecified())?;
    if pending::elsewhere() {
        return Ok(());
    }
    let new = socket(Family::Mapped, 0).map_err(|_| Errno(libc::ENOBUFS))?;
    pending::with(|list| {
        list.find(fd)?;
        handover::replace(&mut list.numbers, fd, cookie, new.raw()).map(drop)
    })
}
