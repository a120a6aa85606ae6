//! What the kernel tells of TCP sockets of this machine (sock_diag(7)): who has one, what
//! it has carried, and that one was destroyed.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use isthmus_wire::sock_diag::{self, DESTROYED, Found, INFO_REPLY_MAX, REPLY_MAX};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};

/// Room for messages of sockets that are destroyed together, as at a program's end: some thousands.
/// Processes without privileges get less (`net.core.rmem_max`).
const ROOM: usize = 4 << 20;

/// The socket at `own` that is connected to `other`.
///
/// # Errors
/// `NotFound` if there is no such socket; otherwise the kernel refused the request.
fn look_up(own: SocketAddr, other: SocketAddr) -> io::Result<Found> {
    found(ask(&sock_diag::request(own, other), &mut [0; REPLY_MAX])?)
}

/// The inode of the socket at `own` that is connected to `other`, over loopback. It is 0 until a
/// program has accepted the connection.
///
/// # Errors
/// The kernel's error: `NotFound` if there is no such socket.
pub fn inode(own: SocketAddr, other: SocketAddr) -> io::Result<u32> {
    let found = look_up(own, other)?;
    // If there is no connection, the kernel names a listener.
    if found.other == other { Ok(found.inode) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Sends the kernel a request, and reads its reply.
fn ask<'a>(request: &[u8], reply: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let netlink = netlink(SockFlag::empty())?;
    send(netlink.as_raw_fd(), request, MsgFlags::empty())?;
    // The kernel has answered by the time at which `send` returns.
    let length = recv(netlink.as_raw_fd(), reply, MsgFlags::MSG_DONTWAIT)?;
    Ok(reply.get(..length).unwrap_or_default())
}

fn found(reply: &[u8]) -> io::Result<Found> {
    match sock_diag::reply(reply) {
        Some(found) => found.map_err(io::Error::from_raw_os_error),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn netlink(flags: SockFlag) -> io::Result<OwnedFd> {
    let flags = flags | SockFlag::SOCK_CLOEXEC;
    Ok(socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag)?)
}

/// What the kernel tells of a socket.
#[derive(Debug)]
pub struct Told {
    /// The socket's `SO_COOKIE`, which no other socket has.
    pub cookie: u64,
    /// `struct tcp_info` (linux/tcp.h); empty if the kernel doesn't give it.
    pub tcp_info: Vec<u8>,
}

impl Told {
    fn read(message: &[u8]) -> io::Result<Self> {
        let tcp_info = sock_diag::tcp_info(message).unwrap_or_default().to_vec();
        Ok(Self { cookie: found(message)?.cookie, tcp_info })
    }
}

/// What the socket at `own` that is connected to `other` has carried so far.
///
/// # Errors
/// `NotFound` if there is no such socket; otherwise the kernel refused the request.
pub fn carried(own: SocketAddr, other: SocketAddr) -> io::Result<Told> {
    Told::read(ask(&sock_diag::info_request(own, other), &mut [0; INFO_REPLY_MAX])?)
}

/// Hears of each TCP socket of this network namespace that is destroyed. Such a socket is closed,
/// and all that it had to send was acknowledged or given up.
#[derive(Debug)]
pub struct Destroyed(OwnedFd);

impl Destroyed {
    /// Listens from now on. Needs no privileges.
    ///
    /// # Errors
    /// If the kernel doesn't tell (before Linux 4.2, or without its module tcp_diag).
    pub fn listen() -> io::Result<Self> {
        let netlink = netlink(SockFlag::SOCK_NONBLOCK)?;
        if setsockopt(&netlink, sockopt::RcvBufForce, &ROOM).is_err() {
            setsockopt(&netlink, sockopt::RcvBuf, &ROOM)?;
        }
        bind(netlink.as_raw_fd(), &NetlinkAddr::new(0, DESTROYED))?;
        Ok(Self(netlink))
    }

    /// The next socket that was destroyed.
    ///
    /// # Errors
    /// `WouldBlock` if there is none yet. Any other error concerns single messages: some may be
    /// lost (`ENOBUFS`).
    pub fn next(&self) -> io::Result<Told> {
        let mut message = [0; INFO_REPLY_MAX];
        let length = recv(self.0.as_raw_fd(), &mut message, MsgFlags::empty())?;
        Told::read(message.get(..length).unwrap_or_default())
    }
}

impl AsRawFd for Destroyed {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Checks that the kernel names the owners of sockets, as the preloaded library needs it.
///
/// # Errors
/// If the kernel doesn't, with the reason.
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
            // The other end, before and after it is accepted, and where there is only the listener.
            assert_eq!(inode(other, own).unwrap(), 0);
            let accepted = listener.accept().unwrap();
            assert_ne!(inode(other, own).unwrap(), 0);
            let nobody = SocketAddr::new(own.ip(), own.port() ^ 1);
            assert_eq!(inode(other, nobody).unwrap_err().kind(), io::ErrorKind::NotFound);
            drop(stream);
            let closed = look_up(own, other).unwrap();
            assert_eq!((closed.cookie, closed.inode), (cookie, 0));
            assert!(!closed.is_open_by(user) && !closed.is_open_by(0));
            drop(accepted);
        }
    }
}
