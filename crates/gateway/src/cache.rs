//! Contacts of other sites, filled on demand, and which contacts were sent to
//! agents, which may hold them. Plain data.

use std::collections::{BTreeMap, BTreeSet};

use isthmus_wire::{VirtualAddress, proto};

/// Most contacts that are held; beyond that, the cache is cleared. At about 300 bytes each they
/// take 5 MB.
const MAX_CONTACTS: usize = 16 * 1024;

/// Contacts of nodes of other sites, and which contacts agents hold.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    contacts: BTreeMap<VirtualAddress, proto::LookupReply>,
    /// The addresses of the contacts, by grid name.
    names: BTreeMap<String, VirtualAddress>,
    /// Contacts of other sites that agents may hold: they were sent, and have not changed since.
    sent: BTreeSet<VirtualAddress>,
    /// Contacts of the own site that agents may hold. They don't depend on the broker.
    sent_own: BTreeSet<VirtualAddress>,
    /// How many changes there were, so that an answer from before a change isn't kept.
    changes: u64,
}

/// The state of the cache when a lookup was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked(u64);

impl Cache {
    /// The contact that a lookup asks for, if it is known.
    pub(crate) fn find(&self, request: &proto::LookupRequest) -> Option<&proto::LookupReply> {
        let address = VirtualAddress::new(request.virtual_address.into());
        self.contacts.get(&address.or_else(|| self.names.get(&request.name).copied())?)
    }

    /// The present state of the cache; to be called before the broker is asked.
    pub(crate) fn asking(&self) -> Asked {
        Asked(self.changes)
    }

    /// Keeps the broker's answer if the node is up. Returns `false` if something has changed since
    /// the lookup was sent: the answer is out of date.
    pub(crate) fn insert(&mut self, asked: Asked, reply: &proto::LookupReply) -> bool {
        if asked.0 != self.changes {
            return false;
        }
        if let Some(address) = address_of(reply)
            && let Some(node) = reply.node.as_ref().filter(|node| node.up)
        {
            if self.contacts.len() >= MAX_CONTACTS {
                self.contacts.clear();
                self.names.clear();
            }
            self.names.insert(node.name.clone(), address);
            self.contacts.insert(address, reply.clone());
        }
        true
    }

    /// Notes that a contact of another site was sent to an agent.
    pub(crate) fn sent(&mut self, reply: &proto::LookupReply) {
        self.sent.extend(address_of(reply));
    }

    /// Notes that a contact of the own site was sent to an agent.
    pub(crate) fn sent_own(&mut self, reply: &proto::LookupReply) {
        self.sent_own.extend(address_of(reply));
    }

    /// Drops a contact that has changed. Returns whether agents may hold it.
    pub(crate) fn changed(&mut self, address: VirtualAddress) -> bool {
        self.changes += 1;
        self.contacts.remove(&address);
        let own = self.sent_own.remove(&address);
        self.sent.remove(&address) || own
    }

    /// Notes that plans may have changed, but nothing that the broker told. Returns whether agents
    /// may hold a contact of another site.
    pub(crate) fn plans_changed(&mut self) -> bool {
        !std::mem::take(&mut self.sent).is_empty()
    }

    /// Drops all contacts, as every contact of another site may have changed. Returns whether
    /// agents may hold such a contact.
    pub(crate) fn all_changed(&mut self) -> bool {
        self.changes += 1;
        self.contacts.clear();
        self.names.clear();
        !std::mem::take(&mut self.sent).is_empty()
    }
}

fn address_of(reply: &proto::LookupReply) -> Option<VirtualAddress> {
    reply.node.as_ref().and_then(|node| VirtualAddress::new(node.virtual_address.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> VirtualAddress {
        VirtualAddress::new([240, 64, 2, last].into()).unwrap()
    }

    fn reply(last: u8, up: bool) -> proto::LookupReply {
        let node = proto::Node {
            name: format!("n{last}.beta"),
            virtual_address: address(last).ip().into(),
            up,
            ..proto::Node::default()
        };
        proto::LookupReply { node: Some(node), ..proto::LookupReply::default() }
    }

    fn by_address(last: u8) -> proto::LookupRequest {
        proto::LookupRequest { virtual_address: address(last).ip().into(), ..Default::default() }
    }

    #[test]
    fn contacts_are_found_by_address_and_by_name_until_they_change() {
        let mut cache = Cache::default();
        assert!(cache.insert(cache.asking(), &reply(1, true)));
        let by_name = |name: &str| proto::LookupRequest { name: name.to_owned(), ..Default::default() };
        assert!(cache.find(&by_address(1)).is_some());
        assert!(cache.find(&by_name("n1.beta")).is_some());
        assert!(cache.find(&by_address(2)).is_none());
        assert!(cache.find(&by_name("")).is_none());
        cache.changed(address(1));
        assert!(cache.find(&by_address(1)).is_none());
    }

    #[test]
    fn answers_out_of_date_and_nodes_that_are_down_are_not_kept() {
        let mut cache = Cache::default();
        let asked = cache.asking();
        cache.changed(address(7));
        assert!(!cache.insert(asked, &reply(1, true)));
        assert!(cache.insert(cache.asking(), &reply(2, false)));
        assert!(cache.find(&by_address(1)).is_none());
        assert!(cache.find(&by_address(2)).is_none());
    }

    #[test]
    fn a_change_matters_for_contacts_that_were_sent() {
        let mut cache = Cache::default();
        for last in 1..=3 {
            cache.sent(&reply(last, true));
        }
        assert!(cache.changed(address(1)));
        assert!(!cache.changed(address(1)), "agents have dropped it already");
        assert!(!cache.changed(address(9)));
        cache.sent_own(&reply(4, true));
        cache.insert(cache.asking(), &reply(3, true));
        assert!(cache.plans_changed() && !cache.plans_changed());
        assert!(cache.find(&by_address(3)).is_some(), "the broker may be away");
        cache.sent(&reply(3, true));
        assert!(cache.all_changed());
        assert!(!cache.all_changed());
        assert!(!cache.changed(address(2)));
        assert!(cache.changed(address(4)), "a contact of the own site doesn't depend on the broker");
    }
}
