//! Whether a relay reaches this agent at one address. The relay dials it and sends
//! an id that only this agent has, so that no other node's answer counts.

use isthmus_plan::Reach;
use isthmus_rpc::probe::{ProbeTarget, Task};
use isthmus_wire::proto::ProbeRequest;

use super::{PROBE, Probing};
use crate::outside::Relay;
use crate::reachability::reach_test;

/// Asks a relay to dial this agent at `address`.
pub(super) async fn reach(probing: &Probing, relay: &Relay, address: &str) -> Reach {
    let mut rendezvous = probing.rendezvous.begin();
    let target = ProbeTarget::new(address, rendezvous.id());
    let task = Some(Task::Dial(target.clone()).into());
    let request = ProbeRequest { relay: relay.name.clone(), task, ..ProbeRequest::default() };
    let probe = probing.control.probe(request, PROBE.into());
    let Some(at) = relay.at else { return Reach::default() };
    reach_test((&relay.name, at), &target, rendezvous.arrival(), probe).await
}
