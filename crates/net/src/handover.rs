//! Handing a socket to another process of this machine: `SCM_RIGHTS`, unix(7).

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Sends a whole message, with at most one descriptor.
///
/// The receiver gets a descriptor of its own; the caller must close its copy,
/// or the connection's end is never seen by the peer.
///
/// # Errors
/// As `sendmsg(2)`; a message that didn't fit whole is `WriteZero`.
pub async fn send(stream: &UnixStream, message: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let sent = stream
        .async_io(Interest::WRITABLE, || {
            let descriptors: Vec<_> = socket.iter().map(|socket| socket.as_raw_fd()).collect();
            let rights = [ControlMessage::ScmRights(&descriptors)];
            let control = if descriptors.is_empty() { &rights[..0] } else { &rights[..] };
            let data = [IoSlice::new(message)];
            sendmsg::<()>(stream.as_raw_fd(), &data, control, MsgFlags::MSG_NOSIGNAL, None)
                .map_err(io::Error::from)
        })
        .await?;
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
