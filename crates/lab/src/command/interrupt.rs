//! Commands that end by ctrl-C, and tidy up before.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that ask a process to end.
pub(super) const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Turns signals that would end the process into something to wait for.
#[derive(Debug)]
pub(super) struct Interrupt {
    signals: SignalFd,
}

impl Interrupt {
    /// Blocks the signals that ask this process to end, so that they can be waited for.
    pub(super) fn prepare() -> nix::Result<Self> {
        let set: SigSet = ENDING.into_iter().collect();
        set.thread_block()?;
        Ok(Self { signals: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)? })
    }

    /// Waits for `time` or a signal. Returns whether a signal came.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the time has passed afterwards.
            let patience =
                PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, patience) {
                Ok(0) if Instant::now() >= deadline => return false,
                Ok(0) | Err(nix::Error::EINTR) => {}
                Ok(_) | Err(_) => return true,
            }
        }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}
