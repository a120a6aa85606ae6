//! How this node is seen from outside its site: relays are asked, which tell
//! where a connection came from.

use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::dial::PunchPort;
use isthmus_plan::mapping::Sighting;
use isthmus_plan::{Egress, Mapping};
use isthmus_wire::proto;

use crate::job::lock;
use crate::upstream::Upstream;

/// How long a relay may take to tell.
pub const REFLECTION_DEADLINE: Duration = Duration::from_secs(3);
/// Relays that are looked at.
const MOST_RELAYS: usize = 32;

/// Relays that have told how this node is seen, and can tell again.
#[derive(Debug, Default)]
pub struct Outside(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    reflectors: Vec<String>,
    mapping: Mapping,
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

    /// This is known now.
    pub fn set(&self, reflectors: Vec<String>, mapping: Mapping) {
        *lock(&self.0) = Known { reflectors, mapping };
    }
}

/// One of the grid's relays, as this node sees it.
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
    fn new(relay: proto::Relay) -> Self {
        Self { name: relay.name, address: relay.address, sight: None }
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
    /// The grid's relays that are up.
    pub relays: Vec<Relay>,
}

impl Look {
    /// Those that were reached.
    pub fn reached(&self) -> impl Iterator<Item = &Relay> {
        self.relays.iter().filter(|relay| relay.is_reached())
    }

    /// Whether this node gets out.
    pub fn egress(&self) -> Egress {
        match (self.relays.is_empty(), self.reached().next()) {
            (true, _) => Egress::Unknown,
            (false, None) => Egress::None,
            (false, Some(_)) => Egress::Relays,
        }
    }
}

/// Asks two relays, or one twice.
pub async fn look(upstream: &Upstream) -> Look {
    let grid = upstream.grid().await.unwrap_or_default();
    let up = grid.relays.into_iter().filter(|relay| relay.up);
    let mut relays: Vec<Relay> = up.take(MOST_RELAYS).map(Relay::new).collect();
    let mut sightings = Vec::new();
    match relays.as_mut_slice() {
        [] => {}
        [only] => {
            for _ in 0..2 {
                sightings.extend(only.ask(0).await);
            }
        }
        all => {
            for relay in all {
                // From the same port, to see whether that makes a difference.
                let port = sightings.first().map_or(0, |first: &Sighting| first.local.port());
                sightings.extend(relay.ask(port).await);
                if sightings.len() == 2 {
                    break;
                }
            }
        }
    }
    let address = sightings.last().map(|sighting| sighting.seen.ip().to_string()).unwrap_or_default();
    Look { mapping: Mapping::of(&sightings), address, relays }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_a_node_gets_out() {
        let relay = |sight| Relay { name: "r".to_owned(), address: "r:1".to_owned(), sight };
        let (reached, failed) = (Some(Ok(Duration::from_millis(1))), Some(Err("no answer".to_owned())));
        for (name, relays, want) in [
            ("no relay", vec![], Egress::Unknown),
            ("none reached", vec![relay(failed.clone()), relay(None)], Egress::None),
            ("one reached", vec![relay(failed), relay(reached)], Egress::Relays),
        ] {
            let look = Look { relays, ..Look::default() };
            assert_eq!(look.egress(), want, "{name}");
        }
    }
}
