//! The site's agents: who is attached from where, under which virtual address,
//! with which jobs. Plain data; what has to be done comes back as [`Effect`]s.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use isthmus_net::seen::for_plans;
use isthmus_wire::bounds::{JOBS_PER_NODE, NODES_PER_SITE, NODES_SEEN_BYTES, encoded_len};
use isthmus_wire::proto::{self, attach_down, attach_up};
use isthmus_wire::{GridName, Label, VirtualAddress};

/// One attachment of an agent; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

/// What the caller must do.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "they are carried out as soon as they are made")]
pub enum Effect {
    /// Send a message to an agent.
    ToAgent(SessionId, attach_down::Kind),
    /// End an agent's attachment with this reason.
    Close(SessionId, String),
    /// Send a message to the broker, if it is attached; if not, the roster is
    /// told as a whole later.
    ToBroker(attach_up::Kind),
    /// What agents may hold of this contact is out of date.
    Changed(VirtualAddress),
}

/// An attachment or message that isn't accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The site's agents.
#[derive(Debug)]
pub struct Roster {
    site: Label,
    agents: BTreeMap<Label, Agent>,
    /// Whose attachment each is.
    names: BTreeMap<SessionId, Label>,
    /// Agents that found out something which the broker hasn't been sent.
    unsent: BTreeSet<Label>,
    /// Nodes that are attached to other gateways of the site.
    elsewhere: BTreeMap<Label, proto::NodeUp>,
    /// Addresses that the broker gave, kept while agents come and go: one that
    /// comes back needs no broker.
    addresses: BTreeMap<Label, VirtualAddress>,
    /// Whose address each is.
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
    /// A roster of this site with nobody in it.
    pub fn new(site: Label) -> Self {
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

    /// The agent of node `name` came, connected from `from`. A reconnect of
    /// the same agent takes the former connection's place; another one of the
    /// same name is refused.
    ///
    /// # Errors
    /// If a live node has that name.
    pub fn attach(
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

    /// An agent went away.
    pub fn detach(&mut self, session: SessionId) -> Vec<Effect> {
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

    /// The broker gave a node its address.
    pub fn welcome(&mut self, node: &str, address: VirtualAddress) -> Vec<Effect> {
        let Ok(name) = node.parse::<Label>() else { return Vec::new() };
        let known = self.addresses.insert(name.clone(), address) == Some(address);
        self.by_address.insert(address, name.clone());
        match self.agents.get(&name) {
            Some(agent) if !known => vec![Effect::ToAgent(agent.session, welcome(&name, address))],
            Some(_) | None => Vec::new(),
        }
    }

    /// The broker tells of a node that is attached to another gateway of the site.
    pub fn elsewhere(&mut self, node: proto::SiteNode) {
        let contact = node.contact.unwrap_or_default();
        let Ok(name) = contact.node.parse::<Label>() else { return };
        if let Some(address) = VirtualAddress::new(node.virtual_address.into()) {
            self.addresses.insert(name.clone(), address);
            self.by_address.insert(address, name.clone());
        }
        match node.gone {
            true => drop(self.elsewhere.remove(&name)),
            false => drop(self.elsewhere.insert(name, contact)),
        }
    }

    /// The broker is about to tell of all those anew.
    pub fn nobody_elsewhere(&mut self) {
        self.elsewhere.clear();
    }

    /// The broker won't have a node.
    pub fn refuse(&mut self, node: &str, reason: &str) -> Vec<Effect> {
        let agent = node.parse::<Label>().ok().and_then(|name| self.agents.get(&name));
        agent.map(|agent| Effect::Close(agent.session, reason.to_owned())).into_iter().collect()
    }

    /// The broker asks a node to dial out.
    ///
    /// # Errors
    /// If the node isn't attached.
    pub fn dial(&self, request: proto::DialRequest) -> Result<Effect, Refused> {
        let agent = request.node.parse::<Label>().ok().and_then(|name| self.agents.get(&name));
        match agent {
            Some(agent) => Ok(Effect::ToAgent(agent.session, attach_down::Kind::Dial(request))),
            None => Err(Refused(format!("node {} is not attached", request.node))),
        }
    }

    /// The broker asks a node to measure the way to another one.
    ///
    /// # Errors
    /// If the node isn't attached.
    pub fn measure(&self, order: proto::MeasureOrder) -> Result<Effect, Refused> {
        let agent = order.node.parse::<Label>().ok().and_then(|name| self.agents.get(&name));
        match agent {
            Some(agent) => Ok(Effect::ToAgent(agent.session, attach_down::Kind::Measure(order))),
            None => Err(Refused(format!("node {} is not attached", order.node))),
        }
    }

    /// An agent told what it measured. Who it is, its attachment says.
    pub fn measured(&self, session: SessionId, report: proto::PathReport) -> Option<Effect> {
        let node = self.names.get(&session)?.clone();
        let from = GridName { node, site: self.site.clone() }.to_string();
        Some(Effect::ToBroker(attach_up::Kind::Measured(proto::PathReport { from, ..report })))
    }

    /// An agent told how its node is seen from outside. The broker is sent at once
    /// what plans go by; the rest waits for [`Roster::seen_due`].
    pub fn seen(&mut self, session: SessionId, seen: proto::Seen) -> Vec<Effect> {
        let Some((name, agent)) = self.agent(session) else { return Vec::new() };
        let before = agent.contact.seen.replace(seen.clone());
        if for_plans(before.as_ref()) == for_plans(Some(&seen)) {
            self.unsent.insert(name);
            return Vec::new();
        }
        let contact = agent.contact.clone();
        self.unsent.remove(&name);
        vec![Effect::ToBroker(attach_up::Kind::NodeUp(contact))]
    }

    /// What agents found out that was not sent yet, in as few messages as it
    /// takes: so the broker receives of a gateway what doesn't grow with its
    /// nodes.
    pub fn seen_due(&mut self) -> Vec<Effect> {
        let mut messages = vec![proto::NodesSeen::default()];
        let mut bytes = 0;
        for name in std::mem::take(&mut self.unsent) {
            let Some(seen) = self.agents.get(&name).and_then(|agent| agent.contact.seen.clone()) else {
                continue;
            };
            let found = proto::NodeSeen { node: name.to_string(), seen: Some(seen) };
            bytes += encoded_len(&found) + 4;
            if bytes > NODES_SEEN_BYTES {
                bytes = encoded_len(&found) + 4;
                messages.push(proto::NodesSeen::default());
            }
            messages.last_mut().into_iter().for_each(|message| message.nodes.push(found.clone()));
        }
        let messages = messages.into_iter().filter(|message| !message.nodes.is_empty());
        messages.map(|message| Effect::ToBroker(attach_up::Kind::NodesSeen(message))).collect()
    }

    /// What an agent told of its node.
    pub fn contact(&self, node: &Label) -> Option<&proto::NodeUp> {
        self.agents.get(node).map(|agent| &agent.contact)
    }

    /// An agent told how a job of its is doing.
    ///
    /// # Errors
    /// If it isn't the job's head, or has too many jobs.
    pub fn job_report(
        &mut self,
        session: SessionId,
        report: proto::JobReport,
    ) -> Result<Vec<Effect>, Refused> {
        let site = self.site.clone();
        let Some((name, agent)) = self.agent(session) else { return Ok(Vec::new()) };
        let own = GridName { node: name, site }.to_string();
        if report.nodes.first() != Some(&own) {
            return Err(Refused(format!("{own} is not the head of job {}", report.job)));
        }
        if report.ended {
            agent.jobs.remove(&report.job);
        } else if agent.jobs.len() < JOBS_PER_NODE || agent.jobs.contains_key(&report.job) {
            agent.jobs.insert(report.job.clone(), report.clone());
        } else {
            return Err(Refused(format!("{own} has {JOBS_PER_NODE} jobs already")));
        }
        Ok(vec![Effect::ToBroker(attach_up::Kind::Job(report))])
    }

    /// All that a broker must be told that knows nothing.
    pub fn announcements(&self) -> Vec<attach_up::Kind> {
        let nodes = self.agents.values().map(|agent| attach_up::Kind::NodeUp(agent.contact.clone()));
        let jobs = self.agents.values().flat_map(|agent| agent.jobs.values());
        nodes.chain(jobs.cloned().map(attach_up::Kind::Job)).collect()
    }

    /// The node that a lookup asks for, if it is of this site and attached, here
    /// or to another gateway.
    pub fn find(&self, request: &proto::LookupRequest) -> Option<proto::Node> {
        let (name, address) = if request.virtual_address == 0 {
            let wanted: GridName = request.name.parse().ok()?;
            let (name, address) =
                self.addresses.get_key_value(&wanted.node).filter(|_| wanted.site == self.site)?;
            (name, *address)
        } else {
            let wanted = VirtualAddress::new(request.virtual_address.into())?;
            (self.by_address.get(&wanted)?, wanted)
        };
        let own = self.agents.get(name).map(|agent| &agent.contact);
        let contact = own.or_else(|| self.elsewhere.get(name))?;
        Some(proto::Node {
            name: GridName { node: name.clone(), site: self.site.clone() }.to_string(),
            virtual_address: address.ip().into(),
            address: contact.address.clone(),
            host_name: contact.host_name.clone(),
            owner: contact.owner.clone(),
            slots: contact.slots,
            version: contact.version.clone(),
            architecture: contact.architecture.clone(),
            up: true,
            outside_address: contact.outside_address.clone(),
            seen: None,
        })
    }

    /// The address of a node of this site.
    pub fn address(&self, node: &Label) -> Option<VirtualAddress> {
        self.addresses.get(node).copied()
    }

    /// Whether an agent of this site is at this address.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        let elsewhere = self.elsewhere.values().filter_map(|contact| contact.from.parse().ok());
        let mut all = self.agents.values().map(|agent| agent.from).chain(elsewhere);
        all.any(|from| from.to_canonical() == ip.to_canonical())
    }

    /// From where the agent of a node is attached.
    pub fn seen_from(&self, node: &str) -> Option<IpAddr> {
        let name: Label = node.parse().ok()?;
        self.agents.get(&name).map(|agent| agent.from)
    }

    /// Everybody who is attached.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
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
