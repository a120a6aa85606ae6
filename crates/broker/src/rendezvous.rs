//! Initiators that wait for an acceptor's answer before they dial.

use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_wire::proto;
use tonic::Status;

use crate::waiting::{Unanswered, Waiters, Waiting};

/// How long an acceptor may take: it asks a relay how it is seen first.
const DEADLINE: Duration = Duration::from_secs(4);

/// Those who wait, by their rendezvous. Its id is random and known to the two
/// agents and what stands between them and the broker only.
pub(crate) type PendingRendezvous = Waiters<proto::DialAnswer>;

/// Where the acceptor dials from, as it is seen from outside.
///
/// # Errors
/// `UNAVAILABLE` if it can't, or doesn't answer in time.
pub(crate) async fn acceptor_address(
    waiting: Waiting<'_, proto::DialAnswer>,
    deadline: Deadline,
) -> Result<String, Status> {
    let deadline = deadline.part(DEADLINE);
    match waiting.answer(deadline.left()).await {
        Ok(answer) if answer.failure.is_empty() => Ok(answer.address),
        Ok(answer) => Err(Status::unavailable(format!("the other side: {}", answer.failure))),
        Err(Unanswered::Replaced) => Err(Status::unavailable("somebody else used the same rendezvous")),
        Err(Unanswered::Late) => {
            Err(Status::unavailable(format!("the other side did not answer within {:?}", deadline.limit())))
        }
    }
}
