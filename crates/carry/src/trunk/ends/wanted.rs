//! How many carriers the end that dials keeps.

use std::time::{Duration, Instant};

use isthmus_trunk::{CarrierState, CarrierStatus, Purpose, Wanted};

use super::Ends;
use crate::trunk::Notice;

/// Interval between questions whether as many carriers are needed as there are.
const RECONSIDER: Duration = Duration::from_secs(5);

impl Ends {
    /// Tells the keeper how many carriers are wanted, if that has changed. Lets those leave that
    /// aren't wanted any more.
    pub(super) fn keep_wanted(&mut self, now: Instant) {
        let (Some(before), false) = (self.wanted, self.ended) else {
            self.reconsider = None;
            return;
        };
        let wanted = self.core.wanted(now);
        if wanted != before {
            self.wanted = Some(wanted);
            self.tell(Notice::Wanted(wanted));
        }
        if wanted == Wanted::LEAST {
            self.reconsider = None;
        } else if self.reconsider.is_none_or(|at| at <= now) {
            self.reconsider = Some(now + RECONSIDER);
        }
        if self.carriers.len() > wanted.bulk + usize::from(wanted.small) {
            self.leave_surplus(wanted, now);
        }
    }

    /// Lets carriers leave that aren't wanted, the oldest first: the end that has dialed the latest
    /// may have noticed a cut of the others. Carriers that aren't live, or whose way back isn't shown
    /// to work, don't count: they may never be of use.
    fn leave_surplus(&mut self, wanted: Wanted, now: Instant) {
        let live = |purpose: Purpose| {
            let core = &self.core;
            let ids = self.carriers.iter().map(|(carrier, _)| carrier.id);
            let mut live: Vec<_> = ids
                .filter(|id| {
                    let status = core.carrier(*id);
                    let works = |it: &CarrierStatus| it.state == CarrierState::Live && it.proved;
                    status.is_some_and(|it| works(&it) && it.purpose == purpose)
                })
                .collect();
            live.sort_unstable();
            live
        };
        let (bulk, small) = (live(Purpose::Bulk), live(Purpose::Small));
        let keep_small = usize::from(wanted.small || bulk.is_empty());
        for id in bulk.iter().rev().skip(wanted.bulk).chain(small.iter().rev().skip(keep_small)) {
            self.core.leave(*id, now);
        }
    }
}
