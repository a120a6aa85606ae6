//! The directory as this gateway holds it: what the broker sent last, and what its
//! agents receive of it. Pure.

use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::lock;
use isthmus_wire::Label;
use isthmus_wire::bounds::DIRECTORY_RELAYS;
use isthmus_wire::proto;

/// How often an agent finds out everything anew on a small site.
const PROBE_INTERVAL: Duration = Duration::from_secs(300);
/// Nodes of a gateway that do so at the same rate; more of them do it the less
/// often. It takes an agent about ten calls to the broker: so a gateway causes
/// about 32 a minute, however many nodes it has.
const PROBING_NODES: usize = 16;
/// But at least so often: 1,024 nodes of one gateway reach it.
const LONGEST_PROBE_INTERVAL: Duration = Duration::from_secs(64 * 300);

/// The directory.
#[derive(Debug, Default)]
pub(crate) struct Directory(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// None until the broker has sent one.
    grid: Option<proto::Directory>,
    /// As agents received it last.
    told: Option<proto::Directory>,
}

impl Directory {
    /// Takes what the broker sent, with this many agents attached; gives what
    /// they are to receive, if that differs from what they have.
    pub(crate) fn set(&self, site: &Label, grid: proto::Directory, nodes: usize) -> Option<proto::Directory> {
        let mut held = lock(&self.0);
        let told = for_agents(site, &grid, nodes);
        held.grid = Some(grid);
        let same = |before: &proto::Directory| {
            proto::Directory { revision: told.revision, ..before.clone() } == told
        };
        if held.told.as_ref().is_some_and(same) {
            return None;
        }
        held.told = Some(told.clone());
        Some(told)
    }

    /// What an agent receives that comes now, one of so many; none as long as
    /// the broker has sent nothing.
    pub(crate) fn for_agent(&self, site: &Label, nodes: usize) -> Option<proto::Directory> {
        let held = lock(&self.0);
        held.grid.as_ref().map(|grid| for_agents(site, grid, nodes))
    }

    /// Relays that are up.
    pub(crate) fn relays(&self) -> Vec<proto::DirectoryEntry> {
        let held = lock(&self.0);
        held.grid.as_ref().map(|grid| grid.relays.clone()).unwrap_or_default()
    }

    /// Where those outside this site are that tell how one is seen: relays first.
    pub(crate) fn reflectors(&self, site: &Label) -> Vec<String> {
        let told = self.for_agent(site, 0).unwrap_or_default();
        told.relays.into_iter().chain(told.gateways).map(|entry| entry.address).collect()
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
        probe_interval_s: u32::try_from(probe_interval(nodes).as_secs()).unwrap_or(u32::MAX),
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
    fn agents_receive_what_concerns_them_when_it_has_changed() {
        let alpha: Label = "alpha".parse().unwrap();
        let held = Directory::default();
        assert_eq!(held.for_agent(&alpha, 1), None);
        for (name, revision, gateways, told) in [
            ("the first", 1, &["a.alpha", "b.beta"][..], true),
            ("only their own gateway is new", 2, &["a.alpha", "a2.alpha", "b.beta"], false),
            ("another site's has gone", 3, &["a.alpha"], true),
        ] {
            let got = held.set(&alpha, directory(revision, gateways), 1);
            assert_eq!(got.is_some(), told, "{name}");
            let own = got.iter().flat_map(|got| &got.gateways).any(|entry| entry.name.ends_with(".alpha"));
            assert!(!own, "{name}");
        }
        held.set(&alpha, directory(4, &["a.alpha", "b.beta"]), 1);
        assert_eq!(held.reflectors(&alpha), ["hub:1", "b.beta:1"]);
        assert_eq!(held.relays().len(), 1);
    }

    #[test]
    fn probes_of_one_gateway_do_not_grow_with_its_nodes() {
        for (nodes, seconds) in [(0, 300), (16, 300), (17, 600), (160, 3000), (100_000, 19_200)] {
            assert_eq!(probe_interval(nodes).as_secs(), seconds, "{nodes}");
        }
    }
}
