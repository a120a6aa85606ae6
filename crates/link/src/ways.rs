//! The ways in which the carriers of a trunk were dialed.

use std::collections::HashMap;

use isthmus_trunk::CarrierId;

use crate::way::CarrierWay;

/// Most carriers of a trunk whose ways are known: as many as a trunk may have at once.
const CARRIERS: usize = 64;

/// How each carrier of a trunk was dialed, by whichever end.
#[derive(Debug, Default)]
pub(super) struct Ways {
    by_carrier: HashMap<CarrierId, CarrierWay>,
    /// The way of a carrier that is about to join: it carries before its number is known here.
    joining: Option<CarrierWay>,
    /// The last carrier that has joined and hasn't ended; `None` if there is none.
    last: Option<CarrierId>,
}

impl Ways {
    /// Notes that a carrier is about to join that this end has dialed in this way.
    pub(super) fn joins(&mut self, way: CarrierWay) {
        self.joining = Some(way);
    }

    pub(super) fn joining(&self) -> Option<CarrierWay> {
        self.joining.clone()
    }

    pub(super) fn of(&self, carrier: CarrierId) -> Option<CarrierWay> {
        self.by_carrier.get(&carrier).cloned()
    }

    /// Notes that a carrier has joined, and how it was dialed, if that is known.
    pub(super) fn joined(&mut self, carrier: CarrierId, way: Option<CarrierWay>) {
        self.joining = None;
        self.last = Some(carrier);
        self.by_carrier.extend(way.map(|way| (carrier, way)));
    }

    /// Notes how the other end has dialed a carrier, as it has told. Returns whether that is the
    /// trunk's last carrier. A carrier that isn't named is taken for the last.
    pub(super) fn told(&mut self, carrier: Option<CarrierId>, way: &CarrierWay) -> bool {
        let Some(carrier) = carrier else { return true };
        if self.by_carrier.len() < CARRIERS || self.by_carrier.contains_key(&carrier) {
            self.by_carrier.insert(carrier, way.clone());
        }
        self.last.is_none_or(|last| last == carrier)
    }

    /// Notes that a carrier has ended. If it was the trunk's last, returns the way of the carrier
    /// that is now the last, if that is known.
    pub(super) fn ended(&mut self, carrier: CarrierId) -> Option<CarrierWay> {
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

    fn by(dial: proto::Dial) -> CarrierWay {
        CarrierWay { route: proto::Route::EndToEnd, dial, relay: String::new() }
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
        // The trunk's last carrier is another one now.
        assert_eq!(ways.ended(second), Some(relay));
        assert_eq!(ways.ended(first), None);
        assert!(ways.told(Some(second), &punch), "there is none");
    }
}
