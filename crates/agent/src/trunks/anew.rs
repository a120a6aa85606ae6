//! An agent that was started again has none of its trunks any more. Those that stand here end
//! as soon as that is known: programs would wait for them until they are given up, and dials
//! for a trunk that is gone would be in the way of those for a new one.

use std::net::Ipv4Addr;
use std::time::Duration;

use isthmus_identity::signed::contact;
use isthmus_service::clock::unix_ms;
use isthmus_service::mac::random;
use isthmus_trunk::{Incarnation, Reason};
use tokio::time::sleep;
use tracing::info;

use super::registry::{Registry, Standing};
use crate::jobs::node::Node;

/// Interval of looking at the peer's record, which the gateway replaces once it changes.
const LOOK: Duration = Duration::from_millis(500);

/// The incarnation of an agent that starts now: the time, and random bits. A later start's is
/// greater.
pub(crate) fn incarnation() -> Incarnation {
    let mut bytes: [u8; 16] = random();
    bytes[..8].copy_from_slice(&unix_ms().to_be_bytes());
    Incarnation(bytes)
}

/// Whether the agent that is known now was started after the one at the other end of a trunk.
/// `false` if one of the two is unknown.
fn is_later(known: Option<contact::Incarnation>, of_trunk: Option<Incarnation>) -> bool {
    known.zip(of_trunk).is_some_and(|(known, of_trunk)| known > of_trunk.0)
}

/// Returns once an agent that was started after the trunk's peer has registered in its place, by
/// its own signature. A gateway's word ends no trunk.
pub(super) async fn registered(node: &Node, standing: &Standing, peer: Ipv4Addr) {
    loop {
        let started = node.dialer().started(peer, &standing.kept.peer).await;
        if is_later(started, standing.kept.peers_incarnation()) {
            return;
        }
        sleep(LOOK).await;
    }
}

impl Registry {
    /// To be called once the trunk `working` works: ends the trunks with former agents of the same
    /// node that are cut.
    pub(super) fn end_former(&self, working: &Standing) {
        let peer = &working.name;
        let Some(current) = working.kept.peers_incarnation() else { return };
        for standing in self.peers().with(peer) {
            if standing.kept.is_cut() && is_later(Some(current.0), standing.kept.peers_incarnation()) {
                info!(%peer, "its agent was started again: a former trunk ends");
                standing.kept.trunk.close(Reason::Trunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_start_is_known() {
        let one = |number: u8| Incarnation([number; 16]);
        for (known, of_trunk, want) in [
            (Some([2; 16]), Some(one(1)), true),
            (Some([1; 16]), Some(one(1)), false),
            // What is known of the registration is older than the trunk.
            (Some([1; 16]), Some(one(2)), false),
            (Some([2; 16]), None, false),
            (None, Some(one(1)), false),
        ] {
            assert_eq!(is_later(known, of_trunk), want, "{known:?} {of_trunk:?}");
        }
        let first = incarnation();
        std::thread::sleep(Duration::from_millis(2));
        assert!(is_later(Some(incarnation().0), Some(first)));
    }
}
