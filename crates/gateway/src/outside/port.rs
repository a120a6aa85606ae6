//! What is known of the port outside.

use std::sync::{Arc, Mutex};

use isthmus_plan::Reach;
use isthmus_rpc::seen;
use isthmus_service::lock;
use isthmus_splice::ReachTests;
use isthmus_wire::proto;

/// The last result of testing the port outside, and the reach tests that are expected.
#[derive(Debug, Default)]
pub(crate) struct OutsidePort {
    pub(crate) reach_tests: Arc<ReachTests>,
    reach: Mutex<Option<proto::Reach>>,
}

impl OutsidePort {
    /// The last result of a test; `None` before the first.
    pub(crate) fn reach(&self) -> Option<proto::Reach> {
        lock(&self.reach).clone()
    }

    /// Notes the result of a test; returns it as the broker is told.
    pub(super) fn set(&self, reach: &Reach) -> proto::Reach {
        let reach = seen::reach_to_wire(reach);
        *lock(&self.reach) = Some(reach.clone());
        reach
    }
}
