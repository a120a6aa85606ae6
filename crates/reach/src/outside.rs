//! How this node is seen from outside its site. It asks relays and other sites'
//! gateways, which answer with the address that a connection came from.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::dial::{self, PunchPort};
use isthmus_net::relay_places::RelayPlaces;
use isthmus_plan::mapping::{Sighting, preserved};
use isthmus_plan::{Mapping, WayOut};
use isthmus_service::lock;
use isthmus_wire::bounds::DIRECTORY_RELAYS;
use isthmus_wire::proto;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::failed::DialFailed;

/// How long a relay may take to answer.
pub(crate) const REFLECTION_DEADLINE: Duration = Duration::from_secs(3);
/// Most relays and gateways that are asked until two have answered.
const ASKED: usize = 4;
/// How many requests each relay gets, to find its shortest round trip.
const ROUND_TRIPS: usize = 4;
/// How many gateways of other sites are measured, each by one request. A gateway's load must not
/// grow with the number of sites.
const GATEWAYS: usize = 16;
/// After how many rounds without an answer this node counts as unable to dial out.
const UNANSWERED: u32 = 2;

/// Relays and gateways that have answered, and what their answers show.
#[derive(Debug, Default)]
pub struct Outside(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    reflectors: Vec<SocketAddr>,
    mapping: Mapping,
    preserved: Option<Preserved>,
    /// A prediction that has turned out wrong, and isn't made again.
    wrong: Option<Preserved>,
}

/// Two addresses between which the NAT preserves ports: this node's, and the one at which the node
/// is seen. With both, a port's outside address can be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preserved {
    local: IpAddr,
    seen: IpAddr,
}

impl Outside {
    /// The address of a relay or gateway that has answered.
    pub(crate) fn reflector(&self) -> Option<SocketAddr> {
        lock(&self.0).reflectors.first().copied()
    }

    /// How the NAT maps this node's ports, as far as is known.
    pub(crate) fn mapping(&self) -> Mapping {
        lock(&self.0).mapping
    }

    /// A port to punch from, with its outside address. The address is predicted if it can be and
    /// `ask` is false. Otherwise `reflector` is asked, or without one a relay that has answered
    /// before.
    ///
    /// # Errors
    /// If there is no relay to ask, or if it gives no answer.
    pub(crate) async fn port(
        &self,
        ask: bool,
        reflector: Option<SocketAddr>,
    ) -> Result<PunchPort, DialFailed> {
        let preserved = lock(&self.0).preserved.filter(|_| !ask);
        if let Some(Preserved { local, seen }) = preserved
            && let Ok(port) = PunchPort::predicted(local, seen)
        {
            return Ok(port);
        }
        let reflector = reflector.or_else(|| self.reflector());
        let reflector = reflector.ok_or(DialFailed::NoRelay)?;
        Ok(PunchPort::open(reflector, REFLECTION_DEADLINE).await?)
    }

    /// Whether the outside addresses of this node's ports can be predicted.
    pub(crate) fn predicts(&self) -> bool {
        lock(&self.0).preserved.is_some()
    }

    /// Stops predicting until the address changes, because a prediction was wrong.
    pub(crate) fn drop_prediction(&self) {
        let mut known = lock(&self.0);
        known.wrong = known.preserved.take().or(known.wrong);
    }

    /// Takes over the result of a look.
    pub(crate) fn set(&self, look: &Look) {
        let mut known = lock(&self.0);
        known.reflectors = look.reflectors();
        known.mapping = look.mapping;
        known.preserved = look.preserved.filter(|preserved| Some(*preserved) != known.wrong);
    }
}

/// A relay of the grid, or another site's gateway, as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relay {
    /// The name of the relay or gateway.
    pub name: String,
    /// The address as the directory has it, `HOST:PORT`.
    pub address: String,
    /// The resolved address at which it answered; `None` before the first answer.
    pub at: Option<SocketAddr>,
    /// Where a relay may be; `None` for a gateway.
    places: Option<RelayPlaces>,
    /// The shortest round trip so far, or why there was no answer; `None` before the first try.
    pub sight: Option<Result<Duration, String>>,
}

impl Relay {
    pub(crate) fn new(entry: proto::DirectoryEntry, places: Option<RelayPlaces>) -> Self {
        Self { name: entry.name, address: entry.address, at: None, places, sight: None }
    }

    /// Resolves the relay's address, and asks the relay for the outside address of a port.
    async fn open(&self, port: u16) -> Result<(SocketAddr, PunchPort), String> {
        let resolving = async {
            match &self.places {
                Some(places) => places.resolve(&self.address).await.map_err(|error| error.to_string()),
                None => dial::resolve(&self.address).await.map_err(|error| error.to_string()),
            }
        };
        let late = |_| format!("no address of {} within {REFLECTION_DEADLINE:?}", self.address);
        let at = timeout(REFLECTION_DEADLINE, resolving).await.map_err(late)??;
        let opened = PunchPort::open_at(at, port, REFLECTION_DEADLINE).await;
        opened.map(|opened| (at, opened)).map_err(|error| error.to_string())
    }

    /// Asks the relay for the outside address of a local port; 0 stands for any port.
    async fn ask(&mut self, port: u16) -> Option<Sighting> {
        match self.open(port).await {
            Ok((at, port)) => {
                self.at = Some(at);
                let shortest = match &self.sight {
                    Some(Ok(before)) => port.round_trip().min(*before),
                    Some(Err(_)) | None => port.round_trip(),
                };
                self.sight = Some(Ok(shortest));
                Some(Sighting { local: port.local(), seen: port.seen() })
            }
            Err(error) => {
                tracing::debug!(relay = self.name, %error, "no answer from a relay on how this node is seen");
                if !self.is_reached() {
                    self.sight = Some(Err(error));
                }
                None
            }
        }
    }

    /// Whether the relay or gateway has answered.
    pub(crate) fn is_reached(&self) -> bool {
        matches!(self.sight, Some(Ok(_)))
    }

    /// Asks several relays or gateways at once, each a single time.
    pub(crate) async fn ask_all(relays: Vec<Self>) -> Vec<Self> {
        let mut asking = JoinSet::new();
        for mut relay in relays {
            asking.spawn(async move {
                relay.ask(0).await;
                relay
            });
        }
        asking.join_all().await
    }

    /// Asks the relay `times` times, to find the shortest round trip. Ends at the first question
    /// without an answer.
    async fn measure(&mut self, times: usize) {
        for _ in 0..times {
            if self.ask(0).await.is_none() {
                return;
            }
        }
    }
}

/// What a round of questions to relays and gateways has shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Look {
    /// How the NAT maps ports.
    pub mapping: Mapping,
    /// The address at which relays see this node; empty without an answer.
    pub address: String,
    /// The addresses between which ports can be predicted; `None` if they can't be.
    pub preserved: Option<Preserved>,
    /// The grid's relays that are up.
    pub relays: Vec<Relay>,
    /// Gateways of other sites that can be reached from outside.
    pub gateways: Vec<Relay>,
    /// The interval in which everything is probed anew, as the gateway gave it; zero if it gave
    /// none.
    pub probe_interval: Duration,
}

impl Look {
    /// Relays that were reached.
    pub(crate) fn reached(&self) -> impl Iterator<Item = &Relay> {
        self.relays.iter().filter(|relay| relay.is_reached())
    }

    /// Addresses of the relays and gateways that have answered.
    pub(crate) fn reflectors(&self) -> Vec<SocketAddr> {
        let gateways = self.gateways.iter().filter(|gateway| gateway.is_reached());
        self.reached().chain(gateways).filter_map(|answered| answered.at).collect()
    }

    /// How many rounds in a row had no answer; `before` is their number before this round.
    pub(crate) fn unanswered(&self, before: u32) -> u32 {
        let none_asked = self.relays.is_empty() && self.gateways.is_empty();
        if none_asked || !self.reflectors().is_empty() { 0 } else { before + 1 }
    }

    /// Measures the round trips to all relays and to some gateways.
    pub(crate) async fn measure(&mut self) {
        for relay in &mut self.relays {
            relay.measure(ROUND_TRIPS).await;
        }
        self.gateways.truncate(GATEWAYS);
        self.gateways = Relay::ask_all(std::mem::take(&mut self.gateways)).await;
        self.gateways.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Whether this node can dial out, after `unanswered` rounds without an answer.
    pub(crate) fn way_out(&self, unanswered: u32) -> WayOut {
        match (self.reflectors().is_empty(), unanswered) {
            (false, _) => WayOut::Yes,
            (true, ..UNANSWERED) => WayOut::Unknown,
            (true, _) => WayOut::No,
        }
    }
}

/// Asks two relays or gateways how this node is seen; a single one is asked twice. Relays come
/// first.
pub(crate) async fn look(directory: proto::Directory) -> Look {
    let entries = |entries: Vec<proto::DirectoryEntry>, places: Option<&RelayPlaces>| {
        let entries = entries.into_iter().take(DIRECTORY_RELAYS);
        entries.map(|entry| Relay::new(entry, places.cloned())).collect::<Vec<_>>()
    };
    let places = RelayPlaces::new(&directory.relay_places);
    let mut relays = entries(directory.relays, Some(&places));
    let mut gateways = entries(directory.gateways, None);
    let probe_interval = Duration::from_secs(directory.probe_interval_s.into());
    let mut sightings: Vec<Sighting> = Vec::new();
    let mut all: Vec<&mut Relay> = relays.iter_mut().chain(&mut gateways).take(ASKED).collect();
    match all.as_mut_slice() {
        [] => {}
        [only] => {
            for _ in 0..2 {
                sightings.extend(only.ask(0).await);
            }
        }
        all => {
            for relay in all {
                // From the same port: a NAT may map it by the destination.
                let port = sightings.first().map_or(0, |first| first.local.port());
                sightings.extend(relay.ask(port).await);
                if sightings.len() == 2 {
                    break;
                }
            }
        }
    }
    let address = sightings.last().map(|sighting| sighting.seen.ip().to_string()).unwrap_or_default();
    let last = sightings.last().filter(|_| preserved(&sightings));
    let preserved = last.map(|sighting| Preserved { local: sighting.local.ip(), seen: sighting.seen.ip() });
    Look { mapping: Mapping::of(&sightings), address, preserved, relays, gateways, probe_interval }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_prediction_is_not_made_again() {
        let look = |seen: &str| {
            let ip = |text: &str| text.parse().unwrap();
            let preserved = Some(Preserved { local: ip("10.0.0.2"), seen: ip(seen) });
            Look { preserved, ..Look::default() }
        };
        let outside = Outside::default();
        assert!(!outside.predicts());
        outside.set(&look("192.0.2.1"));
        assert!(outside.predicts());
        outside.drop_prediction();
        outside.set(&look("192.0.2.1"));
        assert!(!outside.predicts());
        outside.drop_prediction();
        outside.set(&look("192.0.2.1"));
        assert!(!outside.predicts());
        outside.set(&look("192.0.2.9"));
        assert!(outside.predicts(), "the address has changed");
    }

    #[test]
    fn whether_a_node_can_dial_out() {
        let relay = |sight: Option<Result<Duration, String>>| {
            let at = sight.as_ref().filter(|sight| sight.is_ok()).map(|_| ([192, 0, 2, 7], 1).into());
            Relay { name: "r".to_owned(), address: "r:1".to_owned(), at, places: None, sight }
        };
        let (reached, failed) = (Some(Ok(Duration::from_millis(1))), Some(Err("no answer".to_owned())));
        for (name, relays, gateways, want) in [
            ("none to ask", vec![], vec![], [WayOut::Unknown; 3]),
            (
                "none reached",
                vec![relay(failed.clone()), relay(None)],
                vec![relay(failed.clone())],
                // One round without an answer decides nothing.
                [WayOut::Unknown, WayOut::No, WayOut::No],
            ),
            (
                "a relay reached",
                vec![relay(failed.clone()), relay(reached.clone())],
                vec![],
                [WayOut::Yes; 3],
            ),
            ("a gateway reached", vec![relay(failed)], vec![relay(reached)], [WayOut::Yes; 3]),
        ] {
            let look = Look { relays, gateways, ..Look::default() };
            let mut unanswered = 0;
            let found = [(); 3].map(|()| {
                unanswered = look.unanswered(unanswered);
                look.way_out(unanswered)
            });
            assert_eq!(found, want, "{name}");
        }
    }
}
