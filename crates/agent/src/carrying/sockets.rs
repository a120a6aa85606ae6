//! Names of sockets.

use std::io;

/// By what `/proc` knows a socket.
pub fn inode(socket: &impl std::os::fd::AsFd) -> io::Result<u64> {
    Ok(nix::sys::stat::fstat(socket)?.st_ino)
}

/// By what the kernel knows a socket for good (`SO_COOKIE`, socket(7)).
pub fn cookie(socket: &impl std::os::fd::AsFd) -> io::Result<u64> {
    socket2::SockRef::from(socket).cookie()
}
