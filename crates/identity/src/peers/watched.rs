//! The certificate of one connection's peer, for as long as the connection lasts.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::{Certified, Peers, Refusal};
use crate::Identity;

/// Longest wait until the certificate is checked again. The machine's clock may be set
/// meanwhile.
const CHECK: Duration = Duration::from_secs(600);

/// The certificate of a connection's peer, as a future. It is ready with the reason once the
/// connection must end.
pub struct WatchedCertificate {
    certificate: Arc<Certified>,
    ended: Pin<Box<dyn Future<Output = Refusal> + Send + Sync>>,
    _open: Arc<()>,
}

impl fmt::Debug for WatchedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchedCertificate").field(&self.certificate).finish()
    }
}

impl WatchedCertificate {
    pub(super) fn new(peers: Peers, certificate: Certified, open: Arc<()>) -> Self {
        let certificate = Arc::new(certificate);
        let ended = Box::pin(ended(peers, certificate.clone()));
        Self { certificate, ended, _open: open }
    }

    /// The identity in the certificate.
    pub fn identity(&self) -> &Identity {
        &self.certificate.identity
    }
}

/// Returns the reason once a connection must end whose peer has this certificate. Never returns for
/// a peer without a certificate.
pub async fn refused(certificate: Option<WatchedCertificate>) -> Refusal {
    match certificate {
        Some(certificate) => certificate.await,
        None => std::future::pending().await,
    }
}

impl Future for WatchedCertificate {
    type Output = Refusal;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Refusal> {
        self.ended.as_mut().poll(cx)
    }
}

async fn ended(peers: Peers, certificate: Arc<Certified>) -> Refusal {
    let mut changed = peers.0.changed.subscribe();
    loop {
        changed.borrow_and_update();
        let now = SystemTime::now();
        let until = match peers.until(&certificate, now) {
            Ok(until) => until,
            Err(refusal) => return refusal,
        };
        let left = until.duration_since(now).unwrap_or_default();
        tokio::select! {
            () = sleep(left.min(CHECK)) => {}
            // The sender is in `peers`.
            _ = changed.changed() => {}
        }
    }
}
