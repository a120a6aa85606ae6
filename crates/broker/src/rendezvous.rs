//! Rendezvous whose initiator waits for the acceptor's answer before it dials.

use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_net::rendezvous::Answer;
use isthmus_wire::proto::{self, rendezvous_reply::Way};
use tonic::Status;

use crate::waiting::{Unanswered, Waiters, Waiting};

/// How long an acceptor may take: it asks a relay for its outside address first.
const DEADLINE: Duration = Duration::from_secs(4);

/// The same where the initiator has more time, because the way is long: two thirds of that.
fn patience(initiators: Duration) -> Duration {
    DEADLINE.max(initiators * 2 / 3)
}

/// The waiting calls, by their rendezvous. Only the two agents, their gateways and
/// the broker have its id, which is random.
pub(crate) type PendingRendezvous = Waiters<Answer>;

/// The acceptor's answer, for the initiator, and the signature in it.
///
/// # Errors
/// `UNAVAILABLE` if it can't, or doesn't answer in time.
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
