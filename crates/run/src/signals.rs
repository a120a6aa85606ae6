//! Signals to `isthmus run`. If the terminal sent one, the command in the same
//! process group has got it, too.

use std::{fmt, io};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::unix::AsyncFd;

/// The signals that this process blocks, and reads one by one.
#[derive(Debug)]
pub(super) struct Signals {
    set: SigSet,
    source: Option<AsyncFd<SignalFd>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// The signal's number.
    pub number: i32,
    /// Whether the terminal sent the signal to the whole process group.
    pub from_terminal: bool,
}

/// The error of a run that a signal has ended before the command started.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("interrupted by {} before anything was started", .0.name())]
pub(super) struct Interrupted(pub Received);

/// In words, for instance `SIGTERM to `isthmus run``.
impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.from_terminal { "from the terminal" } else { "to `isthmus run`" };
        write!(f, "{} {from}", self.name())
    }
}

impl Received {
    fn name(self) -> &'static str {
        Signal::try_from(self.number).map_or("a signal", Signal::as_str)
    }

    /// The exit status that shells have for a process that the signal ends.
    pub(super) fn status(self) -> i32 {
        128 + self.number
    }

    /// Whether isthmus ends a command that goes on after the signal. After Ctrl-C the command
    /// decides.
    pub(crate) fn is_final(self) -> bool {
        self.number != Signal::SIGINT as i32 && !self.is_notice()
    }

    /// Whether the signal only tells the command something. By default launchers pass such a signal on to
    /// the ranks.
    pub(crate) fn is_notice(self) -> bool {
        [Signal::SIGUSR1, Signal::SIGUSR2].iter().any(|signal| *signal as i32 == self.number)
    }
}

impl Signals {
    /// Blocks the signals in this thread and in the threads that it starts.
    ///
    /// # Errors
    /// As `pthread_sigmask(3)`.
    pub(super) fn block() -> io::Result<Self> {
        let set: SigSet = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ]
        .into_iter()
        .collect();
        set.thread_block()?;
        Ok(Self { set, source: None })
    }

    /// Waits for the next signal that is to end something. Those that only tell something are for a command
    /// that runs. Never returns if signals can't be read.
    pub(super) async fn next(&mut self) -> Received {
        loop {
            let signal = self.any().await;
            if !signal.is_notice() {
                return signal;
            }
        }
    }

    /// Waits for the next signal. Never returns if signals can't be read.
    pub(super) async fn any(&mut self) -> Received {
        loop {
            if self.source.is_none() {
                let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
                // SAFETY: a SignalFd gives the same descriptor for as long as
                // it lives, and closes it only when the AsyncFd drops it.
                let register = |fd| unsafe { AsyncFd::register(fd) }.ok();
                self.source = SignalFd::with_flags(&self.set, flags).ok().and_then(register);
            }
            let Some(source) = &self.source else { return std::future::pending().await };
            let Ok(mut ready) = source.readable().await else { return std::future::pending().await };
            match ready.get_inner().read_signal() {
                Ok(Some(info)) => {
                    return Received {
                        number: i32::try_from(info.ssi_signo).unwrap_or(0),
                        from_terminal: info.ssi_code == nix::libc::SI_KERNEL,
                    };
                }
                Ok(None) | Err(_) => ready.clear_ready(),
            }
        }
    }
}
