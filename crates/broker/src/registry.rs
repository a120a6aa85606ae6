//! Who is attached, and what is asked of them: plain data, no I/O, no clock.
//!
//! Methods that take in what happened (`attach_*`, `node_*`, `settle`,
//! `detach`, …) return [`Effect`]s, which the caller must carry out in their
//! order. The others only answer. See [`answers`] for those.
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
mod gateways;
mod job;
mod measuring;
mod party;
mod paths;
mod probing;
mod relays;
mod siblings;
mod site;
mod site_paths;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use isthmus_net::contact::inbound_from_wire;
use isthmus_net::mac::Secret;
use isthmus_net::seen;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, VirtualAddress};

pub use answers::{LookupError, RendezvousError};
pub(crate) use party::Party;
pub use probing::ProbeError;

use crate::addresses::{AddressBook, Assignment};
use crate::config::{ForbiddenPairs, Measure, RelayChoice, TrustedPairs};
use job::Jobs;
use paths::Paths;
use probing::Probed;
use site::{GatewayEntry, Says, SiteEntry, specific};
use site_paths::SitePaths;

/// One attachment of a gateway or relay; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

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

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node that came up.
#[derive(Debug, PartialEq)]
pub struct NodeCame {
    /// Its address.
    pub address: VirtualAddress,
    /// What must be written down before the effects are carried out.
    pub assignment: Option<Assignment>,
    /// What to do.
    pub effects: Vec<Effect>,
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
    nodes: BTreeMap<VirtualAddress, NodeEntry>,
    relays: BTreeMap<Label, RelayEntry>,
    jobs: Jobs,
    probed: Probed,
    paths: Paths,
    site_paths: SitePaths,
    last_session: u64,
    /// The relay that was chosen last.
    last_relay: Option<Label>,
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

/// Longest text that anybody may put into the registry.
const MAX_TEXT: usize = 255;
/// Relays that one node may tell of.
const MAX_RELAYS_SEEN: usize = 64;

impl Registry {
    /// A registry that nobody is attached to yet.
    pub fn new(grid: &str, policy: Policy, addresses: AddressBook) -> Self {
        Self {
            grid: grid.to_owned(),
            policy,
            addresses,
            sites: BTreeMap::new(),
            nodes: BTreeMap::new(),
            relays: BTreeMap::new(),
            jobs: Jobs::default(),
            probed: Probed::default(),
            paths: Paths::default(),
            site_paths: SitePaths::default(),
            last_session: 0,
            last_relay: None,
        }
    }

    /// The gateway of this name came to `site`. It takes the place of a former
    /// one of that name, and keeps that one's key, so that tickets under way stay
    /// good. `new_key` is for one that wasn't there before.
    ///
    /// # Errors
    /// If it says that it is of another site.
    pub fn attach_gateway(
        &mut self,
        site: &Label,
        name: &Label,
        up: &proto::GatewayUp,
        new_key: Secret,
    ) -> Result<(SessionId, Vec<Effect>), Refused> {
        if up.site != site.as_str() {
            return Err(Refused(format!("this gateway's certificate is for site {site}, not {:?}", up.site)));
        }
        check_texts(&[&up.address, &up.version, &up.outside_address])?;
        let (session, party) = (self.new_session(), Party::gateway(site, name));
        let before = self.says(site);
        let entry = self.sites.entry(site.clone()).or_default();
        let former = entry.gateways.remove(name);
        let mut inside_address = specific(&up.address).to_owned();
        let (mut old, mut key, mut outside_reach) = (None, new_key, None);
        if let Some(former) = former {
            // It tells again what it found; until then that holds.
            if former.outside_address == up.outside_address {
                outside_reach = former.outside_reach;
            }
            if inside_address.is_empty() {
                inside_address = former.inside_address;
            }
            (old, key) = (former.session, former.key);
        }
        let message = attach_down::Kind::RelayKey(proto::RelayKey { key: key.expose().to_vec() });
        let gateway = GatewayEntry {
            outside_reach,
            session: Some(session),
            inbound: inbound_from_wire(up.inbound()),
            version: up.version.clone(),
            outside_address: up.outside_address.clone(),
            inside_address,
            key,
            measure_off: up.measure_off,
        };
        entry.gateways.insert(name.clone(), gateway);
        let mut effects = vec![Effect::Send { to: party, message }];
        if let Some(old) = old {
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
        effects.extend(self.siblings_of(site, name));
        effects.extend(self.notices(site));
        Ok((session, effects))
    }

    /// A relay came. It takes the place of a former one of its name, and keeps
    /// that one's key, so that tickets under way stay good. `new_key` is for a
    /// relay that wasn't there before.
    ///
    /// # Errors
    /// If it says that it is another one.
    pub fn attach_relay(
        &mut self,
        name: &Label,
        up: &proto::RelayUp,
        new_key: Secret,
    ) -> Result<(SessionId, Vec<Effect>), Refused> {
        if up.name != name.as_str() {
            return Err(Refused(format!("this relay's certificate is for {name}, not {:?}", up.name)));
        }
        check_texts(&[&up.address, &up.version])?;
        if up.address.is_empty() {
            return Err(Refused("a relay must say at what address agents reach it".to_owned()));
        }
        let session = self.new_session();
        let relays_before = self.relays_up();
        let former = self.relays.remove(name);
        let mut effects = Vec::new();
        if let Some(old) = former.as_ref().and_then(|former| former.session) {
            let reason = format!("another relay of the name {name} has attached");
            effects.push(Effect::Close { session: old, reason });
        }
        let key = former.map_or(new_key, |former| former.key);
        let message = attach_down::Kind::RelayKey(proto::RelayKey { key: key.expose().to_vec() });
        effects.push(Effect::Send { to: Party::Relay(name.clone()), message });
        let entry = RelayEntry {
            session: Some(session),
            address: up.address.clone(),
            version: up.version.clone(),
            key,
            report: proto::RelayReport::default(),
        };
        self.relays.insert(name.clone(), entry);
        if relays_before == 0 {
            effects.extend(self.everything_changed());
        }
        Ok((session, effects))
    }

    /// A gateway or relay went away. Its site's nodes are lost, not down: the
    /// nodes themselves may be well.
    pub fn detach(&mut self, session: SessionId) -> Vec<Effect> {
        if let Some((site, name)) = self.gateway_of(session) {
            let before = self.says(&site);
            if let Some(gateway) = self.sites.get_mut(&site).and_then(|site| site.gateways.get_mut(&name)) {
                gateway.session = None;
            }
            self.lose_nodes(&site, &name);
            self.forget_jobs(&site, &name);
            return if before == self.says(&site) { Vec::new() } else { self.everything_changed() };
        }
        let relays_before = self.relays_up();
        for relay in self.relays.values_mut().filter(|relay| relay.session == Some(session)) {
            relay.session = None;
        }
        if relays_before > 0 && self.relays_up() == 0 { self.everything_changed() } else { Vec::new() }
    }

    /// A gateway announced one of its nodes.
    ///
    /// # Errors
    /// If the name isn't allowed or no address is left; the gateway goes on.
    pub fn node_up(&mut self, session: SessionId, up: &proto::NodeUp) -> Result<NodeCame, Refused> {
        let (site, gateway) = self.attached_gateway(session)?;
        let party = Party::gateway(&site, &gateway);
        let node: Label = up.node.parse().map_err(|error| Refused(format!("{error}")))?;
        check_texts(&[&up.address, &up.host_name, &up.owner, &up.version, &up.architecture])?;
        check_texts(&[&up.outside_address, &up.from, &up.gateway_address])?;
        check_seen(up.seen.as_ref())?;
        let name = GridName { node, site };
        self.check_not_twice(&name, &gateway, up)?;
        let (address, assignment) =
            self.addresses.assign(&name).map_err(|error| Refused(error.to_string()))?;
        if self.is_outdated(address, &gateway, up) {
            return Ok(NodeCame { address, assignment, effects: Vec::new() });
        }
        let came_to = specific(&up.gateway_address);
        if let Some(entry) = self.gateway_mut(&name.site, &gateway)
            && entry.inside_address.is_empty()
        {
            entry.inside_address = came_to.to_owned();
        }
        let entry = NodeEntry {
            name: name.clone(),
            gateway: gateway.clone(),
            presence: Presence::Up,
            contact: up.clone(),
        };
        let former = self.nodes.insert(address, entry);
        let moved = former.as_ref().is_none_or(|former| former.gateway != gateway);
        let same = former.is_some_and(|former| {
            former.presence != Presence::Down && contact_for_plans(&former.contact) == contact_for_plans(up)
        });
        let mut effects = if same { Vec::new() } else { self.contact_changed(address, Some(&party)) };
        if moved || !same {
            effects.extend(self.tell_siblings(address));
        }
        let welcome = proto::Welcome { node: name.node.to_string(), virtual_address: address.ip().into() };
        effects.insert(0, Effect::Send { to: party, message: attach_down::Kind::Welcome(welcome) });
        Ok(NodeCame { address, assignment, effects })
    }

    /// A gateway said that one of its agents is gone; one that has gone to
    /// another gateway is not.
    pub fn node_down(&mut self, session: SessionId, down: &proto::NodeDown) -> Vec<Effect> {
        let Some((site, gateway)) = self.gateway_of(session) else { return Vec::new() };
        let Ok(node) = down.node.parse() else { return Vec::new() };
        let party = Party::gateway(&site, &gateway);
        let address = self.addresses.address(&GridName { node, site });
        match address.filter(|address| self.nodes.get(address).is_some_and(|node| node.gateway == gateway)) {
            Some(address) => self.put_down(address, Some(&party)),
            None => Vec::new(),
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
        self.sites.iter().find_map(|(site, entry)| {
            let mut gateways = entry.gateways.iter();
            let found = gateways.find(|(_, gateway)| gateway.session == Some(session));
            found.map(|(gateway, _)| (site.clone(), gateway.clone()))
        })
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
        self.jobs.report(site, report)
    }

    /// A relay told what it carried.
    pub fn relay_report(&mut self, session: SessionId, report: proto::RelayReport) {
        if let Some(relay) = self.relays.values_mut().find(|relay| relay.session == Some(session)) {
            relay.report = report;
        }
    }

    /// A gateway told whether it is reached at its port outside.
    ///
    /// # Errors
    /// If it isn't attached, or tells too much.
    pub fn gateway_reach(&mut self, session: SessionId, reach: proto::Reach) -> Result<Vec<Effect>, Refused> {
        check_texts(&[&reach.address, &reach.relay, &reach.detail])?;
        let not_attached = || Refused("this gateway is not attached".to_owned());
        let mut sites = self.sites.values_mut();
        let site = sites.find(|site| site.has_session(session)).ok_or_else(not_attached)?;
        let before = site.says();
        let mut gateways = site.gateways.values_mut();
        let gateway = gateways.find(|gateway| gateway.session == Some(session)).ok_or_else(not_attached)?;
        gateway.outside_reach = Some(reach);
        Ok(if before == site.says() { Vec::new() } else { self.everything_changed() })
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
        let lost = |entry: &NodeEntry| {
            entry.name.site == *site && entry.gateway == *gateway && entry.presence == Presence::Lost
        };
        let gone: Vec<_> =
            self.nodes.iter().filter(|(_, entry)| lost(entry)).map(|(address, _)| *address).collect();
        gone.into_iter().flat_map(|address| self.put_down(address, by)).collect()
    }

    fn lose_nodes(&mut self, site: &Label, gateway: &Label) {
        let own = self.nodes.values_mut();
        let own = own.filter(|entry| entry.name.site == *site && entry.gateway == *gateway);
        for entry in own.filter(|entry| entry.presence == Presence::Up) {
            entry.presence = Presence::Lost;
        }
    }

    /// Tells every gateway but the one that said so itself.
    fn contact_changed(&self, address: VirtualAddress, but: Option<&Party>) -> Vec<Effect> {
        self.tell_gateways(address.ip().into(), but)
    }

    fn everything_changed(&self) -> Vec<Effect> {
        self.tell_gateways(0, None)
    }

    fn tell_gateways(&self, virtual_address: u32, but: Option<&Party>) -> Vec<Effect> {
        let gateways = self.sites.iter().flat_map(|(site, entry)| entry.parties(site));
        gateways
            .filter(|party| Some(party) != but)
            .map(|to| {
                let changed = proto::ContactChanged { virtual_address };
                Effect::Send { to, message: attach_down::Kind::ContactChanged(changed) }
            })
            .collect()
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

    fn new_session(&mut self) -> SessionId {
        self.last_session += 1;
        SessionId(self.last_session)
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

fn check_seen(seen: Option<&proto::Seen>) -> Result<(), Refused> {
    let Some(seen) = seen else { return Ok(()) };
    if seen.relays.len() > MAX_RELAYS_SEEN {
        return Err(Refused(format!("a node tells of at most {MAX_RELAYS_SEEN} relays")));
    }
    check_texts(&[&seen.address])?;
    for reach in [&seen.own, &seen.outside].into_iter().flatten() {
        check_texts(&[&reach.address, &reach.relay, &reach.detail])?;
    }
    if seen.gateways.len() > MAX_RELAYS_SEEN {
        return Err(Refused(format!("a node tells of at most {MAX_RELAYS_SEEN} gateways")));
    }
    seen.relays
        .iter()
        .chain(&seen.gateways)
        .try_for_each(|sight| check_texts(&[&sight.relay, &sight.address, &sight.failure]))
}

fn check_texts(texts: &[&str]) -> Result<(), Refused> {
    match texts.iter().find(|text| text.len() > MAX_TEXT) {
        Some(text) => Err(Refused(format!("a text of {} bytes is too long: at most {MAX_TEXT}", text.len()))),
        None => Ok(()),
    }
}
