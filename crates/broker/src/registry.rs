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
//! A gateway that comes back announces its nodes again, so a lost node is up
//! again without anybody having noticed; [`Registry::settle`] ends the wait.

mod answers;
mod gateways;
mod job;
mod measuring;
mod paths;
mod probing;
mod relays;
mod site_paths;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use isthmus_net::contact::inbound_from_wire;
use isthmus_net::mac::Secret;
use isthmus_net::seen;
use isthmus_plan::Inbound;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, VirtualAddress};

pub use answers::{LookupError, RendezvousError};
pub use probing::ProbeError;

use crate::addresses::{AddressBook, Assignment};
use crate::config::{Forbidden, Measure, RelayChoice, TrustedPairs};
use job::Jobs;
use paths::Paths;
use probing::Probed;
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
        to: SessionId,
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
    pub forbidden: Forbidden,
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
struct SiteEntry {
    session: Option<SessionId>,
    inbound: Inbound,
    version: String,
    /// Where other sites reach its gateway; empty for nowhere.
    outside_address: String,
    /// Whether its gateway is reached there.
    outside_reach: Option<proto::Reach>,
    /// Signs tickets for its gateway.
    key: Secret,
    /// Nothing is to be measured between it and others unasked.
    measure_off: bool,
}

#[derive(Debug)]
struct NodeEntry {
    name: GridName,
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

    /// A gateway of `site` came. It takes the place of a former one, and keeps
    /// that one's key, so that tickets under way stay good. `new_key` is for a
    /// site that wasn't there before.
    ///
    /// # Errors
    /// If it says that it is of another site.
    pub fn attach_gateway(
        &mut self,
        site: &Label,
        up: &proto::GatewayUp,
        new_key: Secret,
    ) -> Result<(SessionId, Vec<Effect>), Refused> {
        if up.site != site.as_str() {
            return Err(Refused(format!("this gateway's certificate is for site {site}, not {:?}", up.site)));
        }
        check_texts(&[&up.address, &up.version, &up.outside_address])?;
        let session = self.new_session();
        let inbound = inbound_from_wire(up.inbound());
        let key = self.sites.get(site).map_or(new_key, |former| former.key.clone());
        let message = attach_down::Kind::RelayKey(proto::RelayKey { key: key.expose().to_vec() });
        let mut effects = vec![Effect::Send { to: session, message }];
        // It tells again what it found; until then that holds.
        let same = |former: &&SiteEntry| former.outside_address == up.outside_address;
        let outside_reach = self.sites.get(site).filter(same).and_then(|former| former.outside_reach.clone());
        let entry = SiteEntry {
            outside_reach,
            session: Some(session),
            inbound,
            version: up.version.clone(),
            outside_address: up.outside_address.clone(),
            key,
            measure_off: up.measure_off,
        };
        let former = self.sites.insert(site.clone(), entry);
        if let Some(former) = former {
            if let Some(old) = former.session {
                let reason = format!("another gateway of site {site} has attached");
                effects.push(Effect::Close { session: old, reason });
                self.lose_nodes(site);
            }
            if (former.inbound, &former.outside_address) != (inbound, &up.outside_address) {
                effects.extend(self.everything_changed());
            }
        }
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
        effects.push(Effect::Send { to: session, message });
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
        let site = self.site_of(session).cloned();
        if let Some(site) = site {
            if let Some(entry) = self.sites.get_mut(&site) {
                entry.session = None;
            }
            self.lose_nodes(&site);
            self.jobs.forget_site(&site);
            return Vec::new();
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
        let site = self.site_of(session).ok_or_else(|| Refused("this gateway is not attached".to_owned()))?;
        let node: Label = up.node.parse().map_err(|error| Refused(format!("{error}")))?;
        check_texts(&[&up.address, &up.host_name, &up.owner, &up.version, &up.architecture])?;
        check_texts(&[&up.outside_address])?;
        check_seen(up.seen.as_ref())?;
        let name = GridName { node, site: site.clone() };
        let (address, assignment) =
            self.addresses.assign(&name).map_err(|error| Refused(error.to_string()))?;
        let former = self
            .nodes
            .insert(address, NodeEntry { name: name.clone(), presence: Presence::Up, contact: up.clone() });
        let same = former.is_some_and(|former| {
            former.presence != Presence::Down && contact_for_plans(&former.contact) == contact_for_plans(up)
        });
        let mut effects = if same { Vec::new() } else { self.contact_changed(address, Some(session)) };
        let welcome = proto::Welcome { node: name.node.to_string(), virtual_address: address.ip().into() };
        effects.insert(0, Effect::Send { to: session, message: attach_down::Kind::Welcome(welcome) });
        Ok(NodeCame { address, assignment, effects })
    }

    /// A gateway said that one of its agents is gone.
    pub fn node_down(&mut self, session: SessionId, down: &proto::NodeDown) -> Vec<Effect> {
        let Some(site) = self.site_of(session) else { return Vec::new() };
        let Ok(node) = down.node.parse() else { return Vec::new() };
        match self.addresses.address(&GridName { node, site: site.clone() }) {
            Some(address) => self.put_down(address, session),
            None => Vec::new(),
        }
    }

    /// A gateway has had its time to announce its nodes: those that it hasn't
    /// are down. To be called once, some time after it attached.
    pub fn settle(&mut self, session: SessionId) -> Vec<Effect> {
        let Some(site) = self.site_of(session) else { return Vec::new() };
        let lost = |entry: &NodeEntry| entry.name.site == *site && entry.presence == Presence::Lost;
        let gone: Vec<_> =
            self.nodes.iter().filter(|(_, entry)| lost(entry)).map(|(address, _)| *address).collect();
        gone.into_iter().flat_map(|address| self.put_down(address, session)).collect()
    }

    /// A gateway told how a job is doing.
    ///
    /// # Errors
    /// If the report makes no sense or the site has too many jobs; the gateway
    /// goes on.
    pub fn job_report(&mut self, session: SessionId, report: proto::JobReport) -> Result<(), Refused> {
        let site = self.site_of(session).cloned();
        let site = site.ok_or_else(|| Refused("this gateway is not attached".to_owned()))?;
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
        let site = self.sites.values_mut().find(|site| site.session == Some(session));
        let site = site.ok_or_else(|| Refused("this gateway is not attached".to_owned()))?;
        let former = site.outside_reach.replace(reach.clone());
        let failed = |reach: Option<&proto::Reach>| seen::reach_from_wire(reach).failed();
        let same = failed(former.as_ref()) == failed(Some(&reach));
        Ok(if same { Vec::new() } else { self.everything_changed() })
    }

    fn put_down(&mut self, address: VirtualAddress, by: SessionId) -> Vec<Effect> {
        match self.nodes.get_mut(&address) {
            Some(entry) if entry.presence != Presence::Down => {
                entry.presence = Presence::Down;
                self.contact_changed(address, Some(by))
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn lose_nodes(&mut self, site: &Label) {
        let own = self.nodes.values_mut().filter(|entry| entry.name.site == *site);
        for entry in own.filter(|entry| entry.presence == Presence::Up) {
            entry.presence = Presence::Lost;
        }
    }

    /// Tells every gateway but the one that said so itself.
    fn contact_changed(&self, address: VirtualAddress, but: Option<SessionId>) -> Vec<Effect> {
        self.tell_gateways(address.ip().into(), but)
    }

    fn everything_changed(&self) -> Vec<Effect> {
        self.tell_gateways(0, None)
    }

    fn tell_gateways(&self, virtual_address: u32, but: Option<SessionId>) -> Vec<Effect> {
        let gateways = self.sites.values().filter_map(|site| site.session);
        gateways
            .filter(|session| Some(*session) != but)
            .map(|to| {
                let changed = proto::ContactChanged { virtual_address };
                Effect::Send { to, message: attach_down::Kind::ContactChanged(changed) }
            })
            .collect()
    }

    fn site_of(&self, session: SessionId) -> Option<&Label> {
        self.sites.iter().find(|(_, entry)| entry.session == Some(session)).map(|(site, _)| site)
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
    proto::NodeUp { seen: Some(seen::for_plans(up.seen.as_ref())), ..up.clone() }
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
