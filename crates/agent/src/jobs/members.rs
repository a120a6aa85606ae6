//! The nodes of a job.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use isthmus_wire::GridName;
use isthmus_wire::settings::Host;

/// The nodes of a job. They never change.
#[derive(Debug)]
pub(crate) struct Members {
    pub nodes: Vec<Host>,
    by_address: HashMap<Ipv4Addr, GridName>,
}

impl Members {
    /// Takes the nodes, the head first.
    pub(crate) fn new(nodes: Vec<Host>) -> Self {
        Self { by_address: nodes.iter().map(|node| (node.address.ip(), node.name.clone())).collect(), nodes }
    }

    pub(crate) fn node(&self, address: Ipv4Addr) -> Option<&GridName> {
        self.by_address.get(&address)
    }
}
