//! Socket options that the libraries don't have.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::errno::Errno;
use nix::libc;

/// Asks for an option's value. The kernel writes it to the beginning of `room`; returns what it wrote.
///
/// # Errors If it is no socket, or its kind lacks the option.
pub(crate) fn get<'a>(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    room: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    let mut length = libc::socklen_t::try_from(room.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: `room` is writable for `length` bytes.
    let done = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, option, room.as_mut_ptr().cast(), &raw mut length)
    };
    Errno::result(done)?;
    Ok(room.get(..length as usize).unwrap_or_default())
}

/// Sets an option to a value in this machine's byte order.
///
/// # Errors If it is no socket, its kind lacks the option, or it doesn't take this value.
pub(crate) fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: `value` is readable for `length` bytes.
    let done =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    Errno::result(done)?;
    Ok(())
}
