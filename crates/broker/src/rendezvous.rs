//! Initiators that wait for an acceptor's answer before they dial.

use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_net::rendezvous::Answer;
use isthmus_wire::proto::{self, rendezvous_reply::Way};
use tonic::Status;

use crate::waiting::{Unanswered, Waiters, Waiting};

/// How long an acceptor may take: it asks a relay how it is seen first.
const DEADLINE: Duration = Duration::from_secs(4);

/// Those who wait, by their rendezvous. Its id is random and known to the two
/// agents and what stands between them and the broker only.
pub(crate) type PendingRendezvous = Waiters<Answer>;

/// What the acceptor has answered, for the initiator.
///
/// # Errors
/// `UNAVAILABLE` if it can't, or doesn't answer in time.
pub(crate) async fn acceptors_answer(
    waiting: Waiting<'_, Answer>,
    deadline: Deadline,
) -> Result<Way, Status> {
    let deadline = deadline.part(DEADLINE);
    match waiting.answer(deadline.left()).await {
        Ok(Ok(Some(address))) => Ok(Way::AcceptorAddress(address.to_string())),
        Ok(Ok(None)) => Ok(Way::TakenIn(proto::TakenIn {})),
        Ok(Err(failure)) => Err(Status::unavailable(format!("the other side: {failure}"))),
        Err(Unanswered::Replaced) => Err(Status::unavailable("somebody else used the same rendezvous")),
        Err(Unanswered::Late) => {
            Err(Status::unavailable(format!("the other side did not answer within {:?}", deadline.limit())))
        }
    }
}
