//! Names: this node's host name, and grid names to virtual addresses and
//! back.
//!
//! The C library does the work. The shim passes it the address in decimal notation, which needs no
//! name service, and fills in the name afterwards.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::net::Ipv4Addr;

use isthmus_wire::VirtualAddress;
use libc::{addrinfo, hostent, size_t, sockaddr, socklen_t, utsname};

use crate::hosts::Host;
use crate::job::Job;
use crate::next;
use crate::sockaddr::{Inet, Storage};
use crate::sys;

/// The node of the job that a program's name stands for. A node has its grid name, and the name
/// that it has within this node's site. The machine's own host name stands for this node alone.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn named(job: &Job, name: *const c_char) -> Option<&Host> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let (hosts, own) = (job.hosts(), job.virtual_address.ip());
    hosts.named(name).or_else(|| if is_own(name) { hosts.at(own) } else { hosts.beside(own, name) })
}

/// Whether `name` is the host name that the machine itself has.
fn is_own(name: &[u8]) -> bool {
    // SAFETY: all-zero is a valid `utsname`.
    let mut real: utsname = unsafe { std::mem::zeroed() };
    if sys::host_name(&mut real).is_err() {
        return false;
    }
    // SAFETY: the kernel ends the name with a zero.
    let real = unsafe { CStr::from_ptr(real.nodename.as_ptr()) }.to_bytes();
    !real.is_empty() && real != b"localhost" && real.eq_ignore_ascii_case(name)
}

/// The node of the job with an address as gethostbyaddr(3) takes it.
///
/// # Safety
/// `address` is null or readable for `len` bytes.
unsafe fn addressed(job: &Job, address: *const c_void, len: socklen_t, family: c_int) -> Option<&Host> {
    if address.is_null() || family != libc::AF_INET || len != 4 {
        return None;
    }
    // SAFETY: the caller's promise.
    let octets = unsafe { address.cast::<[u8; 4]>().read_unaligned() };
    job.hosts().at(Ipv4Addr::from(octets))
}

/// Replacement for gethostname(2), which tells the grid name.
///
/// # Safety
/// `name` is writable for `len` bytes.
pub(crate) unsafe fn host_name(job: &Job, name: *mut c_char, len: size_t) -> c_int {
    let own = job.name.as_bytes_with_nul();
    // SAFETY: the caller's promise; both have `min` bytes.
    unsafe { std::ptr::copy_nonoverlapping(own.as_ptr().cast(), name, own.len().min(len)) };
    if own.len() > len {
        sys::set_errno(libc::ENAMETOOLONG);
        return -1;
    }
    0
}

/// Replacement for gethostid(3), where the machine has no number of its own: the number of the
/// node's virtual address. `None` where it has one.
pub(crate) fn host_id(job: &Job) -> Option<c_long> {
    sys::open(c"/etc/hostid").is_err().then(|| id_of(job.virtual_address.ip()))
}

/// The number that the C library makes of a host's address.
fn id_of(address: Ipv4Addr) -> c_long {
    c_long::from(i32::from_ne_bytes(address.octets()).rotate_left(16))
}

/// Puts the grid name into what uname wrote.
///
/// # Safety
/// `name` is writable.
pub(crate) unsafe fn node_name(job: &Job, name: *mut utsname) {
    // SAFETY: the caller's promise.
    let node = unsafe { &mut (*name).nodename };
    let own = job.name.as_bytes_with_nul();
    node.iter_mut().zip(own).for_each(|(to, from)| *to = *from as c_char);
}

/// The node that getaddrinfo(3) is asked for, if it may look for a name.
///
/// # Safety
/// As getaddrinfo(3).
unsafe fn asked_for(job: &Job, node: *const c_char, hints: *const addrinfo) -> Option<&Host> {
    // SAFETY: the caller's promise.
    let flags = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_flags);
    // SAFETY: the caller's promise.
    unsafe { named(job, node) }.filter(|_| flags & libc::AI_NUMERICHOST == 0)
}

/// Whether getaddrinfo(3) is asked for a node of the job.
///
/// # Safety
/// As getaddrinfo(3).
pub(crate) unsafe fn is_node(job: &Job, node: *const c_char, hints: *const addrinfo) -> bool {
    // SAFETY: the caller's promise.
    unsafe { asked_for(job, node, hints) }.is_some()
}

/// Replacement for getaddrinfo(3).
///
/// # Safety
/// As getaddrinfo(3).
pub(crate) unsafe fn addresses(
    job: &Job,
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(host) = (unsafe { asked_for(job, node, hints) }) else {
        // SAFETY: the caller's promise.
        return unsafe { next::getaddrinfo(node, service, hints, result) };
    };
    // SAFETY: the caller's promise; the name is a C string.
    let status = unsafe { next::getaddrinfo(host.numeric.as_ptr(), service, hints, result) };
    if status == 0 {
        // SAFETY: the C library has just written it.
        if let Some(first) = unsafe { (*result).as_mut() }
            && !first.ai_canonname.is_null()
        {
            // SAFETY: a plain copy of a C string.
            let name = unsafe { libc::strdup(host.name.as_ptr()) };
            if !name.is_null() {
                // SAFETY: freeaddrinfo frees it by free(3), so it is malloc's.
                unsafe { libc::free(first.ai_canonname.cast()) };
                first.ai_canonname = name;
            }
        }
    }
    status
}

/// Replacement for getnameinfo(3).
///
/// # Safety
/// As getnameinfo(3).
#[allow(clippy::too_many_arguments, reason = "the C function's own")]
pub(crate) unsafe fn names(
    job: &Job,
    address: *const sockaddr,
    len: socklen_t,
    host: *mut c_char,
    host_len: socklen_t,
    service: *mut c_char,
    service_len: socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let storage = unsafe { Storage::from_program(address, len) };
    let virtual_address = storage
        .and_then(|storage| Inet::parse(storage.bytes()))
        .and_then(|inet| VirtualAddress::new(inet.ip))
        .filter(|_| !host.is_null() && host_len > 0 && flags & libc::NI_NUMERICHOST == 0);
    let Some(virtual_address) = virtual_address else {
        // SAFETY: the caller's promise.
        return unsafe { next::getnameinfo(address, len, host, host_len, service, service_len, flags) };
    };
    let known = job.hosts().at(virtual_address.ip());
    if known.is_none() && flags & libc::NI_NAMEREQD != 0 {
        return libc::EAI_NONAME;
    }
    // Name services have no virtual addresses, and a query takes time.
    let numeric = (flags | libc::NI_NUMERICHOST) & !libc::NI_NAMEREQD;
    // SAFETY: the caller's promise.
    let status = unsafe { next::getnameinfo(address, len, host, host_len, service, service_len, numeric) };
    if status == 0
        && let Some(known) = known
    {
        let name = known.name.as_bytes_with_nul();
        if name.len() > host_len as usize {
            return libc::EAI_OVERFLOW;
        }
        // SAFETY: the program's buffer has room for `host_len` bytes.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), host, name.len()) };
    }
    status
}

/// The common part of gethostbyname, gethostbyname2 and gethostbyaddr. `ask` calls the C library's
/// gethostbyname, or gethostbyname2, of a C string. `other` makes the call as it came.
fn entry(
    host: Option<&'static Host>,
    ask: impl FnOnce(*const c_char) -> *mut hostent,
    other: impl FnOnce() -> *mut hostent,
) -> *mut hostent {
    let Some(host) = host else { return other() };
    let found = ask(host.numeric.as_ptr());
    if !found.is_null() {
        // SAFETY: an entry of the C library's, which never frees its name;
        // the job's hosts live as long as the process.
        unsafe { (*found).h_name = host.name.as_ptr().cast_mut() };
    }
    found
}

/// Replacement for gethostbyname(3).
///
/// # Safety
/// As gethostbyname(3).
pub(crate) unsafe fn by_name(job: &'static Job, name: *const c_char) -> *mut hostent {
    entry(
        // SAFETY: the caller's promise.
        unsafe { named(job, name) },
        // SAFETY: a C string.
        |numeric| unsafe { next::gethostbyname(numeric) },
        // SAFETY: the caller's promise.
        || unsafe { next::gethostbyname(name) },
    )
}

/// Replacement for gethostbyname2(3).
///
/// # Safety
/// As gethostbyname2(3).
pub(crate) unsafe fn by_name2(job: &'static Job, name: *const c_char, family: c_int) -> *mut hostent {
    entry(
        // SAFETY: the caller's promise.
        unsafe { named(job, name) },
        // SAFETY: a C string.
        |numeric| unsafe { next::gethostbyname2(numeric, family) },
        // SAFETY: the caller's promise.
        || unsafe { next::gethostbyname2(name, family) },
    )
}

/// Replacement for gethostbyaddr(3).
///
/// # Safety
/// As gethostbyaddr(3).
pub(crate) unsafe fn by_address(
    job: &'static Job,
    address: *const c_void,
    len: socklen_t,
    family: c_int,
) -> *mut hostent {
    entry(
        // SAFETY: the caller's promise.
        unsafe { addressed(job, address, len, family) },
        // SAFETY: a C string.
        |numeric| unsafe { next::gethostbyname(numeric) },
        // SAFETY: the caller's promise.
        || unsafe { next::gethostbyaddr(address, len, family) },
    )
}

/// Where the reentrant calls, such as gethostbyname_r(3), put their answer.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) entry: *mut hostent,
    pub(crate) buffer: *mut c_char,
    pub(crate) len: size_t,
    pub(crate) result: *mut *mut hostent,
    pub(crate) error: *mut c_int,
}

impl Room {
    /// Answers as gethostbyname2_r(3) of a node's address, and puts in the node's name.
    ///
    /// # Safety
    /// The pointers are as gethostbyname2_r demands.
    unsafe fn fill(self, host: &'static Host, family: c_int) -> c_int {
        let Self { entry, buffer, len, result, error } = self;
        let numeric = host.numeric.as_ptr();
        // SAFETY: the caller's promise; `numeric` is a C string.
        let status = unsafe { next::gethostbyname2_r(numeric, family, entry, buffer, len, result, error) };
        // SAFETY: the caller's promise.
        if status == 0 && !unsafe { *result }.is_null() {
            // SAFETY: the entry was filled in; the host lives as long as the process.
            unsafe { (*entry).h_name = host.name.as_ptr().cast_mut() };
        }
        status
    }
}

/// Replacement for gethostbyname_r(3).
///
/// # Safety
/// As gethostbyname_r(3).
pub(crate) unsafe fn by_name_r(job: &'static Job, name: *const c_char, room: Room) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { named(job, name) } {
        // SAFETY: the caller's promise.
        Some(host) => unsafe { room.fill(host, libc::AF_INET) },
        // SAFETY: the caller's promise.
        None => unsafe {
            next::gethostbyname_r(name, room.entry, room.buffer, room.len, room.result, room.error)
        },
    }
}

/// Replacement for gethostbyname2_r(3).
///
/// # Safety
/// As gethostbyname2_r(3).
pub(crate) unsafe fn by_name2_r(job: &'static Job, name: *const c_char, family: c_int, room: Room) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { named(job, name) } {
        // SAFETY: the caller's promise.
        Some(host) => unsafe { room.fill(host, family) },
        // SAFETY: the caller's promise.
        None => unsafe {
            next::gethostbyname2_r(name, family, room.entry, room.buffer, room.len, room.result, room.error)
        },
    }
}

/// Replacement for gethostbyaddr_r(3).
///
/// # Safety
/// As gethostbyaddr_r(3).
pub(crate) unsafe fn by_address_r(
    job: &'static Job,
    address: *const c_void,
    len: socklen_t,
    family: c_int,
    room: Room,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { addressed(job, address, len, family) } {
        // SAFETY: the caller's promise.
        Some(host) => unsafe { room.fill(host, family) },
        // SAFETY: the caller's promise.
        None => unsafe {
            let Room { entry, buffer, len: buffer_len, result, error } = room;
            next::gethostbyaddr_r(address, len, family, entry, buffer, buffer_len, result, error)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_s_number_is_that_of_its_address() {
        // As hostid(1) prints it on a host with this address, whose bytes are in the order of x86.
        assert_eq!(id_of([192, 168, 1, 2].into()) & 0xffff_ffff, 0xa8c0_0201);
    }
}
