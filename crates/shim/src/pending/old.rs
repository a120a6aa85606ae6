//! Sockets that were exchanged a moment ago.

use std::time::{Duration, Instant};

use crate::kept::Kept;

/// How long after an exchange the sleepers on the old socket are woken again. A thread that enters
/// poll or select in that very moment may have looked up the old socket. It may then go to sleep on
/// that socket after its sleepers were woken.
pub(crate) const AGAIN: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(10), Duration::from_millis(100)];

/// A socket that has been exchanged, kept to wake the threads that sleep on it.
pub(crate) struct Old {
    pub(crate) socket: Kept,
    pub(crate) exchanged: Instant,
    /// How often its sleepers have been woken again.
    pub(crate) woken: usize,
    /// How often its sleepers are to be woken again.
    pub(crate) times: usize,
}

impl Old {
    /// The descriptor of the old socket, to be moved.
    pub(crate) fn kept_mut(&mut self) -> &mut Kept {
        &mut self.socket
    }

    /// When the sleepers are woken next; `None` if they need no more of that.
    pub(crate) fn next(&self) -> Option<Instant> {
        AGAIN.get(self.woken).filter(|_| self.woken < self.times).map(|after| self.exchanged + *after)
    }
}
