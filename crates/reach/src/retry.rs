//! Tries again, in the background, what failed not long ago: a program's
//! connection waits for no better way than is known to work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_net::lock;
use tokio::task::JoinSet;
use tokio_rustls::rustls::ClientConfig;

use crate::dialer::Dialer;

/// How often it is looked whether anything is due.
const LOOK: Duration = Duration::from_secs(5);
/// Tried at once at most; the rest is due at the next look.
const TOGETHER: usize = 16;

/// Keeps trying, by a TLS handshake with the other party; never returns.
pub async fn watch(dialer: &Dialer, tls: &Arc<ClientConfig>) {
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
