//! The nodes of a job.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use isthmus_wire::settings::Host;
use isthmus_wire::{GridName, VirtualAddress};

/// The nodes of a job. They never change.
#[derive(Debug)]
pub struct Members {
    /// The head first.
    pub nodes: Vec<Host>,
    by_address: HashMap<Ipv4Addr, GridName>,
}

impl Members {
    /// Takes the nodes, the head first.
    pub fn new(nodes: Vec<Host>) -> Self {
        Self { by_address: nodes.iter().map(|node| (node.address.ip(), node.name.clone())).collect(), nodes }
    }

    /// The node with this virtual address.
    pub fn node(&self, address: Ipv4Addr) -> Option<&GridName> {
        self.by_address.get(&address)
    }

    /// The virtual address of a node.
    pub fn address(&self, name: &GridName) -> Option<VirtualAddress> {
        self.nodes.iter().find(|node| node.name == *name).map(|node| node.address)
    }
}
