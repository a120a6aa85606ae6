//! What the kernel tells of a TCP connection (`TCP_INFO`, tcp(7)).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use nix::libc;

use crate::socket_option;

/// Room for `struct tcp_info` in bytes, more than it takes in any kernel so far.
const MOST: usize = 512;

/// A connection's figures so far, as this end's kernel has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// How long a segment that isn't acknowledged waits before it is sent again.
    pub retransmission_timeout: Duration,
    /// The smoothed round trip; zero before the first.
    pub rtt: Duration,
    /// By how much round trips deviate from the smoothed one, on average (RFC 6298 section 2).
    pub rtt_deviation: Duration,
    /// The shortest round trip of the last minutes; zero before the first.
    pub min_rtt: Duration,
    /// Bytes that may be under way at once.
    pub congestion_window_bytes: u64,
    /// Whether the window has left slow start (RFC 5681 section 3.1), as it does after a loss. BBR says so
    /// once its start-up is over.
    pub is_past_slow_start: bool,
    /// For how long there was something to send or to be acknowledged.
    pub busy: Duration,
    /// For how much of that time the receive window of the other end, or the send buffer of this
    /// one, was what let no more out.
    pub short_of_buffers: Duration,
    /// Bytes per second that arrived at the peer of late; 0 if that isn't known.
    pub bytes_per_second: u64,
    /// Whether there was no more to send when `bytes_per_second` was measured.
    pub app_limited: bool,
    /// Bytes that the other end has acknowledged. Its first and last segment (SYN, FIN)
    /// count as one each.
    pub acknowledged_bytes: u64,
    /// Bytes that have arrived; FIN counts as one.
    pub received_bytes: u64,
    /// Bytes in the socket that were never sent.
    pub unsent_bytes: u64,
    /// Segments with data that were sent, again or not.
    pub data_segments: u64,
    /// Segments that were sent again.
    pub retransmitted_segments: u64,
    /// How many retransmission timeouts there were; `None` before Linux 6.7.
    pub timeouts: Option<u64>,
}

/// The kernel's threshold of slow start, in segments, before a loss has set one
/// (`TCP_INFINITE_SSTHRESH`).
const UNKNOWN_THRESHOLD: u64 = 0x7fff_ffff;

impl TcpInfo {
    /// Asks the kernel for a socket's figures.
    ///
    /// # Errors
    /// If it is no TCP socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut bytes = [0_u8; MOST];
        Ok(Self::decode(socket_option::get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?))
    }

    /// Segments that were sent again, per million; `None` if none was sent.
    pub fn loss_ppm(&self) -> Option<u32> {
        let ppm = (self.retransmitted_segments * 1_000_000).checked_div(self.data_segments)?;
        u32::try_from(ppm).ok()
    }

    /// Reads `struct tcp_info` (linux/tcp.h), of which older kernels give less.
    pub fn decode(info: &[u8]) -> Self {
        let long = |at: usize| u64::from_ne_bytes(field(info, at).unwrap_or_default());
        let number = |at: usize| u64::from(u32::from_ne_bytes(field(info, at).unwrap_or_default()));
        let microseconds = |at| Duration::from_micros(number(at));
        let timeouts = field(info, 240).map(|count| u64::from(u16::from_ne_bytes(count)));
        Self {
            retransmission_timeout: microseconds(8),
            rtt: microseconds(68),
            rtt_deviation: microseconds(72),
            // All bits: none was measured.
            min_rtt: Some(microseconds(148))
                .filter(|least| *least < Duration::from_micros(u32::MAX.into()))
                .unwrap_or_default(),
            congestion_window_bytes: number(80) * number(16),
            is_past_slow_start: (1..UNKNOWN_THRESHOLD).contains(&number(76)) && number(80) >= number(76),
            busy: Duration::from_micros(long(168)),
            short_of_buffers: Duration::from_micros(long(176) + long(184)),
            bytes_per_second: long(160),
            app_limited: info.get(7).is_some_and(|bits| bits & 1 != 0),
            acknowledged_bytes: long(120),
            received_bytes: long(128),
            unsent_bytes: number(144),
            data_segments: number(156),
            retransmitted_segments: number(100),
            timeouts,
        }
    }
}

/// Bytes that were written to a connection and that its other end has not acknowledged
/// (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
/// If it is no TCP socket.
pub fn unacknowledged_bytes(socket: &impl AsFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    let done =
        unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, std::ptr::from_mut(&mut count)) };
    nix::errno::Errno::result(done)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// The bytes of a field of `struct tcp_info`, if the kernel has given them.
fn field<const N: usize>(info: &[u8], at: usize) -> Option<[u8; N]> {
    info.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        let mut bytes = vec![0; 248];
        let mut put = |at: usize, number: u32| bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        put(8, 210_600);
        put(16, 1448);
        put(68, 10_600);
        put(72, 500);
        put(76, 7);
        put(80, 10);
        put(100, 3);
        put(120, 70_001);
        put(128, 80_001);
        put(144, 777);
        put(148, 10_000);
        put(156, 2000);
        put(160, 125_000_000);
        put(168, 5_000_000);
        put(176, 1_000_000);
        put(184, 2_000_000);
        put(240, 2);
        bytes[7] = 1;
        let all = TcpInfo {
            retransmission_timeout: Duration::from_micros(210_600),
            rtt: Duration::from_micros(10_600),
            rtt_deviation: Duration::from_micros(500),
            min_rtt: Duration::from_millis(10),
            congestion_window_bytes: 14_480,
            is_past_slow_start: true,
            busy: Duration::from_secs(5),
            short_of_buffers: Duration::from_secs(3),
            bytes_per_second: 125_000_000,
            app_limited: true,
            acknowledged_bytes: 70_001,
            received_bytes: 80_001,
            unsent_bytes: 777,
            data_segments: 2000,
            retransmitted_segments: 3,
            timeouts: Some(2),
        };
        assert_eq!(TcpInfo::decode(&bytes), all);
        assert_eq!(TcpInfo::decode(&bytes[..232]), TcpInfo { timeouts: None, ..all });
        assert_eq!(TcpInfo::decode(&[]), TcpInfo::default());
        assert_eq!((all.loss_ppm(), TcpInfo::default().loss_ppm()), (Some(1500), None));
        bytes[148..152].fill(0xff);
        assert_eq!(TcpInfo::decode(&bytes), TcpInfo { min_rtt: Duration::ZERO, ..all });
        for (threshold, is_past) in [(10, true), (11, false), (0x7fff_ffff, false)] {
            bytes[76..80].copy_from_slice(&u32::to_ne_bytes(threshold));
            assert_eq!(TcpInfo::decode(&bytes).is_past_slow_start, is_past, "{threshold}");
        }
    }

    #[test]
    fn the_kernel_tells_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[0; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        let info = TcpInfo::of(&near).unwrap();
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(5), "{info:?}");
        assert!(info.congestion_window_bytes >= 14_000, "{info:?}");
        assert!(TcpInfo::of(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn what_the_other_end_has_no_room_for_is_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap();
        assert_eq!(unacknowledged_bytes(&near).unwrap(), 0);
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 1 << 16]).is_ok() {}
        assert_ne!(unacknowledged_bytes(&near).unwrap(), 0);
    }
}
