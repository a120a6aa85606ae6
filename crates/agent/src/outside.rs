//! How this node is seen from outside its site, found out by asking relays, and
//! asked again now and then: networks change under running agents.

use std::sync::Mutex;
use std::time::Duration;

use isthmus_net::contact::{mapping_from_wire, mapping_to_wire, reflectors};
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
/// How many are asked at most until one has told.
const ASKED: usize = 4;
/// Rounds in which nobody answers until that is taken for having no way out: one
/// may be bad luck.
const UNANSWERED: u32 = 2;

/// Relays, or other sites' gateways, that have told how this node is seen, and can tell again.
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
        let mut unanswered = 0;
        loop {
            upstream.ready().await;
            let Look { mut seen, reflectors, asked } = look(upstream).await;
            let known = !reflectors.is_empty();
            unanswered = if known || asked == 0 { 0 } else { unanswered + 1 };
            seen.way_out = way_out(known, unanswered).into();
            *lock(&self.0) = Known { reflectors, mapping: mapping_from_wire(seen.mapping()) };
            if seen != told {
                tracing::info!(
                    mapping = ?seen.mapping(), address = seen.address, way_out = ?seen.way_out(),
                    "how this node is seen from outside"
                );
                told = seen.clone();
                upstream.tell(attach_up::Kind::Seen(seen)).await;
            }
            tokio::time::sleep(if known { INTERVAL } else { pause }).await;
            pause = if known { BACKOFF.0 } else { (pause * 2).min(BACKOFF.1) };
        }
    }
}

/// What follows from whether somebody told, and how often in a row nobody did.
fn way_out(told: bool, unanswered: u32) -> proto::WayOut {
    match (told, unanswered) {
        (true, _) => proto::WayOut::Yes,
        (false, ..UNANSWERED) => proto::WayOut::Unknown,
        (false, _) => proto::WayOut::No,
    }
}

/// One round.
struct Look {
    seen: proto::Seen,
    /// Those that told.
    reflectors: Vec<String>,
    /// How many were asked.
    asked: usize,
}

/// Asks two, or one twice.
async fn look(upstream: &Upstream) -> Look {
    let grid = upstream.grid().await.unwrap_or_default();
    let all = reflectors(&grid, upstream.site());
    let (mut sightings, mut reflectors) = (Vec::new(), Vec::new());
    match all.as_slice() {
        [] => {}
        [only] => {
            for _ in 0..2 {
                note(only, 0, &mut sightings, &mut reflectors).await;
            }
            reflectors.dedup();
        }
        all => {
            for relay in all.iter().take(ASKED) {
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
    let seen = proto::Seen { mapping, address, ..proto::Seen::default() };
    Look { seen, reflectors, asked: all.len() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_without_an_answer_says_nothing_yet() {
        for (told, unanswered, want) in [
            (true, 0, proto::WayOut::Yes),
            (false, 0, proto::WayOut::Unknown),
            (false, 1, proto::WayOut::Unknown),
            (false, 2, proto::WayOut::No),
            (false, 7, proto::WayOut::No),
        ] {
            assert_eq!(way_out(told, unanswered), want, "{told} {unanswered}");
        }
    }
}
