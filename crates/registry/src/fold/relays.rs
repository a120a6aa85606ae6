//! Folds the records of relays.

use isthmus_service::mac::Secret;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{Label, bounds};

use super::make_room;
use crate::records::RelayRecord;
use crate::{Effect, Party, Registry, RelayEntry, SessionId};

impl Registry {
    pub(crate) fn fold_relay(
        &mut self,
        name: &Label,
        session: SessionId,
        record: RelayRecord,
    ) -> Vec<Effect> {
        let Some(key) = Secret::from_slice(&record.key) else { return Vec::new() };
        let relays_before = self.relays_up();
        let former = self.relays.remove(name);
        make_room(&mut self.relays, bounds::RELAYS, |relay| relay.session.is_none());
        let mut effects = Vec::new();
        if let Some(old) = former.and_then(|former| former.session).filter(|old| *old != session) {
            let reason = format!("another relay of the name {name} has attached");
            effects.push(Effect::Close { session: old, reason });
        }
        let message = attach_down::Kind::RelayKey(proto::RelayKey { key: record.key });
        effects.push(Effect::Send { to: Party::Relay(name.clone()), message });
        let entry = RelayEntry {
            session: Some(session),
            address: record.up.address,
            version: record.up.version,
            key,
            report: proto::RelayReport::default(),
        };
        self.relays.insert(name.clone(), entry);
        if relays_before == 0 {
            effects.extend(self.everything_changed());
        }
        effects
    }

    pub(crate) fn fold_relay_gone(&mut self, name: &Label) -> Vec<Effect> {
        let relays_before = self.relays_up();
        if let Some(relay) = self.relays.get_mut(name) {
            relay.session = None;
        }
        if relays_before > 0 && self.relays_up() == 0 { self.everything_changed() } else { Vec::new() }
    }
}
