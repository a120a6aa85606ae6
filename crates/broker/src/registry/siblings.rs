//! What gateways of one site are told of one another's nodes: each must know all
//! of them, to answer for them and to dial none of them on others' behalf.

use std::collections::BTreeSet;

use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, VirtualAddress};

use super::{Effect, NodeEntry, Party, Presence, Refused, Registry};

impl Registry {
    /// A gateway has just come: the nodes that are attached to others of its
    /// site.
    pub(super) fn siblings_of(&self, site: &Label, gateway: &Label) -> Vec<Effect> {
        let elsewhere = self
            .nodes
            .of_site(site)
            .filter(|(_, node)| node.gateway != *gateway && node.presence != Presence::Down);
        let to = Party::gateway(site, gateway);
        elsewhere.map(|(address, node)| tell(to.clone(), address, node)).collect()
    }

    /// A node has changed: the gateways of its site that it isn't attached to.
    pub(super) fn tell_siblings(&self, address: VirtualAddress) -> Vec<Effect> {
        let Some(node) = self.nodes.get(&address) else { return Vec::new() };
        let Some(site) = self.sites.get(&node.name.site) else { return Vec::new() };
        let own = Party::gateway(&node.name.site, &node.gateway);
        let others = site.parties(&node.name.site).filter(|party| *party != own);
        others.map(|to| tell(to, address, node)).collect()
    }

    /// Which gateway of a site says what, if they don't agree.
    pub fn disagreement(&self, site: &Label) -> Option<String> {
        self.sites.get(site)?.disagreement()
    }

    /// Says at all gateways of a site that they don't agree, if so.
    pub(super) fn notices(&self, site: &Label) -> Vec<Effect> {
        let Some(entry) = self.sites.get(site) else { return Vec::new() };
        let Some(text) = entry.disagreement() else { return Vec::new() };
        let notice = |to| Effect::Send {
            to,
            message: attach_down::Kind::Notice(proto::Notice { text: format!("site {site}: {text}") }),
        };
        entry.parties(site).map(notice).collect()
    }

    /// Two agents of one name are refused, whichever gateways they come to; one
    /// that goes from one gateway to another is not two.
    pub(super) fn check_not_twice(
        &self,
        name: &GridName,
        gateway: &Label,
        up: &proto::NodeUp,
    ) -> Result<(), Refused> {
        let former = self.addresses.address(name).and_then(|address| self.nodes.get(&address));
        match former {
            Some(former)
                if former.presence == Presence::Up
                    && former.gateway != *gateway
                    && former.contact.address != up.address =>
            {
                Err(Refused(format!(
                    "a node {name} is attached already, to gateway {}: its agent is at {}, this one is at {}; \
                     give one of them another name, or wait 30 s if the first is gone",
                    former.gateway, former.contact.address, up.address
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a gateway tells of an agent that has gone to another one since, and
    /// hasn't noticed.
    pub(super) fn is_outdated(&self, name: &GridName, gateway: &Label, up: &proto::NodeUp) -> bool {
        let known = self.addresses.address(name).and_then(|address| self.nodes.get(&address));
        known.is_some_and(|known| {
            known.presence == Presence::Up
                && known.gateway != *gateway
                && known.contact.attachment > up.attachment
        })
    }

    /// Whether a node, by its grid name, is attached to another gateway than
    /// this one.
    pub(super) fn is_elsewhere(&self, node: Option<&String>, gateway: &Label) -> bool {
        let name: Option<GridName> = node.and_then(|name| name.parse().ok());
        let address = name.and_then(|name| self.addresses.address(&name));
        let node = address.and_then(|address| self.nodes.get(&address));
        node.is_some_and(|node| node.gateway != *gateway && node.presence == Presence::Up)
    }

    /// Forgets the jobs of a site when this gateway went away, but for those whose
    /// heads are attached to another one; they are told of again.
    pub(super) fn forget_jobs(&mut self, site: &Label, gateway: &Label) {
        let elsewhere = |(_, node): &(VirtualAddress, &NodeEntry)| {
            node.gateway != *gateway && node.presence == Presence::Up
        };
        let kept = self.nodes.of_site(site).filter(elsewhere).map(|(_, node)| node.name.to_string());
        let kept: BTreeSet<String> = kept.collect();
        self.jobs.keep_headed(site, |head| kept.contains(head));
    }
}

fn tell(to: Party, address: VirtualAddress, node: &NodeEntry) -> Effect {
    let gone = node.presence == Presence::Down;
    let contact = match gone {
        true => proto::NodeUp { node: node.name.node.to_string(), ..proto::NodeUp::default() },
        false => node.contact.clone(),
    };
    let node = proto::SiteNode { contact: Some(contact), virtual_address: address.ip().into(), gone };
    Effect::Send { to, message: attach_down::Kind::SiteNode(node) }
}
