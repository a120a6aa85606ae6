//! Removes a lab's directory when its keeper could not: a process of
//! its own that waits for the keeper's end, which also SIGKILL brings.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::process::{ProcessId, close_all_but, drop_standard_streams};
use crate::state::LabDirectory;

/// Starts the sweeper, a child that outlives the caller. It acts once the returned descriptor,
/// which no other process may keep, is closed. So if there is nothing to sweep, end the sweeper
/// before. The caller must have one thread only.
pub(super) fn start(directory: &LabDirectory) -> nix::Result<(Pid, OwnedFd)> {
    let keeper = ProcessId::of(Pid::this()).map_err(|_| nix::Error::ESRCH)?;
    let (reader, alive) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: there is one thread only.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok((child, alive)),
        ForkResult::Child => {
            drop(alive);
            sweep(reader, keeper, directory);
            // SAFETY: ends this process, without what the keeper registered.
            unsafe { libc::_exit(0) }
        }
    }
}

fn sweep(keeper_lives: OwnedFd, keeper: ProcessId, directory: &LabDirectory) {
    close_all_but(&[keeper_lives.as_raw_fd()]);
    if let Ok(name) = CString::new(format!("lab:sweep {}", directory.lab())) {
        let _ = nix::sys::prctl::set_name(&name);
    }
    // A reader of the keeper's output must not wait for this process.
    if drop_standard_streams().is_ok() && File::from(keeper_lives).read(&mut [0]).is_ok() {
        // No process is left to report to.
        let _ = directory.remove_remains(keeper);
    }
}
