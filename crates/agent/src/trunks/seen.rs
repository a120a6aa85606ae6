//! What a user sees of this node's trunks.

use isthmus_carry::trunk::seen::seen;
use isthmus_wire::proto;

use super::registry::Registry;

impl Registry {
    /// What a user sees of all trunks, in the order of their peers' names.
    pub(crate) async fn seen(&self) -> proto::TrunksReply {
        seen(self.peers().all().iter().map(|(_, standing)| standing.shown()).collect()).await
    }
}
