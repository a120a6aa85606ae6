//! Who is attached, and what is asked of them: plain data, no I/O, no clock.
//!
//! What several brokers must have in common is records in the [store](crate::store):
//! addresses, gateways, relays and nodes. The registry is a fold over them:
//! [`Registry::fold`] takes in each one as it was written, and returns [`Effect`]s,
//! which the caller must carry out in their order. What a gateway or relay sends
//! becomes a record first (`*_record`).
//!
//! Held here alone, and so unknown to other brokers: jobs, what relays carried, what
//! was measured between nodes and sites and who is measuring, how often probes were
//! ordered, whose turn it is, and which nodes are [lost](Presence::Lost).
//!
//! A node is in one of three states:
//!
//! | state | meaning | a lookup says |
//! |---|---|---|
//! | up | its gateway announced it | contact and plan |
//! | lost | its gateway went away without saying anything of it | last contact; what needs the gateway is left out |
//! | down | its gateway said that its agent is gone | that it is down |
//!
//! A gateway that comes back announces its nodes again, and nodes of one that
//! doesn't attach to another gateway of their site; so a lost node is up again
//! without anybody having noticed. [`Registry::settle`] and
//! [`Registry::settle_without`] end the wait.

mod answers;
mod directory;
mod gateways;
mod holders;
mod job;
mod list;
mod measuring;
mod nodes;
mod party;
mod paths;
mod probing;
mod relays;
mod rendezvous;
mod siblings;
mod site;
mod site_paths;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use isthmus_net::enums::inbound_from_wire;
use isthmus_net::mac::Secret;
use isthmus_net::seen;
use isthmus_wire::bounds::{self, Bounded as _, TooLarge};
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, VirtualAddress};

pub use answers::{LookupError, RendezvousError};
pub(crate) use party::Party;
pub use probing::ProbeError;

use crate::addresses::{AddressBook, Assignment, Exhausted};
use crate::config::{ForbiddenPairs, Measure, RelayChoice, TrustedPairs};
use crate::records::{Fact, GatewayRecord, NodeRecord, RelayRecord};
use holders::Holders;
use job::Jobs;
use nodes::Nodes;
use paths::Paths;
use probing::Probed;
use site::{GatewayEntry, Says, SiteEntry, specific};
use site_paths::SitePaths;

/// One attachment of a gateway or relay: the lease of its records.
pub(crate) use crate::store::Lease as SessionId;

/// What the caller must do.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "few of them are there at once, and most are of the large one")]
pub enum Effect {
    /// Send a message to an attached gateway or relay.
    Send {
        /// To whom.
        to: Party,
        /// What.
        message: attach_down::Kind,
    },
    /// End an attachment.
    Close {
        /// Which.
        session: SessionId,
        /// Why.
        reason: String,
    },
}

/// An attachment or a message that isn't accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

impl From<TooLarge> for Refused {
    fn from(error: TooLarge) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the configuration says of pairs of sites.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Between which data goes unencrypted.
    pub trusted: TrustedPairs,
    /// Which ways some may not go.
    pub forbidden: ForbiddenPairs,
    /// Which relay joins two nodes.
    pub relays: RelayChoice,
    /// Whether ways between sites are measured unasked.
    pub measure: Measure,
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    grid: String,
    policy: Policy,
    addresses: AddressBook,
    sites: BTreeMap<Label, SiteEntry>,
    nodes: Nodes,
    /// Site and name of the gateway of each attachment.
    gateway_sessions: BTreeMap<SessionId, (Label, Label)>,
    holders: Holders,
    /// As it was sent last.
    directory: proto::Directory,
    relays: BTreeMap<Label, RelayEntry>,
    jobs: Jobs,
    probed: Probed,
    paths: Paths,
    site_paths: SitePaths,
    /// The relay that was chosen last.
    last_relay: Option<Label>,
    #[cfg(test)]
    last_session: u64,
}

#[derive(Debug)]
struct NodeEntry {
    name: GridName,
    /// The gateway that announced it last.
    gateway: Label,
    presence: Presence,
    contact: proto::NodeUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Up,
    Lost,
    Down,
}

#[derive(Debug)]
struct RelayEntry {
    session: Option<SessionId>,
    address: String,
    version: String,
    key: Secret,
    report: proto::RelayReport,
}

impl Registry {
    /// A registry that nobody is attached to yet.
    pub fn new(grid: &str, policy: Policy) -> Self {
        Self {
            grid: grid.to_owned(),
            policy,
            addresses: AddressBook::default(),
            sites: BTreeMap::new(),
            nodes: Nodes::default(),
            gateway_sessions: BTreeMap::new(),
            holders: Holders::default(),
            directory: proto::Directory::default(),
            relays: BTreeMap::new(),
            jobs: Jobs::default(),
            probed: Probed::default(),
            paths: Paths::default(),
            site_paths: SitePaths::default(),
            last_relay: None,
            #[cfg(test)]
            last_session: 0,
        }
    }

    /// Takes in a record as it was written, or deleted.
    pub(crate) fn fold(&mut self, fact: Fact) -> Vec<Effect> {
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
        }
    }

    /// The address of a node, or else one to be written down for it.
    ///
    /// # Errors
    /// If none is left.
    pub(crate) fn address_of(
        &self,
        node: &GridName,
    ) -> Result<Result<VirtualAddress, Assignment>, Exhausted> {
        match self.addresses.address(node) {
            Some(address) => Ok(Ok(address)),
            None => self.addresses.propose(node).map(Err),
        }
    }

    /// The record of the gateway of this name that comes to `site`. It takes the
    /// place of a former one of that name, and keeps that one's key, so that
    /// tickets under way stay good. `new_key` is for one that wasn't there before.
    ///
    /// # Errors
    /// If it says that it is of another site.
    pub(crate) fn gateway_record(
        &self,
        site: &Label,
        name: &Label,
        up: &proto::GatewayUp,
        new_key: &Secret,
    ) -> Result<GatewayRecord, Refused> {
        if up.site != site.as_str() {
            return Err(Refused(format!("this gateway's certificate is for site {site}, not {:?}", up.site)));
        }
        up.check()?;
        if let Some(entry) = self.sites.get(site).filter(|entry| !entry.gateways.contains_key(name)) {
            let attached = entry.attached().count();
            if attached >= bounds::GATEWAYS_PER_SITE {
                return Err(Refused(format!("site {site} has {attached} other gateways attached already")));
            }
        }
        let former = self.sites.get(site).and_then(|site| site.gateways.get(name));
        let key = former.map_or(new_key, |former| &former.key).expose().to_vec();
        // It tells again what it found; until then that holds.
        let same = former.filter(|former| former.outside_address == up.outside_address);
        let outside_reach = same.and_then(|former| former.outside_reach.clone());
        Ok(GatewayRecord { up: up.clone(), key, outside_reach })
    }

    fn fold_gateway(
        &mut self,
        site: &Label,
        name: &Label,
        session: SessionId,
        record: GatewayRecord,
    ) -> Vec<Effect> {
        let Some(key) = Secret::from_slice(&record.key) else { return Vec::new() };
        let (up, party) = (record.up, Party::gateway(site, name));
        let before = self.says(site);
        let entry = self.sites.entry(site.clone()).or_default();
        let former = entry.gateways.remove(name);
        make_room(&mut entry.gateways, bounds::GATEWAYS_PER_SITE, |gateway| gateway.session.is_none());
        let (mut inside_address, mut old) = (specific(&up.address).to_owned(), None);
        if let Some(former) = former {
            if inside_address.is_empty() {
                inside_address = former.inside_address;
            }
            old = former.session;
        }
        let gateway = GatewayEntry {
            outside_reach: record.outside_reach,
            session: Some(session),
            inbound: inbound_from_wire(up.inbound()),
            version: up.version,
            outside_address: up.outside_address,
            inside_address,
            key,
            measure_off: up.measure_off,
        };
        entry.gateways.insert(name.clone(), gateway);
        let mut effects = Vec::new();
        let is_new = old != Some(session);
        if is_new {
            old.and_then(|old| self.gateway_sessions.remove(&old));
            self.gateway_sessions.insert(session, (site.clone(), name.clone()));
            let message = attach_down::Kind::RelayKey(proto::RelayKey { key: record.key });
            effects.push(Effect::Send { to: party.clone(), message });
            effects.push(self.directory_for(party));
        }
        if let Some(old) = old.filter(|_| is_new) {
            let reason = format!(
                "another gateway of site {site} has attached with the name {name}; where there are several, each \
                 needs one of its own (isthmus join --name)"
            );
            effects.push(Effect::Close { session: old, reason });
            self.lose_nodes(site, name);
        }
        if before.is_some() && before != self.says(site) {
            effects.extend(self.everything_changed());
        }
        if is_new {
            effects.extend(self.siblings_of(site, name));
            effects.extend(self.notices(site));
        }
        effects
    }

    /// The record of a relay that comes. It takes the place of a former one of its
    /// name, and keeps that one's key, so that tickets under way stay good.
    /// `new_key` is for a relay that wasn't there before.
    ///
    /// # Errors
    /// If it says that it is another one.
    pub(crate) fn relay_record(
        &self,
        name: &Label,
        up: &proto::RelayUp,
        new_key: &Secret,
    ) -> Result<RelayRecord, Refused> {
        if up.name != name.as_str() {
            return Err(Refused(format!("this relay's certificate is for {name}, not {:?}", up.name)));
        }
        up.check()?;
        let attached = self.relays_up();
        if attached >= bounds::RELAYS && !self.relays.contains_key(name) {
            return Err(Refused(format!("the grid has {attached} other relays attached already")));
        }
        if up.address.is_empty() {
            return Err(Refused("a relay must say at what address agents reach it".to_owned()));
        }
        let key = self.relays.get(name).map_or(new_key, |former| &former.key).expose().to_vec();
        Ok(RelayRecord { up: up.clone(), key })
    }

    fn fold_relay(&mut self, name: &Label, session: SessionId, record: RelayRecord) -> Vec<Effect> {
        let Some(key) = Secret::from_slice(&record.key) else { return Vec::new() };
        let relays_before = self.relays_up();
        let former = self.relays.remove(name);
        make_room(&mut self.relays, bounds::RELAYS, |relay| relay.session.is_none());
        let mut effects = Vec::new();
        if let Some(old) = former.and_then(|former| former.session).filter(|old| *old != session) {
            let reason = format!("another relay of the name {name} has attached");
            effects.push(Effect::Close { session: old, reason });
        }
        let message = attach_down::Kind::RelayKey(proto::RelayKey { key: record.key });
        effects.push(Effect::Send { to: Party::Relay(name.clone()), message });
        let entry = RelayEntry {
            session: Some(session),
            address: record.up.address,
            version: record.up.version,
            key,
            report: proto::RelayReport::default(),
        };
        self.relays.insert(name.clone(), entry);
        if relays_before == 0 {
            effects.extend(self.everything_changed());
        }
        effects
    }

    /// A gateway went away. Its nodes are lost, not down: the nodes themselves may
    /// be well.
    fn fold_gateway_gone(&mut self, site: &Label, name: &Label) -> Vec<Effect> {
        let before = self.says(site);
        let session = self.gateway_mut(site, name).and_then(|gateway| gateway.session.take());
        session.and_then(|session| self.gateway_sessions.remove(&session));
        self.lose_nodes(site, name);
        self.forget_jobs(site, name);
        if before == self.says(site) { Vec::new() } else { self.everything_changed() }
    }

    fn fold_relay_gone(&mut self, name: &Label) -> Vec<Effect> {
        let relays_before = self.relays_up();
        if let Some(relay) = self.relays.get_mut(name) {
            relay.session = None;
        }
        if relays_before > 0 && self.relays_up() == 0 { self.everything_changed() } else { Vec::new() }
    }

    /// The record of a node that a gateway announces; none if the node has gone to
    /// another gateway since.
    ///
    /// # Errors
    /// If the name isn't allowed, or another agent has it; the gateway goes on.
    pub(crate) fn node_record(
        &self,
        session: SessionId,
        up: &proto::NodeUp,
    ) -> Result<Option<(GridName, NodeRecord)>, Refused> {
        let (site, gateway) = self.attached_gateway(session)?;
        let node: Label = up.node.parse().map_err(|error| Refused(format!("{error}")))?;
        up.check()?;
        let name = GridName { node, site };
        self.check_not_twice(&name, &gateway, up)?;
        if self.is_outdated(&name, &gateway, up) {
            return Ok(None);
        }
        let record = NodeRecord { contact: up.clone(), gateway: gateway.to_string(), down: false };
        Ok(Some((name, record)))
    }

    fn fold_node(&mut self, name: GridName, record: NodeRecord) -> Vec<Effect> {
        let (Some(address), Ok(gateway)) = (self.addresses.address(&name), record.gateway.parse::<Label>())
        else {
            return Vec::new();
        };
        let (up, party) = (record.contact, Party::gateway(&name.site, &gateway));
        let came_to = specific(&up.gateway_address);
        if let Some(entry) = self.gateway_mut(&name.site, &gateway)
            && entry.inside_address.is_empty()
        {
            entry.inside_address = came_to.to_owned();
        }
        let welcome = proto::Welcome { node: name.node.to_string(), virtual_address: address.ip().into() };
        let for_plans = contact_for_plans(&up);
        let entry = NodeEntry { name, gateway: gateway.clone(), presence: Presence::Up, contact: up };
        let former = self.nodes.insert(address, entry);
        let moved = former.as_ref().is_none_or(|former| former.gateway != gateway);
        let same = former.is_some_and(|former| {
            former.presence != Presence::Down && contact_for_plans(&former.contact) == for_plans
        });
        let mut effects = if same { Vec::new() } else { self.contact_changed(address, Some(&party)) };
        if moved || !same {
            effects.extend(self.tell_siblings(address));
        }
        effects.insert(0, Effect::Send { to: party, message: attach_down::Kind::Welcome(welcome) });
        effects
    }

    /// A gateway told what some of its nodes found out since they came, and no plan
    /// goes by. It is no record: other brokers need not have it.
    ///
    /// # Errors
    /// If the gateway isn't attached, or tells too much.
    pub fn nodes_seen(&mut self, session: SessionId, found: proto::NodesSeen) -> Result<(), Refused> {
        found.check()?;
        let (site, gateway) = self.attached_gateway(session)?;
        for found in found.nodes {
            let name = found.node.parse().map(|node| GridName { node, site: site.clone() });
            let address = name.ok().and_then(|name| self.addresses.address(&name));
            let entry = address.and_then(|address| self.nodes.get_mut(&address));
            let Some(entry) = entry.filter(|entry| entry.gateway == gateway) else { continue };
            // What plans go by comes with a record, before this or after it.
            if seen::for_plans(entry.contact.seen.as_ref()) == seen::for_plans(found.seen.as_ref()) {
                entry.contact.seen = found.seen;
            }
        }
        Ok(())
    }

    /// The record of a node of which its gateway said that its agent is gone; none
    /// if it has gone to another gateway.
    pub(crate) fn node_down_record(
        &self,
        session: SessionId,
        down: &proto::NodeDown,
    ) -> Option<(GridName, NodeRecord)> {
        let (site, gateway) = self.gateway_of(session)?;
        let name = GridName { node: down.node.parse().ok()?, site };
        let entry = self.nodes.get(&self.addresses.address(&name)?)?;
        let record =
            NodeRecord { contact: entry.contact.clone(), gateway: entry.gateway.to_string(), down: true };
        (entry.gateway == gateway).then_some((name, record))
    }

    fn fold_node_down(&mut self, name: &GridName, record: &NodeRecord) -> Vec<Effect> {
        let (Some(address), Ok(gateway)) = (self.addresses.address(name), record.gateway.parse()) else {
            return Vec::new();
        };
        self.put_down(address, Some(&Party::gateway(&name.site, &gateway)))
    }

    /// The attachment ended by which a node was announced.
    fn fold_node_gone(&mut self, name: &GridName) {
        let address = self.addresses.address(name);
        let entry = address.and_then(|address| self.nodes.get_mut(&address));
        if let Some(entry) = entry.filter(|entry| entry.presence == Presence::Up) {
            entry.presence = Presence::Lost;
        }
    }

    /// A gateway has had its time to announce its nodes: those that it hasn't
    /// are down. To be called once, some time after it attached.
    pub fn settle(&mut self, session: SessionId) -> Vec<Effect> {
        let Some((site, gateway)) = self.gateway_of(session) else { return Vec::new() };
        self.put_down_lost(&site, &gateway, true)
    }

    /// The nodes of a gateway that went away have had their time to attach to
    /// another one, if there is any: those that haven't are down. To be called
    /// some time after it was detached.
    pub fn settle_without(&mut self, site: &Label, gateway: &Label) -> Vec<Effect> {
        match self.sites.get(site) {
            // Where it is attached again, it has time of its own.
            Some(entry) if entry.is_attached() && !entry.has(gateway) => {
                self.put_down_lost(site, gateway, false)
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Site and name of an attached gateway.
    pub fn gateway_of(&self, session: SessionId) -> Option<(Label, Label)> {
        self.gateway_sessions.get(&session).cloned()
    }

    /// A gateway told how a job is doing.
    ///
    /// # Errors
    /// If the report makes no sense or the site has too many jobs; the gateway
    /// goes on.
    pub fn job_report(&mut self, session: SessionId, report: proto::JobReport) -> Result<(), Refused> {
        let (site, gateway) = self.attached_gateway(session)?;
        if self.is_elsewhere(report.nodes.first(), &gateway) {
            return Ok(());
        }
        report.check()?;
        self.jobs.report(site, report)
    }

    /// A relay told what it carried.
    pub fn relay_report(&mut self, session: SessionId, report: proto::RelayReport) {
        if let Some(relay) = self.relays.values_mut().find(|relay| relay.session == Some(session)) {
            relay.report = report;
        }
    }

    /// The record of a gateway that told whether it is reached at its port outside.
    ///
    /// # Errors
    /// If it isn't attached, or tells too much.
    pub(crate) fn reach_record(
        &self,
        session: SessionId,
        former: GatewayRecord,
        reach: &proto::Reach,
    ) -> Result<GatewayRecord, Refused> {
        reach.check()?;
        self.attached_gateway(session)?;
        Ok(GatewayRecord { outside_reach: Some(reach.clone()), ..former })
    }

    fn put_down(&mut self, address: VirtualAddress, by: Option<&Party>) -> Vec<Effect> {
        match self.nodes.get_mut(&address) {
            Some(entry) if entry.presence != Presence::Down => {
                entry.presence = Presence::Down;
                let mut effects = self.contact_changed(address, by);
                effects.extend(self.tell_siblings(address));
                effects
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn put_down_lost(&mut self, site: &Label, gateway: &Label, it_said_so: bool) -> Vec<Effect> {
        let party = Party::gateway(site, gateway);
        let by = it_said_so.then_some(&party);
        let lost = |entry: &NodeEntry| entry.gateway == *gateway && entry.presence == Presence::Lost;
        let own = self.nodes.of_site(site);
        let gone: Vec<_> = own.filter(|(_, entry)| lost(entry)).map(|(address, _)| address).collect();
        gone.into_iter().flat_map(|address| self.put_down(address, by)).collect()
    }

    fn lose_nodes(&mut self, site: &Label, gateway: &Label) {
        for address in self.nodes.addresses_of(site) {
            if let Some(entry) = self.nodes.get_mut(&address)
                && entry.gateway == *gateway
                && entry.presence == Presence::Up
            {
                entry.presence = Presence::Lost;
            }
        }
    }

    /// Tells every gateway, which forgets all contacts of other sites.
    fn everything_changed(&mut self) -> Vec<Effect> {
        self.holders.clear();
        let gateways = self.sites.iter().flat_map(|(site, entry)| entry.parties(site));
        gateways.map(|to| changed(to, 0)).collect()
    }

    fn attached_gateway(&self, session: SessionId) -> Result<(Label, Label), Refused> {
        self.gateway_of(session).ok_or_else(|| Refused("this gateway is not attached".to_owned()))
    }

    fn gateway_mut(&mut self, site: &Label, gateway: &Label) -> Option<&mut GatewayEntry> {
        self.sites.get_mut(site).and_then(|site| site.gateways.get_mut(gateway))
    }

    fn says(&self, site: &Label) -> Option<Says> {
        self.sites.get(site).map(SiteEntry::says)
    }

    fn relays_up(&self) -> usize {
        self.relays.values().filter(|relay| relay.session.is_some()).count()
    }
}

/// What others go by of a contact.
fn contact_for_plans(up: &proto::NodeUp) -> proto::NodeUp {
    proto::NodeUp {
        seen: Some(seen::for_plans(up.seen.as_ref())),
        from: String::new(),
        gateway_address: String::new(),
        attachment: 0,
        ..up.clone()
    }
}

/// Makes room for one more where there are `most`: an idle one goes.
fn make_room<T>(entries: &mut BTreeMap<Label, T>, most: usize, idle: impl Fn(&T) -> bool) {
    if entries.len() >= most
        && let Some(idle) = entries.iter().find(|(_, entry)| idle(entry)).map(|(name, _)| name.clone())
    {
        entries.remove(&idle);
    }
}

/// Says that a contact has changed; all for address 0.
fn changed(to: Party, virtual_address: u32) -> Effect {
    let changed = proto::ContactChanged { virtual_address };
    Effect::Send { to, message: attach_down::Kind::ContactChanged(changed) }
}
