//! The grid file as written: TOML tables and their defaults. What the values
//! mean together is checked in [`super::check`].

use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use isthmus_common::quantity::{BitRate, ByteSize, Delay, Share};
use serde::Deserialize;
use toml::Spanned;

use super::model::{Role, SiteKind, Unsolicited};
use super::ports::PortRange;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GridFile {
    pub name: Option<Spanned<String>>,
    pub seed: Option<u64>,
    #[serde(default)]
    pub wan: WanTable,
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostTable>,
    #[serde(default, rename = "site")]
    pub sites: Vec<SiteTable>,
    #[serde(default)]
    pub share: Vec<Spanned<PathBuf>>,
    #[serde(default)]
    pub trusted: Vec<[Spanned<String>; 2]>,
    #[serde(default)]
    pub pairs: Vec<PairTable>,
    #[serde(default)]
    pub measure: bool,
    pub return_seconds: Option<NonZeroU16>,
}

/// A table of `[[pairs]]`: by which ways isthmus may join two sites.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairTable {
    pub sites: [Spanned<String>; 2],
    pub only: Option<Vec<String>>,
    #[serde(default)]
    pub never: Vec<String>,
    pub trunk: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WanTable {
    pub subnet: Spanned<Ipv4Net>,
}

/// The default subnet of the wide area, TEST-NET-2 of RFC 5737: never an address of anything real.
const DEFAULT_WAN: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24);

impl Default for WanTable {
    fn default() -> Self {
        Self { subnet: Spanned::new(0..0, DEFAULT_WAN) }
    }
}

/// A table of `[[host]]`: a machine directly on the wide area.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    pub name: Spanned<String>,
    pub host_name: Option<Spanned<String>>,
    pub address: Option<Spanned<Ipv4Addr>>,
    #[serde(default)]
    pub link: LinkTable,
    #[serde(default)]
    pub roles: Vec<Spanned<Role>>,
    pub port: Option<Spanned<u16>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteTable {
    pub name: Spanned<String>,
    pub kind: SiteKind,
    pub subnet: Option<Spanned<Ipv4Net>>,
    pub outside: Option<Spanned<Ipv4Addr>>,
    #[serde(default)]
    pub link: LinkTable,
    pub lan_rate: Option<Spanned<BitRate>>,
    pub unsolicited: Option<Spanned<Unsolicited>>,
    #[serde(default)]
    pub forward: Vec<Spanned<ForwardTable>>,
    pub egress: Option<Spanned<Vec<PortRange>>>,
    pub measure: Option<bool>,
    #[serde(default)]
    pub site_trunk: bool,
    pub bbr: Option<bool>,
    #[serde(default)]
    pub clock_ahead_seconds: i32,
    pub slurm_confines: Option<Spanned<bool>>,
    #[serde(default)]
    pub rails: Vec<RailTable>,
    #[serde(default)]
    pub nodes: Vec<NodeTable>,
}

/// An entry of a site's `forward`: ports that are let in for a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForwardTable {
    pub ports: Spanned<PortRange>,
    pub to: Spanned<String>,
}

/// An entry of a site's `rails`: a further network between the nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RailTable {
    pub name: Spanned<String>,
    pub subnet: Spanned<Ipv4Net>,
    pub rate: Option<Spanned<BitRate>>,
    pub link: Option<Spanned<LinkTable>>,
    pub outside: Option<Spanned<Ipv4Addr>>,
}

/// An entry of a site's `nodes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTable {
    pub name: Spanned<String>,
    pub host_name: Option<Spanned<String>>,
    pub address: Option<Spanned<Ipv4Addr>>,
    #[serde(default)]
    pub roles: Vec<Spanned<Role>>,
    pub slots: Option<Spanned<u32>>,
    #[serde(default)]
    pub features: Vec<Spanned<String>>,
    pub way_out: Option<Spanned<bool>>,
    pub via: Option<Spanned<String>>,
}

/// A table `link = { … }`: what holds for both directions, and what differs in `up` or `down`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkTable {
    pub delay: Option<Spanned<Delay>>,
    pub jitter: Option<Spanned<Delay>>,
    pub rate: Option<Spanned<BitRate>>,
    pub queue: Option<Spanned<ByteSize>>,
    pub loss: Option<Spanned<Share>>,
    pub burst: Option<Spanned<u32>>,
    #[serde(rename = "black-hole")]
    pub black_hole: Option<Spanned<u32>>,
    pub up: Option<Spanned<Box<LinkTable>>>,
    pub down: Option<Spanned<Box<LinkTable>>>,
}
