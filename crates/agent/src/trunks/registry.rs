//! The trunks of this node that stand, and which node is being dialed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_identity::Identity;
use isthmus_link::Peers;
use isthmus_reach::ReachError;
use isthmus_trunk::TrunkId;
use isthmus_wire::GridName;

/// A trunk that stands.
pub(crate) type Standing = isthmus_link::Standing<()>;

/// All trunks of this node.
#[derive(Debug, Default)]
pub(crate) struct Registry(Peers<(), ReachError>);

impl Registry {
    /// The trunks by their peers.
    pub(crate) fn peers(&self) -> &Peers<(), ReachError> {
        &self.0
    }

    /// The newest trunk to a node that this node has made, by its own plan.
    pub(crate) fn own(&self, peer: &GridName) -> Option<Arc<Standing>> {
        self.0.with(peer).into_iter().rfind(|standing| standing.kept.is_own)
    }

    /// The newest trunk to a node that the other node has made, whose way is known and which isn't
    /// cut.
    pub(crate) fn other(&self, peer: &GridName) -> Option<Arc<Standing>> {
        let usable = |standing: &Arc<Standing>| {
            !standing.kept.is_own && standing.last().way.is_some() && !standing.kept.is_cut()
        };
        self.0.with(peer).into_iter().rfind(usable)
    }

    /// Whether all trunks with a node are cut, whichever end made them; `None` if there is none.
    pub(crate) fn are_cut(&self, peer: &GridName) -> Option<bool> {
        let standing = self.0.with(peer);
        (!standing.is_empty()).then(|| standing.iter().all(|standing| standing.kept.is_cut()))
    }

    /// For how long all trunks with a node have been cut; `None` if one works, or there is none.
    pub(crate) fn cut_for(&self, peer: &GridName) -> Option<Duration> {
        let standing = self.0.with(peer);
        let since: Option<Vec<Instant>> =
            standing.iter().map(|standing| *standing.kept.cut().borrow()).collect();
        since?.into_iter().max().map(|last| last.elapsed())
    }

    /// The trunk of this id whose other end is this identity.
    pub(crate) fn find(&self, peer: &Identity, id: TrunkId) -> Option<Arc<Standing>> {
        self.0.find(&peer.grid_name()?, id).filter(|standing| *standing.kept.peer == *peer)
    }
}
