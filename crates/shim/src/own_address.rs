//! The node's own addresses: those of its interfaces, and its twin.
//!
//! A listener on any address is confined to loopback (`listen::confine`). A listener on an
//! interface's address is bound to the twin (`listen::bind`). The kernel doesn't look there if the
//! destination is an interface's address, and would refuse the connection. So the connection goes
//! to the twin, as a connection to the node's name does.
//!
//! From a socket that is bound to the twin, the kernel reaches nothing but loopback. A program may
//! have bound a socket there as a client. Once that socket is to leave the node, another socket
//! takes its place.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr};

use isthmus_wire::VirtualAddress;

use crate::ends;
use crate::handover;
use crate::job::Job;
use crate::peer;
use crate::pending;
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Errno, Fd, Result};

use libc::{SO_PROTOCOL, SO_REUSEADDR, SO_TYPE, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET};

/// Where to connect `fd` instead, if its target is one of this node's own addresses and only the
/// twin has a listener. `None` for any other target.
pub(crate) fn confined(own: VirtualAddress, fd: Fd, address: &Storage) -> Option<Inet> {
    let inet = Inet::parse(address.bytes())?;
    let is_elsewhere = inet.ip.is_loopback() || inet.ip.is_unspecified() || inet.port == 0;
    if is_elsewhere || sys::get_int(fd, SOL_SOCKET, SO_TYPE) != Ok(SOCK_STREAM) {
        return None;
    }
    let at = |ip: Ipv4Addr| SocketAddr::from((ip, inet.port));
    (is_of_node(inet.ip) && peer::only_twin_listens(at(inet.ip), at(own.twin()))).then_some(inet)
}

/// Whether an address that a stream socket is to be bound to is that of an interface.
pub(crate) fn is_interface_s(fd: Fd, ip: Ipv4Addr) -> bool {
    !ip.is_loopback()
        && !ip.is_unspecified()
        && sys::get_int(fd, SOL_SOCKET, SO_TYPE) == Ok(SOCK_STREAM)
        && is_of_node(ip)
}

/// Whether an address is one of this node's: sockets can't be bound to any other.
fn is_of_node(ip: Ipv4Addr) -> bool {
    let Ok(probe) = sys::socket(libc::AF_INET, SOCK_STREAM) else { return false };
    sys::bind(probe.raw(), &Inet { family: Family::V4, ip, port: 0 }.encode()).is_ok()
}

/// Has a socket that is about to connect or send to an address outside the job leave the twin. If
/// it is bound to the twin, a socket with the same port at any address takes its place. Returns
/// whether that was done.
pub(crate) fn leave_twin(job: &Job, fd: Fd, to: &Storage) -> bool {
    let leaves = Inet::parse(to.bytes()).is_some_and(|to| !to.ip.is_loopback() && !to.ip.is_unspecified());
    if !leaves || pending::elsewhere() {
        return false;
    }
    let local = sys::local_name(fd).ok().and_then(|name| Inet::parse(name.bytes()));
    let Some(local) = local.filter(|local| local.ip == job.virtual_address.twin()) else { return false };
    let kind = sys::get_int(fd, SOL_SOCKET, SO_TYPE);
    match (kind, sys::get_int(fd, SOL_SOCKET, SO_PROTOCOL)) {
        (Ok(kind @ SOCK_STREAM), Ok(libc::IPPROTO_TCP)) if sys::tcp_state(fd) == Ok(sys::CLOSED) => {
            exchange(fd, local, kind).is_ok()
        }
        (Ok(kind @ SOCK_DGRAM), Ok(libc::IPPROTO_UDP)) => exchange(fd, local, kind).is_ok(),
        _ => false,
    }
}

/// Puts an unbound datagram socket in the place of a socket that the shim has bound to the twin,
/// and whose connection is dissolved.
///
/// # Errors
/// If there is no descriptor left.
pub(crate) fn unbind(fd: Fd) -> Result<()> {
    let local = sys::local_name(fd)?;
    let local = Inet::parse(local.bytes()).ok_or(Errno(libc::EINVAL))?;
    exchange(fd, Inet { port: 0, ..local }, SOCK_DGRAM)
}

fn exchange(fd: Fd, local: Inet, kind: c_int) -> Result<()> {
    let cookie = sys::cookie(fd);
    if cookie == 0 {
        return Err(Errno(libc::EBADF));
    }
    let new = sys::socket(local.family.domain(), kind)?;
    if local.family == Family::Mapped {
        sys::set_int(new.raw(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    if local.port != 0 {
        // For a moment both have the port.
        let shared = sys::get_int(fd, SOL_SOCKET, SO_REUSEADDR)?;
        let share = |value| {
            for fd in [fd, new.raw()] {
                let _ = sys::set_int(fd, SOL_SOCKET, SO_REUSEADDR, value);
            }
        };
        share(1);
        let bound = sys::bind(new.raw(), &local.with_ip(Ipv4Addr::UNSPECIFIED).encode());
        share(shared);
        bound?;
    }
    if local.port != 0 {
        ends::bound(sys::cookie(new.raw()));
    }
    pending::with(|list| {
        list.find(fd)?;
        let number = handover::replace(&mut list.numbers, fd, cookie, new.raw())?;
        list.numbers.forget(number);
        Ok(())
    })
}

/// Binds an unbound socket to its node's twin, so that the other end
/// sees the node's virtual address; the port is chosen at connect, when the
/// kernel knows which are free for this destination. Returns whether that was done.
pub(crate) fn bind_to_twin(own: VirtualAddress, fd: Fd, inet: Inet) -> bool {
    let unbound = |name: Inet| name.ip == Ipv4Addr::UNSPECIFIED && name.port == 0;
    if !sys::local_name(fd).ok().and_then(|name| Inet::parse(name.bytes())).is_some_and(unbound) {
        return false;
    }
    let _ = sys::set_int(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
    sys::bind(fd, &Inet { port: 0, ..inet.with_ip(own.twin()) }.encode()).is_ok()
}
