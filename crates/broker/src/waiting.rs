//! Calls that wait for an answer on the stream of another party.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use isthmus_service::lock;
use isthmus_wire::ConnectionId;
use tokio::sync::oneshot;

type Answers<T> = HashMap<ConnectionId, oneshot::Sender<T>>;

/// The waiting calls, by the id that the answer carries.
#[derive(Debug)]
pub(crate) struct Waiters<T>(Mutex<Answers<T>>);

/// A call that waits. Dropping it ends the wait.
pub(crate) struct Waiting<'a, T> {
    waiters: &'a Waiters<T>,
    id: ConnectionId,
    answer_rx: oneshot::Receiver<T>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The answer didn't arrive in time.
    Late,
    /// Another call waits for an answer with the same id.
    Replaced,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Waiters<T> {
    /// Begins to wait; to be called before the request is sent.
    pub(crate) fn wait_for(&self, id: ConnectionId) -> Waiting<'_, T> {
        let (answer_tx, answer_rx) = oneshot::channel();
        lock(&self.0).insert(id, answer_tx);
        Waiting { waiters: self, id, answer_rx }
    }

    /// Takes an answer, which may come too late. `id` is the 16 bytes that the answer carries.
    pub(crate) fn answer(&self, id: &[u8], answer: T) {
        let id = ConnectionId::try_from(id).ok();
        if let Some(answer_tx) = id.and_then(|id| lock(&self.0).remove(&id)) {
            let _ = answer_tx.send(answer);
        }
    }
}

impl<T> Waiting<'_, T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// [`Unanswered`] says why there is none.
    pub(crate) async fn answer(mut self, deadline: Duration) -> Result<T, Unanswered> {
        let answer = tokio::time::timeout(deadline, &mut self.answer_rx).await;
        answer.map_err(|_| Unanswered::Late)?.map_err(|_| Unanswered::Replaced)
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        // The entry may belong to a later call with the same id.
        self.answer_rx.close();
        let mut waiting = lock(&self.waiters.0);
        if waiting.get(&self.id).is_some_and(oneshot::Sender::is_closed) {
            waiting.remove(&self.id);
        }
    }
}
