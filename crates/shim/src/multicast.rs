//! Options of multicast groups (ip(7)), which name an interface by its address. Programs have the
//! virtual address for the node's own. It stands for the interface that appears to hold it.

use std::ffi::{c_int, c_void};

use libc::{in_addr, ip_mreq, ip_mreq_source, ip_mreqn, socklen_t};

use crate::device;
use crate::job::Job;

/// The value of an option, as the kernel takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value([u8; size_of::<ip_mreqn>()]);

impl Value {
    pub(crate) fn as_ptr(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }

    pub(crate) fn len(&self) -> socklen_t {
        self.0.len() as socklen_t
    }
}

/// What to set instead of a value that names the virtual address. `None` for any other value.
///
/// # Safety
/// As setsockopt(2).
pub(crate) unsafe fn named(
    job: &Job,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Option<Value> {
    if level != libc::IPPROTO_IP || value.is_null() {
        return None;
    }
    let place = place(name, len as usize)?;
    let mut bytes = [0; size_of::<ip_mreqn>()];
    let count = (len as usize).min(bytes.len());
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), bytes.as_mut_ptr(), count) };
    instead(bytes, place, name, job.virtual_address.ip().octets(), || device::index(job).unwrap_or(0))
}

/// The offset of the interface's address in an option's value; `None` if the option has none.
fn place(name: c_int, len: usize) -> Option<usize> {
    match name {
        libc::IP_MULTICAST_IF if len >= size_of::<in_addr>() && len < size_of::<ip_mreq>() => Some(0),
        libc::IP_MULTICAST_IF | libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP
            if len >= size_of::<ip_mreq>() =>
        {
            Some(INTERFACE)
        }
        libc::IP_ADD_SOURCE_MEMBERSHIP
        | libc::IP_DROP_SOURCE_MEMBERSHIP
        | libc::IP_BLOCK_SOURCE
        | libc::IP_UNBLOCK_SOURCE
            if len >= size_of::<ip_mreq_source>() =>
        {
            Some(INTERFACE)
        }
        _ => None,
    }
}

/// The offset of the interface's address where it follows the group's.
const INTERFACE: usize = size_of::<in_addr>();
/// The offset of the interface's number in `ip_mreqn`.
const NUMBER: usize = 2 * size_of::<in_addr>();

fn instead(
    mut bytes: [u8; size_of::<ip_mreqn>()],
    place: usize,
    name: c_int,
    own: [u8; 4],
    number: impl FnOnce() -> c_int,
) -> Option<Value> {
    let address = bytes.get_mut(place..place + own.len())?;
    if address != own {
        return None;
    }
    // The address becomes the unspecified one: the number says which interface, or the group's
    // route does.
    address.fill(0);
    if matches!(name, libc::IP_MULTICAST_IF | libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP) {
        bytes.get_mut(NUMBER..)?.copy_from_slice(&number().to_ne_bytes());
    }
    Some(Value(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_virtual_address_stands_for_its_interface() {
        const OWN: [u8; 4] = [240, 64, 1, 2];
        let mut one = [0; 12];
        one[..4].copy_from_slice(&OWN);
        let mut two = [224, 0, 0, 251, 0, 0, 0, 0, 9, 9, 9, 9];
        two[4..8].copy_from_slice(&OWN);
        let group = [224, 0, 0, 251, 0, 0, 0, 0];
        let with = |last: [u8; 4]| Some(Value([&group[..], &last].concat().try_into().unwrap()));
        let seven = 7_i32.to_ne_bytes();
        let by_number = Some(Value([&[0; 8][..], &seven].concat().try_into().unwrap()));
        for (what, name, len, bytes, want) in [
            ("by address alone", libc::IP_MULTICAST_IF, 4, one, by_number),
            ("of a group", libc::IP_MULTICAST_IF, 8, two, with(seven)),
            ("a member", libc::IP_ADD_MEMBERSHIP, 8, two, with(seven)),
            ("no longer one", libc::IP_DROP_MEMBERSHIP, 12, two, with(seven)),
            ("a member for a source", libc::IP_ADD_SOURCE_MEMBERSHIP, 12, two, with([9; 4])),
            ("another's address", libc::IP_ADD_MEMBERSHIP, 8, one, None),
            ("too short", libc::IP_ADD_MEMBERSHIP, 7, two, None),
            ("another option", libc::IP_TTL, 12, two, None),
        ] {
            let got = place(name, len).and_then(|place| instead(bytes, place, name, OWN, || 7));
            assert_eq!(got, want, "{what}");
        }
    }
}
