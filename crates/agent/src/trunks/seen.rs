//! What a user sees of this node's trunks.

use std::sync::Arc;

use isthmus_carry::trunk::Kept;
use isthmus_carry::trunk::seen::{Shown, seen};
use isthmus_wire::{GridName, proto};

use super::registry::{Registry, Standing};

impl Registry {
    /// What a user sees of all trunks, in the order of their peers' names.
    pub(crate) async fn seen(&self) -> proto::TrunksReply {
        seen(self.peers().all().iter().map(shown).collect()).await
    }

    /// All trunks, each with the site at its other end.
    pub(crate) fn by_site(&self) -> Vec<(String, Arc<Kept>)> {
        let all = self.peers().all().into_iter();
        all.map(|(peer, standing)| (peer.site.to_string(), standing.kept.clone())).collect()
    }
}

fn shown((peer, standing): &(GridName, Arc<Standing>)) -> Shown {
    let way = standing.last().way;
    Shown {
        peer: peer.to_string(),
        kept: standing.kept.clone(),
        route: way.as_ref().map(|way| way.route).unwrap_or_default(),
        dial: way.as_ref().map(|way| way.dial).unwrap_or_default(),
        relay: way.map(|way| way.relay).unwrap_or_default(),
    }
}
