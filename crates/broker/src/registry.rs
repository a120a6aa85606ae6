//! The state of the grid: plain data, no I/O, no clock.
//!
//! All brokers share the records in the [store](crate::store): addresses, gateways,
//! relays, nodes and jobs. The registry is a fold over them. [`Registry::fold`] takes each
//! record as it was written and returns [`Effect`]s. The caller must carry them out
//! in their order. A message of a gateway or relay becomes a record first
//! ([`records`]).
//!
//! The following is held here alone. Other brokers don't have it:
//! - the traffic that relays reported;
//! - measurements between nodes and between sites, and those under way;
//! - how often probes were ordered;
//! - which gateway or relay was chosen last;
//! - which nodes are [lost](Presence::Lost).
//!
//! A node is in one of three states:
//!
//! | state | meaning | a lookup returns |
//! |---|---|---|
//! | up | its gateway announced it | contact and plan |
//! | lost | its gateway's attachment ended | the last contact; steps that need the gateway are left out |
//! | down | its gateway reported that its agent is gone | that the node is down |
//!
//! A gateway that attaches again announces its nodes again. If it doesn't, its nodes
//! attach to another gateway of their site. In both cases a lost node is up again,
//! and no other gateway receives a message. [`Registry::settle`] and
//! [`Registry::settle_without`] end the wait.

mod answers;
mod directory;
mod endpoint;
mod fold;
mod gateways;
mod holders;
mod job;
mod list;
mod measuring;
mod nodes;
mod party;
mod paths;
mod probing;
mod records;
mod relays;
mod rendezvous;
mod reports;
mod revoked;
mod siblings;
mod site;
mod site_paths;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::fmt;

use isthmus_net::mac::Secret;
use isthmus_wire::bounds::NotAllowed;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label};

pub(crate) use answers::{LookupError, RendezvousError};
pub(crate) use job::JobChange;
pub(crate) use party::Party;
pub(crate) use probing::{ProbeError, Request as ProbeRequest};
pub(crate) use view::View;

use crate::addresses::AddressBook;
use crate::config::{ForbiddenPairs, Measure, RelayChoice, TrunkPins, TrustedPairs};
use crate::places::Places;
use holders::Holders;
use job::Jobs;
use nodes::Nodes;
use paths::Paths;
use probing::Probed;
use site::{Declared, GatewayEntry, SiteEntry};
use site_paths::SitePaths;

/// An attachment of a gateway or relay, by the lease of its records.
pub(crate) use crate::store::Lease as SessionId;

/// An action that the caller must carry out for the registry.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "few of them are there at once, and most are of the large one")]
pub(crate) enum Effect {
    /// Send a message to an attached gateway or relay.
    Send { to: Party, message: attach_down::Kind },
    /// End an attachment, for this reason.
    Close { session: SessionId, reason: String },
}

/// Why an attachment or a message isn't accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);

impl From<NotAllowed> for Refused {
    fn from(error: NotAllowed) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The part of the configuration that plans and rendezvous depend on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    /// Pairs of sites between which data goes unencrypted.
    pub(crate) trusted: TrustedPairs,
    /// Dials and routes that some pairs of sites may not use.
    pub(crate) forbidden: ForbiddenPairs,
    pub(crate) pins: TrunkPins,
    /// The places of sites at the named levels.
    pub(crate) places: Places,
    /// How the relay for two nodes is chosen.
    pub(crate) relays: RelayChoice,
    /// Whether paths between sites are measured in the background.
    pub(crate) measure: Measure,
}

/// The state of the grid, as the broker's records and its parties' messages show it.
#[derive(Debug)]
pub(crate) struct Registry {
    grid: String,
    policy: Policy,
    addresses: AddressBook,
    sites: BTreeMap<Label, SiteEntry>,
    nodes: Nodes,
    /// The site and the gateway's name of each gateway's attachment.
    gateway_sessions: BTreeMap<SessionId, (Label, Label)>,
    holders: Holders,
    /// The directory as it was sent last.
    directory: proto::Directory,
    relays: BTreeMap<Label, RelayEntry>,
    jobs: Jobs,
    /// Revocations, by identity URI without owner.
    revoked: BTreeMap<String, proto::Revocation>,
    probed: Probed,
    paths: Paths,
    site_paths: SitePaths,
    /// The relay that was chosen last.
    last_relay: Option<Label>,
    #[cfg(test)]
    last_session: u64,
    #[cfg(test)]
    last_attachment: u64,
    #[cfg(test)]
    job_leases: BTreeMap<isthmus_wire::JobId, SessionId>,
}

#[derive(Debug)]
struct NodeEntry {
    name: GridName,
    /// The gateway that announced the node last.
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
    /// A registry without records.
    pub(crate) fn new(grid: &str, policy: Policy) -> Self {
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
            revoked: BTreeMap::new(),
            probed: Probed::default(),
            paths: Paths::default(),
            site_paths: SitePaths::default(),
            last_relay: None,
            #[cfg(test)]
            last_session: 0,
            #[cfg(test)]
            last_attachment: 0,
            #[cfg(test)]
            job_leases: BTreeMap::new(),
        }
    }

    /// Site and name of an attached gateway.
    pub(crate) fn gateway_of(&self, session: SessionId) -> Option<(Label, Label)> {
        self.gateway_sessions.get(&session).cloned()
    }

    fn attached_gateway(&self, session: SessionId) -> Result<(Label, Label), Refused> {
        self.gateway_of(session).ok_or_else(|| Refused("this gateway is not attached".to_owned()))
    }

    fn gateway_mut(&mut self, site: &Label, gateway: &Label) -> Option<&mut GatewayEntry> {
        self.sites.get_mut(site).and_then(|site| site.gateways.get_mut(gateway))
    }

    fn declared(&self, site: &Label) -> Option<Declared> {
        self.sites.get(site).map(SiteEntry::declared)
    }

    fn relays_up(&self) -> usize {
        self.relays.values().filter(|relay| relay.session.is_some()).count()
    }
}
