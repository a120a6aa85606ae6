//! Datagrams to other nodes, which nothing carries. They fail at once: sent to the
//! address, they would vanish at some router.
//!
//! Of the calls that send, only what names a destination is looked at.

use std::ffi::{c_int, c_void};

use isthmus_wire::VirtualAddress;
use isthmus_wire::address::REFUSED;
use isthmus_wire::shim::End;
use libc::{msghdr, sockaddr, socklen_t};

use crate::ends::{self, Ends};
use crate::job::{Job, job};
use crate::sockaddr::{Inet, Storage};
use crate::sys::{self, Fd};

/// Where to send instead.
pub(crate) enum Destination {
    /// Where the program says.
    Itself,
    /// The node's own programs are at its twin.
    Twin(Storage),
    /// Nowhere; `errno` says why.
    Refused,
}

/// Reads the destination of a send.
///
/// # Safety
/// `address` is null or readable for `len` bytes.
pub(crate) unsafe fn destination(
    fd: Fd,
    address: *const c_void,
    len: socklen_t,
    flags: c_int,
) -> Destination {
    if address.is_null() {
        return Destination::Itself;
    }
    let Some(job) = job() else { return Destination::Itself };
    // SAFETY: the caller's promise.
    let Some(storage) = (unsafe { Storage::from_program(address.cast::<sockaddr>(), len) }) else {
        return Destination::Itself;
    };
    let Some(inet) = Inet::parse(storage.bytes()) else { return Destination::Itself };
    let before = sys::errno();
    let is_stream = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_STREAM);
    sys::set_errno(before);
    match VirtualAddress::new(inet.ip) {
        None => Destination::Itself,
        // The address of what is connected is ignored.
        Some(_) if is_stream && flags & libc::MSG_FASTOPEN == 0 => Destination::Itself,
        Some(own) if own == job.virtual_address => Destination::Twin(inet.with_ip(own.twin()).encode()),
        Some(_) => {
            sys::set_errno(if is_stream { libc::EOPNOTSUPP } else { libc::ENETUNREACH });
            Destination::Refused
        }
    }
}

/// The same of a message.
///
/// # Safety
/// As sendmsg(2).
pub(crate) unsafe fn destination_of(fd: Fd, message: *const msghdr, flags: c_int) -> Destination {
    if message.is_null() {
        return Destination::Itself;
    }
    // SAFETY: the caller's promise.
    let msghdr { msg_name, msg_namelen, .. } = unsafe { message.read_unaligned() };
    // SAFETY: the caller's promise.
    unsafe { destination(fd, msg_name, msg_namelen, flags) }
}

/// What a datagram socket that is to be connected to another node is connected to: an
/// address that refuses. So programs that ask for their own address in this way are told
/// it.
pub(crate) fn connect(job: &Job, fd: Fd, inet: Inet) -> Storage {
    let peer = End { address: inet.ip, port: inet.port };
    let local = End { address: job.virtual_address.ip(), port: 0 };
    ends::remember(sys::cookie(fd), Ends { peer, local, family: inet.family }, false);
    inet.with_ip(REFUSED).encode()
}
