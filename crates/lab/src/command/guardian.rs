//! A child that tidies up when its parent is killed without a chance to.

use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe2, read, setsid, write};

use crate::process::drop_standard_streams;

/// A child process that waits for the end of this process.
#[derive(Debug)]
pub(super) struct Guardian {
    child: Pid,
    pipe: OwnedFd,
}

/// Starts a guardian, which calls `tidy` when this process ends without dismissing it. The caller
/// must have one thread only.
pub(super) fn start(tidy: impl FnOnce()) -> nix::Result<Guardian> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: there is one thread only.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Guardian { child, pipe: writer }),
        ForkResult::Child => {
            drop(writer);
            // What ends the terminal's processes mustn't end the guardian.
            let _ = setsid();
            // A reader of the parent's output must not wait for this process.
            let _ = drop_standard_streams();
            let dismissed = loop {
                match read(&reader, &mut [0]) {
                    Err(nix::Error::EINTR) => {}
                    result => break result == Ok(1),
                }
            };
            if !dismissed {
                tidy();
            }
            std::process::exit(0)
        }
    }
}

impl Guardian {
    /// Ends the guardian, as nothing is left to tidy up.
    pub(crate) fn dismiss(self) {
        // A killed child needs no message.
        let _ = write(&self.pipe, &[1]);
        let _ = waitpid(self.child, None);
    }
}
