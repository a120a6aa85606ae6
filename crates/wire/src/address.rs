//! Virtual addresses and the loopback addresses that stand for them.
//!
//! Every node of the grid has one virtual address out of 240.64.0.0/10
//! (reserved space, RFC 1112 section 4: a connect that escaped would be
//! dropped by the first router). Its *twin* 127.64.0.0/10 has the same low 22
//! bits and lives on the node's own loopback interface.

use std::fmt;
use std::net::Ipv4Addr;

/// The low bits, which a virtual address shares with its twin.
const LOW_BITS: u32 = 0x003f_ffff;
/// The high bits, which all twins share.
const TWIN_BASE: u32 = 0x7f40_0000;

/// The address of the agent's end of a connection over loopback. The agent carries such a
/// connection for a program.
pub const PAIR_LISTENER: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 4);
/// The address of an agent's black-hole listener. A connect to it stays in SYN_SENT,
/// as a non-blocking connect does while it is pending.
pub const BLACK_HOLE: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 2);
/// An address at which no program listens, so that the kernel refuses connects.
pub const REFUSED: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 3);

/// Whether only agents use this loopback address (127.128.0.0/16).
pub fn is_agents(ip: Ipv4Addr) -> bool {
    ip.octets()[..2] == PAIR_LISTENER.octets()[..2]
}

/// The `n`-th of the 64,512 addresses from which an agent's connections over loopback come. Higher
/// numbers begin with the first address again. By this address a program's listener knows a knock.
pub fn agents(n: u32) -> Ipv4Addr {
    const FIRST: u32 = 0x7f80_0400;
    const COUNT: u32 = 0xfc00;
    Ipv4Addr::from(FIRST + n % COUNT)
}

/// The address of a node as programs see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VirtualAddress(Ipv4Addr);

impl VirtualAddress {
    /// Takes an address as virtual if it lies in 240.64.0.0/10.
    pub fn new(address: Ipv4Addr) -> Option<Self> {
        VirtualRange::DEFAULT.contains(address).then_some(Self(address))
    }

    /// The loopback address that stands for this virtual address on its own node.
    pub fn twin(self) -> Ipv4Addr {
        Ipv4Addr::from(TWIN_BASE | (u32::from(self.0) & LOW_BITS))
    }

    /// The virtual address as an IPv4 address.
    pub fn ip(self) -> Ipv4Addr {
        self.0
    }
}

impl fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A block of virtual addresses, given by its first address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualRange {
    base: Ipv4Addr,
    prefix_length: u8,
}

impl VirtualRange {
    /// The block of all virtual addresses, 240.64.0.0/10.
    pub const DEFAULT: Self = Self { base: Ipv4Addr::new(240, 64, 0, 0), prefix_length: 10 };

    /// Whether the block holds this address.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & u32::from(self.netmask()) == u32::from(self.base)
    }

    /// How many bits all addresses of the block share.
    pub fn prefix_length(self) -> u8 {
        self.prefix_length
    }

    /// The netmask of the block.
    pub fn netmask(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::MAX << (32 - u32::from(self.prefix_length)))
    }

    /// The block's broadcast address.
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base) | !u32::from(self.netmask()))
    }

    /// The block's first address.
    pub fn base(self) -> Ipv4Addr {
        self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins() {
        for (address, twin) in [
            ([240, 64, 0, 1], Some([127, 64, 0, 1])),
            ([240, 64, 3, 7], Some([127, 64, 3, 7])),
            ([240, 127, 255, 254], Some([127, 127, 255, 254])),
            ([240, 128, 0, 1], None),
            ([240, 63, 0, 1], None),
            ([10, 0, 0, 1], None),
        ] {
            let virtual_address = VirtualAddress::new(address.into());
            assert_eq!(virtual_address.map(VirtualAddress::twin), twin.map(Ipv4Addr::from), "{address:?}");
        }
        for special in [agents(0), PAIR_LISTENER, BLACK_HOLE, REFUSED, Ipv4Addr::LOCALHOST] {
            assert_ne!(u32::from(special) & !LOW_BITS, TWIN_BASE, "{special} is not a twin");
        }
    }

    #[test]
    fn addresses_of_agents() {
        for (n, want) in [
            (0, [127, 128, 4, 0]),
            (300, [127, 128, 5, 44]),
            (64_511, [127, 128, 255, 255]),
            (64_512, [127, 128, 4, 0]),
            (u32::MAX, [127, 128, 67, 255]),
        ] {
            assert_eq!(agents(n), Ipv4Addr::from(want), "{n}");
            assert!(is_agents(agents(n)));
        }
        assert!(!is_agents(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn range() {
        let range = VirtualRange::DEFAULT;
        assert_eq!(range.netmask(), Ipv4Addr::new(255, 192, 0, 0));
        assert_eq!(range.broadcast(), Ipv4Addr::new(240, 127, 255, 255));
    }
}
