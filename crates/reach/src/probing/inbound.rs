//! Whether a relay reaches this agent at one address: it dials there and says
//! what this agent alone knows, so that only the right node counts.

use std::time::Duration;

use isthmus_net::grpc;
use isthmus_net::seen::judge_probe;
use isthmus_plan::Reach;
use isthmus_wire::proto::{ProbeKind, ProbeOutcome, ProbeRequest};

use super::Probing;

/// How much later than the relay's word that it is connected its connection may
/// come.
const LAG: Duration = Duration::from_secs(2);

/// Has a relay try to reach this agent.
pub(super) async fn reach(probing: &Probing, relay: &str, address: &str) -> Reach {
    let mut rendezvous = probing.rendezvous.begin();
    let request = ProbeRequest {
        relay: relay.to_owned(),
        kind: ProbeKind::ProbeDial.into(),
        address: address.to_owned(),
        nonce: rendezvous.id().0.to_vec(),
        ..ProbeRequest::default()
    };
    let probe = probing.control.probe(request);
    tokio::pin!(probe);
    let (came, reply) = tokio::select! {
        stream = rendezvous.stream() => (stream.is_some(), None),
        reply = &mut probe => {
            let came = match &reply {
                Ok(reply) if reply.outcome() == ProbeOutcome::Connected => {
                    tokio::time::timeout(LAG, rendezvous.stream()).await.is_ok_and(|stream| stream.is_some())
                }
                Ok(_) | Err(_) => false,
            };
            (came, Some(reply))
        }
    };
    let (result, detail) =
        judge_probe(came, reply.map(|reply| reply.map_err(|status| grpc::reason(&status))));
    Reach { result, address: address.to_owned(), relay: relay.to_owned(), detail }
}
