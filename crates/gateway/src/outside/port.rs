//! What is known of the port outside.

use std::sync::Arc;

use isthmus_plan::Reach;
use isthmus_rpc::seen;
use isthmus_splice::ReachTests;
use isthmus_wire::proto;
use tokio::sync::watch;

/// The last result of testing the port outside, and the reach tests that are expected.
#[derive(Debug)]
pub(crate) struct OutsidePort {
    pub(crate) reach_tests: Arc<ReachTests>,
    reach: watch::Sender<Option<Reach>>,
}

impl Default for OutsidePort {
    fn default() -> Self {
        Self { reach_tests: Arc::default(), reach: watch::Sender::new(None) }
    }
}

impl OutsidePort {
    /// The last result of a test; `None` before the first.
    pub(crate) fn reach(&self) -> Option<proto::Reach> {
        self.reach.borrow().as_ref().map(seen::reach_to_wire)
    }

    /// The results of tests, the last one and those that come.
    pub(crate) fn results(&self) -> watch::Receiver<Option<Reach>> {
        self.reach.subscribe()
    }

    /// Notes the result of a test; returns it as the broker is told.
    pub(super) fn set(&self, reach: &Reach) -> proto::Reach {
        self.reach.send_replace(Some(reach.clone()));
        seen::reach_to_wire(reach)
    }
}
