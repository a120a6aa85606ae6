//! One time limit for work that has several parts.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// The moment by which all parts of a piece of work must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    limit: Duration,
    at: Instant,
}

/// The work was not done by its deadline. Has the time that the work had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {0:?}")]
pub struct Late(pub Duration);

impl Deadline {
    /// The deadline of work that begins now.
    pub fn within(limit: Duration) -> Self {
        Self { limit, at: Instant::now() + limit }
    }

    /// The deadline of a part that begins now. The part ends within `limit`, and no later than the
    /// whole work.
    #[must_use]
    pub fn part(self, limit: Duration) -> Self {
        let part = Self::within(limit);
        if part.at < self.at { part } else { self }
    }

    /// The time that the work had when it began; for messages.
    pub fn limit(self) -> Duration {
        self.limit
    }

    /// The time that is left.
    pub fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// When the work must be done.
    pub fn at(self) -> Instant {
        self.at
    }

    /// Does the work; cancels it at the deadline.
    ///
    /// # Errors
    /// [`Late`] if it wasn't done by then.
    pub async fn bound<T>(self, work: impl Future<Output = T>) -> Result<T, Late> {
        timeout_at(self.at, work).await.map_err(|_| Late(self.limit))
    }
}

impl From<Duration> for Deadline {
    fn from(limit: Duration) -> Self {
        Self::within(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parts_end_with_the_whole() {
        let whole = Deadline::within(Duration::from_millis(30));
        assert!(whole.part(Duration::from_millis(1)).left() <= Duration::from_millis(1));
        assert_eq!(whole.part(Duration::from_secs(9)), whole);
        let late = whole.bound(std::future::pending::<()>()).await;
        assert_eq!((late, whole.left()), (Err(Late(Duration::from_millis(30))), Duration::ZERO));
    }
}
