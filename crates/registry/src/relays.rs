//! Chooses the relay for two nodes.

use std::time::Duration;

use isthmus_plan::Dial;
use isthmus_plan::relays::{Candidate, fit, nearest};
use isthmus_wire::{Label, RelayName};

use super::endpoint::Endpoint;
use super::{NodeEntry, Registry, RelayEntry};
use crate::policy::RelayChoice;

impl Registry {
    /// The relay for two parties: of equally good relays, the next by name. A gateway relays only
    /// where no relay of its own is as good. `avoid` lists relays that have just failed.
    pub(super) fn next_relay(
        &self,
        [from, to]: [&Endpoint<'_>; 2],
        avoid: &[String],
    ) -> Option<(&RelayName, &RelayEntry)> {
        let up = self.relays_for([&from.name().site, &to.name().site]);
        let nodes = [from.node(), to.node()];
        let candidates: Vec<_> =
            up.iter().map(|(name, entry)| candidate((name, entry), nodes, avoid)).collect();
        let best = match self.policy.relays {
            RelayChoice::Nearest => nearest(&candidates),
            RelayChoice::RoundRobin => fit(&candidates),
        };
        let mut best: Vec<_> = best.into_iter().filter_map(|index| up.get(index).copied()).collect();
        let is_gateway = |(name, _): &(&RelayName, _)| matches!(name, RelayName::Gateway(_));
        if !best.iter().all(is_gateway) {
            best.retain(|relay| !is_gateway(relay));
        }
        let next = best.iter().find(|(name, _)| self.last_relay.as_ref().is_none_or(|last| *name > last));
        next.or_else(|| best.first()).copied()
    }

    /// Whether a relay tries to reach the nodes of a site. Its own gateways say nothing of that.
    pub(super) fn has_relay_for(&self, site: &Label) -> bool {
        let others = |name: &RelayName| !matches!(name, RelayName::Gateway(gateway) if gateway.site == *site);
        self.attached_relays().any(|(name, _)| others(name))
    }

    /// The relays that tell nodes of two sites how they are seen from outside. A gateway of either is
    /// behind the same NAT. Of sites that trust each other, what a gateway says isn't asked: data goes
    /// unencrypted to where a node says that it is seen.
    pub(super) fn reflecting<'a>(&'a self, sites: [&'a Label; 2]) -> impl Iterator<Item = &'a RelayEntry> {
        let trusted = self.policy.trusted.contains(sites[0], sites[1]);
        let reflects = move |name: &RelayName| match name {
            RelayName::Relay(_) => true,
            RelayName::Gateway(gateway) => !trusted && sites.into_iter().all(|site| *site != gateway.site),
        };
        self.attached_relays().filter(move |(name, _)| reflects(name)).map(|(_, entry)| entry)
    }

    /// The relays that may join nodes of two sites.
    ///
    /// A gateway is its owner's, who could read what passes. So it joins only sites whose data is
    /// encrypted: none that trust the network between them. Neither does it join its own site with
    /// another, since it splices for its nodes as a gateway, nor a site with which its own may use no
    /// relay.
    pub(super) fn relays_for(&self, sites: [&Label; 2]) -> Vec<(&RelayName, &RelayEntry)> {
        let trusted = self.policy.trusted.contains(sites[0], sites[1]);
        let may_join = |relay: &Label| {
            let allows =
                |site: &Label| !self.policy.forbidden.between(relay, site).dials.contains(Dial::Relay);
            !trusted && sites.into_iter().all(|site| site != relay && allows(site))
        };
        let joins = |name: &RelayName| match name {
            RelayName::Relay(_) => true,
            RelayName::Gateway(gateway) => may_join(&gateway.site),
        };
        self.attached_relays().filter(|(name, _)| joins(name)).collect()
    }

    /// Of the relays that a node has reached, those that may join nodes of two sites and aren't full.
    /// None if the nearest one isn't preferred.
    pub(super) fn joining(&self, sites: [&Label; 2], node: &NodeEntry) -> Vec<String> {
        if !matches!(self.policy.relays, RelayChoice::Nearest) {
            return Vec::new();
        }
        let seen = node.contact.seen.as_ref();
        let is_reached = |name: &str| {
            seen.is_some_and(|seen| seen.relays.iter().any(|it| it.relay == name && it.failure.is_empty()))
        };
        let up = self.relays_for(sites).into_iter().filter(|(_, entry)| !entry.is_full());
        up.map(|(name, _)| name.to_string()).filter(|name| is_reached(name)).collect()
    }
}

/// A relay as two nodes see it.
fn candidate(
    (name, entry): (&RelayName, &RelayEntry),
    nodes: [Option<&NodeEntry>; 2],
    avoid: &[String],
) -> Candidate {
    let name = name.to_string();
    let sights = nodes.map(|node| {
        let seen = node.and_then(|node| node.contact.seen.as_ref());
        seen.and_then(|seen| seen.relays.iter().find(|sight| sight.relay == name))
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
        failed: avoid.contains(&name),
        full: entry.is_full(),
    }
}
