//! Folds the records of relays.

use isthmus_service::mac::Secret;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{RelayName, bounds};

use super::make_room;
use crate::records::RelayRecord;
use crate::{Effect, Party, Registry, RelayEntry, SessionId};

impl Registry {
    pub(crate) fn fold_relay(
        &mut self,
        name: &RelayName,
        session: SessionId,
        record: RelayRecord,
    ) -> Vec<Effect> {
        let Some(key) = Secret::from_slice(&record.key) else { return Vec::new() };
        let usable_before = self.usable_relays();
        let former = self.relays.remove(name);
        make_room(&mut self.relays, bounds::RELAYS + bounds::RELAYING_GATEWAYS, |relay| {
            relay.session.is_none()
        });
        let mut effects = Vec::new();
        if let Some(old) = former.and_then(|former| former.session).filter(|old| *old != session) {
            let reason = format!("another relay of the name {name} has attached");
            effects.push(Effect::Close { session: old, reason });
        }
        let message = attach_down::Kind::RelayKey(proto::RelayKey { key: record.key, unix_seconds: 0 });
        effects.push(Effect::Send { to: Party::Relay(name.clone()), message });
        let entry = RelayEntry {
            session: Some(session),
            address: record.up.address,
            version: record.up.version,
            key,
            report: proto::RelayReport::default(),
        };
        self.relays.insert(name.clone(), entry);
        if self.usable_relays() != usable_before {
            effects.extend(self.everything_changed());
        }
        effects
    }

    pub(crate) fn fold_relay_gone(&mut self, name: &RelayName) -> Vec<Effect> {
        let usable_before = self.usable_relays();
        if let Some(relay) = self.relays.get_mut(name) {
            relay.session = None;
        }
        if self.usable_relays() == usable_before { Vec::new() } else { self.everything_changed() }
    }

    /// Which pairs of sites have a relay: `None` for all, as there is one of its own. Otherwise those
    /// for which one of these gateways may relay.
    fn usable_relays(&self) -> Option<Vec<RelayName>> {
        let names = self.attached_relays().map(|(name, _)| name);
        let has_one = names.clone().any(|name| matches!(name, RelayName::Relay(_)));
        (!has_one).then(|| names.cloned().collect())
    }
}
