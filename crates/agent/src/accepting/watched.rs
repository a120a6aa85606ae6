//! When the agent looks at a knock that no shim has fetched, and what follows from the looks.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Time between two looks at a knock that isn't fetched. A shim fetches within milliseconds.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks at a knock on which the agent carries the connection: only its end is
/// awaited.
const LATER: Duration = Duration::from_secs(30);

/// What the kernel tells of a knock that isn't fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nowhere,
    /// The knock is in the listener's queue.
    Queued,
    /// A process has accepted the knock.
    Accepted,
}

/// What follows from a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The knock has ended: there is nothing left to look at.
    Goes,
    Stays,
    /// A program has taken the knock past its shim.
    IsPast,
}

/// A knock that isn't fetched, with the results of the looks at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// The address of the listener that was knocked at.
    pub to: SocketAddrV4,
    /// When the connection is looked at next; `None` before the kernel has it in the listener's
    /// queue. A full queue drops the connection, and it is sent again.
    next_look: Option<Instant>,
    was_accepted: bool,
    /// A program has taken the knock past its shim, so the agent carries the connection on it.
    pub is_past: bool,
}

impl Watched {
    pub(crate) fn new(to: SocketAddrV4) -> Self {
        Self { to, next_look: None, was_accepted: false, is_past: false }
    }

    /// Notes that the kernel has the connection in the listener's queue.
    pub(crate) fn queued(&mut self, now: Instant) {
        self.next_look = Some(now + INTERVAL);
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next_look.is_some_and(|next| next <= now)
    }

    /// Takes in where a look has found the knock. A knock that two looks find accepted is past its
    /// shim: a shim fetches it in less time than passes between them.
    pub(crate) fn look(&mut self, found: Found, now: Instant) -> Look {
        self.next_look = Some(now + if self.is_past { LATER } else { INTERVAL });
        match found {
            Found::Nowhere => return Look::Goes,
            Found::Queued => {}
            Found::Accepted if self.was_accepted && !self.is_past => {
                self.is_past = true;
                return Look::IsPast;
            }
            Found::Accepted => self.was_accepted = true,
        }
        Look::Stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knock_is_past_once_it_was_accepted_for_long() {
        use Found::{Accepted, Nowhere, Queued};
        use Look::{Goes, IsPast, Stays};
        let start = Instant::now();
        for (what, finds, want) in [
            ("accepted", &[Queued, Accepted, Accepted, Accepted][..], &[Stays, Stays, IsPast, Stays][..]),
            ("never", &[Queued, Queued, Queued, Nowhere], &[Stays, Stays, Stays, Goes]),
            ("closed", &[Accepted, Nowhere], &[Stays, Goes]),
            ("closed later", &[Accepted, Accepted, Nowhere], &[Stays, IsPast, Goes]),
        ] {
            let mut watched = Watched::new("127.64.0.1:80".parse().unwrap());
            let mut now = start;
            assert!(!watched.is_due(now + LATER), "{what}");
            watched.queued(now);
            assert!(!watched.is_due(now), "{what}");
            for (found, want) in finds.iter().zip(want) {
                now += INTERVAL;
                assert!(watched.is_due(now), "{what}");
                assert_eq!(watched.look(*found, now), *want, "{what}: {found:?}");
                assert!(!watched.is_due(now), "{what}");
                if *want == IsPast {
                    now += LATER;
                }
            }
        }
    }
}
