//! The registry: the state of a grid, folded from records. Plain data, no I/O, no clock.
//!
//! All brokers share the [records] in their store: addresses, gateways, relays, nodes and jobs.
//! The registry is a fold over them. [`Registry::fold`] takes each record as it was written and
//! returns [`Effect`]s. The caller must carry them out in their order. The broker is the authority:
//! it alone writes records. A message of a gateway or relay becomes a record first, by a function
//! that checks it, such as [`Registry::node_record`].
//!
//! | module | purpose |
//! |---|---|
//! | [`records`] | keys and values of records, and [`Fact`](records::Fact): what is folded |
//! | `messages`, `job` | what gateways and relays send, checked and made a record |
//! | `fold`, `revoked` | takes records in |
//! | `answers`, `list`, `directory`, `view` | lookup, explain, lists: what the grid is, and who sees what of it |
//! | [`contact`], [`filters`] | what gateways compute as well: a node's record, its end of a plan, what a list shows |
//! | `rendezvous`, `endpoint`, `gateways`, `relays` | who dials whom, over which gateway or relay |
//! | `measuring`, `paths`, `site_paths`, `probing`, `reports` | orders to measure and to probe, and their results |
//! | `policy`, `places` | what the grid's configuration says of sites |
//! | `addresses` | which node has which virtual address |
//! | `site`, `siblings`, `nodes`, `holders`, `party` | what is known of sites, nodes and services |
//!
//! The following is held in one registry alone. Other brokers don't have it:
//! - the traffic that relays reported;
//! - measurements between nodes and between sites, and those under way;
//! - how often probes were ordered;
//! - which gateway or relay was chosen last;
//! - which nodes are lost.
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
#![forbid(unsafe_code)]

mod addresses;
mod answers;
pub mod contact;
mod directory;
mod endpoint;
pub mod filters;
mod fold;
mod gateways;
mod holders;
mod job;
mod list;
mod measuring;
mod messages;
mod nodes;
mod party;
mod paths;
mod places;
mod policy;
mod probing;
pub mod records;
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

use isthmus_service::mac::Secret;
use isthmus_wire::bounds::NotAllowed;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, Label, RelayName};

pub use addresses::{Assignment, Exhausted};
pub use answers::{LookupError, RendezvousError};
pub use job::JobChange;
pub use party::Party;
pub use places::{Places, PlacesError};
pub use policy::{
    ForbiddenPairs, Measure, PairConfig, Policy, PolicyError, RelayChoice, TrunkPins, TrunkUse, TrustedPairs,
};
pub use probing::{ProbeError, Request as ProbeRequest};
pub use records::Block;
pub use view::View;

use addresses::AddressBook;
use holders::Holders;
use job::Jobs;
use nodes::Nodes;
use paths::Paths;
use probing::Probed;
use site::{Declared, GatewayEntry, SiteEntry};
use site_paths::SitePaths;

/// An attachment of a gateway or relay, by the lease of its records.
pub use records::Lease as SessionId;

/// An action that the caller must carry out for the registry.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "few of them are there at once, and most are of the large one")]
pub enum Effect {
    /// Send a message to an attached gateway or relay.
    Send {
        /// The addressee, at whichever broker it is attached.
        to: Party,
        /// The message.
        message: attach_down::Kind,
    },
    /// End an attachment, for this reason.
    Close {
        /// The attachment that ends.
        session: SessionId,
        /// What its party is told.
        reason: String,
    },
}

/// Why an attachment or a message isn't accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

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

/// The state of the grid, as its records and the messages of attached parties show it.
#[derive(Debug)]
pub struct Registry {
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
    relays: BTreeMap<RelayName, RelayEntry>,
    jobs: Jobs,
    /// Revocations, by identity URI without owner.
    revoked: BTreeMap<String, proto::Revocation>,
    probed: Probed,
    paths: Paths,
    site_paths: SitePaths,
    /// The relay that was chosen last.
    last_relay: Option<RelayName>,
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

impl RelayEntry {
    /// Whether the relay takes no further connection, by its last report.
    fn is_full(&self) -> bool {
        self.report.room == Some(0)
    }
}

impl Registry {
    /// A registry without records.
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
    pub fn gateway_of(&self, session: SessionId) -> Option<(Label, Label)> {
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

    /// The relays that are attached, by name.
    fn attached_relays(&self) -> impl Iterator<Item = (&RelayName, &RelayEntry)> + Clone {
        self.relays.iter().filter(|(_, relay)| relay.session.is_some())
    }

    fn relays_up(&self) -> usize {
        self.attached_relays().count()
    }
}
