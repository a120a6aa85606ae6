//! Breaking a running lab on purpose, and mending it: cut links, change what
//! they do, freeze and kill machines' processes, make NATs forget or move.
//!
//! Each of these is a method of [`Running`](crate::Running), a machine or a
//! [`Nat`]; the lab's record lists the faults in force. A change of a lab holds the
//! record for that time, so that changes come one after another.

mod cut;
mod flap;
pub(crate) mod lines;
mod nat;
mod outage;
mod processes;
pub(crate) mod record;
mod shape;

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::emulator::control::ControlError;
use crate::grid::Role;
use crate::lab::LabError;
use crate::network::NetworkError;
use crate::state::{Record, StateError};

pub use crate::grid::ChangeError;
pub use flap::{Flap, Flapping};
pub use nat::Nat;
pub use record::{FaultRecord, Line, LineEnd};

/// Why a fault can't be caused or mended.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The lab has no link or machine of the requested name.
    #[error("lab {lab:?} has no link or machine {name:?}; it has: {known}", known = .known.join(", "))]
    UnknownTarget {
        /// Name of the lab.
        lab: String,
        /// The requested name, which no link or machine has.
        name: String,
        /// Names of all lines and machines of the lab.
        known: Vec<String>,
    },
    /// The lab has no link of the requested name to the wide area.
    #[error("lab {lab:?} has no link {name:?}; it has: {known}", known = .known.join(", "))]
    UnknownLink {
        /// Name of the lab.
        lab: String,
        /// The requested name, which no link has.
        name: String,
        /// Names of the lab's links to the wide area.
        known: Vec<String>,
    },
    /// The link of this name is a plain one, which does nothing to packets, so no emulator can
    /// change it.
    #[error(
        "link {0:?} is not emulated and can't be given a shape while it runs; give it one in the grid file, \
         such as link = {{ delay = \"1 us\" }}, and bring the lab up again"
    )]
    Plain(String),
    /// The requested changes make no valid link.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The emulator doesn't answer or refused the request.
    #[error(transparent)]
    Emulator(#[from] ControlError),
    /// A machine's network can't be changed.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The lab doesn't run, or has no machine of the requested name.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Processes didn't obey a signal in time.
    #[error("{count} processes of {machine} still {what} after {limit} s: {pids:?}", limit = .limit.as_secs(), count = .pids.len())]
    Processes {
        /// Name of the machine.
        machine: String,
        /// What the processes still do, such as "run".
        what: &'static str,
        /// How long the lab waited for the processes.
        limit: Duration,
        /// Ids of the processes, as the real machine sees them.
        pids: Vec<i32>,
    },
    /// The system refused to send a signal.
    #[error("cannot send {signal} to process {pid} of {machine}: {cause}")]
    Signal {
        /// Name of the machine.
        machine: String,
        /// Id of the process that the signal was for.
        pid: i32,
        /// Name of the signal.
        signal: &'static str,
        /// The system's error at sending the signal.
        cause: std::io::Error,
    },
    /// The machine doesn't run the requested service.
    #[error("{machine} runs no {role}; it runs: {known}", role = .role.command(), known = .known)]
    NoService {
        /// Name of the machine.
        machine: String,
        /// The requested service, which doesn't run.
        role: Role,
        /// Names of the services that the machine runs.
        known: String,
    },
    /// The lab has no site of the requested name.
    #[error("lab {lab:?} has no site {name:?}; it has: {known}", known = .known.join(", "))]
    UnknownSite {
        /// Name of the lab.
        lab: String,
        /// The requested name, which no site has.
        name: String,
        /// Names of the lab's sites.
        known: Vec<String>,
    },
    /// The site's router keeps no state that could be lost.
    #[error("the router of site {site:?} knows no mappings and no connections: the site's kind is {kind}")]
    Stateless {
        /// Name of the site.
        site: String,
        /// Name of the site's kind.
        kind: &'static str,
    },
    /// The site isn't behind a NAT, so its address can't change.
    #[error(
        "the address of site {site:?} can't change: its kind is {kind}, its nodes have public addresses of their own; \
         only sites behind NAT can move"
    )]
    NotTranslated {
        /// Name of the site.
        site: String,
        /// Name of the site's kind.
        kind: &'static str,
    },
    /// The requested address isn't a host address of the wide area.
    #[error("{address} is no host address of the wide area, {subnet}")]
    Outside {
        /// The requested address, which isn't in `subnet`.
        address: Ipv4Addr,
        /// The subnet of the wide area.
        subnet: Ipv4Net,
    },
    /// The requested address is in use.
    #[error("{address} is the address of {owner}")]
    Taken {
        /// The requested address, which `owner` has.
        address: Ipv4Addr,
        /// The host, site or router that has the address.
        owner: String,
    },
}

impl From<StateError> for FaultError {
    fn from(error: StateError) -> Self {
        Self::Lab(error.into())
    }
}

/// The lines that a name stands for. A link's name stands for its line, a machine's name for all
/// lines that end at the machine.
pub(crate) fn find<'a>(record: &'a Record, name: &str) -> Result<Vec<&'a Line>, FaultError> {
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    let named: Vec<&Line> = record.lines.iter().filter(|line| same(&line.name)).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let ending: Vec<&Line> =
        record.lines.iter().filter(|line| same(&line.near.machine) || same(&line.far.machine)).collect();
    if !ending.is_empty() {
        return Ok(ending);
    }
    let mut known: Vec<String> = Vec::new();
    let machines = record.machines.iter().map(|machine| machine.name.clone());
    for name in record.lines.iter().map(|line| line.name.clone()).chain(machines) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    Err(FaultError::UnknownTarget { lab: record.grid.name.clone(), name: name.to_owned(), known })
}
