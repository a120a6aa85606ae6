//! The kernel's messages about TCP sockets of this machine (sock_diag(7)): who owns the socket with
//! two given addresses, what it has carried, and which socket was destroyed. Integers are in native
//! byte order, ports and addresses in network order.
//!
//! ```text
//! Request, 72 bytes                     Reply, header and 72 bytes
//!  0 header: length, type, flags         0 header, as in the request
//! 16 u8 family, u8 protocol, u8 wanted  16 u8 family, u8 state
//! 20 u32 states                         20 u16 port, u16 other port
//! 24 u16 port, u16 other port           24 [16] address, [16] other address
//! 28 [16] address, [16] other address   56 u32 interface
//! 60 u32 interface                      60 u64 cookie
//! 64 u64 cookie                         80 u32 owner
//!                                       84 u32 inode
//!                                       88 attributes: u16 length, u16 type
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::array;

/// Length of a request, in bytes.
pub const REQUEST_LEN: usize = 72;
/// Room for a reply, in bytes. The kernel cuts off what is longer.
pub const REPLY_MAX: usize = 256;

/// Room for a reply with `struct tcp_info`, in bytes.
pub const INFO_REPLY_MAX: usize = 1024;
/// The groups of a listener that hears of destroyed TCP sockets, over IPv4 and IPv6
/// (`SKNLGRP_INET_TCP_DESTROY`, `SKNLGRP_INET6_TCP_DESTROY`).
pub const DESTROYED: u32 = 0b101;

/// The kind of requests and of replies with a socket, `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// The kind of a reply with an error, `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// The flag of a request, `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;
/// The attribute that has `struct tcp_info`, `INET_DIAG_INFO`.
const INFO: u16 = 2;
/// Where the attributes begin in a reply, in bytes.
const ATTRIBUTES: usize = 88;
/// Number of the loopback interface, which is the same in each network namespace.
const LOOPBACK: u32 = 1;

/// A TCP socket of this machine, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The socket's own address.
    pub own: SocketAddr,
    /// The address that the socket is connected to.
    pub other: SocketAddr,
    /// `SO_COOKIE` of the socket, which stays the same after the socket was closed.
    pub cookie: u64,
    /// The user id of the socket's owner; 0 if the socket was closed.
    pub owner: u32,
    /// The socket's inode. It is 0 if the socket was closed, and if the connection wasn't accepted
    /// yet.
    pub inode: u32,
}

impl Found {
    /// Whether a process of this user or of root has the socket open.
    pub fn is_open_by(self, user: u32) -> bool {
        self.inode != 0 && (self.owner == user || self.owner == 0)
    }
}

/// A request for the socket at `own` that is connected to `other`, over loopback.
pub fn request(own: SocketAddr, other: SocketAddr) -> [u8; REQUEST_LEN] {
    let mut out = [0; REQUEST_LEN];
    let mut put = |offset: usize, bytes: &[u8]| out[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &(REQUEST_LEN as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    put(16, &[if own.is_ipv4() { AF_INET } else { AF_INET6 }, TCP]);
    put(20, &u32::MAX.to_ne_bytes());
    for (offset, end) in [(0, own), (1, other)] {
        put(24 + 2 * offset, &end.port().to_be_bytes());
        match end.ip() {
            IpAddr::V4(ip) => put(28 + 16 * offset, &ip.octets()),
            IpAddr::V6(ip) => put(28 + 16 * offset, &ip.octets()),
        }
    }
    put(60, &LOOPBACK.to_ne_bytes());
    // Whatever the socket's cookie is.
    put(64, &u64::MAX.to_ne_bytes());
    out
}

/// A request for the socket at `own` that is connected to `other`, and is bound to no interface.
pub fn request_unconfined(own: SocketAddr, other: SocketAddr) -> [u8; REQUEST_LEN] {
    let mut out = request(own, other);
    out[60..64].fill(0);
    out
}

/// A request for the socket at `own` that is connected to `other`, over any interface, and for what
/// it has carried (`struct tcp_info`).
pub fn info_request(own: SocketAddr, other: SocketAddr) -> [u8; REQUEST_LEN] {
    let mut out = request_unconfined(own, other);
    out[18] = 1 << (INFO - 1);
    out
}

/// The `struct tcp_info` in a reply, or in the message that a socket was destroyed. `None` if there
/// is none.
pub fn tcp_info(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let mut rest = bytes.get(ATTRIBUTES..usize::try_from(length).ok()?)?;
    loop {
        let [a, b, c, d] = *rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([c, d]) == INFO {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// Reads a reply: the socket, or the kernel's error, such as `ENOENT`. `None` if it is neither.
pub fn reply(bytes: &[u8]) -> Option<Result<Found, i32>> {
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    if kind == ERROR {
        let error = i32::from_ne_bytes(bytes.get(16..20)?.try_into().ok()?);
        return Some(Err(error.saturating_neg()));
    }
    let bytes: &[u8; 88] = bytes.first_chunk()?;
    if kind != BY_FAMILY {
        return None;
    }
    let end = |at: usize| {
        let port = u16::from_be_bytes(array(bytes, 20 + 2 * at));
        let address: [u8; 16] = array(bytes, 24 + 16 * at);
        let ip = match bytes[16] {
            AF_INET => IpAddr::V4(Ipv4Addr::from(array::<4>(bytes, 24 + 16 * at))),
            // A socket of this family may be connected to an IPv4 address.
            AF_INET6 => IpAddr::from(address).to_canonical(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    };
    Some(Ok(Found {
        own: end(0)?,
        other: end(1)?,
        cookie: u64::from_ne_bytes(array(bytes, 60)),
        owner: u32::from_ne_bytes(array(bytes, 80)),
        inode: u32::from_ne_bytes(array(bytes, 84)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLOSED: Found = Found {
        own: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1),
        other: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2),
        cookie: 3,
        owner: 0,
        inode: 0,
    };

    #[test]
    fn a_socket_is_open_by_its_owner_and_a_closed_one_by_no_user() {
        for (owner, inode, user, want) in [
            (1000, 7, 1000, true),
            (1001, 7, 1000, false),
            (0, 7, 1000, true),
            (1000, 7, 0, false),
            (0, 0, 1000, false),
            (0, 0, 0, false),
            (1000, 0, 1000, false),
        ] {
            let found = Found { owner, inode, ..CLOSED };
            assert_eq!(found.is_open_by(user), want, "{owner} {inode} {user}");
        }
    }

    #[test]
    fn the_kernels_errors_are_read() {
        let mut bytes = [0; 36];
        bytes[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert_eq!(reply(&bytes), Some(Err(2)));
        assert_eq!(reply(&bytes[..18]), None);
    }

    #[test]
    fn what_a_socket_has_carried_is_among_other_attributes() {
        let mut bytes = vec![0; ATTRIBUTES];
        let mut add = |kind: u16, value: &[u8]| {
            bytes.extend((value.len() as u16 + 4).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        };
        add(8, b"x");
        add(INFO, b"info");
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(tcp_info(&bytes), Some(&b"info"[..]));
        assert_eq!(tcp_info(&bytes[..length as usize - 1]), None, "cut off");
        bytes[ATTRIBUTES..ATTRIBUTES + 2].fill(0);
        assert_eq!(tcp_info(&bytes), None, "an attribute without length");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..150), known: bool) {
            let mut bytes = bytes;
            if known && bytes.len() > 17 {
                bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
                bytes[16] = AF_INET6;
            }
            let _ = reply(&bytes);
            if known && bytes.len() > 4 {
                let length = bytes.len() as u32;
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
            }
            let _ = tcp_info(&bytes);
        }
    }
}
