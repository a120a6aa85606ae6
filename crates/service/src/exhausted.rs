//! Resources that have run out here, named for users.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

/// How long there must be no further failure for a spell of failures to end.
const CALM: Duration = Duration::from_secs(10);

/// A resource that has run out. As text it follows the name of the node or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// Descriptors of this process.
    Descriptors {
        /// How many descriptors the process may have.
        limit: u64,
    },
    /// Descriptors of the whole machine.
    Files,
    /// Memory of the machine or of the kernel.
    Memory,
    /// Space in a file system.
    Disk,
    /// The user's share of a file system.
    Quota,
}

impl Exhausted {
    /// The resource whose lack an error stands for; `None` for any other error.
    pub fn of(error: &io::Error) -> Option<Self> {
        match Errno::from_raw(error.raw_os_error()?) {
            Errno::EMFILE => {
                let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
                Some(Self::Descriptors { limit })
            }
            Errno::ENFILE => Some(Self::Files),
            Errno::ENOMEM | Errno::ENOBUFS => Some(Self::Memory),
            Errno::ENOSPC => Some(Self::Disk),
            Errno::EDQUOT => Some(Self::Quota),
            _ => None,
        }
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptors { limit } => write!(
                f,
                "has no file descriptors left (limit {limit}): raise LimitNOFILE= of its service, or `ulimit -n`"
            ),
            Self::Files => {
                f.write_str("has no file descriptors left on its whole machine: raise the sysctl fs.file-max")
            }
            Self::Memory => f.write_str("has no memory left"),
            Self::Disk => f.write_str("has no space left on its disk"),
            Self::Quota => f.write_str("has used up its user's disk quota"),
        }
    }
}

/// The text of an error, for messages. An error for lack of a resource has the resource's name.
pub fn text(error: &io::Error) -> String {
    match Exhausted::of(error) {
        Some(exhausted) => format!("this process {exhausted}"),
        None => error.to_string(),
    }
}

/// Failures that follow one another, of which only the first is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spell {
    /// When the first and the last failure of the spell were.
    failed: Option<(Instant, Instant)>,
}

impl Spell {
    /// Notes a failure. Returns for how long the spell has lasted; zero if it begins.
    pub fn failed(&mut self, now: Instant) -> Duration {
        let first = match self.failed {
            Some((first, last)) if now.saturating_duration_since(last) < CALM => first,
            _ => now,
        };
        self.failed = Some((first, now));
        now.saturating_duration_since(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_run_out_is_named() {
        let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let descriptors = format!("this process has no file descriptors left (limit {limit}): raise ");
        for (errno, want) in [
            (Errno::EMFILE, descriptors.as_str()),
            (Errno::ENFILE, "this process has no file descriptors left on its whole machine"),
            (Errno::ENOMEM, "this process has no memory left"),
            (Errno::ENOSPC, "this process has no space left on its disk"),
            (Errno::EDQUOT, "this process has used up its user's disk quota"),
            (Errno::ECONNREFUSED, "Connection refused"),
        ] {
            let told = text(&io::Error::from(errno));
            assert!(told.starts_with(want), "{errno}: {told}");
        }
        assert_eq!(text(&io::Error::other("it panicked")), "it panicked");
    }

    #[test]
    fn a_spell_lasts_until_it_is_calm() {
        let began = Instant::now();
        let mut spell = Spell::default();
        for (at, want) in [(0, 0), (1, 1), (9, 9), (18, 18), (28, 0), (37, 9), (100, 0)] {
            let lasted = spell.failed(began + Duration::from_secs(at));
            assert_eq!(lasted, Duration::from_secs(want), "{at}");
        }
    }
}
