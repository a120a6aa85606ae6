//! Tries failed steps again in the background, so that no program's connection
//! waits for them.

use std::time::{Duration, Instant};

use isthmus_net::lock;
use isthmus_net::secured::ClientTls;
use tokio::task::JoinSet;

use crate::dialer::Dialer;

/// Interval in which due steps are looked for.
const LOOK: Duration = Duration::from_secs(5);
/// Steps tried at once at most. The rest follows at the next look.
const TOGETHER: usize = 16;

/// Tries each due step, up to a TLS handshake with the other party; never returns.
pub async fn watch(dialer: &Dialer, tls: &ClientTls) {
    loop {
        tokio::time::sleep(LOOK).await;
        let due = lock(&dialer.failures).due(Instant::now());
        let mut trying = JoinSet::new();
        for due in due.into_iter().take(TOGETHER) {
            let (dialer, tls) = (dialer.clone(), tls.clone());
            trying.spawn(async move { dialer.try_again(&due, &tls).await });
        }
        trying.join_all().await;
    }
}
