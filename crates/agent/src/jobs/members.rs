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
    /// Whether the nodes are at more than one site.
    pub cross_sites: bool,
}

impl Members {
    /// Makes the list of a job's nodes, which has the head first.
    pub(crate) fn new(nodes: Vec<Host>) -> Self {
        let by_address = nodes.iter().map(|node| (node.address.ip(), node.name.clone())).collect();
        let cross_sites = nodes.iter().skip(1).zip(&nodes).any(|(a, b)| a.name.site != b.name.site);
        Self { nodes, by_address, cross_sites }
    }

    pub(crate) fn node(&self, address: Ipv4Addr) -> Option<&GridName> {
        self.by_address.get(&address)
    }
}
