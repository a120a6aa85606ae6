//! The directory that the broker sent last, and the part of it that agents receive.
//! Pure.

use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::clock::seconds;
use isthmus_net::lock;
use isthmus_wire::Label;
use isthmus_wire::bounds::DIRECTORY_RELAYS;
use isthmus_wire::proto;

/// How often an agent probes everything anew on a small site.
const PROBE_INTERVAL: Duration = Duration::from_secs(300);
/// Nodes of a gateway that probe at this rate. With more nodes each probes less
/// often. A probe takes about ten calls to the broker, so that a gateway causes
/// about 32 calls a minute, however many nodes it has.
const PROBING_NODES: usize = 16;
/// The longest interval, from 1,024 nodes of one gateway on.
const LONGEST_PROBE_INTERVAL: Duration = Duration::from_secs(64 * 300);

/// The directory.
#[derive(Debug, Default)]
pub(crate) struct Directory(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// None until the broker has sent one.
    grid: Option<proto::Directory>,
    /// As it was sent to agents last.
    sent: Option<proto::Directory>,
}

impl Directory {
    /// Takes the directory from the broker, with `nodes` agents attached. Returns
    /// what agents receive, if it has changed for them.
    pub(crate) fn set(&self, site: &Label, grid: proto::Directory, nodes: usize) -> Option<proto::Directory> {
        let mut held = lock(&self.0);
        let changed = for_agents(site, &grid, nodes);
        held.grid = Some(grid);
        let same = |before: &proto::Directory| {
            proto::Directory { revision: changed.revision, ..before.clone() } == changed
        };
        if held.sent.as_ref().is_some_and(same) {
            return None;
        }
        held.sent = Some(changed.clone());
        Some(changed)
    }

    /// What an agent receives when it attaches as one of `nodes`; `None` until the
    /// broker has sent a directory.
    pub(crate) fn for_agent(&self, site: &Label, nodes: usize) -> Option<proto::Directory> {
        let held = lock(&self.0);
        held.grid.as_ref().map(|grid| for_agents(site, grid, nodes))
    }

    /// Relays that are up.
    pub(crate) fn relays(&self) -> Vec<proto::DirectoryEntry> {
        let held = lock(&self.0);
        held.grid.as_ref().map(|grid| grid.relays.clone()).unwrap_or_default()
    }

    /// Addresses outside this site that answer how a connection is seen: relays
    /// first.
    pub(crate) fn reflectors(&self, site: &Label) -> Vec<String> {
        let directory = self.for_agent(site, 0).unwrap_or_default();
        directory.relays.into_iter().chain(directory.gateways).map(|entry| entry.address).collect()
    }
}

/// Without the gateways of the agents' own site.
fn for_agents(site: &Label, grid: &proto::Directory, nodes: usize) -> proto::Directory {
    let own = |entry: &proto::DirectoryEntry| {
        entry.name.split_once('.').is_some_and(|(_, other)| other == site.as_str())
    };
    let gateways = grid.gateways.iter().filter(|entry| !own(entry)).take(DIRECTORY_RELAYS);
    proto::Directory {
        gateways: gateways.cloned().collect(),
        probe_interval_s: seconds(probe_interval(nodes)),
        ..grid.clone()
    }
}

fn probe_interval(nodes: usize) -> Duration {
    let times = u32::try_from(nodes.div_ceil(PROBING_NODES)).unwrap_or(u32::MAX).max(1);
    PROBE_INTERVAL.saturating_mul(times).min(LONGEST_PROBE_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(revision: u64, gateways: &[&str]) -> proto::Directory {
        let entry =
            |name: &&str| proto::DirectoryEntry { name: (*name).to_owned(), address: format!("{name}:1") };
        proto::Directory {
            revision,
            relays: vec![entry(&"hub")],
            gateways: gateways.iter().map(entry).collect(),
            ..proto::Directory::default()
        }
    }

    #[test]
    fn agents_receive_a_directory_that_has_changed_for_them() {
        let alpha: Label = "alpha".parse().unwrap();
        let held = Directory::default();
        assert_eq!(held.for_agent(&alpha, 1), None);
        for (name, revision, gateways, sent) in [
            ("the first", 1, &["a.alpha", "b.beta"][..], true),
            ("only their own gateway is new", 2, &["a.alpha", "a2.alpha", "b.beta"], false),
            ("another site's has gone", 3, &["a.alpha"], true),
        ] {
            let got = held.set(&alpha, directory(revision, gateways), 1);
            assert_eq!(got.is_some(), sent, "{name}");
            let own = got.iter().flat_map(|got| &got.gateways).any(|entry| entry.name.ends_with(".alpha"));
            assert!(!own, "{name}");
        }
        held.set(&alpha, directory(4, &["a.alpha", "b.beta"]), 1);
        assert_eq!(held.reflectors(&alpha), ["hub:1", "b.beta:1"]);
        assert_eq!(held.relays().len(), 1);
    }

    #[test]
    fn the_rate_of_probes_does_not_grow_with_the_nodes() {
        for (nodes, seconds) in [(0, 300), (16, 300), (17, 600), (160, 3000), (100_000, 19_200)] {
            assert_eq!(probe_interval(nodes).as_secs(), seconds, "{nodes}");
        }
    }
}
