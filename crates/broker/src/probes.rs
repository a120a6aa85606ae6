//! Agents that wait for what a relay met when it dialed them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isthmus_wire::{ConnectionId, proto};
use tokio::sync::oneshot;
use tonic::Status;

/// How long a relay may take: 3 s to dial, and the way there and back.
const DEADLINE: Duration = Duration::from_secs(4);

/// Those who wait, by the id of the order, which only the relay knows.
#[derive(Debug, Default)]
pub(crate) struct Probes(Mutex<HashMap<ConnectionId, oneshot::Sender<proto::ProbeReply>>>);

/// One who waits; gone when dropped.
pub(crate) struct Waiting<'a> {
    probes: &'a Probes,
    id: ConnectionId,
    reply_rx: oneshot::Receiver<proto::ProbeReply>,
}

impl Probes {
    /// Begins to wait; to be called before the relay is told.
    pub(crate) fn wait_for(&self, id: ConnectionId) -> Waiting<'_> {
        let (reply_tx, reply_rx) = oneshot::channel();
        self.lock().insert(id, reply_tx);
        Waiting { probes: self, id, reply_rx }
    }

    /// A relay told; it may be too late.
    pub(crate) fn report(&self, report: proto::ProbeReport) {
        let id = ConnectionId::try_from(report.id.as_slice()).ok();
        if let Some(reply_tx) = id.and_then(|id| self.lock().remove(&id)) {
            let _ = reply_tx.send(report.reply.unwrap_or_default());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionId, oneshot::Sender<proto::ProbeReply>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting<'_> {
    /// What the relay met.
    ///
    /// # Errors
    /// `UNAVAILABLE` if it doesn't tell in time.
    pub(crate) async fn reply(mut self) -> Result<proto::ProbeReply, Status> {
        match tokio::time::timeout(DEADLINE, &mut self.reply_rx).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) | Err(_) => {
                Err(Status::unavailable(format!("the relay did not answer within {DEADLINE:?}")))
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.probes.lock().remove(&self.id);
    }
}
