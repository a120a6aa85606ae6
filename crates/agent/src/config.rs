//! The `[agent]` section of the configuration.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use isthmus_batch::hosts::Host;
use isthmus_carry::trunk::Bbr;
use isthmus_net::rails::{self, Rail};
use serde::Deserialize;

use crate::port_range::PortRange;
use crate::uplink::gateways::Gateways;
use crate::uplink::known;

/// The port at which an agent listens by default.
pub const DEFAULT_PORT: u16 = 7730;
/// The last port that an agent tries by itself if other users' agents on the machine have those
/// before. The next port is a gateway's.
pub(crate) const LAST_PORT: u16 = 7739;

/// How an agent is set up. Everything has a default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The addresses of the site's gateways, `HOST:PORT`, if there are several. The
    /// agent attaches to one of them, and to another when that one is lost. By
    /// default the gateway at which it joined, and those of which it hears by it.
    pub gateway: Option<Gateways>,
    /// File in which the agent keeps the addresses that it hears of its site's gateways: one
    /// address a line.
    #[serde(skip)]
    pub heard: Option<PathBuf>,
    /// Time between attempts to return to the gateway of first choice, in seconds. By
    /// default 20; up to half as much again is added at random.
    pub return_seconds: Option<NonZeroU16>,
    /// The address to listen on for other agents. By default port 7730 of the
    /// address from which this node reaches its gateway.
    pub listen: Option<SocketAddr>,
    /// The address at which other agents reach this one, `HOST:PORT`, if it differs.
    pub address: Option<String>,
    /// Ports that the site's firewall or NAT lets in for this node, "7731-7740". The
    /// agent listens on the first free one, in place of `listen`'s. Other sites
    /// reach it there without a relay.
    pub port_range: Option<PortRange>,
    /// The address at which the ports of `port_range` are let in, if it isn't this node's own: that
    /// of a NAT that forwards them.
    pub outside_host: Option<String>,
    /// How many ranks are started here by default: if not set, one per core, or none if `submit` is
    /// set.
    pub slots: Option<u32>,
    /// Directory of the agent's own Unix socket and of its jobs' directories. The
    /// default is in [`crate::runtime_directory`].
    pub runtime_directory: Option<PathBuf>,
    /// The library that is preloaded into programs. By default
    /// libisthmus_shim.so beside the `isthmus` binary or in ../lib/isthmus.
    pub shim: Option<PathBuf>,
    /// The helper that may send raw packets, for the dial `traverse`. By default
    /// isthmus-raw beside the `isthmus` binary or in ../lib/isthmus. Without it the
    /// agent doesn't use this dial.
    pub raw: Option<PathBuf>,
    /// Further links of this node to other sites. Trunks use all of them.
    pub rails: Vec<Rail>,
    /// Whether trunks use BBR for bulk.
    pub bbr: Bbr,
    /// The batch scheduler at which the agent submits pilots for its user. An agent on a login node
    /// has this, and starts no ranks unless `slots` says so.
    pub submit: Option<Submit>,
    /// The hosts on which pilots run, if `submit` is `hosts`.
    pub hosts: Vec<PilotHost>,
    /// The id of the pilot that this node is of, in hexadecimal digits.
    pub pilot: Option<isthmus_pilot::PilotId>,
    /// Directory of what belongs to pilots. The nodes of pilots of Slurm and Grid Engine must share it.
    #[serde(skip)]
    pub pilots_directory: Option<PathBuf>,
    /// The audit log, or "off". By default audit.log in the state directory.
    pub audit_log: Option<PathBuf>,
    /// The format of the audit log's lines.
    pub audit_format: isthmus_identity::audit::Format,
}

/// Where pilots are submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Submit {
    /// At Slurm, by its commands.
    Slurm,
    /// At Grid Engine, by its commands.
    GridEngine,
    /// On hosts without a scheduler, over ssh.
    Hosts,
}

impl Submit {
    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::GridEngine => "grid-engine",
            Self::Hosts => "hosts",
        }
    }
}

/// A host on which pilots run without a scheduler.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PilotHost {
    /// Where ssh connects to.
    pub address: String,
    /// How many pilots may run there at once; one by default.
    #[serde(default = "one")]
    pub pilots: NonZeroU32,
    /// What the host has, such as `gpu`.
    #[serde(default)]
    pub tags: Vec<String>,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl AgentConfig {
    /// Checks that the settings make sense together.
    ///
    /// # Errors If a rail or a host is invalid.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        rails::check(&self.rails).map_err(|error| anyhow!("[[agent.rails]]: {error}"))?;
        match (self.submit, self.hosts()?.is_empty()) {
            (Some(Submit::Hosts), true) => Err(anyhow!("[agent] submit = \"hosts\" needs [[agent.hosts]]")),
            (Some(Submit::Hosts), false) | (_, true) => Ok(()),
            (_, false) => Err(anyhow!("[[agent.hosts]] needs [agent] submit = \"hosts\"")),
        }
    }

    /// The hosts on which pilots run.
    ///
    /// # Errors If one of their words is none.
    pub(crate) fn hosts(&self) -> anyhow::Result<Vec<Host>> {
        let wrong = |error: &dyn std::fmt::Display| anyhow!("[[agent.hosts]]: {error}");
        let host = |host: &PilotHost| {
            let tags = host.tags.iter().map(|tag| tag.parse().map_err(|error| wrong(&error)));
            Ok(Host {
                address: host.address.parse().map_err(|error| wrong(&error))?,
                pilots: host.pilots.get(),
                tags: tags.collect::<anyhow::Result<_>>()?,
            })
        };
        self.hosts.iter().map(host).collect()
    }

    /// The address at which other sites reach the agent that listens on `port`, if a
    /// range of ports is let in.
    pub fn outside_address(&self, own_ip: IpAddr, port: u16) -> Option<String> {
        self.port_range?;
        Some(match &self.outside_host {
            Some(host) => format!("{host}:{port}"),
            None => SocketAddr::new(own_ip, port).to_string(),
        })
    }

    /// The addresses of the site's gateways; `joined` is the one at which the agent
    /// joined.
    ///
    /// # Errors
    /// If a configured address is invalid.
    pub fn gateways(&self, joined: &str) -> Result<Vec<String>, String> {
        known::addresses(self.known_gateways(), joined)
    }

    pub(crate) fn known_gateways(&self) -> known::Configuration<'_> {
        (self.gateway.as_ref(), self.heard.as_deref())
    }

    /// Time between attempts to return to the gateway of first choice: `return_seconds`, or 20 s.
    pub(crate) fn return_interval(&self) -> Duration {
        Duration::from_secs(self.return_seconds.map_or(20, |seconds| seconds.get().into()))
    }

    /// Number of ranks to start here by default.
    pub fn slots(&self) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        match (self.slots, self.submit) {
            (Some(slots), _) => slots,
            (None, Some(_)) => 0,
            (None, None) => u32::try_from(cores()).unwrap_or(1),
        }
    }
}
