//! Ends the trunks of a gateway that was killed. Its site's programs have lost their connections.
//! Here the trunks would wait for the former process until they are given up, and with them their
//! programs.
//!
//! - If the gateway is back, it has none of its former trunks. They end as soon as a trunk with the
//!   new process works.
//! - If it isn't started again, its trunks end once the broker hasn't had it for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use isthmus_carry::trunk::Kept;
use isthmus_trunk::{Incarnation, Reason};
use isthmus_wire::GridName;
use tokio::time::{sleep, timeout};
use tracing::info;

use super::Standing;
use super::dialing::Party;

/// How long a gateway may be away from the broker while its trunk is broken. One that lives is back by
/// then, also after a restart of the broker: a pause and an attempt to attach take 14 s at most.
const AWAY: Duration = Duration::from_secs(30);
/// How often the broker is asked meanwhile.
const ASK: Duration = Duration::from_secs(1);
/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// What is known of the process at the other end of a trunk.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// Whether it is a former process of its gateway. The trunk ends once it is cut.
    is_former: AtomicBool,
    /// Whether it is watched whether the gateway is gone.
    is_watched: AtomicBool,
}

impl Former {
    pub(super) fn is_former(&self) -> bool {
        self.is_former.load(Ordering::Relaxed)
    }
}

/// Takes in that a trunk works: from now on it ends if its gateway is gone.
pub(super) fn watch(party: &Arc<Party>, standing: &Standing) {
    if !standing.own.is_watched.swap(true, Ordering::Relaxed) {
        tokio::spawn(end_if_gone(party.clone(), Arc::downgrade(&standing.kept), standing.name.clone()));
    }
}

/// Ends a trunk that has broken, once the broker hasn't had its gateway for [`AWAY`]. A network that
/// is cut swallows what is sent, and breaks no connection: a trunk that is cut by silence goes on
/// waiting.
async fn end_if_gone(party: Arc<Party>, kept: Weak<Kept>, name: GridName) {
    loop {
        let Some(mut cut) = kept.upgrade().map(|kept| kept.cut()) else { return };
        // The wait fails once nobody keeps the trunk.
        if cut.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut away = None;
        while let Some(is_broken) =
            kept.upgrade().filter(|kept| kept.is_cut()).map(|kept| kept.broken().is_some())
        {
            let attached = if is_broken { party.is_attached(&name, ANSWER).await } else { None };
            away = away_since(away, attached, Instant::now());
            if away.is_some_and(|since| since.elapsed() >= AWAY) {
                info!(peer = %name, "a gateway is gone: its trunk ends, and connections over it");
                end(&party, &kept, &name).await;
                return;
            }
            sleep(ASK).await;
        }
    }
}

/// Ends a trunk whose other end is gone. If it has connections, agents are told first, so that they
/// know why these end.
async fn end(party: &Party, kept: &Weak<Kept>, name: &GridName) {
    if let Some(kept) = kept.upgrade() {
        let status = timeout(ANSWER, kept.trunk.status()).await;
        if status.is_ok_and(|status| status.is_some_and(|it| it.trunk.streams > 0)) {
            party.gateway.send_gateway_lost(name);
        }
        kept.trunk.close(Reason::Trunk);
    }
}

/// Since when a gateway is away from the broker. `attached` is what the broker says now; `None` if
/// it doesn't answer, as it may have lost all gateways then.
fn away_since(before: Option<Instant>, attached: Option<bool>, now: Instant) -> Option<Instant> {
    match attached {
        Some(false) => before.or(Some(now)),
        Some(true) | None => None,
    }
}

/// Takes in that a trunk with a gateway works. Trunks of the gateway's former incarnations end,
/// each as soon as it is cut. Two processes of the same identity may be there at once for a while.
///
/// Only a party with the key of the gateway's certificate tells an incarnation: each carrier is
/// verified before its HELLO is read.
pub(super) fn on_works(party: &Arc<Party>, standing: &Standing) {
    let kept = &standing.kept;
    let mut of_peer = party.trunks.peers.with(&standing.name);
    of_peer.retain(|it| it.kept.peer == kept.peer);
    let incarnations: Vec<_> = of_peer.iter().map(|it| it.kept.peers_incarnation()).collect();
    for at in former(&incarnations, kept.peers_incarnation()) {
        let former = &of_peer[at];
        if !former.own.is_former.swap(true, Ordering::Relaxed) {
            tokio::spawn(end_once_cut(party.clone(), Arc::downgrade(&former.kept), standing.name.clone()));
        }
    }
}

/// Which trunks with a gateway are with an incarnation that was there before that of the working
/// trunk. The trunks come in the order in which they were made. A trunk whose incarnation isn't
/// known doesn't count.
fn former(incarnations: &[Option<Incarnation>], of_working: Option<Incarnation>) -> Vec<usize> {
    let Some(current) = of_working else { return Vec::new() };
    let first_of = |one| incarnations.iter().position(|it| *it == Some(one));
    let since = first_of(current).unwrap_or_default();
    let is_former = |one: Incarnation| first_of(one).is_some_and(|at| at < since);
    (0..incarnations.len()).filter(|at| incarnations[*at].is_some_and(is_former)).collect()
}

async fn end_once_cut(party: Arc<Party>, kept: Weak<Kept>, peer: GridName) {
    let Some(mut cut) = kept.upgrade().map(|kept| kept.cut()) else { return };
    // The wait fails once nobody keeps the trunk.
    if cut.wait_for(Option::is_some).await.is_err() {
        return;
    }
    drop(cut);
    info!(%peer, "a gateway has started anew: its former trunk ends, and connections over that one");
    end(&party, &kept, &peer).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_away_as_long_as_the_broker_says_so() {
        let begun = Instant::now();
        let at = |second: u64| begun + Duration::from_secs(second);
        // What the broker says, second by second; since which second the gateway is away.
        for (said, want) in [
            (vec![Some(false)], Some(0)),
            (vec![Some(false), Some(false), Some(false)], Some(0)),
            (vec![Some(true), Some(false), Some(false)], Some(1)),
            (vec![Some(false), Some(true)], None),
            // The broker was away as well.
            (vec![Some(false), None, Some(false)], Some(2)),
            (vec![None, None], None),
        ] {
            let seconds = said.iter().zip(0..);
            let got = seconds.fold(None, |before, (said, second)| away_since(before, *said, at(second)));
            assert_eq!(got, want.map(at), "{said:?}");
        }
    }

    #[test]
    fn trunks_of_incarnations_that_were_there_before_are_former() {
        let one = |number: u8| (number > 0).then_some(Incarnation([number; 16]));
        // (incarnations of the trunks that stand, incarnation of the working trunk, indexes of the
        // former trunks)
        for (standing, working, want) in [
            (vec![1], 1, vec![]),
            (vec![1, 2], 2, vec![0]),
            (vec![1, 1, 2, 3], 3, vec![0, 1, 2]),
            // The former incarnation is still there: its trunk works.
            (vec![1, 2], 1, vec![]),
            (vec![1, 2, 1], 1, vec![]),
            (vec![1, 2, 1], 2, vec![0, 2]),
            // A gateway tells no incarnation, or hasn't told it yet.
            (vec![0, 2], 2, vec![]),
            (vec![1, 0], 0, vec![]),
            (vec![0, 1, 0, 2], 2, vec![1]),
            (vec![], 1, vec![]),
        ] {
            let incarnations: Vec<_> = standing.iter().copied().map(one).collect();
            assert_eq!(former(&incarnations, one(working)), want, "{standing:?} {working}");
        }
    }
}
