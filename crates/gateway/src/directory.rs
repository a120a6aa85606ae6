//! The directory that the broker sent last, and the part of it that agents receive.
//! Pure.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::relay_places::{Network, RelayPlaces};
use isthmus_registry::filters::site_of;
use isthmus_service::clock::seconds;
use isthmus_service::lock;
use isthmus_wire::Label;
use isthmus_wire::bounds::DIRECTORY_RELAYS;
use isthmus_wire::proto;

/// How often an agent of a small site probes everything anew.
const PROBE_INTERVAL: Duration = Duration::from_secs(300);
/// How many nodes of a gateway probe at this rate. With more nodes, each probes less often. A probe
/// takes about ten calls to the broker. So a gateway causes about 32 calls a minute, however many
/// nodes it has.
const PROBING_NODES: usize = 16;
/// The longest interval between probes, from 1,024 nodes of a gateway on.
const LONGEST_PROBE_INTERVAL: Duration = Duration::from_secs(64 * 300);

/// The broker's directory, and what agents have received of it.
#[derive(Debug)]
pub(crate) struct Directory(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// Where relays may be: the broker's host, and networks of the configuration.
    places: Vec<String>,
    /// The addresses of the broker's host.
    broker: Vec<String>,
    /// The directory as the broker sent it last; `None` until it has sent one.
    grid: Option<proto::Directory>,
    /// The directory as it was sent to agents last.
    sent: Option<proto::Directory>,
}

impl Directory {
    /// No directory yet. Relays may be at the broker's host, `HOST:PORT`, and in these networks,
    /// though they are private.
    pub(crate) fn new(broker: &str, networks: &[Network]) -> Self {
        let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host).to_owned();
        let places = std::iter::once(host).chain(networks.iter().map(ToString::to_string)).collect();
        Self(Mutex::new(Held { places, ..Held::default() }))
    }

    /// Takes in the addresses of the broker's host.
    pub(crate) fn found_broker(&self, addresses: impl Iterator<Item = IpAddr>) {
        lock(&self.0).broker = addresses.map(|address| address.to_string()).collect();
    }

    /// The hosts and networks where relays may be.
    pub(crate) fn relay_places(&self) -> RelayPlaces {
        RelayPlaces::new(lock(&self.0).relay_places())
    }

    /// Takes the directory from the broker, with `nodes` agents attached. Returns
    /// what agents receive, if it has changed for them.
    pub(crate) fn set(&self, site: &Label, grid: proto::Directory, nodes: usize) -> Option<proto::Directory> {
        let mut held = lock(&self.0);
        let changed = held.for_agents(site, &grid, nodes);
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

    /// What an agent receives when it attaches, with `nodes` agents attached. `None` until the
    /// broker has sent a directory.
    pub(crate) fn for_agent(&self, site: &Label, nodes: usize) -> Option<proto::Directory> {
        let held = lock(&self.0);
        held.grid.as_ref().map(|grid| held.for_agents(site, grid, nodes))
    }

    /// The relays that are up, by name.
    pub(crate) fn relays(&self) -> Vec<proto::DirectoryEntry> {
        let held = lock(&self.0);
        let mut relays = held.grid.as_ref().map(|grid| grid.relays.clone()).unwrap_or_default();
        relays.sort_by(|one, other| one.name.cmp(&other.name));
        relays
    }

    /// The relays that are up, without the gateways of a site. `None` until the broker has sent a
    /// directory.
    pub(crate) fn relays_beyond(&self, site: &Label) -> Option<Vec<proto::DirectoryEntry>> {
        Some(self.for_agent(site, 0)?.relays)
    }

    /// Addresses of other sites' gateways. These answer how a connection is seen, as relays do.
    pub(crate) fn gateways(&self, site: &Label) -> Vec<String> {
        let directory = self.for_agent(site, 0).unwrap_or_default();
        directory.gateways.into_iter().map(|entry| entry.address).collect()
    }
}

impl Held {
    fn relay_places(&self) -> Vec<String> {
        self.places.iter().chain(&self.broker).cloned().collect()
    }

    /// The part of the directory for agents: it lacks the gateways of their own site, also as relays.
    fn for_agents(&self, site: &Label, grid: &proto::Directory, nodes: usize) -> proto::Directory {
        let own = |entry: &proto::DirectoryEntry| site_of(&entry.name) == site.as_str();
        let gateways = grid.gateways.iter().filter(|entry| !own(entry)).take(DIRECTORY_RELAYS);
        let relays = grid.relays.iter().filter(|entry| !own(entry));
        proto::Directory {
            relays: relays.cloned().collect(),
            gateways: gateways.cloned().collect(),
            probe_interval_s: seconds(probe_interval(nodes)),
            relay_places: self.relay_places(),
            ..grid.clone()
        }
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
        let held = Directory::new("broker.example.org:7700", &["10.9.0.0/16".parse().unwrap()]);
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
        assert_eq!(held.gateways(&alpha), ["b.beta:1"]);
        assert_eq!(held.relays().len(), 1);
        // Agents are told where relays may be, too.
        held.found_broker([[192, 168, 7, 1].into()].into_iter());
        let told = held.set(&alpha, directory(5, &["a.alpha", "b.beta"]), 1).unwrap();
        assert_eq!(told.relay_places, ["broker.example.org", "10.9.0.0/16", "192.168.7.1"]);
        assert_eq!(held.relay_places(), RelayPlaces::new(&told.relay_places));
    }

    #[test]
    fn the_rate_of_probes_does_not_grow_with_the_nodes() {
        for (nodes, seconds) in [(0, 300), (16, 300), (17, 600), (160, 3000), (100_000, 19_200)] {
            assert_eq!(probe_interval(nodes).as_secs(), seconds, "{nodes}");
        }
    }
}
