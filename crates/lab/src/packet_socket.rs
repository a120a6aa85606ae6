//! Packet sockets (packet(7)): what a capture and the emulator's ends of links
//! do alike with them.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket};

/// Room in bytes for packets that come while the reader has no processor. At 1 Gbit/s it lasts for
/// a fifth of a second.
const QUEUE: usize = 32 * 1024 * 1024;

/// Makes a packet socket that never waits. It gets no packets before [`bind`], so that options can
/// be set.
pub(crate) fn create() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Packet, SockType::Raw, flags, None::<SockProtocol>)
}

/// Makes as much room for unread packets as this user may have, up to [`QUEUE`].
pub(crate) fn make_room(socket: &OwnedFd) -> nix::Result<()> {
    if setsockopt(socket, RcvBufForce, &QUEUE).is_err() {
        setsockopt(socket, RcvBuf, &QUEUE)?;
    }
    Ok(())
}

/// Has the socket get all packets at an interface of the calling thread's network, given by its
/// index.
pub(crate) fn bind(socket: &OwnedFd, interface: libc::c_uint) -> nix::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is whole and lives until the call returns.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    Errno::result(result).map(drop)
}

/// How many packets found no room since the last call. The kernel sets its count to zero as it is
/// read.
pub(crate) fn take_dropped(socket: &OwnedFd) -> nix::Result<u64> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of a value that lives until the
    // call returns.
    Errno::result(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    })?;
    Ok(statistics.tp_drops.into())
}
