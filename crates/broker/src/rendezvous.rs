//! Rendezvous whose initiator waits for the acceptor's answer before it dials.

use std::time::Duration;

use isthmus_rpc::rendezvous::Answer;
use isthmus_service::Deadline;
use isthmus_wire::proto::{self, rendezvous_reply::Way};
use tonic::Status;

use crate::waiting::{Unanswered, Waiters, Waiting};

/// How long an acceptor may take to answer. It asks a relay for its outside address first.
const DEADLINE: Duration = Duration::from_secs(4);

/// How long an acceptor may take if the initiator has this long: two thirds of it, if that is
/// longer. The initiator has more time over a long way.
fn patience(initiators: Duration) -> Duration {
    DEADLINE.max(initiators * 2 / 3)
}

/// The waiting calls, by the ids of their rendezvous. Only the two agents, their gateways and the
/// broker have the id, which is random.
pub(crate) type PendingRendezvous = Waiters<Answer>;

/// Waits for the acceptor's answer, for the initiator, and the signature in it.
///
/// # Errors
/// `UNAVAILABLE` if the acceptor can't take part, or doesn't answer in time.
pub(crate) async fn acceptors_answer(
    waiting: Waiting<'_, Answer>,
    deadline: Deadline,
) -> Result<(Way, Vec<u8>), Status> {
    let deadline = deadline.part(patience(deadline.limit()));
    match waiting.answer(deadline.left()).await {
        Ok(Ok(Some(port))) => Ok((Way::AcceptorAddress(port.address.to_string()), port.signature)),
        Ok(Ok(None)) => Ok((Way::TakenIn(proto::TakenIn {}), Vec::new())),
        Ok(Err(failure)) => Err(Status::unavailable(format!("the other side: {failure}"))),
        Err(Unanswered::Replaced) => Err(Status::unavailable("another request used the same rendezvous")),
        Err(Unanswered::Late) => {
            Err(Status::unavailable(format!("the other side did not answer within {:?}", deadline.limit())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acceptor_gets_more_time_over_a_long_way() {
        for (initiators, want) in [(0, 4_000), (6_000, 4_000), (12_000, 8_000), (30_000, 20_000)] {
            assert_eq!(patience(Duration::from_millis(initiators)), Duration::from_millis(want));
        }
    }
}
