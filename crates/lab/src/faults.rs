//! Breaking a running lab on purpose, and mending it: cut links, change what
//! they do, freeze and kill machines' processes, make NATs forget or move.
//!
//! Each of these is a method of [`Running`](crate::Running), a machine or a
//! [`Nat`]; the lab's record lists the faults in force. A change of a lab holds the
//! record for that time, so that changes come one after another.

mod cut;
mod flap;
mod lines;
mod nat;
mod outage;
mod processes;
mod shape;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::emulator::control::ControlError;
use crate::grid::Role;
use crate::lab::LabError;
use crate::network::NetworkError;
use crate::state::StateError;

pub use crate::grid::ChangeError;
pub use flap::{Flap, Flapping};
pub use lines::{End, Line};
pub use nat::Nat;

pub(crate) use lines::{find, lines};

/// The faults in force in a lab.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Names of lines that carry nothing.
    pub cut: BTreeSet<String>,
    /// Names of machines whose processes are stopped.
    pub frozen: BTreeSet<String>,
}

/// Why a fault can't be had.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// There is nothing of this name to cut.
    #[error("lab {lab:?} has no link or machine {name:?}; it has: {known}", known = .known.join(", "))]
    UnknownTarget {
        /// The lab.
        lab: String,
        /// The requested name.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// There is no link to the wide area of this name.
    #[error("lab {lab:?} has no link {name:?}; it has: {known}", known = .known.join(", "))]
    UnknownLink {
        /// The lab.
        lab: String,
        /// The requested name.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// The link is a plain one, which does nothing to packets.
    #[error(
        "link {0:?} is not emulated and can't be given a shape while it runs; give it one in the grid file, \
         such as link = {{ delay = \"1 us\" }}, and bring the lab up again"
    )]
    Plain(String),
    /// The changes make no link.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The emulator refused.
    #[error(transparent)]
    Emulator(#[from] ControlError),
    /// A machine's network can't be changed.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// No such lab, or no such machine in it.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Processes that don't obey a signal.
    #[error("{count} processes of {machine} still {what} after {limit} s: {pids:?}", limit = .limit.as_secs(), count = .pids.len())]
    Processes {
        /// The machine.
        machine: String,
        /// Their wrong state.
        what: &'static str,
        /// How long was waited.
        limit: Duration,
        /// Their ids, as the real machine sees them.
        pids: Vec<i32>,
    },
    /// A signal can't be sent.
    #[error("cannot send {signal} to process {pid} of {machine}: {cause}")]
    Signal {
        /// The machine.
        machine: String,
        /// The process.
        pid: i32,
        /// The signal's name.
        signal: &'static str,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The machine has no such service.
    #[error("{machine} runs no {role}; it runs: {known}", role = .role.command(), known = .known)]
    NoService {
        /// The machine.
        machine: String,
        /// The requested service.
        role: Role,
        /// The services that it has.
        known: String,
    },
    /// There is no site of this name.
    #[error("lab {lab:?} has no site {name:?}; it has: {known}", known = .known.join(", "))]
    UnknownSite {
        /// The lab.
        lab: String,
        /// The requested name.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// The site's router keeps no state.
    #[error("the router of site {site:?} knows no mappings and no connections: the site's kind is {kind}")]
    Stateless {
        /// The site.
        site: String,
        /// Its kind.
        kind: &'static str,
    },
    /// The site isn't behind NAT.
    #[error(
        "the address of site {site:?} can't change: its kind is {kind}, its nodes have public addresses of their own; \
         only sites behind NAT can move"
    )]
    NotTranslated {
        /// The site.
        site: String,
        /// Its kind.
        kind: &'static str,
    },
    /// The address isn't one of the wide area.
    #[error("{address} is no host address of the wide area, {subnet}")]
    Outside {
        /// The requested address.
        address: Ipv4Addr,
        /// The wide area's addresses.
        subnet: Ipv4Net,
    },
    /// The address is in use.
    #[error("{address} is the address of {owner}")]
    Taken {
        /// The requested address.
        address: Ipv4Addr,
        /// The present holder.
        owner: String,
    },
}

impl From<StateError> for FaultError {
    fn from(error: StateError) -> Self {
        Self::Lab(error.into())
    }
}
