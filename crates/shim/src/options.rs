//! State that a replacement takes over from the program's socket: options, file
//! status flags, and the owner for signals.

use std::ffi::c_int;

use crate::families;
use crate::keepalive;
use crate::nodelay;
use crate::owner;
use crate::sys::{self, Fd};

use libc::{IPPROTO_IP, IPPROTO_TCP, SOL_SOCKET};

/// Options that say how the program wants its socket to behave, apart from those of [`keepalive`].
const BEHAVIOUR: [(c_int, c_int); 28] = [
    (SOL_SOCKET, libc::SO_LINGER),
    // This takes a privilege, which a process that has set it has.
    (SOL_SOCKET, libc::SO_MARK),
    (SOL_SOCKET, libc::SO_OOBINLINE),
    (SOL_SOCKET, libc::SO_RCVLOWAT),
    (SOL_SOCKET, libc::SO_RCVTIMEO),
    (SOL_SOCKET, libc::SO_SNDTIMEO),
    (SOL_SOCKET, libc::SO_TIMESTAMP),
    (SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (SOL_SOCKET, libc::SO_TIMESTAMPING),
    (SOL_SOCKET, libc::SO_BUSY_POLL),
    (SOL_SOCKET, libc::SO_ZEROCOPY),
    (SOL_SOCKET, libc::SO_BROADCAST),
    (SOL_SOCKET, libc::SO_DONTROUTE),
    (IPPROTO_IP, libc::IP_TTL),
    (IPPROTO_IP, libc::IP_RECVTOS),
    (IPPROTO_IP, libc::IP_RECVTTL),
    (IPPROTO_IP, libc::IP_RECVERR),
    (IPPROTO_IP, libc::IP_PKTINFO),
    (IPPROTO_IP, libc::IP_MTU_DISCOVER),
    // Setting IP_TOS sets the priority as well, so the priority comes after.
    (IPPROTO_IP, libc::IP_TOS),
    (SOL_SOCKET, libc::SO_PRIORITY),
    (IPPROTO_TCP, libc::TCP_NODELAY),
    (IPPROTO_TCP, libc::TCP_CORK),
    (IPPROTO_TCP, libc::TCP_LINGER2),
    (IPPROTO_TCP, libc::TCP_SYNCNT),
    (IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (IPPROTO_TCP, libc::TCP_INQ),
    (IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
];

/// Options that say how the program wants its socket to behave and that only datagram sockets have.
const OF_DATAGRAMS: [(c_int, c_int); 10] = [
    (SOL_SOCKET, libc::SO_NO_CHECK),
    (SOL_SOCKET, libc::SO_RXQ_OVFL),
    (IPPROTO_IP, libc::IP_MULTICAST_ALL),
    (IPPROTO_IP, libc::IP_MULTICAST_IF),
    (IPPROTO_IP, libc::IP_MULTICAST_LOOP),
    (IPPROTO_IP, libc::IP_MULTICAST_TTL),
    (IPPROTO_IP, libc::IP_RECVOPTS),
    (IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
    (libc::IPPROTO_UDP, libc::UDP_GRO),
    (libc::IPPROTO_UDP, libc::UDP_SEGMENT),
];

/// Options by which an agent may have suited the socket to its path. The program's value is carried
/// over only if the program has set one.
const TUNING: [(c_int, c_int); 3] = [
    (SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    (IPPROTO_TCP, libc::TCP_CONGESTION),
    (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
];

/// Options whose value the kernel doubles when they are set (socket(7)).
const BUFFERS: [(c_int, c_int); 2] = [(SOL_SOCKET, libc::SO_SNDBUF), (SOL_SOCKET, libc::SO_RCVBUF)];

/// Bytes of the longest value (`TCP_CONGESTION`).
const VALUE: usize = 16;

/// `SO_SNDBUF` and `SO_RCVBUF` in bytes as the program set them. Each is 0 if the program never
/// did: the kernel then reports the default of a new socket.
pub(crate) fn buffers_set(fd: Fd) -> [u32; 2] {
    let Ok(fresh) = sys::socket(libc::AF_INET, libc::SOCK_STREAM) else { return [0; 2] };
    BUFFERS.map(|(level, name)| {
        set_value(fd, fresh.raw(), level, name).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
    })
}

/// Gives `to` the options of `from`. `from` is the program's own socket before its connection, or
/// the listener that a connection came to.
pub(crate) fn carry(from: Fd, to: Fd) {
    let is_stream = sys::get_int(to, SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_STREAM);
    let further = if is_stream { &[][..] } else { &OF_DATAGRAMS };
    for (level, name) in BEHAVIOUR.iter().chain(further).copied() {
        let (mut wanted, mut has) = ([0; VALUE], [0; VALUE]);
        if let Ok(len) = sys::get_option(from, level, name, &mut wanted)
            && let Ok(had) = sys::get_option(to, level, name, &mut has)
            && (len != had || wanted != has)
        {
            let _ = sys::set_option(to, level, name, wanted.get(..len).unwrap_or_default());
        }
    }
    families::carry(from, to);
    nodelay::carry(from, to);
    keepalive::carry(from, to);
    // Never unset: without the first option, a restarted agent could not bind its
    // port while the socket exists.
    for name in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        if sys::get_int(from, SOL_SOCKET, name) == Ok(1) {
            let _ = sys::set_int(to, SOL_SOCKET, name, 1);
        }
    }
    // Without a fresh socket to compare with there are no descriptors left,
    // and tuning is the least of the program's troubles.
    let Ok(fresh) = sys::socket(libc::AF_INET, libc::SOCK_STREAM) else { return };
    for (level, name) in TUNING {
        let (mut wanted, mut default) = ([0; VALUE], [0; VALUE]);
        if let Ok(len) = sys::get_option(from, level, name, &mut wanted)
            && sys::get_option(fresh.raw(), level, name, &mut default).is_ok()
            && wanted != default
        {
            let _ = sys::set_option(to, level, name, wanted.get(..len).unwrap_or_default());
        }
    }
    for (level, name) in BUFFERS {
        if let Some(value) = set_value(from, fresh.raw(), level, name)
            && sys::get_int(to, level, name) != Ok(value.saturating_mul(2))
        {
            let _ = sys::set_int(to, level, name, value);
        }
    }
}

/// Gives `to` the file status flags of `from` and its owner for signals.
pub(crate) fn carry_flags(from: Fd, to: Fd) {
    owner::carry(from, to);
    if let Ok(flags) = sys::fcntl(from, libc::F_GETFL, 0) {
        let _ = sys::fcntl(to, libc::F_SETFL, i64::from(flags));
    }
}

/// The size of a buffer in bytes as the program set it; `None` if the program never did.
fn set_value(fd: Fd, fresh: Fd, level: c_int, name: c_int) -> Option<c_int> {
    let value = sys::get_int(fd, level, name).ok()?;
    (Ok(value) != sys::get_int(fresh, level, name)).then_some(value / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> sys::OwnedFd {
        sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap()
    }

    #[test]
    fn what_the_program_set_is_carried() {
        let (from, to) = (tcp(), tcp());
        for (level, name, value) in [
            (SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (SOL_SOCKET, libc::SO_REUSEPORT, 1),
            // Timestamps of packets that have arrived, by the system's clock.
            (SOL_SOCKET, libc::SO_TIMESTAMPING, 1 << 3 | 1 << 4),
            (IPPROTO_TCP, libc::TCP_NODELAY, 1),
            (IPPROTO_TCP, libc::TCP_KEEPIDLE, 77),
            (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 12_345),
            (IPPROTO_IP, libc::IP_TOS, 0x10),
            (SOL_SOCKET, libc::SO_PRIORITY, 3),
            (SOL_SOCKET, libc::SO_RCVBUF, 50_000),
        ] {
            sys::set_int(from.raw(), level, name, value).unwrap();
        }
        // Set by the agent and not wanted by the program.
        sys::set_int(to.raw(), SOL_SOCKET, libc::SO_OOBINLINE, 1).unwrap();
        carry(from.raw(), to.raw());
        for (level, name) in BEHAVIOUR {
            let (mut a, mut b) = ([0; VALUE], [0; VALUE]);
            sys::get_option(from.raw(), level, name, &mut a).unwrap();
            sys::get_option(to.raw(), level, name, &mut b).unwrap();
            assert_eq!(a, b, "level {level} option {name}");
        }
        assert_eq!(sys::get_int(to.raw(), SOL_SOCKET, libc::SO_KEEPALIVE), Ok(1));
        assert_eq!(sys::get_int(to.raw(), SOL_SOCKET, libc::SO_REUSEPORT), Ok(1));
        assert_eq!(sys::get_int(to.raw(), IPPROTO_TCP, libc::TCP_KEEPIDLE), Ok(77));
        assert_eq!(sys::get_int(to.raw(), SOL_SOCKET, libc::SO_RCVBUF), Ok(100_000));
    }

    #[test]
    fn tuning_by_the_agent_stays_where_the_program_has_no_wish() {
        let (from, to) = (tcp(), tcp());
        sys::set_int(to.raw(), IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 4096).unwrap();
        sys::set_int(to.raw(), SOL_SOCKET, libc::SO_SNDBUF, 40_000).unwrap();
        carry(from.raw(), to.raw());
        assert_eq!(sys::get_int(to.raw(), IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), Ok(4096));
        assert_eq!(sys::get_int(to.raw(), SOL_SOCKET, libc::SO_SNDBUF), Ok(80_000));
    }

    #[test]
    fn only_buffers_that_were_set_are_reported() {
        let fd = tcp();
        assert_eq!(buffers_set(fd.raw()), [0, 0]);
        sys::set_int(fd.raw(), SOL_SOCKET, libc::SO_SNDBUF, 30_000).unwrap();
        assert_eq!(buffers_set(fd.raw()), [30_000, 0]);
    }

    #[test]
    fn what_datagram_sockets_have_is_carried() {
        let udp = || sys::socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
        let (from, to) = (udp(), udp());
        let values = [
            (SOL_SOCKET, libc::SO_RXQ_OVFL, 1),
            (IPPROTO_IP, libc::IP_MULTICAST_LOOP, 0),
            (IPPROTO_IP, libc::IP_MULTICAST_TTL, 7),
            (IPPROTO_IP, libc::IP_MULTICAST_ALL, 0),
        ];
        for (level, name, value) in values {
            sys::set_int(from.raw(), level, name, value).unwrap();
        }
        let loopback = [127, 0, 0, 1];
        sys::set_option(from.raw(), IPPROTO_IP, libc::IP_MULTICAST_IF, &loopback).unwrap();
        carry(from.raw(), to.raw());
        for (level, name, value) in values {
            assert_eq!(sys::get_int(to.raw(), level, name), Ok(value), "level {level} option {name}");
        }
        let mut interface = [0; 4];
        sys::get_option(to.raw(), IPPROTO_IP, libc::IP_MULTICAST_IF, &mut interface).unwrap();
        assert_eq!(interface, loopback);
    }

    #[test]
    fn flags_are_carried() {
        let (from, to) = (tcp(), tcp());
        sys::fcntl(from.raw(), libc::F_SETFL, i64::from(libc::O_NONBLOCK)).unwrap();
        carry_flags(from.raw(), to.raw());
        assert_ne!(sys::fcntl(to.raw(), libc::F_GETFL, 0).unwrap() & libc::O_NONBLOCK, 0);
    }
}
