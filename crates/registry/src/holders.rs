//! Which gateways hold which contacts, because they looked them up. The broker sends a contact's
//! change only to the gateways that hold it.

use std::collections::{BTreeMap, BTreeSet};

use isthmus_wire::{Label, VirtualAddress};

use super::fold::changed;
use super::{Effect, Party, Registry};

/// The gateways that may hold each contact. An entry of a detached gateway has no effect.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<VirtualAddress, BTreeSet<Party>>);

impl Holders {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Registry {
    /// Notes that a gateway received a contact.
    pub(super) fn holds(&mut self, site: &Label, gateway: &Label, address: VirtualAddress) {
        self.holders.0.entry(address).or_default().insert(Party::gateway(site, gateway));
    }

    /// Tells a contact's change to the gateways that looked the contact up, and to the other
    /// gateways of the node's own site. `but` is the gateway that reported the change.
    pub(super) fn contact_changed(&mut self, address: VirtualAddress, but: Option<&Party>) -> Vec<Effect> {
        let mut to = self.holders.0.remove(&address).unwrap_or_default();
        if let Some(name) = self.addresses.node(address)
            && let Some(site) = self.sites.get(&name.site)
        {
            to.extend(site.parties(&name.site));
        }
        to.into_iter().filter(|to| Some(to) != but).map(|to| changed(to, address.ip().into())).collect()
    }
}
