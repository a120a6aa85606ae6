//! Folds the records of gateways.

use isthmus_rpc::enums::{inbound_from_wire, mapping_from_wire};
use isthmus_service::mac::Secret;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{Label, bounds};

use super::make_room;
use crate::records::GatewayRecord;
use crate::site::{GatewayEntry, specific};
use crate::{Effect, Party, Registry, SessionId};

impl Registry {
    pub(crate) fn fold_gateway(
        &mut self,
        site: &Label,
        name: &Label,
        session: SessionId,
        record: GatewayRecord,
    ) -> Vec<Effect> {
        let Some(key) = Secret::from_slice(&record.key) else { return Vec::new() };
        let mapping = mapping_from_wire(record.mapping());
        let (up, party) = (record.up, Party::gateway(site, name));
        let before = self.declared(site);
        let entry = self.sites.entry(site.clone()).or_default();
        let former = entry.gateways.remove(name);
        make_room(&mut entry.gateways, bounds::GATEWAYS_PER_SITE, |gateway| gateway.session.is_none());
        let (mut inside_address, mut old) = (specific(&up.address).to_owned(), None);
        if let Some(former) = former {
            if inside_address.is_empty() {
                inside_address = former.inside_address;
            }
            old = former.session;
        }
        let gateway = GatewayEntry {
            mapping,
            outside_reach: record.outside_reach,
            session: Some(session),
            inbound: inbound_from_wire(up.inbound()),
            version: up.version,
            outside_address: up.outside_address,
            inside_address,
            likely_address: specific(&up.likely_address).to_owned(),
            key,
            measure_off: up.measure_off,
            site_trunk: up.site_trunk,
        };
        entry.gateways.insert(name.clone(), gateway);
        let mut effects = Vec::new();
        let is_new = old != Some(session);
        if is_new {
            old.and_then(|old| self.gateway_sessions.remove(&old));
            self.gateway_sessions.insert(session, (site.clone(), name.clone()));
            let message = attach_down::Kind::RelayKey(proto::RelayKey { key: record.key, unix_seconds: 0 });
            effects.push(Effect::Send { to: party.clone(), message });
            effects.extend(self.revocations_for(&party));
            effects.push(self.directory_for(party));
        }
        if let Some(old) = old.filter(|_| is_new) {
            let reason = format!(
                "another gateway of site {site} has attached with the name {name}; where there are several, each \
                 needs one of its own (isthmus join --name)"
            );
            effects.push(Effect::Close { session: old, reason });
            self.lose_nodes(site, name);
        }
        if before.is_some() && before != self.declared(site) {
            effects.extend(self.everything_changed());
        }
        if is_new {
            effects.extend(self.siblings_of(site, name));
            effects.extend(self.notices(site));
            effects.extend(self.gateways_of(site));
        }
        effects
    }

    /// Takes in that a gateway's attachment ended. Its nodes are lost, not down: their agents may
    /// still run.
    pub(crate) fn fold_gateway_gone(&mut self, site: &Label, name: &Label) -> Vec<Effect> {
        let before = self.declared(site);
        let session = self.gateway_mut(site, name).and_then(|gateway| gateway.session.take());
        session.and_then(|session| self.gateway_sessions.remove(&session));
        self.lose_nodes(site, name);
        if before == self.declared(site) { Vec::new() } else { self.everything_changed() }
    }
}
