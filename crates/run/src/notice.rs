//! The signal that a command gets before the time of its nodes is over, as sbatch(1) gives it by `--signal`.

use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use isthmus_common::time::whole_seconds;
use isthmus_front::output::message;
use nix::sys::signal::{Signal, kill};
use nix::unistd::getpid;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::allocation;
use crate::args::RunArgs;
use crate::given::Given;

/// How long before the end the command gets its signal, if the user doesn't say: as sbatch(1).
const BEFORE: Duration = Duration::from_secs(60);

/// How long a command may take until it handles the signal: by its default action that would end it.
const READY: Duration = Duration::from_secs(10);

/// What ends when the time of a batch job is nearly over, and tells so in words.
pub(crate) type End = Pin<Box<dyn Future<Output = String> + Send>>;

/// A signal, and how long before the end it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notice {
    signal: Signal,
    /// How long before the end the signal comes.
    pub before: Duration,
}

impl FromStr for Notice {
    type Err = String;

    /// Reads `SIGNAL[@TIME]`, such as `USR1@5m`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (signal, before) =
            text.split_once('@').map_or((text, None), |(signal, time)| (signal, Some(time)));
        let signal = match signal.strip_prefix("SIG").unwrap_or(signal) {
            "USR1" => Signal::SIGUSR1,
            "USR2" => Signal::SIGUSR2,
            _ => return Err("give USR1 or USR2, and a time, such as USR1@5m".to_owned()),
        };
        Ok(Self { signal, before: before.map_or(Ok(BEFORE), whole_seconds)? })
    }
}

impl Notice {
    /// What tells when the command gets the signal: the end of the first batch job that gives nodes, or that
    /// this process is in. `None` if there is none, and a profile has chosen the nodes.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn of(self, args: &RunArgs, given: Option<&Given>) -> anyhow::Result<Option<End>> {
        let given = given.and_then(|given| given.nears_end(self.before));
        let own = if args.no_allocation { None } else { allocation::of_this_process().ok().flatten() };
        let own = own.map(|own| allocation::nears_end(own.job, self.before));
        match (given, own) {
            (Some(given), Some(own)) => Ok(Some(Box::pin(async {
                tokio::select! {
                    text = given => text,
                    text = own => text,
                }
            }))),
            (Some(given), None) => Ok(Some(given)),
            (None, Some(own)) => Ok(Some(Box::pin(own))),
            (None, None) if args.profile.is_some() => Ok(None),
            (None, None) => bail!("--signal is for nodes of batch schedulers: --pilots asks for some"),
        }
    }

    /// Once `end` tells that the end is near, sends this process the signal, as a user may do. The process
    /// passes it on to its command, which has just started.
    pub(crate) fn once(self, end: End, quiet: bool) -> JoinHandle<()> {
        tokio::spawn(async move {
            sleep(READY).await;
            let text = end.await;
            if !quiet {
                message(&format!("{text}; the command gets {}", self.signal));
            }
            // It can't fail: the process is this one.
            let _ = kill(getpid(), self.signal);
        })
    }
}

/// That a batch job ends, in words for the user.
pub(crate) fn ends_in(name: &str, left: Duration) -> String {
    format!("{name} ends in {} s, by its time limit", left.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_and_a_time() {
        for (text, want) in [
            ("USR1@5m", Some((Signal::SIGUSR1, 300))),
            ("SIGUSR2@90s", Some((Signal::SIGUSR2, 90))),
            ("USR2", Some((Signal::SIGUSR2, 60))),
            ("TERM@5m", None),
            ("USR1@", None),
            ("@5m", None),
            ("", None),
        ] {
            let read = text.parse::<Notice>().ok().map(|read| (read.signal, read.before.as_secs()));
            assert_eq!(read, want, "{text}");
        }
    }
}
