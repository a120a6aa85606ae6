//! The job's nodes, which are found by name and by address.

use std::collections::HashMap;
use std::ffi::CString;
use std::net::Ipv4Addr;

use isthmus_wire::{GridName, settings};

/// Bytes of the longest host name that Linux knows (`HOST_NAME_MAX`).
const HOST_NAME_MAX: usize = 64;

pub(crate) struct Host {
    pub(crate) name: CString,
    /// The node's virtual address in decimal notation.
    pub(crate) numeric: CString,
}

/// All nodes of a job.
pub(crate) struct Hosts {
    all: Vec<Host>,
    /// Indices into `all` by lower-case name. A node has two names here if its name is so long that
    /// programs may see it cut.
    by_name: HashMap<Vec<u8>, usize>,
    /// Indices into `all` by virtual address.
    by_address: HashMap<Ipv4Addr, usize>,
}

impl Hosts {
    /// Indexes the nodes of the settings by name and by address.
    pub(crate) fn new(hosts: Vec<settings::Host>) -> Self {
        let mut out = Self {
            all: Vec::with_capacity(hosts.len()),
            by_name: HashMap::new(),
            by_address: HashMap::new(),
        };
        for host in hosts {
            let full = host.name.to_string();
            let index = out.all.len();
            out.by_name.insert(host_name(&host.name).into_bytes(), index);
            out.by_name.insert(full.clone().into_bytes(), index);
            out.by_address.insert(host.address.ip(), index);
            out.all.push(Host {
                name: CString::new(full).unwrap_or_default(),
                numeric: CString::new(host.address.to_string()).unwrap_or_default(),
            });
        }
        out
    }

    /// The node that has a grid name, in any case and with or without the final dot.
    pub(crate) fn named(&self, name: &[u8]) -> Option<&Host> {
        let name = name.strip_suffix(b".").unwrap_or(name);
        self.all.get(*self.by_name.get(&name.to_ascii_lowercase())?)
    }

    /// The node that a name without a site stands for, in the site of the node with the address
    /// `own`. A name that inet_aton(3) takes for a number, and localhost, stand for no node.
    pub(crate) fn beside(&self, own: Ipv4Addr, name: &[u8]) -> Option<&Host> {
        let number = match name {
            [b'0', b'x' | b'X', digits @ ..] => digits.iter().all(u8::is_ascii_hexdigit),
            digits => digits.iter().all(u8::is_ascii_digit),
        };
        if number || name.contains(&b'.') || name.eq_ignore_ascii_case(b"localhost") {
            return None;
        }
        let own = self.at(own)?.name.to_bytes();
        let dot = own.iter().position(|byte| *byte == b'.')?;
        self.named(&[name, own.get(dot..)?].concat())
    }

    /// The node that has a virtual address.
    pub(crate) fn at(&self, address: Ipv4Addr) -> Option<&Host> {
        self.all.get(*self.by_address.get(&address)?)
    }
}

/// The host name that programs see for a grid name.
pub(crate) fn host_name(name: &GridName) -> CString {
    let mut text = name.to_string();
    // Names are ASCII, so any length is at a character's end.
    text.truncate(HOST_NAME_MAX);
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_wire::VirtualAddress;

    #[test]
    fn lookup_by_name_and_address() {
        let long = format!("{}.{}", "n".repeat(60), "s".repeat(60));
        let host = |address: [u8; 4], name: &str| settings::Host {
            address: VirtualAddress::new(address.into()).unwrap(),
            name: name.parse().unwrap(),
        };
        let hosts = Hosts::new(vec![host([240, 64, 1, 1], "n1.alpha"), host([240, 64, 2, 1], &long)]);
        for (name, want) in [
            ("n1.alpha", Some(c"240.64.1.1")),
            ("N1.Alpha", Some(c"240.64.1.1")),
            ("n1.alpha.", Some(c"240.64.1.1")),
            (&long, Some(c"240.64.2.1")),
            (&long[..64], Some(c"240.64.2.1")),
            ("n1", None),
            ("alpha", None),
            ("", None),
        ] {
            assert_eq!(hosts.named(name.as_bytes()).map(|host| host.numeric.as_c_str()), want, "{name}");
        }
        assert_eq!(hosts.at([240, 64, 1, 1].into()).unwrap().name.as_c_str(), c"n1.alpha");
        assert!(hosts.at([240, 64, 1, 2].into()).is_none());
    }

    #[test]
    fn a_name_without_a_site_is_a_node_of_the_own_site() {
        let host = |last: u8, name: &str| settings::Host {
            address: VirtualAddress::new([240, 64, 1, last].into()).unwrap(),
            name: name.parse().unwrap(),
        };
        let names =
            ["n1.alpha", "n2.alpha", "n2.beta", "n3.beta", "10.alpha", "0x1f.alpha", "localhost.alpha"];
        let hosts = Hosts::new(names.iter().zip(1..).map(|(name, last)| host(last, name)).collect());
        let beside = |last: u8, name: &str| {
            let found = hosts.beside([240, 64, 1, last].into(), name.as_bytes());
            found.map(|host| host.name.to_str().unwrap())
        };
        for (own, name, want) in [
            (1, "n2", Some("n2.alpha")),
            (1, "N2", Some("n2.alpha")),
            (3, "n2", Some("n2.beta")),
            (1, "n1", Some("n1.alpha")),
            // Perhaps a machine of the site that is no node of the job.
            (1, "n3", None),
            (1, "n2.", None),
            (1, "n2.alpha", None),
            (1, "10", None),
            (1, "0x1f", None),
            (1, "localhost", None),
            (1, "", None),
            (99, "n2", None),
        ] {
            assert_eq!(beside(own, name), want, "{name} at {own}");
        }
    }

    #[test]
    fn long_names_are_cut_to_what_linux_allows() {
        let long: GridName = format!("{}.{}", "n".repeat(60), "s".repeat(60)).parse().unwrap();
        assert_eq!(host_name(&long).as_bytes().len(), 64);
        assert_eq!(host_name(&"n1.alpha".parse().unwrap()).as_c_str(), c"n1.alpha");
    }
}
