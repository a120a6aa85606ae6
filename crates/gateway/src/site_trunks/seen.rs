//! What users see of the trunks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_carry::trunk::Kept;
use isthmus_carry::trunk::seen::{Shown, seen};
use isthmus_wire::proto::{self, Route};

use super::{SiteTrunks, Standing};

/// How long an answer is good. An answer takes the workers some time, which the agents of a site
/// can't use up by asking.
const GOOD: Duration = Duration::from_secs(1);

/// The last answer, and when it was given.
pub(super) type Last = tokio::sync::Mutex<Option<(Instant, proto::TrunksReply)>>;

impl SiteTrunks {
    /// All trunks as they were at most a second ago, in the order of the other gateways' grid
    /// names.
    pub(crate) async fn seen(&self) -> proto::TrunksReply {
        let mut last = self.seen.lock().await;
        if let Some((_, reply)) = last.as_ref().filter(|(when, _)| when.elapsed() < GOOD) {
            return reply.clone();
        }
        let shown = |standing: &Standing| Shown { route: Route::TwoGateway, ..standing.shown() };
        let reply = seen(self.peers.all().iter().map(|(_, standing)| shown(standing)).collect()).await;
        *last = Some((Instant::now(), reply.clone()));
        reply
    }

    /// All trunks, each with the site at its other end.
    pub(crate) fn by_site(&self) -> Vec<(String, Arc<Kept>)> {
        self.peers.by_site()
    }
}
