//! The site's agents: their attachments, virtual addresses and jobs. Plain data; the
//! caller carries out the [`Effect`]s.

mod listing;
mod reports;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use isthmus_registry::contact;
use isthmus_wire::bounds::NODES_PER_SITE;
use isthmus_wire::proto::{self, attach_down, attach_up};
use isthmus_wire::{GridName, Label, VirtualAddress};

/// The number of an agent's attachment, which is never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionId(u64);

/// An action that the caller must carry out for the roster.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "they are carried out as soon as they are made")]
pub(crate) enum Effect {
    /// Send a message to an agent.
    ToAgent(SessionId, attach_down::Kind),
    /// End an agent's attachment with this reason.
    Close(SessionId, String),
    /// Send a message to the broker, if the gateway is attached. If the gateway isn't attached, the
    /// broker receives the whole roster later.
    ToBroker(attach_up::Kind),
    /// Agents must drop this contact.
    Changed(VirtualAddress),
}

/// Why an attachment or message isn't accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The agents of the site that are attached to this gateway, and its other nodes.
#[derive(Debug)]
pub(crate) struct Roster {
    site: Label,
    agents: BTreeMap<Label, Agent>,
    /// The node of each attachment.
    names: BTreeMap<SessionId, Label>,
    /// Agents with findings that weren't sent to the broker yet.
    unsent: BTreeSet<Label>,
    /// Nodes that are attached to other gateways of the site.
    elsewhere: BTreeMap<Label, proto::NodeUp>,
    /// The addresses that the broker gave to nodes. They stay when an agent detaches, so that it
    /// needs no broker to attach again.
    addresses: BTreeMap<Label, VirtualAddress>,
    /// The node of each address.
    by_address: BTreeMap<VirtualAddress, Label>,
    last_session: u64,
}

#[derive(Debug)]
struct Agent {
    session: SessionId,
    from: IpAddr,
    contact: proto::NodeUp,
    jobs: BTreeMap<String, proto::JobReport>,
}

impl Roster {
    /// The roster of a site, without agents.
    pub(crate) fn new(site: Label) -> Self {
        Self {
            site,
            agents: BTreeMap::new(),
            names: BTreeMap::new(),
            unsent: BTreeSet::new(),
            elsewhere: BTreeMap::new(),
            addresses: BTreeMap::new(),
            by_address: BTreeMap::new(),
            last_session: 0,
        }
    }

    /// Takes in the agent of node `name`, which attaches from `from`. If the same agent is attached
    /// already, the new attachment replaces the former one.
    ///
    /// # Errors
    /// If another agent of the same name is attached, or the site is full.
    pub(crate) fn attach(
        &mut self,
        name: &Label,
        from: IpAddr,
        contact: proto::NodeUp,
    ) -> Result<(SessionId, Vec<Effect>), Refused> {
        if self.agents.len() >= NODES_PER_SITE {
            return Err(Refused(format!("site {} has {NODES_PER_SITE} nodes attached already", self.site)));
        }
        let mut effects = Vec::new();
        let mut jobs = BTreeMap::new();
        if let Some(former) = self.agents.remove(name) {
            if former.from != from || former.contact.address != contact.address {
                let reason = format!(
                    "a node {name}.{} is attached already: its agent is at {} (connected from {}), this one is at {} \
                     (connected from {from}); give one of them another name, or wait 30 s if the first is gone",
                    self.site, former.contact.address, former.from, contact.address
                );
                self.agents.insert(name.clone(), former);
                return Err(Refused(reason));
            }
            let reason = "the same agent has attached again".to_owned();
            self.names.remove(&former.session);
            effects.push(Effect::Close(former.session, reason));
            jobs = former.jobs;
        }
        self.last_session += 1;
        let session = SessionId(self.last_session);
        if let Some(address) = self.addresses.get(name) {
            effects.push(Effect::ToAgent(session, welcome(name, *address)));
            effects.push(Effect::Changed(*address));
        }
        effects.push(Effect::ToBroker(attach_up::Kind::NodeUp(contact.clone())));
        self.unsent.remove(name);
        self.names.insert(session, name.clone());
        self.agents.insert(name.clone(), Agent { session, from, contact, jobs });
        Ok((session, effects))
    }

    /// Takes in that an agent has detached.
    pub(crate) fn detach(&mut self, session: SessionId) -> Vec<Effect> {
        let Some(name) = self.names.remove(&session) else { return Vec::new() };
        let Some(agent) = self.agents.remove(&name) else { return Vec::new() };
        let ended = agent
            .jobs
            .into_values()
            .map(|report| Effect::ToBroker(attach_up::Kind::Job(proto::JobReport { ended: true, ..report })));
        let mut effects: Vec<_> = ended.collect();
        effects.push(Effect::ToBroker(attach_up::Kind::NodeDown(proto::NodeDown { node: name.to_string() })));
        effects.extend(self.addresses.get(&name).map(|address| Effect::Changed(*address)));
        effects
    }

    /// Takes in the address that the broker gave a node.
    pub(crate) fn welcome(&mut self, node: &str, address: VirtualAddress) -> Vec<Effect> {
        let Ok(name) = node.parse::<Label>() else { return Vec::new() };
        let known = self.addresses.insert(name.clone(), address) == Some(address);
        self.by_address.insert(address, name.clone());
        match self.agents.get(&name) {
            Some(agent) if !known => vec![Effect::ToAgent(agent.session, welcome(&name, address))],
            Some(_) | None => Vec::new(),
        }
    }

    /// Takes in that the broker has a node at another gateway of the site, or as gone. If the
    /// node's agent is attached here in spite of that, the agent is announced again. Also returns
    /// an attachment whose agent has most likely left. If that agent hasn't, it must say anew where
    /// it is.
    pub(crate) fn elsewhere(&mut self, node: proto::SiteNode) -> (Vec<Effect>, Option<SessionId>) {
        let contact = node.contact.unwrap_or_default();
        let Ok(name) = contact.node.parse::<Label>() else { return (Vec::new(), None) };
        let address = VirtualAddress::new(node.virtual_address.into());
        // An agent that is attached here may still wait for its address.
        let mut effects = address.map(|address| self.welcome(&contact.node, address)).unwrap_or_default();
        let mut doubted = None;
        if let Some(own) = self.agents.get(&name) {
            // The agent's last attachment counts, of which the agent itself signs the number.
            let is_last = contact.attachment < own.contact.attachment;
            match node.gone || is_last {
                true => effects.push(Effect::ToBroker(attach_up::Kind::NodeUp(own.contact.clone()))),
                false => doubted = Some(own.session),
            }
        }
        match node.gone {
            true => drop(self.elsewhere.remove(&name)),
            false => drop(self.elsewhere.insert(name, contact)),
        }
        (effects, doubted)
    }

    /// Drops the nodes at other gateways, as the broker is about to report them anew.
    pub(crate) fn clear_elsewhere(&mut self) {
        self.elsewhere.clear();
    }

    /// Takes in that the broker refuses a node.
    pub(crate) fn refuse(&mut self, node: &str, reason: &str) -> Vec<Effect> {
        let agent = node.parse::<Label>().ok().and_then(|name| self.agents.get(&name));
        agent.map(|agent| Effect::Close(agent.session, reason.to_owned())).into_iter().collect()
    }

    /// Passes on the broker's request that a node dial.
    ///
    /// # Errors
    /// If the node isn't attached.
    pub(crate) fn dial(&self, request: proto::DialRequest) -> Result<Effect, Refused> {
        let agent = request.node.parse::<Label>().ok().and_then(|name| self.agents.get(&name));
        match agent {
            Some(agent) => Ok(Effect::ToAgent(agent.session, attach_down::Kind::Dial(request))),
            None => Err(Refused(format!("node {} is not attached", request.node))),
        }
    }

    /// Passes on the broker's order that a node measure the connection to another node.
    ///
    /// # Errors
    /// If the node isn't attached.
    pub(crate) fn measure(&self, order: proto::MeasureOrder) -> Result<Effect, Refused> {
        let agent = order.node.parse::<Label>().ok().and_then(|name| self.agents.get(&name));
        match agent {
            Some(agent) => Ok(Effect::ToAgent(agent.session, attach_down::Kind::Measure(order))),
            None => Err(Refused(format!("node {} is not attached", order.node))),
        }
    }

    /// The contact that the agent of a node announced to this gateway.
    pub(crate) fn contact(&self, node: &Label) -> Option<&proto::NodeUp> {
        self.agents.get(node).map(|agent| &agent.contact)
    }

    /// The node that a lookup asks for. `None` unless the node is of this site, and attached to
    /// this gateway or another.
    pub(crate) fn find(&self, request: &proto::LookupRequest) -> Option<proto::Node> {
        let (name, address) = if request.virtual_address == 0 {
            let wanted: GridName = request.name.parse().ok()?;
            let (name, address) =
                self.addresses.get_key_value(&wanted.node).filter(|_| wanted.site == self.site)?;
            (name, *address)
        } else {
            let wanted = VirtualAddress::new(request.virtual_address.into())?;
            (self.by_address.get(&wanted)?, wanted)
        };
        let contact = self.contact_of(name)?;
        let name = GridName { node: name.clone(), site: self.site.clone() };
        let signed = contact.signed.clone();
        Some(proto::Node { signed, ..contact::node(&name, address, contact, true) })
    }

    /// The virtual address of a node of this site.
    pub(crate) fn address(&self, node: &Label) -> Option<VirtualAddress> {
        self.addresses.get(node).copied()
    }

    /// Whether an agent of this site is at this IP address.
    pub(crate) fn is_own(&self, ip: IpAddr) -> bool {
        let elsewhere = self.elsewhere.values().filter_map(|contact| contact.from.parse().ok());
        let mut all = self.agents.values().map(|agent| agent.from).chain(elsewhere);
        all.any(|from| from.to_canonical() == ip.to_canonical())
    }

    /// The address from which a node's agent is attached.
    pub(crate) fn seen_from(&self, node: &str) -> Option<IpAddr> {
        let name: Label = node.parse().ok()?;
        self.agents.get(&name).map(|agent| agent.from)
    }

    /// The node with this virtual address, and the address from which its agent is attached. `None`
    /// unless the agent is attached to this gateway.
    pub(crate) fn attached(&self, address: VirtualAddress) -> Option<(Label, IpAddr)> {
        let name = self.by_address.get(&address)?;
        Some((name.clone(), self.agents.get(name)?.from))
    }

    /// The attachments of all agents.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.agents.values().map(|agent| agent.session)
    }

    fn agent(&mut self, session: SessionId) -> Option<(Label, &mut Agent)> {
        let name = self.names.get(&session)?.clone();
        Some((name.clone(), self.agents.get_mut(&name)?))
    }
}

fn welcome(name: &Label, address: VirtualAddress) -> attach_down::Kind {
    attach_down::Kind::Welcome(proto::Welcome {
        node: name.to_string(),
        virtual_address: address.ip().into(),
    })
}
