//! How this node is seen from outside its site: relays, and gateways of other
//! sites, are asked, which tell where a connection came from.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::dial::PunchPort;
use isthmus_net::lock;
use isthmus_plan::mapping::{Sighting, preserved};
use isthmus_plan::{Mapping, WayOut};
use isthmus_wire::bounds::DIRECTORY_RELAYS;
use isthmus_wire::proto;
use tokio::task::JoinSet;

/// How long a relay may take to tell.
pub const REFLECTION_DEADLINE: Duration = Duration::from_secs(3);
/// How many are asked at most until two have told.
const ASKED: usize = 4;
/// Rounds in which nobody answers until that is taken for having no way out: one
/// may be bad luck.
const UNANSWERED: u32 = 2;

/// Those that have told how this node is seen, and can tell again.
#[derive(Debug, Default)]
pub struct Outside(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    reflectors: Vec<String>,
    mapping: Mapping,
    foreseen: Option<Foreseen>,
    /// What turned out wrong.
    wrong: Option<Foreseen>,
}

/// Where ports come out as they are: this node's address, and the one that it is
/// seen at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreseen {
    local: IpAddr,
    seen: IpAddr,
}

impl Outside {
    /// One that can be asked.
    pub fn reflector(&self) -> Option<String> {
        lock(&self.0).reflectors.first().cloned()
    }

    /// What becomes of this node's ports on the way out, as far as is known.
    pub fn mapping(&self) -> Mapping {
        lock(&self.0).mapping
    }

    /// A port to punch from: one that is foreseen to be seen as it is, or, with
    /// `ask` and where nothing is foreseen, one that a relay has been asked about;
    /// `reflector`, if it isn't one that this node knows.
    ///
    /// # Errors
    /// If there is nobody to ask, or no answer.
    pub async fn port(&self, ask: bool, reflector: Option<&str>) -> Result<PunchPort, String> {
        let foreseen = lock(&self.0).foreseen.filter(|_| !ask);
        if let Some(Foreseen { local, seen }) = foreseen
            && let Ok(port) = PunchPort::predicted(local, seen)
        {
            return Ok(port);
        }
        let reflector = reflector.map(str::to_owned).or_else(|| self.reflector());
        let reflector = reflector.ok_or("no relay can be asked how this node is seen")?;
        PunchPort::open(&reflector, REFLECTION_DEADLINE).await.map_err(|error| error.to_string())
    }

    /// Whether ports are foreseen.
    pub fn foresees(&self) -> bool {
        lock(&self.0).foreseen.is_some()
    }

    /// What was foreseen was wrong: until the address changes nothing is.
    pub fn foresee_nothing(&self) {
        let mut known = lock(&self.0);
        known.wrong = known.foreseen.take().or(known.wrong);
    }

    /// This is known now.
    pub fn set(&self, look: &Look) {
        let mut known = lock(&self.0);
        known.reflectors = look.reflectors();
        known.mapping = look.mapping;
        known.foreseen = look.foreseen.filter(|foreseen| Some(*foreseen) != known.wrong);
    }
}

/// One of the grid's relays, or another site's gateway, as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// Its name.
    pub name: String,
    /// `HOST:PORT`.
    pub address: String,
    /// The shortest round trip so far, or why it wasn't reached; none if nobody
    /// has tried.
    pub sight: Option<Result<Duration, String>>,
}

impl Relay {
    fn new(entry: proto::DirectoryEntry) -> Self {
        Self { name: entry.name, address: entry.address, sight: None }
    }

    /// Asks it how a port is seen; any port for 0.
    async fn ask(&mut self, port: u16) -> Option<Sighting> {
        match PunchPort::open_at(&self.address, port, REFLECTION_DEADLINE).await {
            Ok(port) => {
                let shortest = match &self.sight {
                    Some(Ok(before)) => port.round_trip().min(*before),
                    Some(Err(_)) | None => port.round_trip(),
                };
                self.sight = Some(Ok(shortest));
                Some(Sighting { local: port.local(), seen: port.seen() })
            }
            Err(error) => {
                tracing::debug!(relay = self.name, %error, "a relay does not tell how this node is seen");
                if !self.is_reached() {
                    self.sight = Some(Err(error.to_string()));
                }
                None
            }
        }
    }

    /// Whether it has been reached.
    pub fn is_reached(&self) -> bool {
        matches!(self.sight, Some(Ok(_)))
    }

    /// Asks several at the same time, once each.
    pub async fn ask_all(relays: Vec<Self>) -> Vec<Self> {
        let mut asking = JoinSet::new();
        for mut relay in relays {
            asking.spawn(async move {
                relay.ask(0).await;
                relay
            });
        }
        asking.join_all().await
    }

    /// Asks it some times for the shortest round trip.
    pub async fn measure(&mut self, times: usize) {
        for _ in 0..times {
            if self.ask(0).await.is_none() {
                return;
            }
        }
    }
}

/// What a look around showed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// What becomes of ports.
    pub mapping: Mapping,
    /// The address that relays see; empty if none told.
    pub address: String,
    /// Where ports come out as they are.
    pub foreseen: Option<Foreseen>,
    /// The grid's relays that are up.
    pub relays: Vec<Relay>,
    /// Gateways of other sites that can be reached from outside.
    pub gateways: Vec<Relay>,
    /// How often the gateway wants everything found out anew; zero if it has no
    /// wish.
    pub probe_interval: Duration,
}

impl Look {
    /// Relays that were reached.
    pub fn reached(&self) -> impl Iterator<Item = &Relay> {
        self.relays.iter().filter(|relay| relay.is_reached())
    }

    /// Where those are that have told.
    pub fn reflectors(&self) -> Vec<String> {
        let gateways = self.gateways.iter().filter(|gateway| gateway.is_reached());
        self.reached().chain(gateways).map(|told| told.address.clone()).collect()
    }

    /// Rounds in a row in which nobody answered, after so many before this one.
    pub fn unanswered(&self, before: u32) -> u32 {
        let nobody = self.relays.is_empty() && self.gateways.is_empty();
        if nobody || !self.reflectors().is_empty() { 0 } else { before + 1 }
    }

    /// Whether this node gets out, after so many rounds without an answer.
    pub fn way_out(&self, unanswered: u32) -> WayOut {
        match (self.reflectors().is_empty(), unanswered) {
            (false, _) => WayOut::Yes,
            (true, ..UNANSWERED) => WayOut::Unknown,
            (true, _) => WayOut::No,
        }
    }
}

/// Asks two, or one twice; relays first.
pub async fn look(directory: proto::Directory) -> Look {
    let entries = |entries: Vec<proto::DirectoryEntry>| {
        entries.into_iter().take(DIRECTORY_RELAYS).map(Relay::new).collect::<Vec<_>>()
    };
    let (mut relays, mut gateways) = (entries(directory.relays), entries(directory.gateways));
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
                // From the same port, to see whether that makes a difference.
                let port = sightings.first().map_or(0, |first| first.local.port());
                sightings.extend(relay.ask(port).await);
                if sightings.len() == 2 {
                    break;
                }
            }
        }
    }
    let address = sightings.last().map(|sighting| sighting.seen.ip().to_string()).unwrap_or_default();
    let foreseen = sightings.last().filter(|_| preserved(&sightings));
    let foreseen = foreseen.map(|sighting| Foreseen { local: sighting.local.ip(), seen: sighting.seen.ip() });
    Look { mapping: Mapping::of(&sightings), address, foreseen, relays, gateways, probe_interval }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_foreseen_wrong_is_not_foreseen_again() {
        let look = |seen: &str| {
            let ip = |text: &str| text.parse().unwrap();
            let foreseen = Some(Foreseen { local: ip("10.0.0.2"), seen: ip(seen) });
            Look { foreseen, ..Look::default() }
        };
        let outside = Outside::default();
        assert!(!outside.foresees());
        outside.set(&look("192.0.2.1"));
        assert!(outside.foresees());
        outside.foresee_nothing();
        outside.set(&look("192.0.2.1"));
        assert!(!outside.foresees());
        outside.foresee_nothing();
        outside.set(&look("192.0.2.1"));
        assert!(!outside.foresees());
        outside.set(&look("192.0.2.9"));
        assert!(outside.foresees(), "another network, or another day");
    }

    #[test]
    fn whether_a_node_gets_out() {
        let relay = |sight| Relay { name: "r".to_owned(), address: "r:1".to_owned(), sight };
        let (reached, failed) = (Some(Ok(Duration::from_millis(1))), Some(Err("no answer".to_owned())));
        for (name, relays, gateways, want) in [
            ("nobody there", vec![], vec![], [WayOut::Unknown; 3]),
            (
                "nobody reached",
                vec![relay(failed.clone()), relay(None)],
                vec![relay(failed.clone())],
                // One round without an answer says nothing yet.
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
