//! Datagrams to other nodes, which nothing carries. They fail at once: sent to the
//! address, they would vanish at some router. Those to the own node go to the twin, and come
//! from it.
//!
//! Of the calls that send, only what names a destination is looked at; of those that receive,
//! the name that they give.

use std::ffi::{c_int, c_void};

use isthmus_wire::VirtualAddress;
use isthmus_wire::address::REFUSED;
use isthmus_wire::shim::Endpoint;
use libc::{msghdr, sockaddr, socklen_t, ssize_t};

use crate::ends::{self, Ends};
use crate::job::{Job, job};
use crate::next;
use crate::own_address;
use crate::sockaddr::{Inet, Storage};
use crate::sys::{self, Fd};

/// Where a datagram is sent.
pub(crate) enum Destination {
    /// To the address that the program gives.
    Itself,
    /// To the twin, where this node's own programs are.
    Twin(Storage),
    /// To no address; `errno` says why.
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
    let Some(node) = VirtualAddress::new(inet.ip) else { return Destination::Itself };
    let before = sys::errno();
    let kind = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE);
    sys::set_errno(before);
    let is_stream = kind == Ok(libc::SOCK_STREAM);
    match kind {
        // The kernel says what is wrong.
        Err(_) => Destination::Itself,
        // A stream socket ignores the address, unless the call is to connect it.
        Ok(_) if is_stream && flags & libc::MSG_FASTOPEN == 0 => Destination::Itself,
        Ok(_) if node == job.virtual_address => Destination::Twin(inet.with_ip(node.twin()).encode()),
        Ok(_) => {
            sys::set_errno(if is_stream { libc::EOPNOTSUPP } else { libc::ENETUNREACH });
            Destination::Refused
        }
    }
}

/// Reads the destination of a message.
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

/// Sends a message to the twin from the twin: over loopback the kernel would choose 127.0.0.1,
/// and who answers there is nobody that the sender has asked.
///
/// # Safety
/// As sendmsg(2).
pub(crate) unsafe fn send_to_twin(fd: Fd, mut message: msghdr, twin: &Storage, flags: c_int) -> ssize_t {
    #[repr(C)]
    struct Source {
        header: libc::cmsghdr,
        info: libc::in_pktinfo,
    }
    (message.msg_name, message.msg_namelen) = (twin.as_ptr().cast_mut().cast(), twin.len());
    let is_unbound = |name: Storage| Inet::parse(name.bytes()).is_some_and(|name| name.ip.is_unspecified());
    let own = Inet::parse(twin.bytes()).map(|twin| twin.ip);
    let before = sys::errno();
    let mut source: Source;
    if let Some(own) = own
        && message.msg_controllen == 0
        && sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM)
        && sys::local_name(fd).is_ok_and(is_unbound)
    {
        // SAFETY: all-zero is a valid value of it.
        source = unsafe { std::mem::zeroed() };
        // SAFETY: plain arithmetic.
        source.header.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as u32) } as _;
        (source.header.cmsg_level, source.header.cmsg_type) = (libc::IPPROTO_IP, libc::IP_PKTINFO);
        source.info.ipi_spec_dst.s_addr = u32::from_ne_bytes(own.octets());
        message.msg_control = (&raw mut source).cast();
        message.msg_controllen = size_of::<Source>() as _;
    }
    sys::set_errno(before);
    // SAFETY: the caller's promise; name and control message live through the call.
    unsafe { next::sendmsg(fd, &raw const message, flags) }
}

/// Has a program see who has sent a datagram: the node's own programs send from the twin.
///
/// # Safety
/// `address` is null, or was passed to a call that has received something, and had room for
/// `room` bytes.
pub(crate) unsafe fn show_sender(address: *mut c_void, room: socklen_t) {
    const FAMILY: usize = 2;
    let Some(job) = job().filter(|_| !address.is_null() && room as usize >= FAMILY) else { return };
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { Storage::from_program(address.cast(), room.min(ROOM)) }) else { return };
    if let Some(sender) = Inet::parse(name.bytes())
        && sender.ip == job.virtual_address.twin()
    {
        let shown = sender.with_ip(job.virtual_address.ip()).encode();
        let len = (room.min(shown.len())) as usize;
        // SAFETY: both have at least so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(shown.as_ptr().cast::<u8>(), address.cast::<u8>(), len) };
    }
}

/// `sizeof(struct sockaddr_in6)`, the longest name that may be one of IPv4.
const ROOM: socklen_t = 28;

/// How many messages sendmmsg(2) can send as they are, from the first on.
///
/// # Safety
/// As sendmmsg(2).
pub(crate) unsafe fn plain(fd: Fd, messages: *const libc::mmsghdr, count: usize, flags: c_int) -> usize {
    let errno = sys::errno();
    let is_plain = |index: &usize| {
        // SAFETY: the caller's promise.
        let message = unsafe { messages.add(*index) }.cast::<msghdr>();
        // SAFETY: as above.
        matches!(unsafe { destination_of(fd, message, flags) }, Destination::Itself)
    };
    let plain = (0..count).take_while(is_plain).count();
    sys::set_errno(errno);
    plain
}

/// Whether a send that has failed is to be made again, from another socket. From a socket that is
/// bound to the twin, the kernel sends nothing to an address outside ([`own_address::leave_twin`]).
///
/// # Safety
/// As [`destination`].
pub(crate) unsafe fn again(sent: ssize_t, fd: Fd, address: *const c_void, len: socklen_t) -> bool {
    if sent >= 0 || sys::errno() != libc::EINVAL || address.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let to = unsafe { Storage::from_program(address.cast::<sockaddr>(), len) };
    let left = job().zip(to).is_some_and(|(job, to)| own_address::leave_twin(job, fd, &to));
    sys::set_errno(libc::EINVAL);
    left
}

/// Whether the send of a message that has failed is to be made again, as [`again`] decides.
///
/// # Safety
/// As sendmsg(2).
pub(crate) unsafe fn again_of(sent: ssize_t, fd: Fd, message: *const msghdr) -> bool {
    if sent >= 0 || message.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let msghdr { msg_name, msg_namelen, .. } = unsafe { message.read_unaligned() };
    // SAFETY: the caller's promise.
    unsafe { again(sent, fd, msg_name, msg_namelen) }
}

/// The address that a datagram socket is connected to in place of another node's: it refuses all
/// datagrams. So programs that learn their own address in this way are told the node's.
pub(crate) fn connect(job: &Job, fd: Fd, inet: Inet) -> Storage {
    let peer = Endpoint { address: inet.ip, port: inet.port };
    let local = Endpoint { address: job.virtual_address.ip(), port: 0 };
    ends::remember(sys::cookie(fd), Ends { peer, local, family: inet.family }, false);
    inet.with_ip(REFUSED).encode()
}

/// Prepares a socket for a connect to another address. The kernel has bound a datagram socket that
/// was connected to a node to an address of loopback. From there it would reach no other addresses.
pub(crate) fn leave(job: &Job, fd: Fd) {
    let leads_to_node = |name: Storage| {
        let peer = Inet::parse(name.bytes()).map(|peer| peer.ip);
        peer == Some(REFUSED) || peer == Some(job.virtual_address.twin())
    };
    if sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM)
        && sys::peer_name(fd).is_ok_and(leads_to_node)
    {
        ends::forget(sys::cookie(fd));
        let _ = sys::connect(fd, &Storage::unspecified());
    }
}
