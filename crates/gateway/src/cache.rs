//! Contacts of other sites, filled on demand, and which contacts agents were
//! told and so may hold themselves. Plain data.

use std::collections::{BTreeMap, BTreeSet};

use isthmus_wire::{VirtualAddress, proto};

/// Contacts that are held at most; beyond it the cache starts afresh. At about
/// 300 bytes each they take 5 MB.
const MAX_CONTACTS: usize = 16 * 1024;

/// The cache.
#[derive(Debug, Default)]
pub struct Cache {
    contacts: BTreeMap<VirtualAddress, proto::LookupReply>,
    /// Their addresses by grid name.
    names: BTreeMap<String, VirtualAddress>,
    /// Contacts of other sites, told to agents since they were last told of a
    /// change.
    told: BTreeSet<VirtualAddress>,
    /// The same for contacts of the own site, which don't depend on the broker.
    told_of_own: BTreeSet<VirtualAddress>,
    /// Counts what made contacts out of date, so that an answer that was under
    /// way meanwhile isn't kept.
    changes: u64,
}

/// The state of the cache when a question was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked(u64);

impl Cache {
    /// A contact, if it is known.
    pub fn find(&self, request: &proto::LookupRequest) -> Option<&proto::LookupReply> {
        let address = VirtualAddress::new(request.virtual_address.into());
        self.contacts.get(&address.or_else(|| self.names.get(&request.name).copied())?)
    }

    /// To be called before the broker is asked.
    pub fn asking(&self) -> Asked {
        Asked(self.changes)
    }

    /// Takes the broker's answer, unless something changed since it was asked
    /// or there is nothing lasting in it. False if it is out of date already.
    pub fn insert(&mut self, asked: Asked, reply: &proto::LookupReply) -> bool {
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

    /// A contact was told to an agent.
    pub fn tell(&mut self, reply: &proto::LookupReply) {
        self.told.extend(address_of(reply));
    }

    /// A contact of the own site was told to an agent.
    pub fn tell_of_own(&mut self, reply: &proto::LookupReply) {
        self.told_of_own.extend(address_of(reply));
    }

    /// A contact changed. True if agents may hold it.
    pub fn changed(&mut self, address: VirtualAddress) -> bool {
        self.changes += 1;
        self.contacts.remove(&address);
        let of_own = self.told_of_own.remove(&address);
        self.told.remove(&address) || of_own
    }

    /// Every contact of another site may have changed. True if agents may hold
    /// one.
    pub fn all_changed(&mut self) -> bool {
        self.changes += 1;
        self.contacts.clear();
        self.names.clear();
        !std::mem::take(&mut self.told).is_empty()
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
        proto::LookupRequest { virtual_address: address(last).ip().into(), name: String::new() }
    }

    #[test]
    fn contacts_are_found_by_address_and_by_name_until_they_change() {
        let mut cache = Cache::default();
        assert!(cache.insert(cache.asking(), &reply(1, true)));
        let by_name = |name: &str| proto::LookupRequest { virtual_address: 0, name: name.to_owned() };
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
    fn agents_are_told_of_changes_of_what_they_were_told() {
        let mut cache = Cache::default();
        for last in 1..=3 {
            cache.tell(&reply(last, true));
        }
        assert!(cache.changed(address(1)));
        assert!(!cache.changed(address(1)), "they know already");
        assert!(!cache.changed(address(9)));
        cache.tell_of_own(&reply(4, true));
        assert!(cache.all_changed());
        assert!(!cache.all_changed());
        assert!(!cache.changed(address(2)));
        assert!(cache.changed(address(4)), "the broker has no say in it");
    }
}
