//! Tells the keeper since when what was sent waits to be acknowledged.

use std::time::Instant;

use super::Ends;
use crate::trunk::{Notice, Waits};

impl Ends {
    /// When what waits has waited for too long, if that isn't told yet.
    pub(super) fn too_late(&self) -> Option<Instant> {
        let is_told = self.waits.is_some_and(|told| told.too_long);
        self.core.waits_since().filter(|_| !is_told).map(|since| since + self.core.patience())
    }

    /// Tells it once it takes too long, or before something is told of a carrier (`at_once`),
    /// and once what was told has changed.
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
