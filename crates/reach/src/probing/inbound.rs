//! Whether a relay reaches this agent at one address. The relay dials it and sends
//! an id that only this agent has, so that no other node's answer counts.

use isthmus_plan::Reach;
use isthmus_wire::proto::{ProbeKind, ProbeRequest};

use super::{PROBE, Probing};
use crate::reach_test::reach_test;

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
    reach_test(relay, address, rendezvous.arrival(), probe).await
}
