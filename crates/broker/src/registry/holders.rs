//! Which gateways hold which contacts, because they looked them up: those are
//! told when one changes, and no other.

use std::collections::{BTreeMap, BTreeSet};

use isthmus_wire::{Label, VirtualAddress};

use super::{Effect, Party, Registry, changed};

/// The gateways that may hold a contact. One that has gone holds nothing: its
/// place here is of no effect.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<VirtualAddress, BTreeSet<Party>>);

impl Holders {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Registry {
    /// A gateway was given a contact.
    pub(super) fn holds(&mut self, site: &Label, gateway: &Label, address: VirtualAddress) {
        self.holders.0.entry(address).or_default().insert(Party::gateway(site, gateway));
    }

    /// A contact has changed: says so to the gateways that looked it up, which
    /// forget it, and to those of the node's own site, which answer for it
    /// unasked; not to the one that said so itself.
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
