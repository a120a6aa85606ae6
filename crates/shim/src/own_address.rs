//! Connects of a node to itself by an address of its interfaces.
//!
//! A listener on any address is confined to loopback (`listen::confine`). There the kernel
//! doesn't look for it if the destination is an interface's address, and would refuse the
//! connection. So it goes to the twin, as one to the node's name.

use std::net::{Ipv4Addr, SocketAddr};

use isthmus_wire::VirtualAddress;

use crate::peer;
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Fd};

/// The target of a connect of `fd`, if it is one of this node's own addresses, and only the
/// twin has a listener.
pub(crate) fn confined(own: VirtualAddress, fd: Fd, address: &Storage) -> Option<Inet> {
    let inet = Inet::parse(address.bytes())?;
    let is_elsewhere = inet.ip.is_loopback() || inet.ip.is_unspecified() || inet.port == 0;
    if is_elsewhere || sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) != Ok(libc::SOCK_STREAM) {
        return None;
    }
    let at = |ip: Ipv4Addr| SocketAddr::from((ip, inet.port));
    (is_of_node(inet.ip) && peer::only_twin_listens(at(inet.ip), at(own.twin()))).then_some(inet)
}

/// Whether an address is one of this node's: sockets can be bound to no other.
fn is_of_node(ip: Ipv4Addr) -> bool {
    let Ok(probe) = sys::socket(libc::AF_INET, libc::SOCK_STREAM) else { return false };
    sys::bind(probe.raw(), &Inet { family: Family::V4, ip, port: 0 }.encode()).is_ok()
}
