//! What the user reads of connections that aren't there yet. Many nodes of two sites wait for
//! the same, so it is told once for these sites.

use std::collections::HashMap;

use isthmus_front::format::site;
use isthmus_front::output::one_line;
use isthmus_wire::proto::{ConnectWaits, ConnectedLate};

/// What the user has read of connections that are being made, by the sites of initiator and
/// acceptor.
#[derive(Debug, Default)]
pub(super) struct Waits(HashMap<[String; 2], Told>);

/// What the user has read of connections between two sites.
#[derive(Debug, Default)]
struct Told {
    /// How many of their connections wait.
    waiting: usize,
    /// Whether the user has read that all of them are made.
    all_there: bool,
}

impl Waits {
    /// Notes that a connection waits. Returns what the user reads of it.
    pub(super) fn begun(&mut self, waits: &ConnectWaits) -> Option<String> {
        let ConnectWaits { initiator, acceptor, reason, limit_seconds } = waits;
        let told = self.0.entry(sites(initiator, acceptor));
        let is_new = matches!(told, std::collections::hash_map::Entry::Vacant(_));
        told.or_default().waiting += 1;
        is_new.then(|| {
            one_line(&format!(
                "{initiator} can't connect to {acceptor} yet: {reason}; it tries on, {limit_seconds} s in all"
            ))
        })
    }

    /// Notes that a connection that had waited is made. Returns what the user reads of it.
    pub(super) fn over(&mut self, late: &ConnectedLate) -> Option<String> {
        let ConnectedLate { initiator, acceptor, waited_ms } = late;
        let told = self.0.get_mut(&sites(initiator, acceptor))?;
        told.waiting = told.waiting.saturating_sub(1);
        if told.waiting > 0 || told.all_there {
            return None;
        }
        told.all_there = true;
        let seconds = *waited_ms as f64 / 1e3;
        Some(one_line(&format!("{initiator} has connected to {acceptor}, after {seconds:.1} s")))
    }
}

/// The sites of the initiator's and the acceptor's node.
fn sites(initiator: &str, acceptor: &str) -> [String; 2] {
    [initiator, acceptor].map(|node| site(node).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_for_two_sites() {
        let mut waits = Waits::default();
        let mut begun = |initiator: &str, acceptor: &str| {
            waits.begun(&ConnectWaits {
                initiator: initiator.to_owned(),
                acceptor: acceptor.to_owned(),
                reason: "no relay".to_owned(),
                limit_seconds: 127,
            })
        };
        let text = "n1.alpha can't connect to n1.beta yet: no relay; it tries on, 127 s in all";
        assert_eq!(begun("n1.alpha", "n1.beta").as_deref(), Some(text));
        assert_eq!(begun("n2.alpha", "n1.beta"), None);
        assert!(begun("n2.alpha", "n1.gamma").is_some() && begun("n1.beta", "n1.alpha").is_some());
        let mut over = |initiator: &str| {
            waits.over(&ConnectedLate {
                initiator: initiator.to_owned(),
                acceptor: "n1.beta".to_owned(),
                waited_ms: 4100,
            })
        };
        assert_eq!(over("n1.alpha"), None);
        assert_eq!(over("n2.alpha").as_deref(), Some("n2.alpha has connected to n1.beta, after 4.1 s"));
        assert_eq!((over("n3.alpha"), over("n1.delta")), (None, None));
    }
}
