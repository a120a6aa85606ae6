//! Which node has which virtual address: decided once, kept for ever.
//!
//! Each site gets blocks of 254 addresses (a /24 without its first and last)
//! as it needs them, so that addresses tell sites apart at a glance: the first
//! site's first node is 240.64.1.1.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use isthmus_wire::{GridName, Label, VirtualAddress, VirtualRange};

/// Number of a /24 block within the virtual range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u16);

/// What must be written down before an address is given to anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The node.
    pub node: GridName,
    /// Its address.
    pub address: VirtualAddress,
    /// The block it lies in, if that is new.
    pub new_block: Option<Block>,
}

/// All 16,383 blocks or all addresses are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no virtual address is left for a new node")]
pub struct Exhausted;

/// The addresses given so far.
#[derive(Debug, Clone, Default)]
pub struct AddressBook {
    blocks: BTreeMap<Block, Label>,
    by_name: BTreeMap<GridName, VirtualAddress>,
    /// The same, keyed by address.
    by_address: BTreeMap<VirtualAddress, GridName>,
}

impl AddressBook {
    /// Takes up what was written down.
    pub fn restore(
        blocks: impl IntoIterator<Item = (Block, Label)>,
        nodes: impl IntoIterator<Item = (GridName, VirtualAddress)>,
    ) -> Self {
        let by_name: BTreeMap<_, _> = nodes.into_iter().collect();
        let by_address = by_name.iter().map(|(name, address)| (*address, name.clone())).collect();
        Self { blocks: blocks.into_iter().collect(), by_name, by_address }
    }

    /// A node's address.
    pub fn address(&self, node: &GridName) -> Option<VirtualAddress> {
        self.by_name.get(node).copied()
    }

    /// Whose address it is.
    pub fn node(&self, address: VirtualAddress) -> Option<&GridName> {
        self.by_address.get(&address)
    }

    /// The address of a node, which gets one if it has none yet: then the
    /// assignment comes back as well, to be written down.
    ///
    /// # Errors
    /// If none is left.
    pub fn assign(&mut self, node: &GridName) -> Result<(VirtualAddress, Option<Assignment>), Exhausted> {
        if let Some(address) = self.address(node) {
            return Ok((address, None));
        }
        let own = self.blocks.iter().filter(|(_, site)| **site == node.site).map(|(block, _)| *block);
        let free = own.flat_map(hosts).find(|address| !self.by_address.contains_key(address));
        let (address, new_block) = match free {
            Some(address) => (address, None),
            None => {
                let block = (1..BLOCKS).map(Block).find(|block| !self.blocks.contains_key(block));
                let block = block.ok_or(Exhausted)?;
                self.blocks.insert(block, node.site.clone());
                (hosts(block).next().ok_or(Exhausted)?, Some(block))
            }
        };
        self.by_name.insert(node.clone(), address);
        self.by_address.insert(address, node.clone());
        Ok((address, Some(Assignment { node: node.clone(), address, new_block })))
    }
}

/// A /10 has 2^14 blocks of 2^8 addresses. Number 0 stays free, so that no
/// address looks like the range itself.
const BLOCKS: u16 = 1 << 14;

fn hosts(block: Block) -> impl Iterator<Item = VirtualAddress> {
    let base = u32::from(VirtualRange::DEFAULT.base()) | (u32::from(block.0) << 8);
    (1..=254).filter_map(move |host| VirtualAddress::new(Ipv4Addr::from(base | host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assign(book: &mut AddressBook, name: &str) -> (String, Option<u16>) {
        let (address, assignment) = book.assign(&name.parse().unwrap()).unwrap();
        (address.to_string(), assignment.and_then(|assignment| assignment.new_block).map(|block| block.0))
    }

    #[test]
    fn sites_get_blocks_in_the_order_they_come() {
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
    fn what_was_written_down_is_kept() {
        let mut book = AddressBook::default();
        let mut written = Vec::new();
        for name in ["n1.alpha", "n1.beta", "n2.beta"] {
            written.extend(book.assign(&name.parse().unwrap()).unwrap().1);
        }
        let blocks = written.iter().filter_map(|a| Some((a.new_block?, a.node.site.clone())));
        let mut restored = AddressBook::restore(blocks, written.iter().map(|a| (a.node.clone(), a.address)));
        assert_eq!(assign(&mut restored, "n2.beta"), ("240.64.2.2".to_owned(), None));
        assert_eq!(assign(&mut restored, "n3.beta"), ("240.64.2.3".to_owned(), None));
        assert_eq!(assign(&mut restored, "n1.gamma"), ("240.64.3.1".to_owned(), Some(3)));
    }

    #[test]
    fn the_last_address_and_no_further() {
        let mut book = AddressBook::restore(
            (1..BLOCKS).map(|block| (Block(block), format!("s{block}").parse().unwrap())),
            [],
        );
        assert_eq!(assign(&mut book, "n1.s16383"), ("240.127.255.1".to_owned(), None));
        assert_eq!(book.assign(&"n1.another".parse().unwrap()), Err(Exhausted));
    }
}
