//! The parts of a grid, once checked: plain data.

use std::fmt;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::ports::PortRange;
use super::quantity::{BitRate, ByteSize, Delay, Share};

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
    /// Pairs of sites that isthmus may join by some ways only.
    pub pairs: Vec<Pair>,
    /// Whether isthmus measures the ways between sites unasked.
    pub measure: bool,
    /// Time between an agent's attempts to return to its first gateway; none: the
    /// agent's default.
    pub return_seconds: Option<NonZeroU16>,
    /// Whether agents have trunks; none for the agents' default.
    pub trunks: Option<bool>,
}

/// By which ways isthmus may join two sites; the broker reads what they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The two sites.
    pub sites: [String; 2],
    /// By no others than these.
    pub only: Option<Vec<String>>,
    /// Not by these.
    pub never: Vec<String>,
    /// Whether connections share trunks: "always" or "never".
    pub trunk: Option<String>,
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
    /// The machine's own host name.
    pub host_name: String,
    /// Its public address.
    pub address: Ipv4Addr,
    /// Its link to the internet.
    pub link: Link,
    /// Services that run there.
    pub roles: Vec<Role>,
    /// Port of its one service; none: the service's usual one.
    pub port: Option<u16>,
}

/// Nodes on one local network, or several, behind one router.
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
    /// The site's address on the internet: that of its router, or of its
    /// carrier's.
    pub outside: Ipv4Addr,
    /// Link from the router, or its carrier's, to the internet.
    pub link: Link,
    /// Rate at which each node sends and receives on the local network; none:
    /// as fast as the machine.
    pub lan_rate: Option<BitRate>,
    /// Answer to an unsolicited TCP segment that isn't let in.
    pub unsolicited: Unsolicited,
    /// Ports of the outside, or of nodes behind a firewall, that are let in.
    pub forward: Vec<Forward>,
    /// If given, nothing new leaves the site but TCP to these ports.
    pub egress: Option<Vec<PortRange>>,
    /// Whether isthmus may measure ways between this site and others unasked,
    /// if it does so at all.
    pub measure: bool,
    /// Whether its gateways keep trunks with those of other sites that do, too.
    pub site_trunk: bool,
    /// Further networks between the nodes.
    pub rails: Vec<Rail>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// A machine of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, unique within the site.
    pub name: String,
    /// The machine's own host name; two sites may use the same one.
    pub host_name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Services that run there.
    pub roles: Vec<Role>,
    /// How many ranks its agent offers room for.
    pub slots: Option<u32>,
    /// Whether it reaches the internet at all: without, it has no default
    /// route, and the router forwards nothing from or to it.
    pub way_out: bool,
    /// The node whose gateway its agent uses; none: they take turns.
    pub via: Option<String>,
}

/// A further network of a site, on which every node has an interface of its
/// own with the rail's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rail {
    /// Its name, unique within the site; interfaces have it.
    pub name: String,
    /// Addresses of the nodes: the same host number as in the site's subnet.
    pub subnet: Ipv4Net,
    /// The router's address on it.
    pub router: Ipv4Addr,
    /// Rate at which each node sends and receives; none: as fast as the
    /// machine.
    pub rate: Option<BitRate>,
    /// Its own way to the internet, if it has one.
    pub uplink: Option<Uplink>,
}

/// A way from a site's router to the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uplink {
    /// The router's address on the internet.
    pub outside: Ipv4Addr,
    /// The link.
    pub link: Link,
}

/// Ports that a router lets in for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Which, of TCP and UDP; they stay the same on the way.
    pub ports: PortRange,
    /// The node.
    pub to: String,
}

/// What a site's router does between the site and the internet, in the terms
/// of RFC 4787 and RFC 5382.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteKind {
    /// Public addresses, nothing filtered.
    Open,
    /// Public addresses behind a stateful filter: address- and port-dependent
    /// filtering.
    Firewall,
    /// Public addresses behind a filter without memory: inbound TCP segments
    /// with SYN and without ACK are dropped, everything else passes.
    StatelessFirewall,
    /// Private addresses behind Linux's masquerade: ports are preserved and
    /// mapping is endpoint-independent as long as ports don't collide;
    /// address- and port-dependent filtering.
    Nat,
    /// Private addresses behind a NAT that takes a random port for every
    /// destination: address- and port-dependent mapping and filtering.
    SymmetricNat,
    /// Private addresses behind two NATs in a row: the site's router and, on
    /// the other side of a network of 100.64.0.0/10 (RFC 6598), the carrier's.
    CarrierNat,
}

/// A router's answer to an unsolicited TCP segment that it doesn't let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unsolicited {
    /// Nothing.
    #[default]
    Drop,
    /// A reset, as from a port without a listener.
    Reset,
}

/// A service of isthmus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The rendezvous service; one per grid.
    Broker,
    /// Joins two outgoing connections.
    Relay,
    /// A site's front-end service.
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

/// How one direction of a link treats packets.
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
    /// Packets of more bytes than this vanish, IP headers included, and nobody is told
    /// (RFC 2923, "black holes"); none: all sizes pass.
    #[serde(default)]
    pub black_hole: Option<u32>,
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

impl Grid {
    /// Every machine one can run something on: `(lab name, roles)`, hosts
    /// first, nodes as `NODE.SITE`, routers left out.
    pub fn machines(&self) -> impl Iterator<Item = (String, &[Role])> {
        let hosts = self.hosts.iter().map(|host| (host.name.clone(), host.roles.as_slice()));
        let nodes = self.sites.iter().flat_map(|site| {
            site.nodes.iter().map(|node| (format!("{}.{}", node.name, site.name), node.roles.as_slice()))
        });
        hosts.chain(nodes)
    }

    /// Every link to the internet under its name: `HOST`, `SITE`, or
    /// `SITE/RAIL`.
    pub fn links(&self) -> impl Iterator<Item = (String, &Link)> {
        let hosts = self.hosts.iter().map(|host| (host.name.clone(), &host.link));
        let sites = self.sites.iter().flat_map(|site| {
            let rails = site.rails.iter().filter_map(|rail| {
                rail.uplink.as_ref().map(|uplink| (site.rail_link_name(rail), &uplink.link))
            });
            std::iter::once((site.name.clone(), &site.link)).chain(rails)
        });
        hosts.chain(sites)
    }
}

impl Site {
    /// Name of a rail's own link: `SITE/RAIL`.
    pub(crate) fn rail_link_name(&self, rail: &Rail) -> String {
        format!("{}/{}", self.name, rail.name)
    }

    /// A node's address on a rail: the same host number as in the site's
    /// subnet.
    pub(crate) fn address_on(&self, rail: &Rail, node: &Node) -> Ipv4Addr {
        let host_number = node.address.to_bits() & self.subnet.hostmask().to_bits();
        Ipv4Addr::from_bits(rail.subnet.network().to_bits() | host_number)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

impl SiteKind {
    /// Whether nodes' addresses are private, and translated on the way out.
    pub fn translates(self) -> bool {
        match self {
            Self::Nat | Self::SymmetricNat | Self::CarrierNat => true,
            Self::Open | Self::Firewall | Self::StatelessFirewall => false,
        }
    }

    /// As the grid file has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Firewall => "firewall",
            Self::StatelessFirewall => "stateless-firewall",
            Self::Nat => "nat",
            Self::SymmetricNat => "symmetric-nat",
            Self::CarrierNat => "carrier-nat",
        }
    }
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

    /// The port it listens on.
    pub fn port(self) -> u16 {
        match self {
            Self::Broker => 7700,
            Self::Gateway => 7710,
            Self::Relay => 7720,
            Self::Agent => 7730,
        }
    }
}

impl Loss {
    /// Nothing is lost.
    pub const NONE: Self = Self { share: Share(0), burst: 1 };
}

impl Link {
    /// Whether the link does nothing to packets, so that it needs no emulator.
    pub(crate) fn is_plain(&self) -> bool {
        self.up.is_plain() && self.down.is_plain()
    }
}

impl LinkShape {
    /// Whether this direction does nothing to packets.
    pub(crate) fn is_plain(&self) -> bool {
        self.delay == Delay(0)
            && self.jitter == Delay(0)
            && self.rate.is_none()
            && self.loss.share == Share(0)
            && self.black_hole.is_none()
    }

    /// Whether a packet of so many bytes vanishes for its length.
    pub(crate) fn swallows(&self, length: u64) -> bool {
        self.black_hole.is_some_and(|most| length > most.into())
    }
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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
        if let Some(most) = self.black_hole {
            write!(f, ", swallows packets above {most} bytes")?;
        }
        Ok(())
    }
}
