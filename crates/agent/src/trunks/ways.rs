//! How the carriers of a trunk were dialed.

use std::collections::HashMap;

use isthmus_trunk::CarrierId;

use super::registry::Way;

/// Carriers of a trunk whose ways are known: as many as it may have at once.
const CARRIERS: usize = 64;

/// How each carrier of a trunk was dialed, by whichever end.
#[derive(Debug, Default)]
pub(super) struct Ways {
    by_carrier: HashMap<CarrierId, Way>,
    /// That of a carrier which is about to join: it carries before its number is known here.
    joining: Option<Way>,
    /// The last carrier that has joined and hasn't ended.
    last: Option<CarrierId>,
}

impl Ways {
    /// One that this end has dialed in this way is about to join.
    pub(super) fn joins(&mut self, way: Option<Way>) {
        self.joining = way;
    }

    pub(super) fn joining(&self) -> Option<Way> {
        self.joining.clone()
    }

    pub(super) fn of(&self, carrier: CarrierId) -> Option<Way> {
        self.by_carrier.get(&carrier).cloned()
    }

    /// One has joined, and how it was dialed, if that is known.
    pub(super) fn joined(&mut self, carrier: CarrierId, way: Option<Way>) {
        self.joining = None;
        self.last = Some(carrier);
        self.by_carrier.extend(way.map(|way| (carrier, way)));
    }

    /// The other end has told how it has dialed one; whether that is the trunk's last. One that
    /// is not named is.
    pub(super) fn told(&mut self, carrier: Option<CarrierId>, way: &Way) -> bool {
        let Some(carrier) = carrier else { return true };
        if self.by_carrier.len() < CARRIERS || self.by_carrier.contains_key(&carrier) {
            self.by_carrier.insert(carrier, way.clone());
        }
        self.last.is_none_or(|last| last == carrier)
    }

    /// One has ended; how the one was dialed that is the trunk's last instead.
    pub(super) fn ended(&mut self, carrier: CarrierId) -> Option<Way> {
        self.by_carrier.remove(&carrier);
        if self.last != Some(carrier) {
            return None;
        }
        self.last = self.by_carrier.keys().copied().max();
        self.by_carrier.get(&self.last?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use isthmus_wire::proto;

    use super::*;

    fn by(dial: proto::Dial) -> Way {
        Way { route: proto::Route::EndToEnd, dial, relay: String::new() }
    }

    #[test]
    fn what_is_told_of_another_carrier_says_nothing_of_the_last() {
        let (punch, relay) = (by(proto::Dial::Punch), by(proto::Dial::Relay));
        let [first, second] = [1, 2].map(CarrierId);
        let mut ways = Ways::default();
        assert!(ways.told(None, &relay), "an agent of before names none");
        ways.joined(first, None);
        assert!(ways.told(Some(first), &relay));
        ways.joined(second, Some(punch.clone()));
        assert!(!ways.told(Some(first), &relay));
        assert_eq!((ways.of(first), ways.of(second)), (Some(relay.clone()), Some(punch.clone())));
        // The last one is another one now.
        assert_eq!(ways.ended(second), Some(relay));
        assert_eq!(ways.ended(first), None);
        assert!(ways.told(Some(second), &punch), "there is none");
    }
}
