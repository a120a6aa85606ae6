//! Whether a relay reaches this agent at one address. The relay dials it and sends
//! an id that only this agent has, so that no other node's answer counts.

use std::time::Duration;

use isthmus_net::grpc;
use isthmus_net::seen::judge_probe;
use isthmus_plan::Reach;
use isthmus_wire::proto::{ProbeKind, ProbeOutcome, ProbeRequest};

use super::{PROBE, Probing};

/// How much later than the relay's report its connection may arrive.
const LAG: Duration = Duration::from_secs(2);

/// Asks a relay to dial this agent.
pub(super) async fn reach(probing: &Probing, relay: &str, address: &str) -> Reach {
    let mut rendezvous = probing.rendezvous.begin();
    let request = ProbeRequest {
        relay: relay.to_owned(),
        kind: ProbeKind::ProbeDial.into(),
        address: address.to_owned(),
        nonce: rendezvous.id().0.to_vec(),
        ..ProbeRequest::default()
    };
    let probe = probing.control.probe(request, PROBE.into());
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
