//! Whether a relay reaches this agent at one address: it dials there and says
//! what this agent alone knows, so that only the right node counts.

use std::time::Duration;

use isthmus_net::grpc;
use isthmus_plan::{Reach, Reachability};
use isthmus_wire::proto::{ProbeKind, ProbeOutcome, ProbeReply, ProbeRequest};
use tonic::Status;

use super::Probing;

/// How much later than the relay's word that it is connected its connection may
/// come.
const LAG: Duration = Duration::from_secs(2);

/// Has a relay try to reach this agent.
pub(super) async fn reach(probing: &Probing, relay: &str, address: &str) -> Reach {
    let mut meeting = probing.meetings.begin();
    let request = ProbeRequest {
        relay: relay.to_owned(),
        kind: ProbeKind::ProbeDial.into(),
        address: address.to_owned(),
        nonce: meeting.id().0.to_vec(),
        ..ProbeRequest::default()
    };
    let probe = probing.upstream.probe(request);
    tokio::pin!(probe);
    let (came, reply) = tokio::select! {
        stream = meeting.stream() => (stream.is_some(), None),
        reply = &mut probe => {
            let came = match &reply {
                Ok(reply) if reply.outcome() == ProbeOutcome::Connected => {
                    tokio::time::timeout(LAG, meeting.stream()).await.is_ok_and(|stream| stream.is_some())
                }
                Ok(_) | Err(_) => false,
            };
            (came, Some(reply))
        }
    };
    let (result, detail) = judged(came, reply);
    Reach { result, address: address.to_owned(), relay: relay.to_owned(), detail }
}

/// What follows from what came here and what the relay tells.
fn judged(came: bool, reply: Option<Result<ProbeReply, Status>>) -> (Reachability, String) {
    if came {
        return (Reachability::Reachable, String::new());
    }
    let reply = match reply {
        Some(Ok(reply)) => reply,
        Some(Err(status)) => return (Reachability::Unknown, grpc::reason(&status)),
        None => return (Reachability::Unknown, "the agent ends".to_owned()),
    };
    match reply.outcome() {
        ProbeOutcome::Connected => (Reachability::Misdirected, "somebody else answers there".to_owned()),
        ProbeOutcome::Refused => (Reachability::Refused, reply.detail),
        ProbeOutcome::NoAnswer => (Reachability::Filtered, reply.detail),
        ProbeOutcome::Unknown | ProbeOutcome::NotDone | ProbeOutcome::Prepared => {
            (Reachability::Unknown, reply.detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_here_counts_as_reached() {
        let reply =
            |outcome: ProbeOutcome| Some(Ok(ProbeReply { outcome: outcome.into(), ..ProbeReply::default() }));
        for (name, came, reply, want) in [
            ("it came before the relay told", true, None, Reachability::Reachable),
            ("it came", true, reply(ProbeOutcome::Connected), Reachability::Reachable),
            ("it came to somebody else", false, reply(ProbeOutcome::Connected), Reachability::Misdirected),
            ("refused", false, reply(ProbeOutcome::Refused), Reachability::Refused),
            ("dropped", false, reply(ProbeOutcome::NoAnswer), Reachability::Filtered),
            ("the relay wouldn't", false, reply(ProbeOutcome::NotDone), Reachability::Unknown),
            ("no relay", false, Some(Err(Status::unavailable("gone"))), Reachability::Unknown),
        ] {
            assert_eq!(judged(came, reply).0, want, "{name}");
        }
    }
}
