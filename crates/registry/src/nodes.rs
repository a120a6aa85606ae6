//! The nodes that were announced since the broker started, by address and by site.

use std::collections::BTreeMap;
use std::collections::btree_map::{Iter, Values};
use std::ops::Bound;

use isthmus_wire::{Label, VirtualAddress};

use super::NodeEntry;

/// All nodes. None is ever removed: a node whose agent is gone is kept as down.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    by_address: BTreeMap<VirtualAddress, NodeEntry>,
    /// The address of each node, by site and name, for queries about a site.
    by_site: BTreeMap<Label, BTreeMap<Label, VirtualAddress>>,
    /// How many nodes each owner has.
    by_owner: BTreeMap<String, usize>,
}

impl Nodes {
    pub(super) fn get(&self, address: &VirtualAddress) -> Option<&NodeEntry> {
        self.by_address.get(address)
    }

    pub(super) fn get_mut(&mut self, address: &VirtualAddress) -> Option<&mut NodeEntry> {
        self.by_address.get_mut(address)
    }

    pub(super) fn insert(&mut self, address: VirtualAddress, entry: NodeEntry) -> Option<NodeEntry> {
        let site = self.by_site.entry(entry.name.site.clone()).or_default();
        site.insert(entry.name.node.clone(), address);
        *self.by_owner.entry(entry.contact.owner.clone()).or_default() += 1;
        let former = self.by_address.insert(address, entry);
        if let Some(former) = &former
            && let Some(count) = self.by_owner.get_mut(&former.contact.owner)
        {
            *count = count.saturating_sub(1);
        }
        former
    }

    /// How many nodes an owner has.
    pub(super) fn count_of(&self, owner: &str) -> usize {
        self.by_owner.get(owner).copied().unwrap_or_default()
    }

    pub(super) fn iter(&self) -> Iter<'_, VirtualAddress, NodeEntry> {
        self.by_address.iter()
    }

    pub(super) fn values(&self) -> Values<'_, VirtualAddress, NodeEntry> {
        self.by_address.values()
    }

    /// The addresses of a site's nodes, in the order of their names.
    pub(super) fn addresses_of(&self, site: &Label) -> Vec<VirtualAddress> {
        self.by_site.get(site).into_iter().flat_map(BTreeMap::values).copied().collect()
    }

    /// The nodes of a site, in the order of their names.
    pub(super) fn of_site<'a>(
        &'a self,
        site: &Label,
    ) -> impl Iterator<Item = (VirtualAddress, &'a NodeEntry)> + use<'a> {
        let addresses = self.by_site.get(site).into_iter().flat_map(BTreeMap::values);
        addresses.filter_map(|address| Some((*address, self.by_address.get(address)?)))
    }

    /// All nodes that follow `after` (site and node), in the order of their sites and names.
    pub(super) fn after<'a>(
        &'a self,
        after: Option<&(Label, Label)>,
    ) -> impl Iterator<Item = (VirtualAddress, &'a NodeEntry)> + use<'a> {
        use Bound::{Excluded, Included, Unbounded};
        let after = after.cloned();
        let from = after.as_ref().map_or(Unbounded, |(site, _)| Included(site.clone()));
        let sites = self.by_site.range((from, Unbounded));
        let addresses = sites.flat_map(move |(site, nodes)| {
            let node = after.as_ref().filter(|(first, _)| first == site).map(|(_, node)| node.clone());
            nodes.range((node.map_or(Unbounded, Excluded), Unbounded)).map(|(_, address)| address)
        });
        addresses.filter_map(|address| Some((*address, self.by_address.get(address)?)))
    }
}
