//! How this node is seen from outside its site, found out by asking relays, and
//! asked again now and then: networks change under running agents.

use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::contact::{mapping_from_wire, mapping_to_wire};
use isthmus_net::dial::{DialError, PunchPort};
use isthmus_plan::Mapping;
use isthmus_plan::mapping::Sighting;
use isthmus_wire::proto::{self, attach_up};

use crate::job::lock;
use crate::upstream::Upstream;

/// How long a relay may take to tell.
pub const REFLECTION_DEADLINE: Duration = Duration::from_secs(3);
/// How often relays are asked.
const INTERVAL: Duration = Duration::from_secs(300);
/// First and longest pause as long as no relay has told.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

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

    /// Keeps asking, and tells the gateway when the answer changes; never
    /// returns.
    pub async fn watch(&self, upstream: &Upstream) {
        let mut told = proto::Seen::default();
        let mut pause = BACKOFF.0;
        loop {
            upstream.ready().await;
            let (seen, reflectors) = look(upstream).await;
            let known = !reflectors.is_empty();
            *lock(&self.0) = Known { reflectors, mapping: mapping_from_wire(seen.mapping()) };
            if seen != told {
                tracing::info!(mapping = ?seen.mapping(), address = seen.address, "how this node is seen from outside");
                told = seen.clone();
                upstream.tell(attach_up::Kind::Seen(seen)).await;
            }
            tokio::time::sleep(if known { INTERVAL } else { pause }).await;
            pause = if known { BACKOFF.0 } else { (pause * 2).min(BACKOFF.1) };
        }
    }
}

/// Asks two relays, or one twice.
async fn look(upstream: &Upstream) -> (proto::Seen, Vec<String>) {
    let grid = upstream.grid().await.unwrap_or_default();
    let relays: Vec<String> =
        grid.relays.into_iter().filter(|relay| relay.up).map(|relay| relay.address).collect();
    let (mut sightings, mut reflectors) = (Vec::new(), Vec::new());
    match relays.as_slice() {
        [] => {}
        [only] => {
            for _ in 0..2 {
                note(only, 0, &mut sightings, &mut reflectors).await;
            }
            reflectors.dedup();
        }
        all => {
            for relay in all {
                // From the same port, to see whether that makes a difference.
                let port = sightings.first().map_or(0, |first: &Sighting| first.local.port());
                note(relay, port, &mut sightings, &mut reflectors).await;
                if sightings.len() == 2 {
                    break;
                }
            }
        }
    }
    let address = sightings.last().map(|sighting| sighting.seen.ip().to_string()).unwrap_or_default();
    let mapping = mapping_to_wire(Mapping::of(&sightings)).into();
    (proto::Seen { mapping, address }, reflectors)
}

async fn note(relay: &str, port: u16, sightings: &mut Vec<Sighting>, reflectors: &mut Vec<String>) {
    match asked(relay, port).await {
        Ok(sighting) => {
            sightings.push(sighting);
            reflectors.push(relay.to_owned());
        }
        Err(error) => tracing::debug!(relay, %error, "a relay does not tell how this node is seen"),
    }
}

async fn asked(relay: &str, port: u16) -> Result<Sighting, DialError> {
    let port = PunchPort::open_at(relay, port, REFLECTION_DEADLINE).await?;
    Ok(Sighting { local: port.local(), seen: port.seen() })
}
