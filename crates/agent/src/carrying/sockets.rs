//! Identifiers that the kernel gives sockets.

use std::io;

/// The inode by which `/proc` lists a socket.
pub(crate) fn inode(socket: &impl std::os::fd::AsFd) -> io::Result<u64> {
    Ok(nix::sys::stat::fstat(socket)?.st_ino)
}

/// The kernel's permanent identifier of a socket (`SO_COOKIE`, socket(7)).
pub(crate) fn cookie(socket: &impl std::os::fd::AsFd) -> io::Result<u64> {
    socket2::SockRef::from(socket).cookie()
}
