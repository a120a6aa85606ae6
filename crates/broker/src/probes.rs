//! Calls that wait for the result of a probe.

use std::time::Duration;

use isthmus_wire::proto;
use tonic::Status;

use crate::waiting::{Waiters, Waiting};

/// How long a relay may take: 3 s to dial, and the way there and back.
const DEADLINE: Duration = Duration::from_secs(4);

/// The waiting calls, by the id of the order. Only the relay has that id.
pub(crate) type Probes = Waiters<proto::ProbeReply>;

/// The relay's result.
///
/// # Errors
/// `UNAVAILABLE` if it doesn't arrive in time.
pub(crate) async fn reply(waiting: Waiting<'_, proto::ProbeReply>) -> Result<proto::ProbeReply, Status> {
    let late = |_| Status::unavailable(format!("the relay did not answer within {DEADLINE:?}"));
    waiting.answer(DEADLINE).await.map_err(late)
}
