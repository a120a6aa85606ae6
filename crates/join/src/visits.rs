//! Who is expected to come to the port outside, to show that it is reached.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use isthmus_wire::ConnectionId;
use tokio::sync::oneshot;

/// All of them.
#[derive(Debug, Default)]
pub struct Visits(Mutex<HashMap<ConnectionId, oneshot::Sender<()>>>);

/// One of them; nobody is expected any more once it is dropped.
#[derive(Debug)]
pub struct Visit<'a> {
    visits: &'a Visits,
    number: ConnectionId,
    came_rx: oneshot::Receiver<()>,
}

impl Visits {
    /// Begins to expect somebody who knows this number.
    pub fn expect(&self, number: ConnectionId) -> Visit<'_> {
        let (came_tx, came_rx) = oneshot::channel();
        self.lock().insert(number, came_tx);
        Visit { visits: self, number, came_rx }
    }

    /// Somebody came; `false` if nobody was expected with this number.
    pub fn come(&self, number: ConnectionId) -> bool {
        self.lock().remove(&number).is_some_and(|came_tx| came_tx.send(()).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionId, oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit<'_> {
    /// Waits until they come; for ever, if need be.
    pub async fn came(&mut self) {
        if (&mut self.came_rx).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.visits.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_who_is_expected_counts_and_once() {
        let visits = Visits::default();
        let (right, wrong) = (ConnectionId([1; 16]), ConnectionId([2; 16]));
        let mut visit = visits.expect(right);
        assert!(!visits.come(wrong) && visits.come(right) && !visits.come(right));
        visit.came().await;
        drop(visits.expect(wrong));
        assert!(!visits.come(wrong), "nobody is expected any more");
    }
}
