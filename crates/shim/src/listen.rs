//! The hooks' work for bind, listen, accept and the names of sockets.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddrV4};

use isthmus_wire::address::is_agents;
use isthmus_wire::shim::{Handover, Request};

use crate::agent;
use crate::ends::{self, Ends, Side};
use crate::gate;
use crate::handover;
use crate::job::Job;
use crate::lock;
use crate::next;
use crate::nodelay;
use crate::own_address;
use crate::peer;
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Errno, Fd};

/// Replacement for bind(2). The node's own virtual address becomes its twin, the only address of it
/// that the node has. So does an interface's address for a stream socket: the site's network must
/// not reach a listener there.
///
/// # Safety
/// As bind(2): `address` is null or readable for `len` bytes.
pub(crate) unsafe fn bind(job: &Job, fd: Fd, address: *const libc::sockaddr, len: libc::socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    let storage = unsafe { Storage::from_program(address, len) };
    let before = sys::errno();
    let to_twin = storage
        .and_then(|storage| Inet::parse(storage.bytes()))
        .filter(|inet| inet.ip == job.virtual_address.ip() || own_address::is_interface_s(fd, inet.ip));
    sys::set_errno(before);
    if let Some(inet) = to_twin {
        let twin = inet.with_ip(job.virtual_address.twin()).encode();
        // SAFETY: `twin` is readable for its length.
        return unsafe { next::bind(fd, twin.as_ptr(), twin.len()) };
    }
    // SAFETY: the caller's promise.
    unsafe { next::bind(fd, address, len) }
}

/// Confines a socket that is to listen on every address to loopback. The twin, the agent's knocks
/// and the node's own processes come from there.
///
/// The socket is confined by device rather than by address. A bound socket can't be bound again,
/// and its port may be shared with other wildcard sockets of the program. Kernels before 5.7 leave
/// that to root. There the socket listens where the program asked it to, as it would without the
/// shim.
pub(crate) fn confine(fd: Fd) {
    let before = sys::errno();
    let everywhere = |name: Inet| name.ip == Ipv4Addr::UNSPECIFIED;
    if sys::local_name(fd).ok().and_then(|name| Inet::parse(name.bytes())).is_some_and(everywhere)
        && sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
    {
        let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo\0");
    }
    sys::set_errno(before);
}

/// Replacement for accept(2) and accept4(2).
///
/// # Safety
/// As accept4(2): each pointer is null or valid, `address` writable for `*len`.
pub(crate) unsafe fn accept(
    job: &Job,
    listener: Fd,
    address: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
    flags: c_int,
) -> c_int {
    // No frame from here to the kernel owns anything: a thread cancelled in
    // accept unwinds through them.
    loop {
        let mut name = Storage::new();
        // SAFETY: `name` is writable for the length it states.
        let fd =
            gate::with_room(|| unsafe { next::accept4(listener, name.as_mut_ptr(), name.len_mut(), flags) });
        if fd < 0 {
            return fd;
        }
        gate::renewed(fd);
        let before = sys::errno();
        // A handler that leaves by siglongjmp(3) finds the connection, or none.
        let mask = lock::block_signals();
        let arrived = arrive(job, listener, fd, &name, flags);
        if arrived.is_none() {
            // A knock without a connection, or another user: the program sees neither.
            handover::leave_nothing(fd);
            let _ = sys::close(fd);
        }
        lock::restore_signals(mask);
        sys::set_errno(before);
        if let Some(name) = arrived {
            // SAFETY: the caller's promise.
            unsafe { name.to_program(address, len) };
            return fd;
        }
    }
}

/// Replaces a knock by the real connection. Returns the address of the other end as the program
/// sees it. `None` if there is no connection, or another user's.
fn arrive(job: &Job, listener: Fd, fd: Fd, name: &Storage, flags: c_int) -> Option<Storage> {
    let peer = Inet::parse(name.bytes());
    let knocked = peer.is_some_and(|peer| is_agents(peer.ip));
    if !knocked && !peer::may_connect(job, listener, fd, name) {
        return None;
    }
    let Some(peer) = peer else { return Some(*name) };
    if !knocked {
        return Some(ends::name(job, fd, Side::Peer, peer).encode());
    }
    let knock = SocketAddrV4::new(peer.ip, peer.port);
    let is_v6 = peer.family == Family::Mapped;
    let (reply, socket) =
        match agent::look_up(job, &Request::Accept { knock, cookie: sys::cookie(fd), is_v6 }) {
            Ok(fetched) => fetched,
            // The agent may have passed the connection on by now, or the program has no room.
            Err(Errno(libc::ETIMEDOUT | libc::ENOBUFS | libc::EPROTO)) => return None,
            // This process has lost its agent, which will notice, and carry the connection on the
            // knock.
            Err(_) => return Some(*name),
        };
    if reply.errno != 0 {
        return None;
    }
    let ends = Ends { peer: reply.peer, local: reply.local, family: peer.family };
    match (reply.handover, socket) {
        (Handover::Socket, Some(socket)) => {
            ends::remember(sys::cookie(socket.raw()), ends, false);
            handover::replace_accepted(listener, fd, &socket, flags).ok()?;
        }
        (Handover::Keep, _) => {
            ends::remember(sys::cookie(fd), ends, false);
            nodelay::carry(fd, fd);
        }
        (Handover::Socket | Handover::None, _) => return None,
    }
    Some(Inet { family: peer.family, ip: reply.peer.address, port: reply.peer.port }.encode())
}

/// Completes getsockname(2) and getpeername(2), after the kernel has filled in `name`. Replaces the
/// kernel's address by the address that the program sees.
///
/// # Safety
/// Each pointer is null or valid, `address` writable for `*len` bytes.
pub(crate) unsafe fn report_name(
    job: &Job,
    fd: Fd,
    side: Side,
    kernel: &Storage,
    address: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) {
    let before = sys::errno();
    let name = match Inet::parse(kernel.bytes()) {
        // The IPv6 wildcard is no IPv4 address to be written back.
        Some(inet) if inet.ip != Ipv4Addr::UNSPECIFIED => ends::name(job, fd, side, inet).encode(),
        Some(inet) if side == Side::Local && ends::is_bound(fd) => {
            inet.with_ip(job.virtual_address.ip()).encode()
        }
        None if side == Side::Local => ends::v6_name(job, fd, kernel),
        Some(_) | None => *kernel,
    };
    sys::set_errno(before);
    // SAFETY: the caller's promise.
    unsafe { name.to_program(address, len) };
}
