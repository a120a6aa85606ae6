//! Which trunk a new stream goes over.

use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::{By, Stream};
use isthmus_link::{CarrierWay, dial, established, make};
use isthmus_rpc::enums::dial_name;
use isthmus_rpc::rendezvous::Peer;
use isthmus_trunk::TrunkId;
use isthmus_wire::GridName;
use tokio::time::timeout;
use tracing::info;

use super::dialing::Party;
use super::failed::{NoStream, NoTrunk};
use super::{SiteTrunks, Standing};
use crate::gateway::Gateway;

/// How long connections wait for a trunk that is cut, from the beginning of the cut. Short cuts
/// heal. After that, connections take the next way of their plan until the trunk works again.
const SHORT_CUT: Duration = Duration::from_secs(10);

/// How long dialing a trunk's first carrier may take, by all dials of the plan. Connections of the two sites wait
/// for it. After that they take the next way of their plan.
const DIALING: Duration = Duration::from_secs(30);
/// How long a trunk that works may take to open a stream.
const OPEN: Duration = Duration::from_secs(10);

/// A stream to a gateway, over a trunk that works and has room. The trunk stands already, or is
/// made.
///
/// # Errors
/// Why there is none: how long the trunk is cut, or each dial with its failure.
pub(super) async fn stream_to(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
) -> Result<Stream, NoStream> {
    let mut full = Vec::new();
    loop {
        let standing = trunk_to(gateway, trunks, name, &full).await?;
        let opening = timeout(OPEN, standing.kept.trunk.open_now());
        if let Ok(Some(stream)) = opening.await {
            return Ok(stream);
        }
        full.push(standing.kept.id);
        if trunks.peers.is_full(name) && trunks.standing(name, &full).is_none_or(|other| other.kept.is_cut())
        {
            // No further trunk could be added. Streams that end make room.
            let in_use = |_| NoStream::AllInUse { gateway: name.clone(), trunks: full.len() };
            return Ok(timeout(OPEN, standing.kept.trunk.open()).await.map_err(in_use)??);
        }
    }
}

/// A trunk to a gateway that works and isn't in `but`. The trunk stands already, or is made.
///
/// # Errors
/// Why there is none: how long the trunk is cut, or each dial with its failure.
async fn trunk_to(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
    but: &[TrunkId],
) -> Result<Arc<Standing>, NoStream> {
    let standing = || own_or_working(trunks, name, but);
    match trunks.peers.get_or_dial(name, standing, dialed(gateway, trunks, name)).await {
        Ok(standing) => Ok(standing),
        Err(error) => healed(trunks, name, but).await.ok_or(error),
    }
}

/// Dials a trunk to a gateway.
///
/// # Errors
/// Each dial with its failure.
async fn dialed(
    gateway: &Arc<Gateway>,
    trunks: &Arc<SiteTrunks>,
    name: &GridName,
) -> Result<Arc<Standing>, NoStream> {
    let dialing = async {
        let party = Party::new(gateway, trunks);
        let late = |_| NoTrunk::Late(DIALING);
        let peer = Peer::Gateway(name.clone());
        let dialing = timeout(DIALING, dial(&party, name, peer.clone(), By::default()));
        let (dialed, _) = dialing.await.map_err(late)??;
        let CarrierWay { dial, relay, .. } = &dialed.way.how;
        info!(peer = %name, dial = %dial_name(*dial), relay, "a trunk with another site's gateway");
        let standing = make(&party, name, peer, dialed).await?;
        let mut cut = standing.kept.cut();
        let works = async { drop(cut.wait_for(Option::is_none).await) };
        established(&standing.kept, works).await.map_err(NoTrunk::Silent)?;
        Ok(standing)
    };
    dialing.await.map_err(|error| NoStream::NoTrunk(name.clone(), Arc::new(error)))
}

/// A trunk that works, or why there is none. `None` if a trunk is to be dialed.
async fn own_or_working(
    trunks: &SiteTrunks,
    name: &GridName,
    but: &[TrunkId],
) -> Option<Result<Arc<Standing>, NoStream>> {
    // A trunk that the other end has made is dialed anew by that end, if it still lives.
    let standing = trunks.standing(name, but).filter(|it| !it.kept.is_cut() || it.kept.is_own)?;
    if !standing.kept.is_cut() {
        return Some(Ok(standing));
    }
    if let Some(healed) = healed(trunks, name, but).await {
        return Some(Ok(healed));
    }
    // The trunk may have ended meanwhile.
    let standing = trunks.standing(name, but).filter(|it| it.kept.is_own)?;
    let cut = (*standing.kept.cut().borrow()).map_or(Duration::ZERO, |since| since.elapsed());
    Some(Err(NoStream::Cut { gateway: name.clone(), cut }))
}

/// Waits until a trunk works, as long as a trunk stands and its cut is short.
async fn healed(trunks: &SiteTrunks, name: &GridName, but: &[TrunkId]) -> Option<Arc<Standing>> {
    let mut changes = trunks.changes.subscribe();
    loop {
        changes.mark_unchanged();
        let standing = trunks.standing(name, but)?;
        let Some(since) = *standing.kept.cut().borrow() else { return Some(standing) };
        let left = SHORT_CUT.checked_sub(since.elapsed())?;
        timeout(left, changes.changed()).await.ok()?.ok()?;
    }
}
