//! Whether a relay reaches this agent at one address. The relay dials it and sends
//! an id that only this agent has, so that no other node's answer counts.

use isthmus_net::probe::{Target, Task};
use isthmus_plan::Reach;
use isthmus_wire::proto::ProbeRequest;

use super::{PROBE, Probing};
use crate::reach_test::reach_test;

/// Asks a relay to dial this agent.
pub(super) async fn reach(probing: &Probing, relay: &str, address: &str) -> Reach {
    let mut rendezvous = probing.rendezvous.begin();
    let task = Task::Dial(Target::new(address, rendezvous.id()));
    let request =
        ProbeRequest { relay: relay.to_owned(), task: Some(task.into()), ..ProbeRequest::default() };
    let probe = probing.control.probe(request, PROBE.into());
    reach_test(relay, address, rendezvous.arrival(), probe).await
}
