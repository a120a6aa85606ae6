//! Until when the search may go on.

use std::time::{Duration, Instant};

/// An end of time. It changes nothing but whether a search goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    end: Option<Instant>,
}

#[allow(clippy::disallowed_methods, reason = "a search must end; what it decides doesn't depend on the time")]
impl Deadline {
    /// `limit` from now; never, if that is beyond what a clock can tell.
    pub(crate) fn after(limit: Duration) -> Self {
        Self { end: Instant::now().checked_add(limit) }
    }

    /// When a part of what is left, in hundredths, is over.
    pub(crate) fn part(&self, hundredths: u32) -> Self {
        match self.left() {
            Some(left) => Self::after(left / 100 * hundredths.min(100)),
            None => *self,
        }
    }

    /// What is left; `None` if there is no end.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}
