//! Folds the records of nodes, and decides when a lost node is down.

use isthmus_identity::signed::contact::without_attachment;
use isthmus_rpc::seen;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, VirtualAddress};
use prost::Message as _;

use crate::records::NodeRecord;
use crate::site::specific;
use crate::{Effect, NodeEntry, Party, Presence, Registry, SessionId};

impl Registry {
    pub(crate) fn fold_node(&mut self, name: GridName, record: NodeRecord) -> Vec<Effect> {
        let (Some(address), Ok(gateway)) = (self.addresses.address(&name), record.gateway.parse::<Label>())
        else {
            return Vec::new();
        };
        let party_site = name.site.clone();
        let (up, party) = (record.contact, Party::gateway(&name.site, &gateway));
        let came_to = specific(&up.gateway_address);
        let mut found = Vec::new();
        if let Some(entry) = self.gateway_mut(&name.site, &gateway)
            && entry.inside_address.is_empty()
            && !came_to.is_empty()
        {
            entry.inside_address = came_to.to_owned();
            found = self.gateways_of(&name.site);
        }
        let welcome = proto::Welcome { node: name.node.to_string(), virtual_address: address.ip().into() };
        let for_plans = contact_for_plans(&up);
        let entry = NodeEntry { name, gateway: gateway.clone(), presence: Presence::Up, contact: up };
        let former = self.nodes.insert(address, entry);
        let moved = former.as_ref().is_none_or(|former| former.gateway != gateway);
        // Gateways of other sites keep a trunk with the gateway that the node is attached to.
        let over_trunk = moved && self.declared(&party_site).is_some_and(|declared| declared.site_trunk);
        let same = !over_trunk
            && former.is_some_and(|former| {
                former.presence != Presence::Down && contact_for_plans(&former.contact) == for_plans
            });
        let mut effects = if same { Vec::new() } else { self.contact_changed(address, Some(&party)) };
        if moved || !same {
            effects.extend(self.send_to_siblings(address));
        }
        effects.insert(0, Effect::Send { to: party, message: attach_down::Kind::Welcome(welcome) });
        effects.extend(found);
        effects
    }

    pub(crate) fn fold_node_down(&mut self, name: &GridName, record: &NodeRecord) -> Vec<Effect> {
        let (Some(address), Ok(gateway)) = (self.addresses.address(name), record.gateway.parse()) else {
            return Vec::new();
        };
        self.put_down(address, Some(&Party::gateway(&name.site, &gateway)))
    }

    /// Takes in that the attachment of the gateway ended that announced a node.
    pub(crate) fn fold_node_gone(&mut self, name: &GridName) {
        let address = self.addresses.address(name);
        let entry = address.and_then(|address| self.nodes.get_mut(&address));
        if let Some(entry) = entry.filter(|entry| entry.presence == Presence::Up) {
            entry.presence = Presence::Lost;
        }
    }

    /// Ends the time that a gateway has to announce its nodes: nodes that are still lost are down
    /// then. To be called once, some time after the gateway attached.
    pub fn settle(&mut self, session: SessionId) -> Vec<Effect> {
        let Some((site, gateway)) = self.gateway_of(session) else { return Vec::new() };
        self.put_down_lost(&site, &gateway, true)
    }

    /// Ends the time that the nodes of a detached gateway have to attach to another gateway of the
    /// site. Nodes that are still lost are down then. To be called some time after the gateway was
    /// detached.
    pub fn settle_without(&mut self, site: &Label, gateway: &Label) -> Vec<Effect> {
        match self.sites.get(site) {
            // A gateway that has attached again has a time of its own.
            Some(entry) if entry.is_attached() && !entry.has(gateway) => {
                self.put_down_lost(site, gateway, false)
            }
            Some(_) | None => Vec::new(),
        }
    }

    pub(crate) fn put_down(&mut self, address: VirtualAddress, by: Option<&Party>) -> Vec<Effect> {
        match self.nodes.get_mut(&address) {
            Some(entry) if entry.presence != Presence::Down => {
                entry.presence = Presence::Down;
                let mut effects = self.contact_changed(address, by);
                effects.extend(self.send_to_siblings(address));
                effects
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn put_down_lost(&mut self, site: &Label, gateway: &Label, reported: bool) -> Vec<Effect> {
        let party = Party::gateway(site, gateway);
        let by = reported.then_some(&party);
        let lost = |entry: &NodeEntry| entry.gateway == *gateway && entry.presence == Presence::Lost;
        let own = self.nodes.of_site(site);
        let gone: Vec<_> = own.filter(|(_, entry)| lost(entry)).map(|(address, _)| address).collect();
        gone.into_iter().flat_map(|address| self.put_down(address, by)).collect()
    }

    pub(crate) fn lose_nodes(&mut self, site: &Label, gateway: &Label) {
        for address in self.nodes.addresses_of(site) {
            if let Some(entry) = self.nodes.get_mut(&address)
                && entry.gateway == *gateway
                && entry.presence == Presence::Up
            {
                entry.presence = Presence::Lost;
            }
        }
    }
}

/// The part of a contact that plans and other gateways depend on.
fn contact_for_plans(up: &proto::NodeUp) -> proto::NodeUp {
    proto::NodeUp {
        seen: Some(seen::for_plans(up.seen.as_ref())),
        from: String::new(),
        gateway_address: String::new(),
        attachment: 0,
        signed: up.signed.as_ref().map(signed_for_plans),
        ..up.clone()
    }
}

/// The part of a signed contact that others use: the addresses, the agent's start, and the key. An
/// agent signs anew at each attachment.
fn signed_for_plans(signed: &proto::SignedContact) -> proto::SignedContact {
    let (contact, certificates) = (without_attachment(signed).encode_to_vec(), signed.certificates.clone());
    proto::SignedContact { contact, certificates, signature: Vec::new() }
}
