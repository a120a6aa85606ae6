//! Revoked identities. Gateways receive all of them when they attach, and each new one.
//! They pass them on to their agents. The registry itself forgets the revoked party:
//! no ticket is sealed for it, and nobody is told of it.
//!
//! A relay receives none. It knows no identities: it admits tickets alone, and the broker
//! seals none for a node that is down.

use isthmus_identity::Role;
use isthmus_identity::peers::{Revoked, messages};
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, RelayName};

use super::{Effect, Party, Registry};

/// The party that a revoked identity names.
enum Named {
    Gateway(Label, Label),
    Relay(RelayName),
    Node(GridName),
}

impl Registry {
    pub(super) fn fold_revoked(&mut self, identity: String, entry: Option<proto::Revocation>) -> Vec<Effect> {
        let Some(entry) = entry else {
            self.revoked.remove(&identity);
            return Vec::new();
        };
        let mut effects = match read(&identity) {
            Some(Named::Gateway(site, name)) => {
                let mut effects = self.drop_gateway(&site, &name);
                effects.extend(self.drop_relay(&RelayName::Gateway(GridName { node: name, site })));
                effects
            }
            Some(Named::Relay(name)) => self.drop_relay(&name),
            Some(Named::Node(node)) => {
                let address = self.addresses.address(&node);
                address.map(|address| self.put_down(address, None)).unwrap_or_default()
            }
            None => Vec::new(),
        };
        self.revoked.insert(identity, entry.clone());
        let message = attach_down::Kind::Revocations(proto::Revocations { revoked: vec![entry] });
        let gateways = self.sites.iter().flat_map(|(site, site_entry)| site_entry.parties(site));
        effects.extend(gateways.map(|to| Effect::Send { to, message: message.clone() }));
        effects
    }

    /// Ends a relay's attachment and forgets its key. Whoever has taken the relay's machine could
    /// seal tickets with the key.
    fn drop_relay(&mut self, name: &RelayName) -> Vec<Effect> {
        let session = self.relays.get(name).and_then(|relay| relay.session);
        let mut effects = self.fold_relay_gone(name);
        self.relays.remove(name);
        effects.extend(session.map(|session| closed(session, &Party::Relay(name.clone()))));
        effects
    }

    /// Ends a gateway's attachment and forgets its key. Its nodes are lost until they attach to
    /// another gateway.
    fn drop_gateway(&mut self, site: &Label, name: &Label) -> Vec<Effect> {
        let session = self.gateway_mut(site, name).and_then(|gateway| gateway.session);
        let mut effects = self.fold_gateway_gone(site, name);
        if let Some(entry) = self.sites.get_mut(site) {
            entry.gateways.remove(name);
        }
        effects.extend(session.map(|session| closed(session, &Party::gateway(site, name))));
        effects
    }

    /// All revocations, for a gateway that has just attached.
    pub(super) fn revocations_for(&self, to: &Party) -> Vec<Effect> {
        let list = self.revoked.values().cloned().map(Revoked::from).collect();
        let message = |revocations| attach_down::Kind::Revocations(revocations);
        messages(list).map(|some| Effect::Send { to: to.clone(), message: message(some) }).collect()
    }
}

fn closed(session: super::SessionId, party: &Party) -> Effect {
    Effect::Close { session, reason: format!("the certificates of {party} are revoked") }
}

/// The party whose URI without owner this is.
fn read(uri: &str) -> Option<Named> {
    let parts: Vec<&str> = uri.strip_prefix("isthmus:///")?.split('/').collect();
    let [role, site, name, ""] = parts[..] else { return None };
    let name: Label = name.parse().ok()?;
    if role == Role::Relay.as_str() {
        return Some(Named::Relay(RelayName::Relay(name)));
    }
    let site: Label = site.parse().ok()?;
    if role == Role::Gateway.as_str() {
        Some(Named::Gateway(site, name))
    } else if role == Role::Agent.as_str() {
        Some(Named::Node(GridName { node: name, site }))
    } else {
        None
    }
}
