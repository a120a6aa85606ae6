//! Sockets of IPv4 and IPv6: which options of the two mean the same, and how a socket gets those of
//! another.

use std::ffi::c_int;

use crate::sockaddr::Family;
use crate::sys::{self, Fd, OwnedFd, Result};

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

/// The option of IPv4 that means the same as this one of IPv6.
pub(crate) fn same(name: c_int) -> Option<c_int> {
    SAME.iter().find(|(v6, _)| *v6 == name).map(|(_, v4)| *v4)
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
