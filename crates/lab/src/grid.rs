//! The description of an emulated grid: what a grid file says, checked.
//!
//! ```toml
//! name = "two-sites"                # default: the file's name
//! seed = 7                          # losses and jitter repeat; default: they don't
//! share = ["/tmp/build"]            # stays visible in every node's private /tmp
//! trusted = [["alpha", "beta"]]     # isthmus sends unencrypted between these sites
//!
//! [wan]                             # the public internet
//! subnet = "198.51.100.0/24"        # its router takes the first address
//!
//! [[host]]                          # a machine directly on the internet
//! name = "hub"
//! address = "198.51.100.10"         # default: the next free one
//! roles = ["broker", "relay"]
//!
//! [[site]]
//! name = "alpha"
//! kind = "nat"                      # nat | firewall | open
//! subnet = "192.168.1.0/24"         # behind NAT, it may be the same at several sites
//! outside = "198.51.100.21"         # the router's address on the wide area
//! link = { delay = "2.5 ms", rate = "1 Gbit/s", queue = "256 KiB" }
//! nodes = [
//!   { name = "n1", host_name = "node1", roles = ["gateway", "agent"] },
//!   { name = "n2", address = "192.168.1.7", roles = ["agent"], slots = 2 },
//! ]
//! ```

mod change;
mod check;
mod file;
mod links;
mod quantity;

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use isthmus_wire::Label;
use serde::{Deserialize, Serialize};

pub use change::{ChangeError, LINK_KEYS};
pub use quantity::{BitRate, ByteSize, Delay, QuantityError, Share};

/// An emulated grid, checked: names are unique, addresses don't overlap where
/// they mustn't, every service that another needs is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Name of the lab.
    pub name: String,
    /// What everything random in the lab follows from, so that a run can be
    /// repeated; none: a different one for each run.
    pub seed: Option<u64>,
    /// The public internet.
    pub wan: Wan,
    /// Machines directly on the internet.
    pub hosts: Vec<Host>,
    /// Sites, each behind a router of its own.
    pub sites: Vec<Site>,
    /// Directories of the machine that stay visible in nodes even below a
    /// directory that each node has for itself, such as `/tmp`.
    pub share: Vec<PathBuf>,
    /// Pairs of sites between which isthmus sends data unencrypted.
    pub trusted: Vec<[String; 2]>,
}

/// The public internet: one router at which all links end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wan {
    /// Addresses of site routers' outsides and of public hosts.
    pub subnet: Ipv4Net,
    /// The router's own address, the first of the subnet.
    pub router: Ipv4Addr,
}

/// A machine directly on the internet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name in the lab.
    pub name: String,
    /// What `hostname` says there.
    pub host_name: String,
    /// Its public address.
    pub address: Ipv4Addr,
    /// Its link to the internet.
    pub link: Link,
    /// Services that run there.
    pub roles: Vec<Role>,
}

/// Nodes on one local network behind one router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// What the router does between the site and the internet.
    pub kind: SiteKind,
    /// Addresses of the nodes.
    pub subnet: Ipv4Net,
    /// The router's address inside, the first of the subnet.
    pub router: Ipv4Addr,
    /// The router's address on the internet.
    pub outside: Ipv4Addr,
    /// Link from the router to the internet.
    pub link: Link,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// A machine of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, unique within the site.
    pub name: String,
    /// What `hostname` says there; may be the same at two sites.
    pub host_name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Services that run there.
    pub roles: Vec<Role>,
    /// How many ranks its agent offers room for.
    pub slots: Option<u32>,
}

/// What a site's router does between the site and the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteKind {
    /// Source NAT to the outside address (Linux masquerade: in the terms of
    /// RFC 4787 endpoint-independent mapping as long as ports don't collide,
    /// address- and port-dependent filtering); unsolicited inbound is dropped.
    Nat,
    /// Public addresses behind a stateful filter that drops unsolicited
    /// inbound packets.
    Firewall,
    /// Public addresses, nothing filtered.
    Open,
}

/// A service of isthmus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The rendezvous service; one per grid.
    Broker,
    /// Joins two outgoing connections.
    Relay,
    /// A site's front-end service; one per site.
    Gateway,
    /// A node's service.
    Agent,
}

/// One link between a router or host and the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// From the host or site to the internet.
    pub up: LinkShape,
    /// From the internet to the host or site.
    pub down: LinkShape,
}

/// What one direction of a link does to packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkShape {
    /// One-way delay.
    pub delay: Delay,
    /// The delay of each packet differs from `delay` by up to this much, with
    /// every difference as likely; packets stay in order.
    pub jitter: Delay,
    /// Bottleneck rate; none: as fast as the machine.
    pub rate: Option<BitRate>,
    /// Length of the drop-tail queue before the bottleneck; has no meaning
    /// without a rate.
    pub queue: ByteSize,
    /// Packets lost on the way.
    pub loss: Loss,
}

/// Packets that a link loses though its queue has room for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Share of all packets, in the long run.
    pub share: Share,
    /// Mean number of packets lost in a row: 1 loses each packet
    /// independently of the others; more is a Gilbert model (E. N. Gilbert,
    /// "Capacity of a burst-noise channel", 1960) that loses every packet in
    /// its bad state.
    pub burst: u32,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Broker, Self::Relay, Self::Gateway, Self::Agent];

    /// The subcommand of `isthmus` that runs the service.
    pub fn command(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Relay => "relay",
            Self::Gateway => "gateway",
            Self::Agent => "agent",
        }
    }
}

impl Loss {
    /// Nothing is lost.
    pub const NONE: Self = Self { share: Share(0), burst: 1 };
}

impl Link {
    /// Whether the link does nothing to packets, so that it needs no emulator.
    pub fn is_plain(&self) -> bool {
        self.up.is_plain() && self.down.is_plain()
    }
}

impl LinkShape {
    /// Whether this direction does nothing to packets.
    pub fn is_plain(&self) -> bool {
        self.delay == Delay(0)
            && self.jitter == Delay(0)
            && self.rate.is_none()
            && self.loss.share == Share(0)
    }
}

impl fmt::Display for LinkShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.delay)?;
        if self.jitter != Delay(0) {
            write!(f, " ± {}", self.jitter)?;
        }
        if let Some(rate) = self.rate {
            write!(f, ", {rate}, {}", self.queue)?;
        }
        if self.loss.share != Share(0) {
            write!(f, ", loses {}", self.loss.share)?;
        }
        if self.loss.burst > 1 {
            write!(f, " in bursts of {}", self.loss.burst)?;
        }
        Ok(())
    }
}

/// Why a grid file was refused: every message names the file and, where it
/// can, the line.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// The file can't be read.
    #[error("cannot read grid file {path}: {cause}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Not TOML, or not a grid's tables; the message has the line in it.
    #[error("{origin}: {message}")]
    Syntax {
        /// The file's name.
        origin: String,
        /// The parser's message, with an excerpt.
        message: String,
    },
    /// The values make no grid.
    #[error("{origin}:{line}: {message}")]
    Meaning {
        /// The file's name.
        origin: String,
        /// Line of the value, from 1.
        line: usize,
        /// What is wrong, and what to do.
        message: String,
    },
}

impl Grid {
    /// Reads and checks a grid file. A file that doesn't name its lab gives it
    /// its own name.
    pub fn load(path: &Path) -> Result<Self, GridError> {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Self::parse(&Self::read(path)?, &path.display().to_string(), &stem)
    }

    /// Reads and checks a grid file for a lab of another name.
    pub fn load_as(path: &Path, name: &Label) -> Result<Self, GridError> {
        let grid = Self::parse(&Self::read(path)?, &path.display().to_string(), name.as_str())?;
        Ok(Self { name: name.to_string(), ..grid })
    }

    fn read(path: &Path) -> Result<String, GridError> {
        std::fs::read_to_string(path).map_err(|cause| GridError::Read { path: path.to_owned(), cause })
    }

    /// Checks a grid file's text. `origin` stands for the file in messages,
    /// `default_name` names the lab where the text doesn't.
    pub fn parse(text: &str, origin: &str, default_name: &str) -> Result<Self, GridError> {
        let file = toml::from_str(text).map_err(|error: toml::de::Error| GridError::Syntax {
            origin: origin.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        check::check(file, default_name).map_err(|fault| GridError::Meaning {
            origin: origin.to_owned(),
            line: text[..fault.at.min(text.len())].matches('\n').count() + 1,
            message: fault.message,
        })
    }

    /// Every machine one can run something on: `(lab name, roles)`, hosts
    /// first, nodes as `NODE.SITE`, routers left out.
    pub fn machines(&self) -> impl Iterator<Item = (String, &[Role])> {
        let hosts = self.hosts.iter().map(|host| (host.name.clone(), host.roles.as_slice()));
        let nodes = self.sites.iter().flat_map(|site| {
            site.nodes.iter().map(|node| (format!("{}.{}", node.name, site.name), node.roles.as_slice()))
        });
        hosts.chain(nodes)
    }
}

#[cfg(test)]
mod tests;
