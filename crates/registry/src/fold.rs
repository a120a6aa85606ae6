//! Takes in records of the store: one file for each kind of record.

mod gateways;
mod nodes;
mod relays;

use std::collections::BTreeMap;

use isthmus_wire::proto::{self, attach_down};

use super::{Effect, Party, Registry};
use crate::records::Fact;

impl Registry {
    /// Takes in a record that was written or deleted.
    pub fn fold(&mut self, fact: Fact) -> Vec<Effect> {
        match fact {
            Fact::Block { block, site, revision } => {
                self.addresses.fold_block(block, site, revision);
                Vec::new()
            }
            Fact::Address { node, address } => {
                self.addresses.fold_address(node, address);
                Vec::new()
            }
            Fact::Gateway { site, name, record: Some((session, record)) } => {
                self.fold_gateway(&site, &name, session, record)
            }
            Fact::Gateway { site, name, record: None } => self.fold_gateway_gone(&site, &name),
            Fact::Relay { name, record: Some((session, record)) } => self.fold_relay(&name, session, record),
            Fact::Relay { name, record: None } => self.fold_relay_gone(&name),
            Fact::Node { node, record: Some(record) } if record.down => self.fold_node_down(&node, &record),
            Fact::Node { node, record: Some(record) } => self.fold_node(node, record),
            Fact::Node { node, record: None } => {
                self.fold_node_gone(&node);
                Vec::new()
            }
            Fact::Revoked { identity, record } => self.fold_revoked(identity, record),
            Fact::Job { job, record } => {
                self.jobs.fold(job, record);
                Vec::new()
            }
        }
    }

    /// Has every gateway drop its contacts of other sites.
    pub(super) fn everything_changed(&mut self) -> Vec<Effect> {
        self.holders.clear();
        let gateways = self.sites.iter().flat_map(|(site, entry)| entry.parties(site));
        gateways.map(|to| changed(to, 0)).collect()
    }
}

/// Removes an idle entry if there are `most` entries or more.
fn make_room<K: Ord + Clone, T>(entries: &mut BTreeMap<K, T>, most: usize, idle: impl Fn(&T) -> bool) {
    if entries.len() >= most
        && let Some(idle) = entries.iter().find(|(_, entry)| idle(entry)).map(|(name, _)| name.clone())
    {
        entries.remove(&idle);
    }
}

/// The message that a contact has changed. Address 0 stands for all contacts.
pub(super) fn changed(to: Party, virtual_address: u32) -> Effect {
    let changed = proto::ContactChanged { virtual_address };
    Effect::Send { to, message: attach_down::Kind::ContactChanged(changed) }
}
