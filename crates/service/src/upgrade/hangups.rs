//! The signal that asks for an upgrade.

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::unix::AsyncFd;

/// SIGHUP, which asks a gateway or relay for an upgrade. It is blocked in all threads and stays so
/// over `execve`. So a signal that comes meanwhile is not lost, and doesn't end the process.
#[derive(Debug)]
pub struct Hangups(AsyncFd<SignalFd>);

impl Hangups {
    fn signals() -> SigSet {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGHUP);
        signals
    }

    /// Blocks SIGHUP in the calling thread, and in the threads that it starts.
    ///
    /// # Errors
    /// As `pthread_sigmask(3)`.
    pub fn block() -> io::Result<()> {
        Ok(Self::signals().thread_block()?)
    }

    /// Runs something while SIGHUP is ignored, also by programs that begin meanwhile. For a service
    /// whose children must not begin with a blocked signal.
    #[allow(unsafe_code, reason = "sigaction(2) is for handlers, too")]
    pub fn ignoring<T>(run: impl FnOnce() -> T) -> T {
        let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        // SAFETY: nothing runs when an ignored signal comes.
        let former = unsafe { sigaction(Signal::SIGHUP, &ignore) };
        let done = run();
        if let Ok(former) = former {
            // SAFETY: it was there before.
            let _ = unsafe { sigaction(Signal::SIGHUP, &former) };
        }
        done
    }

    /// Receives the signals SIGHUP that come to this process, within a runtime.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&Self::signals(), flags)?;
        // SAFETY: a `SignalFd` owns one descriptor, and has it until it is dropped.
        #[allow(unsafe_code, reason = "nothing else tells that it has the same descriptor always")]
        let registered = unsafe { AsyncFd::register(signals) };
        Ok(Self(registered?))
    }

    /// Waits for the next SIGHUP.
    ///
    /// # Errors
    /// As `read(2)`.
    pub async fn next(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            if self.0.get_ref().read_signal()?.is_some() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}
