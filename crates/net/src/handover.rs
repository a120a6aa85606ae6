//! Passes a socket to another process of this machine: `SCM_RIGHTS`, unix(7).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Sends a whole message, with at most a single descriptor, over a Unix socket that has room for
/// it.
///
/// The receiver gets a descriptor of its own. The caller must close its copy, or the peer never
/// sees the end of the connection.
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

/// What a call of [`receive`] has received.
#[derive(Debug)]
pub enum Received {
    /// The other end has closed its socket, so nothing more comes.
    End,
    /// A byte, with the descriptor that came with it, if any.
    Byte(Option<OwnedFd>),
}

/// Receives a single byte from a Unix socket, with at most a single descriptor.
///
/// # Errors
/// As `recvmsg(2)`.
pub fn receive(stream: &impl AsFd) -> io::Result<Received> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut control = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(stream.as_fd().as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let mut first = None;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = message {
            for descriptor in descriptors {
                // SAFETY: the kernel has just given it to this process.
                #[allow(unsafe_code, reason = "a number gets its owner")]
                let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
                // Any other is closed.
                first.get_or_insert(descriptor);
            }
        }
    }
    Ok(if received.bytes == 0 { Received::End } else { Received::Byte(first) })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn each_byte_comes_with_its_own_descriptor() {
        let (mut one, other) = UnixStream::pair().unwrap();
        let (passed, kept) = UnixStream::pair().unwrap();
        send(&one, b"a", Some(passed.as_fd())).unwrap();
        send(&one, b"b", Some(passed.as_fd())).unwrap();
        one.write_all(b"c").unwrap();
        drop(passed);
        for has in [true, true, false] {
            let Received::Byte(descriptor) = receive(&other).unwrap() else { panic!("the end") };
            assert_eq!(descriptor.is_some(), has);
            if let Some(descriptor) = descriptor {
                UnixStream::from(descriptor).write_all(b"x").unwrap();
            }
        }
        assert_eq!(receive(&other).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(one);
        assert!(matches!(receive(&other), Ok(Received::End)));
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut &kept, &mut bytes).unwrap();
        assert_eq!(bytes, b"xx");
    }
}
