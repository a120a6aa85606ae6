//! Calls that wait for an answer which comes on somebody else's stream.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::lock;
use isthmus_wire::ConnectionId;
use tokio::sync::oneshot;

type Answers<T> = HashMap<ConnectionId, oneshot::Sender<T>>;

/// Those who wait, by an id that comes back with the answer.
#[derive(Debug)]
pub(crate) struct Waiters<T>(Mutex<Answers<T>>);

/// One who waits; gone when dropped.
pub(crate) struct Waiting<'a, T> {
    waiters: &'a Waiters<T>,
    id: ConnectionId,
    answer_rx: oneshot::Receiver<T>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It didn't come in time.
    Late,
    /// Somebody else has begun to wait with the same id.
    Replaced,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Waiters<T> {
    /// Begins to wait; to be called before whoever answers is asked.
    pub(crate) fn wait_for(&self, id: ConnectionId) -> Waiting<'_, T> {
        let (answer_tx, answer_rx) = oneshot::channel();
        lock(&self.0).insert(id, answer_tx);
        Waiting { waiters: self, id, answer_rx }
    }

    /// The answer came; it may be too late. `id` is as it was sent.
    pub(crate) fn answer(&self, id: &[u8], answer: T) {
        let id = ConnectionId::try_from(id).ok();
        if let Some(answer_tx) = id.and_then(|id| lock(&self.0).remove(&id)) {
            let _ = answer_tx.send(answer);
        }
    }
}

impl<T> Waiting<'_, T> {
    /// The answer.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub(crate) async fn answer(mut self, deadline: Duration) -> Result<T, Unanswered> {
        let answer = tokio::time::timeout(deadline, &mut self.answer_rx).await;
        answer.map_err(|_| Unanswered::Late)?.map_err(|_| Unanswered::Replaced)
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        // Unless somebody else has the same id, whose turn it is then.
        self.answer_rx.close();
        let mut waiting = lock(&self.waiters.0);
        if waiting.get(&self.id).is_some_and(oneshot::Sender::is_closed) {
            waiting.remove(&self.id);
        }
    }
}
