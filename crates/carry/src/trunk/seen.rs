//! What users see of trunks.

use std::sync::Arc;

use isthmus_service::clock::{micros, millis};
use isthmus_trunk::{CarrierState, Purpose};
use isthmus_wire::proto;
use tokio::time::timeout;

use super::handle::ANSWER;
use super::{CarrierSnapshot, DecidedBy, Kept};

/// Most trunks that are shown at once: all of them fit into a message.
pub const MOST: usize = 256;

/// A trunk that a user is to see.
#[derive(Debug)]
pub struct Shown {
    /// Grid name of the trunk's other end.
    pub peer: String,
    /// What is known of the trunk.
    pub kept: Arc<Kept>,
    /// The route of the trunk's last carrier.
    pub route: proto::Route,
    /// The dial of the trunk's last carrier.
    pub dial: proto::Dial,
    /// The relay on the last carrier's way; empty if there is none.
    pub relay: String,
}

/// The message that shows these trunks, in this order. All are asked at once, so that several which
/// don't answer cost no more time than one.
pub async fn seen(mut all: Vec<Shown>) -> proto::TrunksReply {
    let left_out = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    let asked = all.into_iter().map(|shown| tokio::spawn(timeout(ANSWER, trunk(shown))));
    let asked: Vec<_> = asked.collect();
    let mut reply = proto::TrunksReply { left_out: clamped(left_out), ..proto::TrunksReply::default() };
    for answer in asked {
        match answer.await {
            Ok(Ok(trunk)) => reply.trunks.extend(trunk),
            Ok(Err(_)) | Err(_) => reply.left_out = reply.left_out.saturating_add(1),
        }
    }
    reply
}

/// What a user sees of a trunk; `None` if it has ended.
async fn trunk(shown: Shown) -> Option<proto::Trunk> {
    let Shown { peer, kept, route, dial, relay } = shown;
    let snapshot = kept.trunk.status().await?;
    let cut = kept.cut().borrow().map(|since| since.elapsed());
    let pauses = kept.pauses();
    Some(proto::Trunk {
        peer,
        made_here: kept.is_own,
        route: route.into(),
        dial: dial.into(),
        relay,
        age_ms: millis(kept.made.elapsed()),
        cut_ms: cut.map(millis),
        pauses: pauses.count,
        paused_ms: millis(pauses.total),
        streams: clamped(snapshot.trunk.streams),
        held_bytes: snapshot.trunk.held,
        unread_bytes: snapshot.trunk.unread,
        carriers: snapshot.carriers.iter().map(carrier).collect(),
    })
}

fn carrier(CarrierSnapshot { status, tcp, control, ends, .. }: &CarrierSnapshot) -> proto::Carrier {
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
        ends: ends.clone(),
        congestion_control: control.name.clone(),
        congestion_by: congestion_by(control.decided_by).into(),
        bound_bytes_per_second: control.bound,
    }
}

fn congestion_by(decided: DecidedBy) -> proto::CongestionBy {
    match decided {
        DecidedBy::Isthmus => proto::CongestionBy::Isthmus,
        DecidedBy::SystemForSmall => proto::CongestionBy::SystemForSmall,
        DecidedBy::SystemWithoutBbr => proto::CongestionBy::SystemWithoutBbr,
        DecidedBy::SystemAsConfigured => proto::CongestionBy::SystemAsConfigured,
    }
}

fn clamped(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
