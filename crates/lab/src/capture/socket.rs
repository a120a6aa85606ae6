//! A packet socket (packet(7)): everything that passes an interface.

use std::io::{self, IoSliceMut};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt,
    socket,
};
use nix::sys::time::TimeSpec;
use pcap_file::DataLink;

/// Largest packet that is written whole, as tcpdump has it.
pub const LARGEST_PACKET: usize = 262_144;

/// Room for what comes while nobody has a processor to fetch it: at 1 Gbit/s
/// a fifth of a second.
const QUEUE: usize = 32 * 1024 * 1024;

/// A socket that gets a copy of every packet at one interface.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    data_link: DataLink,
}

/// A packet that passed.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// When, since 1970.
    pub time: Duration,
    /// How many bytes of it are in the buffer.
    pub captured: usize,
    /// Its length on the line.
    pub length: usize,
}

impl PacketSocket {
    /// Begins to see what passes an interface of the calling thread's network.
    pub fn open(interface: &str) -> io::Result<Self> {
        let index = if_nametoindex(interface)?;
        let data_link = data_link(interface)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol it gets nothing before it is bound.
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None::<SockProtocol>)?;
        if setsockopt(&socket, RcvBufForce, &QUEUE).is_err() {
            // As much as is allowed.
            setsockopt(&socket, RcvBuf, &QUEUE)?;
        }
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        bind(&socket, index)?;
        Ok(Self { socket, data_link })
    }

    /// What a packet begins with.
    pub fn data_link(&self) -> DataLink {
        self.data_link
    }

    /// The next packet, if one has come.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Seen>> {
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(buffer)];
        // The length of the packet, however much of it there is room for.
        let flags = MsgFlags::MSG_TRUNC;
        let message = match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let length = message.bytes;
        let stamp = message.cmsgs()?.find_map(|part| match part {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        let time = match stamp {
            Some(time) => time,
            None => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default(),
        };
        Ok(Some(Seen { time, captured: length.min(buffer.len()), length }))
    }

    /// How many packets found no room since this was last asked.
    pub fn dropped(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the pointer and length are those of a value that lives
        // until the call returns.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result == 0 { u64::from(statistics.tp_drops) } else { 0 }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn bind(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is whole and lives until the call returns.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A TUN device has IP packets, everything else in the lab Ethernet frames.
fn data_link(interface: &str) -> io::Result<DataLink> {
    let kind = hardware_type(interface)?;
    if kind == libc::ARPHRD_ETHER { Ok(DataLink::ETHERNET) } else { Ok(DataLink::RAW) }
}

fn hardware_type(interface: &str) -> io::Result<u16> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all bytes zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request has the interface's name and room for the answer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel filled in this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}
