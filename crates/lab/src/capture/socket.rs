//! A packet socket (packet(7)): everything that passes an interface.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, setsockopt, socket,
};
use nix::sys::time::TimeSpec;

use super::file::DataLink;
use crate::{interface, packet_socket};

/// A socket that gets a copy of every packet at one interface.
#[derive(Debug)]
pub(super) struct PacketSocket {
    socket: OwnedFd,
    data_link: DataLink,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// When the kernel saw the packet, since 1970.
    pub time: Duration,
    /// How many bytes of the packet are in the buffer.
    pub captured: usize,
    /// The packet's length on the line, in bytes.
    pub length: usize,
}

impl PacketSocket {
    /// Begins to see what passes an interface of the calling thread's network.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let index = if_nametoindex(interface)?;
        let data_link = data_link(interface)?;
        let socket = packet_socket::create()?;
        packet_socket::make_room(&socket)?;
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        packet_socket::bind(&socket, index)?;
        Ok(Self { socket, data_link })
    }

    /// The header that each packet of the interface begins with.
    pub(super) fn data_link(&self) -> DataLink {
        self.data_link
    }

    /// Reads the next packet into `buffer`. `None` if no packet has come.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Seen>> {
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

    /// How many packets the kernel has dropped since the last call, as the socket had no room for
    /// them.
    pub(super) fn dropped(&self) -> u64 {
        packet_socket::take_dropped(&self.socket).unwrap_or(0)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The header that packets at an interface begin with. In the lab, TUN devices have IP packets, and
/// all other interfaces Ethernet frames.
fn data_link(interface: &str) -> io::Result<DataLink> {
    let kind = hardware_type(interface)?;
    if kind == libc::ARPHRD_ETHER { Ok(DataLink::Ethernet) } else { Ok(DataLink::Ip) }
}

fn hardware_type(interface: &str) -> io::Result<u16> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut request = interface::request(interface).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the request has the interface's name and room for the answer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel filled in this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}
