//! Tries again, in the background, what failed not long ago: a program's
//! connection waits for no better way than is known to work.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::job::lock;
use crate::reach::Reacher;

/// How often it is looked whether anything is due.
const LOOK: Duration = Duration::from_secs(5);
/// Tried at once at most; the rest is due at the next look.
const TOGETHER: usize = 16;

/// Keeps trying; never returns.
pub async fn watch(reacher: &Reacher) {
    loop {
        tokio::time::sleep(LOOK).await;
        let due = lock(&reacher.failures).due(Instant::now());
        let mut trying = JoinSet::new();
        for due in due.into_iter().take(TOGETHER) {
            let reacher = reacher.clone();
            trying.spawn(async move { reacher.try_again(&due).await });
        }
        trying.join_all().await;
    }
}
