//! What the kernel's BBR tells of a connection (`TCP_CC_INFO`, `struct tcp_bbr_info` in
//! linux/inet_diag.h).

use std::os::fd::AsFd;

use nix::libc;

use crate::socket_option;

/// The socket option's number (linux/tcp.h).
const TCP_CC_INFO: libc::c_int = 26;
/// Bytes of what BBR tells at least. Vegas and DCTCP tell less, others nothing.
const LENGTH: usize = 20;
/// A gain of one. BBR's start-up paces with a gain of 2.77 or more, no other of its phases with more
/// than 1.25. While it looks for the shortest round trip, 0.2 s in ten, its window has a gain of one.
/// Whether it was starting doesn't show then.
const ONE: u32 = 256;

/// What BBR knows of a connection's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BbrInfo {
    /// The most that arrived in a round trip of late; 0 before the first.
    pub bytes_per_second: u64,
    /// Whether its start-up goes on, or may do so.
    pub is_starting: bool,
}

impl BbrInfo {
    /// Asks the kernel. `None` if the connection has another congestion control.
    pub(crate) fn of(socket: &impl AsFd) -> Option<Self> {
        let mut bytes = [0_u8; 64];
        Self::decode(socket_option::get(socket, libc::IPPROTO_TCP, TCP_CC_INFO, &mut bytes).ok()?)
    }

    fn decode(info: &[u8]) -> Option<Self> {
        let info: &[u8; LENGTH] = info.first_chunk()?;
        let number = |at: usize| info.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let [low, high, gain, of_window] = [number(0)?, number(4)?, number(12)?, number(16)?];
        // The gain is 0 before the first acknowledgement.
        let is_starting = gain == 0 || gain > 2 * ONE || of_window == ONE;
        Some(Self { bytes_per_second: u64::from(high) << 32 | u64::from(low), is_starting })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use socket2::SockRef;

    use super::*;

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        for (fields, rate, is_starting) in [
            ([0, 0, u32::MAX, 0, 0], 0, true),
            ([6_250_000, 0, 53_000, 739, 739], 6_250_000, true),
            ([6_250_000, 0, 53_000, 709, 512], 6_250_000, true),
            ([1, 1, 53_000, 88, 739], (1 << 32) + 1, false),
            ([6_250_000, 0, 53_000, 320, 512], 6_250_000, false),
            ([6_250_000, 0, 53_000, 256, 512], 6_250_000, false),
            ([6_250_000, 0, 53_000, 256, 256], 6_250_000, true),
        ] {
            let bytes: Vec<u8> = fields.iter().flat_map(|field: &u32| field.to_ne_bytes()).collect();
            assert_eq!(BbrInfo::decode(&bytes), Some(BbrInfo { bytes_per_second: rate, is_starting }));
            assert_eq!(BbrInfo::decode(&bytes[..16]), None);
        }
    }

    #[test]
    fn others_tell_nothing_of_the_kind() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        SockRef::from(&near).set_tcp_congestion(b"reno").unwrap();
        assert_eq!(BbrInfo::of(&near), None);
        if SockRef::from(&near).set_tcp_congestion(b"bbr").is_err() {
            eprintln!("skipped in part: this process may not have BBR");
            return;
        }
        assert!(BbrInfo::of(&near).unwrap().is_starting);
    }
}
