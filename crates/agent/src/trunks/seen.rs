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

/// All trunks, by their peers' names. They are asked at once, so that some which don't
/// answer cost no more time than one.
pub(crate) async fn seen(registry: &Registry) -> proto::TrunksReply {
    let mut all = registry.all();
    let left_out = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    let asked = all
        .into_iter()
        .map(|(peer, standing)| tokio::spawn(async move { timeout(ANSWER, trunk(&peer, &standing)).await }));
    let asked: Vec<_> = asked.collect();
    let mut reply = proto::TrunksReply { trunks: Vec::new(), left_out: clamped(left_out) };
    for answer in asked {
        match answer.await {
            Ok(Ok(trunk)) => reply.trunks.extend(trunk),
            Ok(Err(_)) | Err(_) => reply.left_out = reply.left_out.saturating_add(1),
        }
    }
    reply
}

/// `None` if it has ended.
async fn trunk(peer: &GridName, standing: &Standing) -> Option<proto::Trunk> {
    let kept = &standing.kept;
    let snapshot = kept.trunk.status().await?;
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
        streams: clamped(snapshot.trunk.streams),
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

fn clamped(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
