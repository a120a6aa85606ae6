//! What a user sees of this node's trunks.

use std::time::Duration;

use isthmus_carry::trunk::CarrierSnapshot;
use isthmus_net::clock::micros;
use isthmus_trunk::{CarrierState, Purpose};
use isthmus_wire::{GridName, proto};
use tokio::time::timeout;

use super::registry::{Registry, Standing};

/// Trunks that are shown at once: all of them fit into a message.
const MOST: usize = 256;
/// How long a trunk's worker may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// All trunks, by their peers' names.
pub(crate) async fn seen(registry: &Registry) -> proto::TrunksReply {
    let all = registry.all();
    let left_out = u32::try_from(all.len().saturating_sub(MOST)).unwrap_or(u32::MAX);
    let mut trunks = Vec::new();
    for (peer, standing) in all.iter().take(MOST) {
        trunks.extend(trunk(peer, standing).await);
    }
    proto::TrunksReply { trunks, left_out }
}

/// `None` if it has ended.
async fn trunk(peer: &GridName, standing: &Standing) -> Option<proto::Trunk> {
    let kept = &standing.kept;
    let snapshot = timeout(ANSWER, kept.trunk.status()).await.ok()??;
    let way = standing.last().way;
    let cut = kept.cut().borrow().map(|since| since.elapsed());
    let pauses = kept.pauses();
    let lasting = cut.filter(|_| pauses.count > 0).unwrap_or_default();
    Some(proto::Trunk {
        peer: peer.to_string(),
        made_here: kept.is_own,
        route: way.as_ref().map(|way| way.route).unwrap_or_default().into(),
        dial: way.as_ref().map(|way| way.dial).unwrap_or_default().into(),
        relay: way.map(|way| way.relay).unwrap_or_default(),
        age_ms: millis(kept.made.elapsed()),
        cut_ms: cut.map(millis),
        pauses: pauses.count,
        paused_ms: millis(pauses.total + lasting),
        streams: u32::try_from(snapshot.trunk.streams).unwrap_or(u32::MAX),
        held_bytes: snapshot.trunk.held,
        unread_bytes: snapshot.trunk.unread,
        carriers: snapshot.carriers.iter().map(carrier).collect(),
    })
}

fn carrier(CarrierSnapshot { status, tcp, .. }: &CarrierSnapshot) -> proto::Carrier {
    proto::Carrier {
        small: status.purpose == Purpose::Small,
        live: status.state == CarrierState::Live,
        round_trip_us: micros(tcp.rtt),
        congestion_window_bytes: tcp.congestion_window_bytes,
        bytes_per_second: tcp.bytes_per_second,
        unsent_bytes: tcp.unsent_bytes,
        data_segments: tcp.data_segments,
        retransmitted_segments: tcp.retransmitted_segments,
        timeouts: tcp.timeouts,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
