//! Processes: ends a child with its parent, and frees one from what it has inherited.

use std::fs;
use std::io;
use std::os::fd::RawFd;

use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

pub use isthmus_common::process::ProcessId;

/// Has the kernel kill the calling process when its parent ends.
pub(crate) fn die_with_parent() -> nix::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
}

/// Closes every descriptor from 3 up, except those in `keep`.
pub(crate) fn close_all_but(keep: &[RawFd]) {
    let mut kept: Vec<u32> =
        keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept.into_iter().chain([u32::MAX]) {
        let last = if fd == u32::MAX { u32::MAX } else { fd - 1 };
        if fd > first {
            // SAFETY: the caller gives up every descriptor not in `keep`.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = fd.saturating_add(1);
    }
}

/// Puts /dev/null in place of standard input, output and error.
pub(crate) fn drop_standard_streams() -> io::Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}
