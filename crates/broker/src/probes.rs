//! Calls that wait for the result of a probe.

use std::time::Duration;

use isthmus_wire::proto;
use tonic::Status;

use crate::waiting::{Waiters, Waiting};

/// How long a relay may take: 3 s to dial, and the way to the relay and back.
const DEADLINE: Duration = Duration::from_secs(4);

/// The waiting calls, by the ids of their orders. Only the relay that is ordered has the id.
pub(crate) type Probes = Waiters<proto::ProbeReply>;

/// Waits for the relay's result.
///
/// # Errors
/// `UNAVAILABLE` if the result doesn't arrive in time.
pub(crate) async fn reply(waiting: Waiting<'_, proto::ProbeReply>) -> Result<proto::ProbeReply, Status> {
    let late = |_| Status::unavailable(format!("the relay did not answer within {DEADLINE:?}"));
    waiting.answer(DEADLINE).await.map_err(late)
}
