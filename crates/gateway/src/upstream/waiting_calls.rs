//! Calls that wait for the broker.

use tokio::sync::watch;

/// How many calls wait for the broker.
#[derive(Debug, Default)]
pub(super) struct WaitingCalls(watch::Sender<usize>);

/// A call that waits for the broker, until this is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a watch::Sender<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl WaitingCalls {
    /// Counts a further call that waits.
    pub(super) fn waits(&self) -> Waiting<'_> {
        self.0.send_modify(|count| *count += 1);
        Waiting(&self.0)
    }

    /// Returns once any call waits.
    pub(super) async fn awaited(&self) {
        // This fails only if the sender is gone.
        let _ = self.0.subscribe().wait_for(|count| *count > 0).await;
    }
}
