//! The key of tickets, and the clock by which they expire.

use std::time::SystemTime;

use isthmus_service::clock::unix_seconds;
use isthmus_service::mac::Secret;

/// A key with which the broker signs tickets. Tickets expire by the broker's clock, and a site's may be an
/// hour ahead.
#[derive(Debug, Clone)]
pub struct TicketKey {
    /// The key itself.
    pub secret: Secret,
    /// By how many seconds this machine's clock was ahead of the broker's when the key came. A clock that is
    /// behind refuses no ticket, and counts as right.
    pub(crate) ahead_seconds: u64,
}

impl TicketKey {
    /// A key that comes `now`, while the broker's clock shows `brokers_unix_seconds`, which is 0 if the
    /// broker doesn't tell.
    pub fn received(secret: Secret, brokers_unix_seconds: u64, now: SystemTime) -> Self {
        match brokers_unix_seconds {
            0 => secret.into(),
            told => Self { secret, ahead_seconds: unix_seconds(now).saturating_sub(told) },
        }
    }
}

/// A key from a broker that has the time of this machine.
impl From<Secret> for TicketKey {
    fn from(secret: Secret) -> Self {
        Self { secret, ahead_seconds: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_clock_is_ahead_by_what_the_broker_tells() {
        let now = UNIX_EPOCH + Duration::from_secs(10_000);
        for (told, want) in [(0, 0), (10_000, 0), (6_400, 3_600), (13_600, 0), (u64::MAX, 0)] {
            let key = Secret::from_slice(&[7; 32]).unwrap();
            assert_eq!(TicketKey::received(key, told, now).ahead_seconds, want, "{told}");
        }
    }
}
