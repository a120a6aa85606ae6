//! Work in the background that goes on for ever. If a part of it fails by a panic, the
//! service goes on, and the part is started again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::error;

/// First and longest pause before work that has ended is started again. The pause doubles each
/// time.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long work must have gone on for its end not to count as a further failure.
const STEADY: Duration = Duration::from_secs(60);

/// Does the work, and starts it again when it panics or ends, which it should not. Never returns.
/// `what` names the work in the log, such as "probing".
pub async fn keep<F: Future>(what: &str, work: impl Fn() -> F) -> std::convert::Infallible {
    let mut pause = PAUSE.0;
    loop {
        let begun = Instant::now();
        let how = if panics(work()).await { "has failed by a panic" } else { "has ended" };
        if begun.elapsed() >= STEADY {
            pause = PAUSE.0;
        }
        error!(what, retry_in = ?pause, "a part of this service {how}: it is started again");
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Does the work. Returns whether it panicked. Its state is dropped then, and locks of this
/// workspace stay usable.
async fn panics(work: impl Future) -> bool {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(|_| false),
        Err(_) => Poll::Ready(true),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_fails_or_ends_is_started_again_after_pauses_that_double() {
        let (begun, starts) = (Instant::now(), Cell::new(0_u32));
        let at = std::cell::RefCell::new(Vec::new());
        let work = || {
            let start = starts.replace(starts.get() + 1);
            at.borrow_mut().push(begun.elapsed().as_secs());
            async move {
                match start {
                    0 => panic!("on purpose"),
                    1 | 2 => {}
                    3 => sleep(STEADY).await,
                    _ => std::future::pending().await,
                }
            }
        };
        assert!(timeout(Duration::from_secs(3600), keep("a test", work)).await.is_err());
        // The work that went on for a minute is started again soon.
        assert_eq!(*at.borrow(), [0, 1, 3, 7, 68]);
    }
}
