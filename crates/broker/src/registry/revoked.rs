//! Revoked identities. Gateways receive all of them when they attach, and each new one.
//! They pass them on to their agents. A relay needs none: it admits tickets, which the
//! broker mints for attached nodes alone.

use isthmus_net::peers::{Revoked, messages};
use isthmus_wire::proto::{self, attach_down};

use super::{Effect, Party, Registry};

impl Registry {
    pub(super) fn fold_revoked(&mut self, identity: String, entry: Option<proto::Revocation>) -> Vec<Effect> {
        let Some(entry) = entry else {
            self.revoked.remove(&identity);
            return Vec::new();
        };
        self.revoked.insert(identity, entry.clone());
        let message = attach_down::Kind::Revocations(proto::Revocations { revoked: vec![entry] });
        let gateways = self.sites.iter().flat_map(|(site, site_entry)| site_entry.parties(site));
        gateways.map(|to| Effect::Send { to, message: message.clone() }).collect()
    }

    /// All revocations, for a gateway that has just attached.
    pub(super) fn revocations_for(&self, to: &Party) -> Vec<Effect> {
        let list = self.revoked.values().cloned().map(Revoked::from).collect();
        let message = |revocations| attach_down::Kind::Revocations(revocations);
        messages(list).map(|some| Effect::Send { to: to.clone(), message: message(some) }).collect()
    }
}
