//! IPv6 sockets of programs that the kernel has as IPv4 ones.
//!
//! A connection between nodes is one of IPv4. An IPv6 socket that it takes the place of
//! goes on being one to the program: its names are v4-mapped ([`ends`]), and its options
//! of level `IPPROTO_IPV6` are those of IPv4 that mean the same (ipv6(7), ip(7)).

use std::ffi::{c_int, c_void};

use libc::socklen_t;

use crate::ends;
use crate::handover;
use crate::job::Job;
use crate::next;
use crate::pending;
use crate::sockaddr::{Family, Storage};
use crate::sys::{self, Errno, Fd, OwnedFd, Result};

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET};

/// Options of IPv6, each with the option of IPv4 that means the same.
const SAME: [(c_int, c_int); 9] = [
    (libc::IPV6_TCLASS, libc::IP_TOS),
    (libc::IPV6_UNICAST_HOPS, libc::IP_TTL),
    (libc::IPV6_MTU_DISCOVER, libc::IP_MTU_DISCOVER),
    (libc::IPV6_MTU, libc::IP_MTU),
    (libc::IPV6_RECVERR, libc::IP_RECVERR),
    (libc::IPV6_RECVTCLASS, libc::IP_RECVTOS),
    (libc::IPV6_RECVHOPLIMIT, libc::IP_RECVTTL),
    (libc::IPV6_RECVPKTINFO, libc::IP_PKTINFO),
    (libc::IPV6_FREEBIND, libc::IP_FREEBIND),
];

fn same(name: c_int) -> Option<c_int> {
    SAME.iter().find(|(v6, _)| *v6 == name).map(|(_, v4)| *v4)
}

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

/// Gives `to` the options of IPv6 that `from` has, if one of the two is an IPv6 socket.
pub(crate) fn carry(from: Fd, to: Fd) {
    let is_v6 = |fd| sys::get_int(fd, SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
    let (from_v6, to_v6) = (is_v6(from), is_v6(to));
    if !from_v6 && !to_v6 {
        return;
    }
    for (v6, v4) in SAME {
        let option = |is_v6| if is_v6 { (IPPROTO_IPV6, v6) } else { (IPPROTO_IP, v4) };
        let ((from_level, from_name), (level, name)) = (option(from_v6), option(to_v6));
        if let Ok(value) = sys::get_int(from, from_level, from_name)
            && value != 0
            && sys::get_int(to, level, name).is_ok_and(|has| has != value)
        {
            let _ = sys::set_int(to, level, name, value);
        }
    }
}

/// A new stream socket of this family that can be connected to IPv4 addresses.
///
/// # Errors
/// As socket(2).
pub(crate) fn socket(family: Family, flags: c_int) -> Result<OwnedFd> {
    let socket = sys::socket(family.domain(), libc::SOCK_STREAM | flags)?;
    if family == Family::Mapped {
        sys::set_int(socket.raw(), IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    Ok(socket)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_carried_between_families() {
        let from = sys::socket(libc::AF_INET6, libc::SOCK_STREAM).unwrap();
        let to = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        sys::set_int(from.raw(), IPPROTO_IPV6, libc::IPV6_TCLASS, 0x28).unwrap();
        sys::set_int(from.raw(), IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 17).unwrap();
        carry(from.raw(), to.raw());
        assert_eq!(sys::get_int(to.raw(), IPPROTO_IP, libc::IP_TOS), Ok(0x28));
        assert_eq!(sys::get_int(to.raw(), IPPROTO_IP, libc::IP_TTL), Ok(17));
        let other = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        carry(other.raw(), to.raw());
        assert_eq!(sys::get_int(to.raw(), IPPROTO_IP, libc::IP_TTL), Ok(17));
        let again = socket(Family::Mapped, 0).unwrap();
        carry(to.raw(), again.raw());
        let third = socket(Family::Mapped, 0).unwrap();
        carry(again.raw(), third.raw());
        for v6 in [again, third] {
            assert_eq!(sys::get_int(v6.raw(), IPPROTO_IPV6, libc::IPV6_TCLASS), Ok(0x28));
            assert_eq!(sys::get_int(v6.raw(), IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS), Ok(17));
        }
    }
}
