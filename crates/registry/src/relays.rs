//! Chooses the relay for two nodes.

use std::time::Duration;

use isthmus_plan::relays::{Candidate, fit, nearest};
use isthmus_wire::Label;

use super::{NodeEntry, Registry, RelayEntry};
use crate::policy::RelayChoice;

impl Registry {
    /// The relay for two nodes: of equally good relays, the next by name. `avoid` lists relays that
    /// have just failed.
    pub(super) fn next_relay(
        &self,
        nodes: [Option<&NodeEntry>; 2],
        avoid: &[String],
    ) -> Option<(&Label, &RelayEntry)> {
        let up: Vec<_> = self.relays.iter().filter(|(_, relay)| relay.session.is_some()).collect();
        let candidates: Vec<_> = up.iter().map(|(name, _)| candidate(name, nodes, avoid)).collect();
        let best = match self.policy.relays {
            RelayChoice::Nearest => nearest(&candidates),
            RelayChoice::RoundRobin => fit(&candidates),
        };
        let best: Vec<_> = best.into_iter().filter_map(|index| up.get(index).copied()).collect();
        let next = best.iter().find(|(name, _)| self.last_relay.as_ref().is_none_or(|last| *name > last));
        next.or_else(|| best.first()).copied()
    }
}

/// A relay as two nodes see it.
fn candidate(name: &Label, nodes: [Option<&NodeEntry>; 2], avoid: &[String]) -> Candidate {
    let sights = nodes.map(|node| {
        let seen = node.and_then(|node| node.contact.seen.as_ref());
        seen.and_then(|seen| seen.relays.iter().find(|sight| sight.relay == name.as_str()))
    });
    let round_trips = sights.map(|sight| {
        let reached = sight.filter(|sight| sight.failure.is_empty() && sight.round_trip_us > 0);
        reached.map(|sight| Duration::from_micros(sight.round_trip_us))
    });
    Candidate {
        round_trip: match round_trips {
            [Some(near), Some(far)] => Some(near.saturating_add(far)),
            _ => None,
        },
        unreached: sights.into_iter().flatten().any(|sight| !sight.failure.is_empty()),
        failed: avoid.iter().any(|failed| failed == name.as_str()),
    }
}
