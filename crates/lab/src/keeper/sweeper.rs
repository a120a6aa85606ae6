//! What clears a lab's directory away when its keeper couldn't: a process of
//! its own that waits for the keeper's end, which also SIGKILL brings.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2};

use crate::process::close_all_but;
use crate::state::LabDirectory;

/// Starts the sweeper. It acts once the returned descriptor, which no other
/// process may hold, is closed. The caller must have one thread only.
pub fn start(directory: &LabDirectory) -> nix::Result<OwnedFd> {
    let (reader, alive) = pipe2(OFlag::O_CLOEXEC)?;
    // Twice, so that the sweeper is nobody's child to wait for.
    // SAFETY: there is one thread only.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            waitpid(child, None)?;
            Ok(alive)
        }
        ForkResult::Child => {
            drop(alive);
            // SAFETY: as above.
            if let Ok(ForkResult::Child) = unsafe { fork() } {
                sweep(reader, directory);
            }
            // SAFETY: ends this process, without what the keeper registered.
            unsafe { libc::_exit(0) }
        }
    }
}

fn sweep(keeper: OwnedFd, directory: &LabDirectory) {
    close_all_but(&[keeper.as_raw_fd()]);
    if let Ok(name) = CString::new(format!("lab:sweep {}", directory.lab())) {
        let _ = nix::sys::prctl::set_name(&name);
    }
    let quiet = || -> std::io::Result<()> {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
        Ok(())
    };
    // Whoever waits for the end of the keeper's output must not wait for this.
    if quiet().is_ok() && File::from(keeper).read(&mut [0]).is_ok() {
        // Nobody is left to be told.
        let _ = directory.remove_remains();
    }
}
