//! Assigns virtual addresses to nodes, once and for ever.
//!
//! Each site gets blocks of 254 addresses (a /24 without its first and last) as it
//! needs them. So the third byte shows the site: the first site's first node is
//! 240.64.1.1.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use isthmus_wire::bounds::NODES_PER_SITE;
use isthmus_wire::{GridName, Label, VirtualAddress, VirtualRange};

use crate::records::{Block, Revision};

/// A free address for a node that has none yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub(crate) node: GridName,
    /// The address that the node is to get.
    pub address: VirtualAddress,
    /// The block that the address lies in.
    pub block: Block,
    /// Revision of the block's record; 0: the block is new.
    pub block_revision: Revision,
}

/// Why no address is left for a new node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// All 16,383 blocks are taken.
    #[error("no virtual address is left for a new node")]
    Grid,
    /// The site has as many nodes as a site may have.
    #[error("site {0} has had {NODES_PER_SITE} nodes, and a site may have no more")]
    Site(Label),
}

/// The virtual addresses and blocks that are assigned so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressBook {
    /// The site of each block, and the revision of the block's record. An assignment writes the
    /// record of its block anew, so that no two brokers assign the same address.
    blocks: BTreeMap<Block, (Label, Revision)>,
    by_name: BTreeMap<GridName, VirtualAddress>,
    /// The node of each address.
    by_address: BTreeMap<VirtualAddress, GridName>,
}

impl AddressBook {
    /// Takes in that a block was assigned to a site, or an address of the block to a node.
    pub(crate) fn fold_block(&mut self, block: Block, site: Label, revision: Revision) {
        self.blocks.insert(block, (site, revision));
    }

    /// Takes in that an address was assigned to a node.
    pub(crate) fn fold_address(&mut self, node: GridName, address: VirtualAddress) {
        self.by_name.insert(node.clone(), address);
        self.by_address.insert(address, node);
    }

    pub(crate) fn address(&self, node: &GridName) -> Option<VirtualAddress> {
        self.by_name.get(node).copied()
    }

    pub(crate) fn node(&self, address: VirtualAddress) -> Option<&GridName> {
        self.by_address.get(&address)
    }

    /// A free address for a node that has none.
    ///
    /// # Errors
    /// If no address is left for the node's site.
    pub(crate) fn propose(&self, node: &GridName) -> Result<Assignment, Exhausted> {
        let own = self.blocks.iter().filter(|(_, (site, _))| *site == node.site);
        let mut own =
            own.flat_map(|(block, (_, revision))| hosts(*block).map(|address| (address, *block, *revision)));
        let free = own.find(|(address, ..)| !self.by_address.contains_key(address));
        let (address, block, block_revision) = match free {
            Some(free) => free,
            None if self.blocks_of(&node.site) >= BLOCKS_PER_SITE => {
                return Err(Exhausted::Site(node.site.clone()));
            }
            None => {
                let block = (1..BLOCKS).map(Block).find(|block| !self.blocks.contains_key(block));
                let block = block.ok_or(Exhausted::Grid)?;
                (hosts(block).next().ok_or(Exhausted::Grid)?, block, 0)
            }
        };
        Ok(Assignment { node: node.clone(), address, block, block_revision })
    }

    fn blocks_of(&self, site: &Label) -> usize {
        self.blocks.values().filter(|(other, _)| other == site).count()
    }
}

/// Most blocks of a site. A block is full before the next block is assigned.
const BLOCKS_PER_SITE: usize = NODES_PER_SITE / 254 + 1;
/// How many blocks the range has: a /10 has 2^14 blocks of 2^8 addresses. Number 0 stays free, so
/// that no address equals that of the range itself.
const BLOCKS: u16 = 1 << 14;

fn hosts(block: Block) -> impl Iterator<Item = VirtualAddress> {
    let base = u32::from(VirtualRange::DEFAULT.base()) | (u32::from(block.0) << 8);
    (1..=254).filter_map(move |host| VirtualAddress::new(Ipv4Addr::from(base | host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl AddressBook {
        /// The address of a node, and the assignment if it is new. A node without an address gets
        /// one.
        pub(crate) fn assign(
            &mut self,
            node: &GridName,
        ) -> Result<(VirtualAddress, Option<Assignment>), Exhausted> {
            if let Some(address) = self.address(node) {
                return Ok((address, None));
            }
            let assignment = self.propose(node)?;
            self.fold_block(assignment.block, node.site.clone(), assignment.block_revision + 1);
            self.fold_address(node.clone(), assignment.address);
            Ok((assignment.address, Some(assignment)))
        }
    }

    /// The address that a node gets, and the number of its block if the assignment takes a new
    /// block.
    fn assign(book: &mut AddressBook, name: &str) -> (String, Option<u16>) {
        let (address, assignment) = book.assign(&name.parse().unwrap()).unwrap();
        let new = assignment.filter(|assignment| assignment.block_revision == 0);
        (address.to_string(), new.map(|assignment| assignment.block.0))
    }

    #[test]
    fn sites_get_blocks_in_the_order_of_their_first_nodes() {
        let mut book = AddressBook::default();
        for (name, address, new_block) in [
            ("n1.alpha", "240.64.1.1", Some(1)),
            ("n1.beta", "240.64.2.1", Some(2)),
            ("n2.alpha", "240.64.1.2", None),
            ("n1.alpha", "240.64.1.1", None),
        ] {
            assert_eq!(assign(&mut book, name), (address.to_owned(), new_block), "{name}");
        }
        let address = book.address(&"n2.alpha".parse().unwrap()).unwrap();
        assert_eq!(book.node(address).unwrap().to_string(), "n2.alpha");
    }

    #[test]
    fn a_large_site_gets_another_block() {
        let mut book = AddressBook::default();
        assign(&mut book, "x.beta");
        for node in 1..=254 {
            assign(&mut book, &format!("n{node}.alpha"));
        }
        assert_eq!(book.address(&"n254.alpha".parse().unwrap()).unwrap().to_string(), "240.64.2.254");
        assert_eq!(assign(&mut book, "n255.alpha"), ("240.64.3.1".to_owned(), Some(3)));
        assert_eq!(assign(&mut book, "y.beta"), ("240.64.1.2".to_owned(), None));
    }

    #[test]
    fn the_last_address_is_assigned_and_then_none() {
        let mut book = AddressBook::default();
        for block in 1..BLOCKS {
            book.fold_block(Block(block), format!("s{block}").parse().unwrap(), 1);
        }
        assert_eq!(assign(&mut book, "n1.s16383"), ("240.127.255.1".to_owned(), None));
        assert_eq!(book.assign(&"n1.another".parse().unwrap()), Err(Exhausted::Grid));
    }
}
