//! Initiators that wait for an acceptor's answer before they dial.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isthmus_wire::{ConnectionId, proto};
use tokio::sync::oneshot;
use tonic::Status;

/// How long an acceptor may take: it asks a relay how it is seen first.
const DEADLINE: Duration = Duration::from_secs(4);

/// Those who wait, by their meeting. Its id is random and known to the two
/// agents and what stands between them and the broker only.
#[derive(Debug, Default)]
pub(crate) struct Meetings(Mutex<HashMap<ConnectionId, oneshot::Sender<proto::DialAnswer>>>);

/// One who waits; gone when dropped.
pub(crate) struct Waiting<'a> {
    meetings: &'a Meetings,
    meeting: ConnectionId,
    answer_rx: oneshot::Receiver<proto::DialAnswer>,
}

impl Meetings {
    /// Begins to wait; to be called before the acceptor is asked.
    pub(crate) fn wait_for(&self, meeting: ConnectionId) -> Waiting<'_> {
        let (answer_tx, answer_rx) = oneshot::channel();
        self.lock().insert(meeting, answer_tx);
        Waiting { meetings: self, meeting, answer_rx }
    }

    /// An acceptor answered; it may be too late.
    pub(crate) fn answer(&self, answer: proto::DialAnswer) {
        let waiting = ConnectionId::try_from(answer.meeting.as_slice())
            .ok()
            .and_then(|meeting| self.lock().remove(&meeting));
        if let Some(answer_tx) = waiting {
            let _ = answer_tx.send(answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionId, oneshot::Sender<proto::DialAnswer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting<'_> {
    /// Where the acceptor dials from, as it is seen from outside.
    ///
    /// # Errors
    /// `UNAVAILABLE` if it can't, or doesn't answer in time.
    pub(crate) async fn answer(mut self) -> Result<String, Status> {
        match tokio::time::timeout(DEADLINE, &mut self.answer_rx).await {
            Ok(Ok(answer)) if answer.failure.is_empty() => Ok(answer.address),
            Ok(Ok(answer)) => Err(Status::unavailable(format!("the other side: {}", answer.failure))),
            Ok(Err(_)) => Err(Status::unavailable("somebody else used the same meeting")),
            Err(_) => Err(Status::unavailable(format!("the other side did not answer within {DEADLINE:?}"))),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Unless somebody else has the same id, whose turn it is then.
        self.answer_rx.close();
        let mut waiting = self.meetings.lock();
        if waiting.get(&self.meeting).is_some_and(oneshot::Sender::is_closed) {
            waiting.remove(&self.meeting);
        }
    }
}
