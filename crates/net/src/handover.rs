//! Passes a socket to another process of this machine: `SCM_RIGHTS`, unix(7).

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// Sends a whole message, with at most one descriptor, over a Unix socket that has
/// room for it.
///
/// The receiver gets a descriptor of its own. The caller must close its copy, or
/// the peer never sees the end of the connection.
///
/// # Errors
/// As `sendmsg(2)`; `WriteZero` if the message didn't fit.
pub fn send(stream: &impl AsFd, message: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let descriptors: Vec<_> = socket.iter().map(|socket| socket.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() { &rights[..0] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let sent = sendmsg::<()>(stream.as_fd().as_raw_fd(), &[IoSlice::new(message)], control, flags, None)?;
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
