//! Tells the keeper since when sent data waits to be acknowledged.

use std::time::Instant;

use super::Ends;
use crate::trunk::{Notice, Waits};

impl Ends {
    /// When waiting data will have waited for too long; `None` if that is told already, or nothing
    /// waits.
    pub(super) fn too_late(&self) -> Option<Instant> {
        let is_told = self.waits.is_some_and(|told| told.too_long);
        self.core.waits_since().filter(|_| !is_told).map(|since| since + self.core.patience())
    }

    /// Tells the keeper of waiting data: once it takes too long, and whenever what was told has
    /// changed. With `at_once`, tells it in any case, before news of a carrier.
    pub(super) fn tell_waits(&mut self, at_once: bool, now: Instant) {
        let (told, patience) = (self.waits, self.core.patience());
        let matters = self.core.waits_since().and_then(|since| {
            let told = told.filter(|told| told.since == since);
            // Patience may grow meanwhile.
            let too_long = since + patience <= now || told.is_some_and(|told| told.too_long);
            (at_once || too_long || told.is_some()).then_some(Waits { since, too_long })
        });
        if matters != told {
            self.waits = matters;
            self.tell(Notice::Waits(matters));
        }
    }
}
