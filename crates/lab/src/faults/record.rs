//! What a lab's record has of lines and faults.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A line between two machines of a running lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The line's name. A link is called `HOST`, `SITE` or `SITE/RAIL`. A wire within a site is
    /// called like the machine at its end, with the interface behind the name if the machine has
    /// several.
    pub name: String,
    /// Whether the line leads to the wide area's router.
    pub to_wan: bool,
    /// Whether packets on the line pass the emulator.
    pub emulated: bool,
    /// The end at the site's router, the host or the node.
    pub near: LineEnd,
    /// The end at the wide area's router, or at the router of a node's site.
    pub far: LineEnd,
}

/// An end of a line: an interface of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineEnd {
    /// Name of the machine.
    pub machine: String,
    /// Name of the machine's interface.
    pub interface: String,
}

/// The faults in force in a lab.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Names of lines that carry nothing.
    pub cut: BTreeSet<String>,
    /// Names of machines whose processes are stopped.
    pub frozen: BTreeSet<String>,
}
