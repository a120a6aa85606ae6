//! Ends the trunks of a gateway that was killed and is back. The new process has none of the former
//! trunks. Trunks that the former process had made would wait for it here until they are given up,
//! and with them their programs. As soon as a trunk with the new process works, the former trunks
//! end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use isthmus_carry::trunk::Kept;
use isthmus_trunk::{Incarnation, Reason};
use tracing::info;

use super::{SiteTrunks, Standing};

/// Whether a trunk is with a former process of its gateway, and ends once it is cut.
#[derive(Debug, Default)]
pub(super) struct Former(AtomicBool);

impl Former {
    pub(super) fn is_former(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Takes in that a trunk with a gateway works. Trunks of the gateway's former incarnations end,
/// each as soon as it is cut. Two processes of the same identity may be there at once for a while.
///
/// Only a party with the key of the gateway's certificate tells an incarnation: each carrier is
/// verified before its HELLO is read.
pub(super) fn on_works(trunks: &SiteTrunks, standing: &Standing) {
    let kept = &standing.kept;
    let mut of_peer = trunks.peers.with(&standing.name);
    of_peer.retain(|it| it.kept.peer == kept.peer);
    let incarnations: Vec<_> = of_peer.iter().map(|it| it.kept.peers_incarnation()).collect();
    for at in former(&incarnations, kept.peers_incarnation()) {
        let former = &of_peer[at];
        if !former.own.0.swap(true, Ordering::Relaxed) {
            tokio::spawn(end_once_cut(Arc::downgrade(&former.kept), standing.name.to_string()));
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

async fn end_once_cut(kept: Weak<Kept>, peer: String) {
    let Some(mut cut) = kept.upgrade().map(|kept| kept.cut()) else { return };
    // The wait fails once nobody keeps the trunk.
    if cut.wait_for(Option::is_some).await.is_err() {
        return;
    }
    drop(cut);
    if let Some(kept) = kept.upgrade() {
        info!(peer, "a gateway has started anew: its former trunk ends, and connections over that one");
        kept.trunk.close(Reason::Trunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
