//! Messages to a gateway about nodes of its site that are attached to the site's
//! other gateways. Each gateway needs all nodes of its site: it answers lookups for
//! them, and it must not dial them on behalf of the outside.

use isthmus_identity::signed::contact::without_attachment;
use isthmus_identity::{Identity, Role};
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, VirtualAddress};

use super::{Effect, NodeEntry, Party, Presence, Refused, Registry};

impl Registry {
    /// Sends a newly attached gateway the nodes of its site's other gateways.
    pub(super) fn siblings_of(&self, site: &Label, gateway: &Label) -> Vec<Effect> {
        let elsewhere = self
            .nodes
            .of_site(site)
            .filter(|(_, node)| node.gateway != *gateway && node.presence != Presence::Down);
        let to = Party::gateway(site, gateway);
        elsewhere.map(|(address, node)| site_node(to.clone(), address, node)).collect()
    }

    /// Sends a node that has changed to the gateways of its site that it isn't
    /// attached to.
    pub(super) fn send_to_siblings(&self, address: VirtualAddress) -> Vec<Effect> {
        let Some(node) = self.nodes.get(&address) else { return Vec::new() };
        let Some(site) = self.sites.get(&node.name.site) else { return Vec::new() };
        let own = Party::gateway(&node.name.site, &node.gateway);
        let others = site.parties(&node.name.site).filter(|party| *party != own);
        others.map(|to| site_node(to, address, node)).collect()
    }

    /// Sends each gateway of a site the places of all of them, for its agents. A gateway that is
    /// lost can tell its agents nothing more. A single gateway has nothing to tell.
    pub(super) fn gateways_of(&self, site: &Label) -> Vec<Effect> {
        let Some(entry) = self.sites.get(site) else { return Vec::new() };
        let addresses = entry.inside_addresses();
        if addresses.len() < 2 {
            return Vec::new();
        }
        let message = |to| {
            let addresses = addresses.clone();
            Effect::Send { to, message: attach_down::Kind::SiteGateways(proto::SiteGateways { addresses }) }
        };
        entry.parties(site).map(message).collect()
    }

    /// The attached gateway that a machine would displace, or stand beside, if it became a gateway
    /// by a site's token. That is a gateway of the same name. If the machine has no name of its
    /// own, it is any gateway. On a node, the cause is most often a forgotten `--via`.
    pub fn in_the_way(&self, identity: &Identity) -> Option<String> {
        let site = identity.site()?;
        let entry = self.sites.get(site)?;
        let named = identity.name().as_str() != Role::Gateway.as_str();
        let mut attached = entry.attached().map(|(name, _)| name);
        let there = attached.find(|name| !named || *name == identity.name())?;
        let there = Identity::new(Role::Gateway, Some(site.clone()), Some(there.clone()), None).ok()?;
        Some(format!(
            "site {site} has a gateway that is attached, {there}. If this machine is a node, give --via with the \
             address of the site's front-end; for a further gateway, a name of its own (isthmus up --gateway NAME); \
             to take its place, stop it first (isthmus down, there)"
        ))
    }

    /// Which gateways of a site declare what; `None` if they agree.
    pub fn disagreement(&self, site: &Label) -> Option<String> {
        self.sites.get(site)?.disagreement()
    }

    /// Sends a notice to all gateways of a site whose gateways declare different `inbound`, or of
    /// which only some keep trunks.
    pub(super) fn notices(&self, site: &Label) -> Vec<Effect> {
        let Some(entry) = self.sites.get(site) else { return Vec::new() };
        let texts = [entry.disagreement(), entry.site_trunk_disagreement()];
        let notice = |to, text| Effect::Send {
            to,
            message: attach_down::Kind::Notice(proto::Notice { text: format!("site {site}: {text}") }),
        };
        let texts = texts.iter().flatten();
        texts.flat_map(|text| entry.parties(site).map(move |to| notice(to, text))).collect()
    }

    /// Whether an announcement of a node is taken. It isn't if the node has attached to another
    /// gateway since.
    ///
    /// # Errors
    /// If the node may not be announced by this gateway.
    pub(super) fn is_taken(
        &self,
        name: &GridName,
        gateway: &Label,
        up: &proto::NodeUp,
    ) -> Result<bool, Refused> {
        let former = self.addresses.address(name).and_then(|address| self.nodes.get(&address));
        match former.filter(|former| former.gateway != *gateway && former.presence != Presence::Down) {
            Some(former) => moves(former, up),
            None => Ok(true),
        }
    }

    /// The gateway that announced a node last, and the number of the attachment. `None` if the
    /// node's agent isn't attached.
    pub fn attached_at(&self, name: &GridName) -> Option<(Label, u64)> {
        let node = self.nodes.get(&self.addresses.address(name)?)?;
        (node.presence != Presence::Down).then(|| (node.gateway.clone(), node.contact.attachment))
    }

    /// Whether a node is attached to another gateway than `gateway`. `node` is a grid name.
    pub(super) fn is_elsewhere(&self, node: Option<&String>, gateway: &Label) -> bool {
        let name: Option<GridName> = node.and_then(|name| name.parse().ok());
        let address = name.and_then(|name| self.addresses.address(&name));
        let node = address.and_then(|address| self.nodes.get(&address));
        node.is_some_and(|node| node.gateway != *gateway && node.presence == Presence::Up)
    }
}

/// Whether a node that is attached to a gateway of its site moves to another gateway, which
/// announces it. Only the agent itself can say so: what it signs names the gateway, and the last
/// attachment counts. The node's addresses are no secret, and any gateway can name them.
fn moves(former: &NodeEntry, up: &proto::NodeUp) -> Result<bool, Refused> {
    if up.attachment <= former.contact.attachment {
        return Ok(false);
    }
    // Two agents of one name would take the node from each other in turn.
    if former.presence == Presence::Up && !is_same_agent(&former.contact, up) {
        return Err(Refused(format!(
            "a node {} is attached already, to gateway {}: its agent is at {}, this one is at {}; give one of \
             them another name, or wait 30 s if the first is gone",
            former.name, former.gateway, former.contact.address, up.address
        )));
    }
    Ok(true)
}

/// Whether two announcements are of the same agent, by what it has signed. They are if they share
/// an address or the agent's start. A gateway says which of the agent's addresses is inside the
/// site. A gateway may show what the agent signed before it got another address.
fn is_same_agent(former: &proto::NodeUp, up: &proto::NodeUp) -> bool {
    let [a, b] =
        [former, up].map(|contact| contact.signed.as_ref().map(without_attachment).unwrap_or_default());
    let has_start = !a.incarnation.is_empty() && a.incarnation == b.incarnation;
    let has_address = a.addresses.iter().any(|address| b.addresses.contains(address));
    has_start || has_address || former.address == up.address
}

fn site_node(to: Party, address: VirtualAddress, node: &NodeEntry) -> Effect {
    let gone = node.presence == Presence::Down;
    let contact = match gone {
        true => proto::NodeUp { node: node.name.node.to_string(), ..proto::NodeUp::default() },
        false => node.contact.clone(),
    };
    let node = proto::SiteNode { contact: Some(contact), virtual_address: address.ip().into(), gone };
    Effect::Send { to, message: attach_down::Kind::SiteNode(node) }
}
