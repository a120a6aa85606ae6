//! Who has a TCP socket of this machine: one request to the kernel (sock_diag(7)).

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;

use isthmus_wire::sock_diag::{self, Found, REPLY_MAX};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// The socket at `own` that is connected to `other`.
///
/// # Errors
/// `NotFound` if there is none; otherwise the kernel refused the request.
fn look_up(own: SocketAddr, other: SocketAddr) -> io::Result<Found> {
    let netlink =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    send(netlink.as_raw_fd(), &sock_diag::request(own, other), MsgFlags::empty())?;
    let mut bytes = [0; REPLY_MAX];
    // The kernel has answered by the time at which `send` returns.
    let length = recv(netlink.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)?;
    match sock_diag::reply(bytes.get(..length).unwrap_or_default()) {
        Some(found) => found.map_err(io::Error::from_raw_os_error),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Checks that the kernel names the owners of sockets, as the preloaded library needs it.
///
/// # Errors
/// If it doesn't, with the reason.
pub fn check() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let found = look_up(stream.local_addr()?, stream.peer_addr()?)?;
    match found.is_open_by(nix::unistd::geteuid().as_raw()) {
        true => Ok(()),
        false => Err(io::Error::other(format!("it names user {} for a socket of this process", found.owner))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_socket_is_found_while_it_is_open() {
        check().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (own, other) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            let user = nix::unistd::geteuid().as_raw();
            let found = look_up(own, other).unwrap();
            assert_eq!((found.own, found.other, found.owner), (own, other, user));
            assert!(found.is_open_by(user));
            let cookie = socket2::SockRef::from(&stream).cookie().unwrap();
            assert_eq!(found.cookie, cookie);
            drop(stream);
            let closed = look_up(own, other).unwrap();
            assert_eq!((closed.cookie, closed.inode), (cookie, 0));
            assert!(!closed.is_open_by(user) && !closed.is_open_by(0));
        }
    }
}
