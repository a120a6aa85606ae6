//! Which sockets the helper takes from its agent.
//!
//! Any user of the helper's group may start it and hand it any descriptor, so the kernel
//! is asked about each.

use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd as _, OwnedFd};

use isthmus_raw::permit::port_permitted;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{AcceptConn, BindToDevice, SockType as SockTypeOption};
use nix::sys::socket::{SockType, SockaddrIn, getsockname, getsockopt};
use nix::sys::stat::fstat;
use nix::unistd::getuid;

/// Checks that this is a TCP socket of the caller, in the network namespace that the
/// helper's `own` socket is in. A socket in another namespace may have any address.
pub(super) fn check(socket: &OwnedFd, own: &OwnedFd) -> Result<(), String> {
    if getsockopt(socket, SockTypeOption) != Ok(SockType::Stream) {
        return Err("no TCP socket came with the request".to_owned());
    }
    let stat = fstat(socket).map_err(|error| format!("cannot examine the socket: {}", error.desc()))?;
    if stat.st_uid != getuid().as_raw() {
        return Err(format!(
            "the socket is of user {}, and the helper serves user {}",
            stat.st_uid,
            getuid()
        ));
    }
    let namespace = |socket| {
        namespace(socket).map_err(|error| {
            format!("cannot find the socket's network namespace (Linux 5.14): {}", error.desc())
        })
    };
    if namespace(socket)? != namespace(own)? {
        return Err("the socket is in another network namespace".to_owned());
    }
    Ok(())
}

/// The address that this socket listens at, to be asked before each injection. A socket that no
/// longer listens leaves its port to other users.
pub(super) fn listens_at(listener: &OwnedFd) -> Result<SocketAddrV4, String> {
    let name: Result<SockaddrIn, _> = getsockname(listener.as_raw_fd());
    let (Ok(true), Ok(name)) = (getsockopt(listener, AcceptConn), name) else {
        return Err("the agent does not listen on IPv4".to_owned());
    };
    // Another user may listen at the same port on another device.
    if getsockopt(listener, BindToDevice).is_ok_and(|device| !device.is_empty()) {
        return Err("the agent's listener is bound to one device".to_owned());
    }
    let name = SocketAddrV4::from(name);
    port_permitted(name).map_err(|refused| refused.to_string())?;
    Ok(name)
}

/// The number of a socket's network namespace (`SO_NETNS_COOKIE`), never used again.
fn namespace(socket: &OwnedFd) -> nix::Result<u64> {
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` is writable for `len` bytes.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    Errno::result(done).map(|_| cookie)
}
