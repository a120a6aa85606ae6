//! Socket addresses as programs pass them.
//!
//! They are read, compared and written as bytes, because nothing says that a program's pointer is
//! aligned.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr};

/// Bytes of the longest address of any family (`sizeof(struct sockaddr_storage)`).
const CAPACITY: usize = 128;
/// Bytes of an IPv4 address (`sizeof(struct sockaddr_in)`).
const V4_LEN: usize = 16;
/// Bytes of an IPv6 address (`sizeof(struct sockaddr_in6)`).
const V6_LEN: usize = 28;
/// Bytes of an IPv6 address without its scope, which the kernel takes, too (RFC 2133).
const V6_LEN_MIN: usize = 24;

/// The family in which an IPv4 address is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// As an IPv4 address, family `AF_INET`.
    V4,
    /// As a v4-mapped IPv6 address, family `AF_INET6` (RFC 4291 section 2.5.5.2).
    Mapped,
}

impl Family {
    /// The number of the address family, such as `AF_INET`.
    pub(crate) fn domain(self) -> c_int {
        match self {
            Self::V4 => libc::AF_INET,
            Self::Mapped => libc::AF_INET6,
        }
    }
}

/// An IPv4 address and port as a program writes them. The IPv6 wildcard reads
/// as the unspecified address, [`Family::Mapped`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inet {
    pub(crate) family: Family,
    pub(crate) ip: Ipv4Addr,
    pub(crate) port: u16,
}

impl Inet {
    /// Reads an address; `None` where it is no IPv4 address in any form.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        match c_int::from(family) {
            libc::AF_INET if bytes.len() >= V4_LEN => {
                let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
                Some(Self { family: Family::V4, ip: ip.into(), port })
            }
            libc::AF_INET6 if bytes.len() >= V6_LEN_MIN => {
                let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
                let ip = std::net::Ipv6Addr::from(ip);
                let ip = if ip.is_unspecified() { Ipv4Addr::UNSPECIFIED } else { ip.to_ipv4_mapped()? };
                Some(Self { family: Family::Mapped, ip, port })
            }
            _ => None,
        }
    }

    /// The address in the layout of its family.
    pub(crate) fn encode(self) -> Storage {
        let mut out = Storage::new();
        let family = u16::try_from(self.family.domain()).unwrap_or(0);
        let len = match self.family {
            Family::V4 => {
                out.put(4, &self.ip.octets());
                V4_LEN
            }
            Family::Mapped => {
                out.put(8, &self.ip.to_ipv6_mapped().octets());
                V6_LEN
            }
        };
        out.put(0, &family.to_ne_bytes());
        out.put(2, &self.port.to_be_bytes());
        out.len = len as libc::socklen_t;
        out
    }

    /// This address with another IP address, and the same family and port.
    pub(crate) fn with_ip(self, ip: Ipv4Addr) -> Self {
        Self { ip, ..self }
    }
}

/// An address of any family, as bytes.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Storage {
    bytes: [u8; CAPACITY],
    len: libc::socklen_t,
}

impl Storage {
    /// A buffer for an address, all zero. It states its whole capacity as the length.
    pub(crate) fn new() -> Self {
        Self { bytes: [0; CAPACITY], len: CAPACITY as libc::socklen_t }
    }

    /// An address of family AF_UNSPEC, which dissolves a connection.
    pub(crate) fn unspecified() -> Self {
        Self { bytes: [0; CAPACITY], len: V4_LEN as libc::socklen_t }
    }

    /// The address of a Unix socket with this path; `None` if the path is too long.
    pub(crate) fn unix(path: &[u8]) -> Option<Self> {
        const PATH_AT: usize = 2;
        const PATH_MAX: usize = 107;
        if path.len() > PATH_MAX {
            return None;
        }
        let mut out = Self::new();
        out.put(0, &(libc::AF_UNIX as u16).to_ne_bytes());
        out.put(PATH_AT, path);
        out.len = (PATH_AT + path.len() + 1) as libc::socklen_t;
        Some(out)
    }

    /// Copies an address that a program passed; `None` if it can't be one.
    ///
    /// # Safety
    /// `address` is null or readable for `len` bytes.
    pub(crate) unsafe fn from_program(address: *const libc::sockaddr, len: libc::socklen_t) -> Option<Self> {
        let count = len as usize;
        if address.is_null() || count > CAPACITY {
            return None;
        }
        let mut out = Self::new();
        // SAFETY: the caller guarantees the source; the destination has CAPACITY bytes.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), out.bytes.as_mut_ptr(), count) };
        out.len = len;
        Some(out)
    }

    /// Writes the address where a program wants it, cut to the room there is, with its whole
    /// length, as the kernel does.
    ///
    /// # Safety
    /// Each pointer is null or valid; `address` has room for `*len` bytes.
    pub(crate) unsafe fn to_program(self, address: *mut libc::sockaddr, len: *mut libc::socklen_t) {
        if address.is_null() || len.is_null() {
            return;
        }
        // SAFETY: not null, so valid by the caller's promise.
        let room = unsafe { len.read_unaligned() };
        let count = room.min(self.len) as usize;
        // SAFETY: both sides have at least `count` bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), address.cast::<u8>(), count) };
        // SAFETY: as above.
        unsafe { len.write_unaligned(self.len) };
    }

    /// The bytes of the address, as many as its length states.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len as usize).unwrap_or(&self.bytes)
    }

    /// An IP address and port, IPv4 also where it is v4-mapped.
    pub(crate) fn socket_address(&self) -> Option<SocketAddr> {
        if let Some(Inet { ip, port, .. }) =
            Inet::parse(self.bytes()).filter(|inet| !inet.ip.is_unspecified())
        {
            return Some(SocketAddr::new(ip.into(), port));
        }
        let bytes = self.bytes();
        let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
        let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        (self.domain() == libc::AF_INET6).then(|| SocketAddr::new(ip.into(), port))
    }

    /// The address family; 0 (`AF_UNSPEC`) if there is none.
    pub(crate) fn domain(&self) -> c_int {
        if self.len < 2 { 0 } else { c_int::from(u16::from_ne_bytes([self.bytes[0], self.bytes[1]])) }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        self.bytes.as_mut_ptr().cast()
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }

    pub(crate) fn len_mut(&mut self) -> *mut libc::socklen_t {
        &raw mut self.len
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(offset..offset.saturating_add(bytes.len())) {
            room.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(ip: [u8; 4], port: u16) -> Inet {
        Inet { family: Family::Mapped, ip: ip.into(), port }
    }

    #[test]
    fn both_families_round_trip() {
        for inet in [
            Inet { family: Family::V4, ip: Ipv4Addr::new(240, 64, 1, 2), port: 4711 },
            Inet { family: Family::V4, ip: Ipv4Addr::UNSPECIFIED, port: 0 },
            mapped([240, 64, 1, 2], 65535),
        ] {
            let storage = inet.encode();
            assert_eq!(storage.len() as usize, if inet.family == Family::V4 { 16 } else { 28 });
            assert_eq!(Inet::parse(storage.bytes()), Some(inet));
        }
    }

    #[test]
    fn layout_is_the_c_library_s() {
        let storage = Inet { family: Family::V4, ip: Ipv4Addr::new(1, 2, 3, 4), port: 0x0102 }.encode();
        // SAFETY: 16 initialised bytes, aligned to 8, of a type without invalid values.
        let c = unsafe { storage.as_ptr().cast::<libc::sockaddr_in>().read() };
        assert_eq!(c.sin_family, libc::AF_INET as u16);
        assert_eq!(c.sin_port.to_be_bytes(), 0x0102_u16.to_be().to_be_bytes());
        assert_eq!(c.sin_addr.s_addr.to_ne_bytes(), [1, 2, 3, 4]);
    }

    #[test]
    fn the_ipv6_wildcard_reads_as_unspecified_and_other_ipv6_not_at_all() {
        let mut bytes = [0; 28];
        bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        assert_eq!(Inet::parse(&bytes), Some(mapped([0, 0, 0, 0], 0)));
        bytes[23] = 1;
        assert_eq!(Inet::parse(&bytes), None, "::1");
        // SAFETY: 28 readable bytes.
        let storage = unsafe { Storage::from_program(bytes.as_ptr().cast(), 28) }.unwrap();
        assert_eq!(storage.socket_address(), Some("[::1]:0".parse().unwrap()));
        assert_eq!(mapped([127, 0, 0, 1], 7).encode().socket_address(), Some("127.0.0.1:7".parse().unwrap()));
        assert_eq!(Storage::unix(b"/x").unwrap().socket_address(), None);
    }

    #[test]
    fn short_and_foreign_addresses_are_none() {
        let v4 = Inet { family: Family::V4, ip: Ipv4Addr::LOCALHOST, port: 1 }.encode();
        for len in 0..16 {
            assert_eq!(Inet::parse(&v4.bytes()[..len]), None, "{len}");
        }
        let unix = Storage::unix(b"/run/x").unwrap();
        assert_eq!(unix.len(), 9);
        assert_eq!(Inet::parse(unix.bytes()), None);
        assert!(Storage::unix(&[b'x'; 107]).is_some());
        assert!(Storage::unix(&[b'x'; 108]).is_none());
    }

    #[test]
    fn a_program_s_short_buffer_is_not_overrun() {
        let storage = Inet { family: Family::V4, ip: Ipv4Addr::new(9, 8, 7, 6), port: 5 }.encode();
        let mut room = [0xaa_u8; 20];
        let mut len: libc::socklen_t = 6;
        // SAFETY: `room` has more than `len` bytes.
        unsafe { storage.to_program(room.as_mut_ptr().cast(), &raw mut len) };
        assert_eq!(len, 16);
        assert_eq!(room[4..6], [9, 8]);
        assert_eq!(room[6..], [0xaa; 14]);
    }
}
