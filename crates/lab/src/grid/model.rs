//! The parts of a grid, once checked: plain data.

use std::fmt;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use isthmus_common::quantity::{BitRate, ByteSize, Delay, Share};
use serde::{Deserialize, Serialize};

use super::ports::PortRange;
use super::slow::Slow;

/// An emulated grid that has been checked. Names are unique, addresses don't overlap where they
/// mustn't, and every service that another needs is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Name of the lab.
    pub name: String,
    /// Seed of everything random in the lab, so that a run can be repeated. `None`: each run has a
    /// seed of its own.
    pub seed: Option<u64>,
    /// The public internet, which joins hosts and sites.
    pub wan: Wan,
    /// Machines directly on the internet.
    pub hosts: Vec<Host>,
    /// Sites, each behind a router of its own.
    pub sites: Vec<Site>,
    /// Directories of the real machine that stay visible in nodes, even below a directory that each
    /// node has for itself, such as `/tmp`.
    pub share: Vec<PathBuf>,
    /// Pairs of sites between which isthmus sends data unencrypted.
    pub trusted: Vec<[String; 2]>,
    /// Pairs of sites that isthmus may join by some ways only.
    pub pairs: Vec<Pair>,
    /// Whether isthmus measures the ways between sites unasked.
    pub measure: bool,
    /// Seconds between an agent's attempts to return to its first gateway. `None`: the agent's
    /// default.
    pub return_seconds: Option<NonZeroU16>,
    /// How many times slower than described the network is. Everything else is as it is with this
    /// factor.
    #[serde(default)]
    pub slow: Slow,
}

/// By which ways isthmus may join two sites. The broker checks the names of the ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Names of the two sites.
    pub sites: [String; 2],
    /// The only ways by which isthmus may join the sites. `None`: all ways.
    pub only: Option<Vec<String>>,
    /// Ways by which isthmus mustn't join the sites.
    pub never: Vec<String>,
    /// Whether connections between the sites share trunks: "always" or "never". `None`:
    /// measurements decide.
    pub trunk: Option<String>,
}

/// The public internet: a single router at which all links end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wan {
    /// Addresses of site routers' outsides and of public hosts.
    pub subnet: Ipv4Net,
    /// Address of the internet's router, the first of the subnet.
    pub router: Ipv4Addr,
}

/// A machine directly on the internet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Name of the host in the lab.
    pub name: String,
    /// The machine's own host name.
    pub host_name: String,
    /// The host's public address.
    pub address: Ipv4Addr,
    /// The host's link to the internet.
    pub link: Link,
    /// Services that run on the host.
    pub roles: Vec<Role>,
    /// Port of the host's only service. `None`: the service's usual port.
    pub port: Option<u16>,
}

/// A site: nodes on one or several local networks behind a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Name of the site.
    pub name: String,
    /// What the router does between the site and the internet.
    pub kind: SiteKind,
    /// Subnet of the nodes' addresses.
    pub subnet: Ipv4Net,
    /// The router's address inside, the first of the subnet.
    pub router: Ipv4Addr,
    /// The site's address on the internet: that of its router, or of its carrier's router.
    pub outside: Ipv4Addr,
    /// Link of the site's router, or of its carrier's router, to the internet.
    pub link: Link,
    /// Rate at which each node sends and receives on the local network. `None`: as fast as the
    /// machine.
    pub lan_rate: Option<BitRate>,
    /// The router's answer to an unsolicited TCP segment that it doesn't let in.
    pub unsolicited: Unsolicited,
    /// Ports that the router lets in: of the outside address, or of nodes behind a firewall.
    pub forward: Vec<Forward>,
    /// If given, nothing new leaves the site but TCP to these ports. `None`: everything may leave.
    pub egress: Option<Vec<PortRange>>,
    /// Whether isthmus may measure ways between this site and others unasked, if the grid measures
    /// at all.
    pub measure: bool,
    /// Whether the site's gateways keep trunks with gateways of other sites that do so, too.
    pub site_trunk: bool,
    /// Whether trunks of the site's gateways and agents may have BBR.
    pub bbr: bool,
    /// By how many seconds the clock of the site's machines is ahead; negative if it is behind.
    pub clock_ahead_seconds: i32,
    /// Whether the site's Slurm ends jobs by control groups.
    pub slurm_confines: bool,
    /// Further networks between the nodes.
    pub rails: Vec<Rail>,
    /// The site's nodes, in the order of the file.
    pub nodes: Vec<Node>,
}

/// A machine of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the node, unique within the site.
    pub name: String,
    /// The machine's own host name. Two sites may use the same host name.
    pub host_name: String,
    /// The node's address on the site's main network.
    pub address: Ipv4Addr,
    /// Services that run on the node.
    pub roles: Vec<Role>,
    /// For how many ranks the node's agent offers room. `None`: the agent's default.
    pub slots: Option<u32>,
    /// What the site's Slurm knows of the node, such as `gpu`. Jobs ask for it by its name.
    #[serde(default)]
    pub features: Vec<String>,
    /// Whether the node reaches the internet at all. Otherwise it has no default route, and the
    /// router forwards nothing from or to it.
    pub way_out: bool,
    /// Name of the node whose gateway this node's agent uses. `None`: the agent uses its own node's
    /// gateway, or else the site's gateways in turn.
    pub via: Option<String>,
}

/// A further network of a site, on which every node has an interface of its
/// own with the rail's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rail {
    /// Name of the rail, unique within the site. The nodes' interfaces have it, too.
    pub name: String,
    /// Subnet of the nodes' addresses on the rail. A node has the same host number as in the site's
    /// subnet.
    pub subnet: Ipv4Net,
    /// The router's address on the rail.
    pub router: Ipv4Addr,
    /// Rate at which each node sends and receives on the rail. `None`: as fast as the machine.
    pub rate: Option<BitRate>,
    /// The rail's own way to the internet. `None` if it has no way of its own.
    pub uplink: Option<Uplink>,
}

/// A way from a site's router to the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uplink {
    /// The router's address on the internet.
    pub outside: Ipv4Addr,
    /// The link that the way consists of.
    pub link: Link,
}

/// Ports that a router lets in for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// The ports, of both TCP and UDP. Their numbers stay the same on the way.
    pub ports: PortRange,
    /// Name of the node.
    pub to: String,
}

/// What a site's router does between the site and the internet, in the terms
/// of RFC 4787 and RFC 5382.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteKind {
    /// Sites with public addresses whose router filters nothing.
    Open,
    /// Sites with public addresses behind a stateful filter. Filtering depends on address and port.
    Firewall,
    /// Sites with public addresses behind a filter without memory. It drops inbound TCP segments
    /// with SYN and without ACK. Everything else passes.
    StatelessFirewall,
    /// Sites with private addresses behind Linux's masquerade. Ports are preserved, and mapping is
    /// endpoint-independent as long as ports don't collide. Filtering depends on address and port.
    Nat,
    /// Sites with private addresses behind a NAT that takes a random port for every destination.
    /// Mapping and filtering depend on address and port.
    SymmetricNat,
    /// Sites with private addresses behind two NATs in a row: the site's router and the carrier's.
    /// Between them is a network of 100.64.0.0/10 (RFC 6598).
    CarrierNat,
}

/// A router's answer to an unsolicited TCP segment that it doesn't let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unsolicited {
    /// The router drops the segment and answers nothing.
    #[default]
    Drop,
    /// The router answers with a reset, as from a port without a listener.
    Reset,
}

/// A service: one of isthmus, or of a site's batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The rendezvous service. A grid has one broker at most.
    Broker,
    /// The service that joins two outgoing connections.
    Relay,
    /// The front-end service of a site.
    Gateway,
    /// The service of a node.
    Agent,
    /// The service by which Slurm's daemons and commands on a machine know one another. It runs
    /// beside the two others, and isn't in grid files.
    Munged,
    /// The service of a site's Slurm that queues jobs. A site has one at most.
    Slurmctld,
    /// The service of a node on which a site's Slurm runs jobs.
    Slurmd,
    /// The service of a site's Grid Engine that queues jobs. A site has one at most.
    #[serde(rename = "sge_qmaster")]
    SgeQmaster,
    /// The service of a node on which a site's Grid Engine runs jobs.
    #[serde(rename = "sge_execd")]
    SgeExecd,
}

/// A link between a router or host and the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// What the link does on the way to the internet.
    pub up: LinkShape,
    /// What the link does on the way from the internet.
    pub down: LinkShape,
}

/// What a direction of a link does to packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkShape {
    /// How long a packet takes from the bottleneck to the link's other end.
    pub delay: Delay,
    /// Most by which the delay of a packet differs from `delay`. Every difference is as likely.
    /// Packets stay in order.
    pub jitter: Delay,
    /// Rate of the bottleneck. `None`: as fast as the machine.
    pub rate: Option<BitRate>,
    /// Length of the drop-tail queue before the bottleneck. Without a rate, it has no meaning.
    pub queue: ByteSize,
    /// The packets that are lost behind the bottleneck.
    pub loss: Loss,
    /// Largest packet that passes, in bytes with its IP header. Larger ones vanish, and nobody is
    /// told (RFC 2923, "black holes"). `None`: all sizes pass.
    #[serde(default)]
    pub black_hole: Option<u32>,
}

/// Packets that a link loses though its queue has room for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Share of all packets that is lost in the long run.
    pub share: Share,
    /// Mean number of packets lost in a row. 1 loses each packet independently of the others. More
    /// is a Gilbert model (E. N. Gilbert, "Capacity of a burst-noise channel", 1960), which loses
    /// every packet in its bad state.
    pub burst: u32,
}

impl Grid {
    /// Every machine that can run programs, with its name in the lab and its roles. Hosts come
    /// first. Nodes are called `NODE.SITE`. Routers are left out.
    pub fn machines(&self) -> impl Iterator<Item = (String, &[Role])> {
        let hosts = self.hosts.iter().map(|host| (host.name.clone(), host.roles.as_slice()));
        let nodes = self.sites.iter().flat_map(|site| {
            site.nodes.iter().map(|node| (format!("{}.{}", node.name, site.name), node.roles.as_slice()))
        });
        hosts.chain(nodes)
    }

    /// The site of a machine, given its name in the lab; `None` for hosts and the wide area's router.
    pub fn site_of(&self, machine: &str) -> Option<&Site> {
        let (_, site) = machine.split_once('.')?;
        self.sites.iter().find(|of| of.name == site)
    }

    /// Every link to the internet, with its name: `HOST`, `SITE` or `SITE/RAIL`.
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

    /// A node's address on a rail. It has the same host number as in the site's subnet.
    pub(crate) fn address_on(&self, rail: &Rail, node: &Node) -> Ipv4Addr {
        let host_number = node.address.to_bits() & self.subnet.hostmask().to_bits();
        Ipv4Addr::from_bits(rail.subnet.network().to_bits() | host_number)
    }

    /// The site's node of this name. `None` if the site has none.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

impl SiteKind {
    /// Whether the nodes' addresses are private, and translated on the way out.
    pub fn translates(self) -> bool {
        match self {
            Self::Nat | Self::SymmetricNat | Self::CarrierNat => true,
            Self::Open | Self::Firewall | Self::StatelessFirewall => false,
        }
    }

    /// The kind's name in a grid file.
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
    /// All roles, each after those that it depends on.
    pub const ALL: [Self; 9] = [
        Self::Broker,
        Self::Relay,
        Self::Gateway,
        Self::Agent,
        Self::Munged,
        Self::Slurmctld,
        Self::Slurmd,
        Self::SgeQmaster,
        Self::SgeExecd,
    ];

    /// The subcommand of `isthmus` that runs the service; of a batch system, its program.
    pub fn command(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Relay => "relay",
            Self::Gateway => "gateway",
            Self::Agent => "agent",
            Self::Munged => "munged",
            Self::Slurmctld => "slurmctld",
            Self::Slurmd => "slurmd",
            Self::SgeQmaster => "sge_qmaster",
            Self::SgeExecd => "sge_execd",
        }
    }

    /// Whether the service is of Slurm.
    pub fn is_of_slurm(self) -> bool {
        matches!(self, Self::Munged | Self::Slurmctld | Self::Slurmd)
    }

    /// Whether the service is of Grid Engine.
    pub fn is_of_grid_engine(self) -> bool {
        matches!(self, Self::SgeQmaster | Self::SgeExecd)
    }

    /// The port that the service usually listens on; 0 if it listens on none.
    pub fn port(self) -> u16 {
        match self {
            Self::Broker => 7700,
            Self::Gateway => 7710,
            Self::Relay => 7720,
            Self::Agent => 7730,
            Self::Munged => 0,
            Self::Slurmctld => 6817,
            Self::Slurmd => 6818,
            Self::SgeQmaster => 6444,
            Self::SgeExecd => 6445,
        }
    }
}

impl Loss {
    /// The loss of a link that loses nothing.
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

    /// Whether a packet of `length` bytes vanishes because it is too long.
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
