//! Whether the process at the other end of a connection over loopback may reach this process's
//! listener.
//!
//! Without isthmus such a listener has an address of the site's network. Other users of this node
//! must not gain by its move to loopback.
//!
//! The kernel names the owner of the socket at the other end. The kernel has forgotten the owner of
//! a closed socket, but not its cookie. The job's processes leave the cookies of their connects in
//! a file of the job's directory.

use std::net::SocketAddr;

use isthmus_wire::sock_diag::{Found, REPLY_MAX, REQUEST_LEN, reply, request, request_unconfined};

use crate::job::Job;
use crate::sockaddr::{Inet, Storage};
use crate::sys::{self, Errno, Fd, Result};

/// Records that this process connects a socket over loopback.
pub(crate) fn record(job: &Job, fd: Fd) {
    if let Some(connects) = job.connects {
        connects.note(sys::cookie(fd));
    }
}

/// Whether the connection that `listener` accepted as `fd` from `peer` may be passed to
/// the program: a process of this user or of root is at the other end, or was.
///
/// A listener that the program itself bound to another address, such as 127.0.0.1,
/// accepts every connection, as it does without isthmus.
pub(crate) fn may_connect(job: &Job, listener: Fd, fd: Fd, peer: &Storage) -> bool {
    if !is_moved(job, listener) {
        return true;
    }
    let own = sys::local_name(fd).ok().and_then(|name| name.socket_address());
    let (Some(own), Some(peer)) = (own, peer.socket_address()) else { return true };
    let user = sys::effective_user();
    match look_up(&request(peer, own)) {
        // After a reset the peer's address is free for another socket, which may be the one that
        // was found.
        Ok(_) if sys::tcp_state(fd) == Ok(sys::CLOSED) => false,
        Ok(found) if (found.own, found.other) == (peer, own) => {
            found.is_open_by(user)
                || found.inode == 0 && job.connects.is_some_and(|connects| connects.contains(found.cookie))
        }
        // What was found is a listener at the peer's address.
        Ok(_) => false,
        // There is no such socket. But a kernel without the module for TCP gives this answer to all
        // questions.
        Err(Errno(libc::ENOENT)) => look_up(&request(own, anyone(own))) == Err(Errno(libc::ENOENT)),
        Err(Errno(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN)) => false,
        // The kernel or a filter of system calls refuses the question, which the agent's
        // log names at its start.
        Err(_) => true,
    }
}

/// Whether the shim moved this listener onto loopback.
fn is_moved(job: &Job, listener: Fd) -> bool {
    let Some(name) = sys::local_name(listener).ok().and_then(|name| Inet::parse(name.bytes())) else {
        return false;
    };
    let on_loopback = || {
        let mut device = [0; 16];
        let len = sys::get_option(listener, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &mut device);
        len.is_ok() && device.starts_with(b"lo\0")
    };
    name.ip == job.virtual_address.twin() || name.ip.is_unspecified() && on_loopback()
}

/// Whether a connection to an address of this node would find no listener, and a connection to the
/// twin would find one.
pub(crate) fn only_twin_listens(address: SocketAddr, twin: SocketAddr) -> bool {
    look_up(&request_unconfined(address, anyone(address))) == Err(Errno(libc::ENOENT))
        && look_up(&request(twin, anyone(twin))).is_ok()
}

/// The address at the other end of a listener, as the kernel has it: any address, port 0.
fn anyone(listener: SocketAddr) -> SocketAddr {
    SocketAddr::new(if listener.is_ipv4() { [0; 4].into() } else { [0; 16].into() }, 0)
}

/// Looks for a socket of any process of this machine.
///
/// # Errors
/// The kernel's, such as `ENOENT` if there is no such socket.
fn look_up(request: &[u8; REQUEST_LEN]) -> Result<Found> {
    let mut bytes = [0; REPLY_MAX];
    let len = sys::sock_diag(request, &mut bytes)?;
    match reply(bytes.get(..len).unwrap_or_default()) {
        Some(answer) => answer.map_err(Errno),
        None => Err(Errno(libc::EAGAIN)),
    }
}
