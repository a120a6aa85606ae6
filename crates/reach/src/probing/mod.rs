//! Measures what this node's site lets in and out, in the terms of RFC 4787 and
//! RFC 5780. It repeats the measurement, because networks change.
//!
//! | module | what |
//! |---|---|
//! | [`inbound`] | whether relays reach this agent |
//! | [`egress`] | which ports outside answer |
//! | [`filtering`] | what is let in to a port that the node connects from |
mod egress;
mod filtering;
mod inbound;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_plan::{Mapping, Reach, WayOut};
use isthmus_rpc::enums::{filtering_to_wire, mapping_to_wire, unsolicited_to_wire, way_out_to_wire};
use isthmus_rpc::grpc;
use isthmus_rpc::seen::{answers_to_wire, for_plans, reach_to_wire};
use isthmus_service::clock::micros;
use isthmus_service::clock::unix_ms;
use isthmus_service::mac;
use isthmus_wire::proto::{self, attach_up};
use tokio::task::JoinSet;

use crate::control_plane::Relays;
use crate::outside::{Look, Outside, Relay, look};
use crate::rendezvous::PendingRendezvous;

/// How often relays are asked how this node is seen. Asking costs two connections.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// How often everything is measured anew, unless the gateway gives a longer interval.
const INTERVAL: Duration = Duration::from_secs(300);
/// The first and the longest pause as long as no relay has answered.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// How long the call may take by which a relay dials this node.
const PROBE: Duration = Duration::from_secs(15);

/// What an agent needs to measure what its site lets in and out.
#[derive(Debug, Clone)]
pub struct Probing {
    /// The way to the broker and its relays.
    pub control: Arc<dyn Relays>,
    /// Where the connections of relays arrive.
    pub rendezvous: Arc<PendingRendezvous>,
    /// How this node is seen from outside.
    pub outside: Arc<Outside>,
    /// The address at which this agent listens, as its site sees it, `HOST:PORT`.
    pub address: String,
    /// The agent's declared address for connections from outside; empty for none.
    pub outside_address: String,
    /// The port that the agent listens on.
    pub port: u16,
}

/// Asks relays and other sites' gateways how this party is seen from outside. `outside` then knows
/// by which port it can be punched to.
pub async fn look_outside(outside: &Outside, directory: proto::Directory) -> proto::Seen {
    let look = look(directory).await;
    outside.set(&look);
    basics(&look, look.way_out(0))
}

impl Probing {
    /// Probes again and again, and sends the gateway what has changed; never
    /// returns.
    pub async fn watch(&self) {
        let mut sent = proto::Seen::default();
        let mut pause = BACKOFF.0;
        let mut due = Instant::now();
        let mut unanswered = 0;
        loop {
            self.control.attached().await;
            let directory = match self.control.directory().await {
                Ok(directory) => directory,
                Err(status) => {
                    // The last result is kept.
                    if sent.look_failure.is_empty() {
                        let reason = grpc::reason(&status);
                        tracing::warn!(reason, "cannot look how this node is seen from outside");
                        sent.look_failure = reason.chars().take(200).collect();
                        self.control.send(attach_up::Kind::Seen(sent.clone())).await;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF.1);
                    continue;
                }
            };
            let look = look(directory.clone()).await;
            unanswered = look.unanswered(unanswered);
            let way_out = look.way_out(unanswered);
            let known = way_out == WayOut::Yes;
            self.outside.set(&look);
            let interval = look.probe_interval.max(INTERVAL);
            let failed_before = !std::mem::take(&mut sent.look_failure).is_empty();
            let met = basics(&look, way_out);
            let moved = (met.mapping(), &met.address, met.way_out())
                != (sent.mapping(), &sent.address, sent.way_out())
                // Nothing further is measured without a way out, so that what was met is all there is.
                || !known && (&met.relays, &met.gateways) != (&sent.relays, &sent.gateways);
            if moved {
                // The last result is out of date.
                sent = met;
                tracing::info!(
                    mapping = %look.mapping, address = look.address, %way_out,
                    "how this node is seen from outside"
                );
                self.control.send(attach_up::Kind::Seen(sent.clone())).await;
            }
            if failed_before && !moved {
                self.control.send(attach_up::Kind::Seen(sent.clone())).await;
            }
            if known && (moved || Instant::now() >= due) {
                let seen = self.measure(look, &mut sent).await;
                let (before, after) = (for_plans(Some(&sent)), for_plans(Some(&seen)));
                if before != after {
                    tracing::info!(
                        filtering = ?seen.filtering(),
                        own = ?seen.own.as_ref().map(proto::Reach::result),
                        outside = ?seen.outside.as_ref().map(proto::Reach::result),
                        "what this site lets in"
                    );
                }
                sent = seen;
                self.control.send(attach_up::Kind::Seen(sent.clone())).await;
                due = Instant::now() + jittered(interval);
            }
            let wait = if known { jittered(LOOK_INTERVAL) } else { pause };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.control.directory_changed(&directory) => {
                    tokio::time::sleep(after_change(interval)).await;
                    due = Instant::now();
                }
            }
            pause = if known { BACKOFF.0 } else { (pause * 2).min(BACKOFF.1) };
        }
    }

    /// Measures everything, beginning with what `look` has shown. Round trips are sent at once, with
    /// what else was `sent` before: the rest takes seconds, and trunks wait for a nearer relay.
    async fn measure(&self, mut look: Look, sent: &mut proto::Seen) -> proto::Seen {
        let reached: Vec<_> = look.reached().cloned().collect();
        look.measure().await;
        let (relays, gateways) = (sights(&look.relays), sights(&look.gateways));
        let early = proto::Seen { relays, gateways, ..sent.clone() };
        if for_plans(Some(&early)) != for_plans(Some(sent)) {
            *sent = early;
            self.control.send(attach_up::Kind::Seen(sent.clone())).await;
        }
        let mut seen = basics(&look, WayOut::Yes);
        if let Some(relay) = reached.first() {
            let own = async {
                match self.own_address(&look) {
                    Ok(address) => inbound::reach(self, relay, &address).await,
                    Err(detail) => Reach { detail, ..Reach::default() },
                }
            };
            let outside = async {
                match self.outside_address(&look) {
                    Some(address) => inbound::reach(self, relay, &address).await,
                    None => Reach::default(),
                }
            };
            let filter = filtering::find(self, &reached, look.mapping);
            let mut hosts: JoinSet<_> =
                reached.iter().take(egress::HOSTS).cloned().map(egress::find).collect();
            let (own, outside, filter) = tokio::join!(own, outside, filter);
            while let Some(Ok(answers)) = hosts.join_next().await {
                seen.egress.push(answers_to_wire(answers));
            }
            seen.egress.sort_by(|a, b| a.relay.cmp(&b.relay));
            seen.own = Some(reach_to_wire(&own));
            seen.outside = Some(reach_to_wire(&outside));
            seen.filtering = filtering_to_wire(filter.filtering).into();
            seen.unsolicited = unsolicited_to_wire(filter.unsolicited).into();
        }
        seen.measured_unix_ms = unix_ms();
        seen
    }

    /// This agent's address inside its site, for a relay to dial. An error says why no relay can.
    fn own_address(&self, look: &Look) -> Result<String, String> {
        match look.mapping {
            Mapping::Untranslated => Ok(self.address.clone()),
            Mapping::Unknown => Err("how the node is seen from outside is not known".to_owned()),
            Mapping::EndpointIndependent | Mapping::PortDependent => Err(format!(
                "{} is not valid outside the site: the node is seen as {}",
                self.address, look.address
            )),
        }
    }

    /// The address outside the site at which a relay is to dial this agent. That is the declared
    /// address, or this agent's port at the address that relays see.
    fn outside_address(&self, look: &Look) -> Option<String> {
        if !self.outside_address.is_empty() {
            return (self.outside_address != self.address).then(|| self.outside_address.clone());
        }
        let translated = matches!(look.mapping, Mapping::EndpointIndependent | Mapping::PortDependent);
        let ip = look.address.parse().ok().filter(|_| translated)?;
        Some(SocketAddr::new(ip, self.port).to_string())
    }
}

/// What a single look has shown, without further measurements.
fn basics(look: &Look, way_out: WayOut) -> proto::Seen {
    proto::Seen {
        mapping: mapping_to_wire(look.mapping).into(),
        address: look.address.clone(),
        way_out: way_out_to_wire(way_out).into(),
        relays: sights(&look.relays),
        gateways: sights(&look.gateways),
        ..proto::Seen::default()
    }
}

fn sights(relays: &[Relay]) -> Vec<proto::RelaySight> {
    let sights = relays.iter().filter_map(|relay| {
        let (round_trip_us, failure) = match relay.sight.as_ref()? {
            Ok(round_trip) => (micros(*round_trip).max(1), String::new()),
            Err(failure) => (0, failure.chars().take(200).collect()),
        };
        let (name, address) = (relay.name.clone(), relay.address.clone());
        Some(proto::RelaySight { relay: name, address, round_trip_us, failure })
    });
    sights.collect()
}

/// How long a node waits after a change of the directory. It is at most a hundredth of the probing
/// interval, so that the nodes of a large grid don't probe at once.
fn after_change(interval: Duration) -> Duration {
    let [random] = mac::random::<1>();
    interval * u32::from(random) / 25_600
}

/// The interval, and up to a tenth more. Many nodes start at once, and should not probe at once.
fn jittered(interval: Duration) -> Duration {
    let [random] = mac::random::<1>();
    interval + interval * u32::from(random) / 2560
}
