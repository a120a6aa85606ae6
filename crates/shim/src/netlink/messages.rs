//! Messages of rtnetlink(7) that tell addresses of the node, edited in place.
//!
//! ```text
//! header, 16 bytes        address, 8 bytes       route, 12 bytes       attribute
//!  0 u32 length            0 u8 family            0 u8 family           0 u16 length
//!  4 u16 kind              1 u8 prefix length     1 u8 prefix length    2 u16 kind
//!                          4 u32 interface        7 u8 kind             4 value
//! ```
//! Each message and each attribute begins at a multiple of 4 bytes.

use std::net::Ipv4Addr;

use isthmus_wire::VirtualRange;

use crate::device;
use crate::job::Job;

const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
/// Number of the loopback interface, which is the same in each network namespace.
const LOOPBACK: u32 = 1;
const V4: u8 = libc::AF_INET as u8;
/// The kind of a route to a destination within the node (`RTN_LOCAL`).
const LOCAL: u8 = 2;

/// What becomes of a message that isn't shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    Removed,
    /// The message stays, changed to a kind that receivers ignore (`NLMSG_NOOP`): its length must
    /// not change.
    Noop,
}

/// What stands for the node's addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    address: Ipv4Addr,
    /// The number of the interface that appears to hold the virtual address, and that interface's
    /// first address.
    on: Option<(u32, Ipv4Addr)>,
}

/// Whether any message tells addresses of the node.
pub(super) fn have_addresses(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some((len, kind)) = header(bytes, at) {
        if kind_of(kind).is_some() {
            return true;
        }
        at += len.next_multiple_of(4);
    }
    false
}

impl Shown {
    pub(super) fn of(job: &Job) -> Self {
        let index = device::index(job).and_then(|index| u32::try_from(index).ok());
        Self { address: job.virtual_address.ip(), on: index.zip(device::address(job)) }
    }

    /// Edits the whole messages of `bytes`. Returns the length of what is left.
    pub(super) fn edit(self, bytes: &mut [u8], hidden: Hidden) -> usize {
        let (mut from, mut to) = (0, 0);
        while let Some((len, kind)) = header(bytes, from) {
            let padded = len.next_multiple_of(4).min(bytes.len() - from);
            let Some(message) = bytes.get_mut(from..from + len) else { break };
            let is_shown = match kind_of(kind) {
                Some(Kind::Address) => self.address(message),
                Some(Kind::Route) => self.route(message),
                None => true,
            };
            if is_shown || hidden == Hidden::Noop {
                if !is_shown {
                    put(message, 4, &(libc::NLMSG_NOOP as u16).to_ne_bytes());
                }
                bytes.copy_within(from..from + padded, to);
                to += padded;
            }
            from += padded;
        }
        // The rest is no whole message, and stays.
        let rest = bytes.len() - from;
        bytes.copy_within(from.., to);
        to + rest
    }

    /// Edits a message about an address. Returns whether it is shown.
    fn address(self, message: &mut [u8]) -> bool {
        const BODY: usize = HEADER + 8;
        let Some(&[family, _, _, _, a, b, c, d]) = message.get(HEADER..).and_then(<[u8]>::first_chunk) else {
            return true;
        };
        let index = u32::from_ne_bytes([a, b, c, d]);
        if index == LOOPBACK {
            return true;
        }
        let local =
            [libc::IFA_LOCAL, libc::IFA_ADDRESS].into_iter().find_map(|kind| find(message, BODY, kind));
        let local = local.and_then(|place| v4(message, place));
        if family != V4 || local.is_none() || self.on != local.map(|local| (index, local)) {
            return false;
        }
        let range = VirtualRange::DEFAULT;
        put(message, HEADER + 1, &[range.prefix_length()]);
        for (kind, ip) in [
            (libc::IFA_LOCAL, self.address),
            (libc::IFA_ADDRESS, self.address),
            (libc::IFA_BROADCAST, range.broadcast()),
        ] {
            if let Some(place) = find(message, BODY, kind) {
                put(message, place, &ip.octets());
            }
        }
        true
    }

    /// Edits a message about a route: the virtual address takes the place of its source, and of a
    /// destination within the node. Returns `true`: every route is shown.
    fn route(self, message: &mut [u8]) -> bool {
        const BODY: usize = HEADER + 12;
        let is_local = message.get(HEADER + 7) == Some(&LOCAL);
        for kind in [libc::RTA_PREFSRC, libc::RTA_DST] {
            if (kind == libc::RTA_PREFSRC || is_local)
                && let Some(place) = find(message, BODY, kind)
            {
                self.stand_for(message, place);
            }
        }
        true
    }

    /// Puts the virtual address in the place of the address at `place`, which stands alone or as a
    /// prefix. Addresses of loopback stay. An IPv6 address is replaced by the v4-mapped one.
    fn stand_for(self, message: &mut [u8], place: usize) {
        const V4_LEN: usize = ATTRIBUTE + 4;
        const V6_LEN: usize = ATTRIBUTE + 16;
        match attribute_len(message, place - ATTRIBUTE) {
            Some(V4_LEN) if v4(message, place).is_some_and(|ip| !ip.is_loopback()) => {
                put(message, place, &self.address.octets());
            }
            Some(V6_LEN) => {
                let ip = message.get(place..).and_then(<[u8]>::first_chunk::<16>).copied();
                let is_global = |ip: std::net::Ipv6Addr| {
                    !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_multicast()
                };
                if ip.is_some_and(|ip| is_global(ip.into())) {
                    put(message, place, &self.address.to_ipv6_mapped().octets());
                }
            }
            Some(_) | None => {}
        }
    }
}

enum Kind {
    Address,
    Route,
}

fn kind_of(kind: u16) -> Option<Kind> {
    match kind {
        libc::RTM_NEWADDR | libc::RTM_DELADDR => Some(Kind::Address),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => Some(Kind::Route),
        _ => None,
    }
}

/// Length and kind of the message that begins at `at`; `None` if it isn't whole.
fn header(bytes: &[u8], at: usize) -> Option<(usize, u16)> {
    let [a, b, c, d, e, f] = *bytes.get(at..)?.first_chunk()?;
    let len = usize::try_from(u32::from_ne_bytes([a, b, c, d])).ok()?;
    (len >= HEADER && len <= bytes.len() - at).then(|| (len, u16::from_ne_bytes([e, f])))
}

/// Offset of the value of the first attribute of the kind `wanted`; `None` if there is none.
fn find(message: &[u8], body: usize, wanted: u16) -> Option<usize> {
    let mut at = body;
    loop {
        let len = attribute_len(message, at)?;
        let [low, high] = *message.get(at + 2..)?.first_chunk()?;
        if u16::from_ne_bytes([low, high]) == wanted {
            return Some(at + ATTRIBUTE);
        }
        at += len.next_multiple_of(4);
    }
}

/// Length of the attribute that begins at `at`, with its head; `None` if it isn't whole.
fn attribute_len(message: &[u8], at: usize) -> Option<usize> {
    let [low, high] = *message.get(at..)?.first_chunk()?;
    let len = usize::from(u16::from_ne_bytes([low, high]));
    (len >= ATTRIBUTE && len <= message.len() - at).then_some(len)
}

fn v4(message: &[u8], place: usize) -> Option<Ipv4Addr> {
    message.get(place..)?.first_chunk::<4>().copied().map(Ipv4Addr::from)
}

fn put(message: &mut [u8], place: usize, bytes: &[u8]) {
    if let Some(room) = message.get_mut(place..place + bytes.len()) {
        room.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHOWN: Shown =
        Shown { address: Ipv4Addr::new(240, 64, 1, 2), on: Some((2, Ipv4Addr::new(10, 0, 0, 1))) };
    const DONE: u16 = libc::NLMSG_DONE as u16;

    fn message(kind: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        out.extend(body);
        for (kind, value) in attributes {
            out.extend((ATTRIBUTE as u16 + value.len() as u16).to_ne_bytes());
            out.extend(kind.to_ne_bytes());
            out.extend(*value);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        let len = out.len() as u32;
        out[..4].copy_from_slice(&len.to_ne_bytes());
        out[4..6].copy_from_slice(&kind.to_ne_bytes());
        out
    }

    /// A message about an address of an interface.
    fn address(index: u8, prefix: u8, ip: &[u8]) -> Vec<u8> {
        let family = if ip.len() == 4 { V4 } else { libc::AF_INET6 as u8 };
        let mut body = [family, prefix, 0, 0, 0, 0, 0, 0];
        body[4..].copy_from_slice(&u32::from(index).to_ne_bytes());
        let broadcast: &[u8] = if ip.len() == 4 { &[10, 0, 0, 255] } else { &[] };
        let all = [
            (libc::IFA_ADDRESS, ip),
            (libc::IFA_LOCAL, ip),
            (libc::IFA_BROADCAST, broadcast),
            (libc::IFA_LABEL, b"eth0\0"),
        ];
        let all: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        message(libc::RTM_NEWADDR, &body, &all)
    }

    fn route(kind: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        message(libc::RTM_NEWROUTE, &[V4, 32, 0, 0, 254, 2, 0, kind, 0, 0, 0, 0], attributes)
    }

    #[test]
    fn one_address_stands_for_the_node() {
        let loopback = address(1, 8, &[127, 0, 0, 1]);
        let done = message(DONE, &[0; 4], &[]);
        let all = [
            loopback.clone(),
            address(1, 128, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            address(2, 24, &[10, 0, 0, 1]),
            address(2, 24, &[10, 0, 0, 9]),
            address(2, 64, &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
            address(3, 16, &[172, 17, 0, 1]),
            done.clone(),
        ];
        let mut bytes = all.concat();
        let left = SHOWN.edit(&mut bytes, Hidden::Removed);
        let mut own = address(2, 10, &[240, 64, 1, 2]);
        let at = find(&own, HEADER + 8, libc::IFA_BROADCAST).unwrap();
        put(&mut own, at, &[240, 127, 255, 255]);
        assert_eq!(bytes[..left], [loopback, all[1].clone(), own.clone(), done].concat());

        let mut bytes = all.concat();
        assert_eq!(SHOWN.edit(&mut bytes, Hidden::Noop), bytes.len());
        let kinds = |bytes: &[u8]| {
            let mut at = 0;
            let next = || {
                header(bytes, at).map(|(len, kind)| {
                    at += len;
                    kind
                })
            };
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        let (shown, noop) = (libc::RTM_NEWADDR, libc::NLMSG_NOOP as u16);
        assert_eq!(kinds(&bytes), [shown, shown, shown, noop, noop, noop, DONE]);

        let nowhere = Shown { on: None, ..SHOWN };
        let mut bytes = all[2].clone();
        assert_eq!(nowhere.edit(&mut bytes, Hidden::Removed), 0);
    }

    #[test]
    fn routes_come_from_the_own_address() {
        let own: &[u8] = &[240, 64, 1, 2];
        let (real, far, twelve): (&[u8], &[u8], &[u8]) = (&[10, 0, 0, 1], &[8, 8, 8, 8], &[127, 0, 0, 1]);
        let mapped = std::net::Ipv4Addr::new(240, 64, 1, 2).to_ipv6_mapped().octets();
        let global: &[u8] = &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for (what, given, want) in [
            (
                "to outside",
                route(1, &[(libc::RTA_DST, far), (libc::RTA_PREFSRC, real)]),
                route(1, &[(libc::RTA_DST, far), (libc::RTA_PREFSRC, own)]),
            ),
            (
                "to the node",
                route(LOCAL, &[(libc::RTA_DST, real), (libc::RTA_PREFSRC, real)]),
                route(LOCAL, &[(libc::RTA_DST, own), (libc::RTA_PREFSRC, own)]),
            ),
            (
                "loopback",
                route(LOCAL, &[(libc::RTA_DST, twelve), (libc::RTA_PREFSRC, twelve)]),
                route(LOCAL, &[(libc::RTA_DST, twelve), (libc::RTA_PREFSRC, twelve)]),
            ),
            ("IPv6", route(1, &[(libc::RTA_PREFSRC, global)]), route(1, &[(libc::RTA_PREFSRC, &mapped)])),
            ("no source", route(1, &[(libc::RTA_DST, far)]), route(1, &[(libc::RTA_DST, far)])),
        ] {
            let mut bytes = given;
            assert_eq!(SHOWN.edit(&mut bytes, Hidden::Removed), want.len(), "{what}");
            assert_eq!(bytes, want, "{what}");
        }
    }

    #[test]
    fn only_some_messages_are_looked_at() {
        let link = message(libc::RTM_NEWLINK, &[0; 16], &[]);
        assert!(!have_addresses(&link));
        assert!(have_addresses(&[link.clone(), address(2, 24, &[10, 0, 0, 1])].concat()));
        assert!(!have_addresses(&link[..10]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_edited_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            lengths in prop::collection::vec(0_u8..80, 4),
            is_route: bool,
        ) {
            let mut bytes = bytes;
            let mut at = 0;
            for len in lengths {
                if let Some(head) = bytes.get_mut(at..at + 6) {
                    head[..4].copy_from_slice(&u32::from(len).to_ne_bytes());
                    let kind = if is_route { libc::RTM_NEWROUTE } else { libc::RTM_NEWADDR };
                    head[4..].copy_from_slice(&kind.to_ne_bytes());
                }
                at += usize::from(len).next_multiple_of(4);
            }
            have_addresses(&bytes);
            for hidden in [Hidden::Noop, Hidden::Removed] {
                let mut copy = bytes.clone();
                prop_assert!(SHOWN.edit(&mut copy, hidden) <= copy.len());
            }
        }
    }
}
