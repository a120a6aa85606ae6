//! Names and addresses: of this node, and of others.

use std::ffi::{c_char, c_int, c_long, c_void};

use libc::{addrinfo, hostent, ifaddrs, size_t, sockaddr, socklen_t, utsname};

use crate::asynchronous;
use crate::job::job;
use crate::next::{self, Request};
use crate::resolve::Room;
use crate::{interfaces, resolve};

hooks! {
    /// getifaddrs(3): lists loopback, and the interface that appears to hold the virtual address.
    fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
        match job() {
            Some(job) => interfaces::list(job, list),
            None => next::getifaddrs(list),
        }
    }

    /// freeifaddrs(3): frees a list that the shim has made.
    fn freeifaddrs(list: *mut ifaddrs) {
        match job() {
            Some(_) => interfaces::free(list),
            None => next::freeifaddrs(list),
        }
    }

    /// gethostname(2): tells the node's grid name.
    fn gethostname(name: *mut c_char, len: size_t) -> c_int {
        match job() {
            Some(job) => resolve::host_name(job, name, len),
            None => next::gethostname(name, len),
        }
    }

    /// gethostname(2) of programs built with `_FORTIFY_SOURCE`.
    fn __gethostname_chk(name: *mut c_char, len: size_t, room: size_t) -> c_int {
        match job() {
            Some(job) if len <= room => resolve::host_name(job, name, len),
            // Ends the program, which is about to overrun its buffer.
            Some(_) | None => next::__gethostname_chk(name, len, room),
        }
    }

    /// gethostid(3), which the C library makes of the node's address.
    fn gethostid() -> c_long {
        match job() {
            Some(job) => resolve::host_id(job).unwrap_or_else(|| next::gethostid()),
            None => next::gethostid(),
        }
    }

    /// uname(2): tells the node's grid name.
    fn uname(name: *mut utsname) -> c_int {
        let result = next::uname(name);
        if let Some(job) = job()
            && result == 0
        {
            resolve::node_name(job, name);
        }
        result
    }

    /// getaddrinfo(3): finds nodes by their names.
    fn getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const addrinfo, result: *mut *mut addrinfo
    ) -> c_int {
        match job() {
            Some(job) => resolve::addresses(job, node, service, hints, result),
            None => next::getaddrinfo(node, service, hints, result),
        }
    }

    /// getaddrinfo_a(3): finds nodes by their names, at once.
    fn getaddrinfo_a(mode: c_int, list: *const *mut Request, count: c_int, event: *mut c_void) -> c_int {
        match job() {
            Some(job) => asynchronous::addresses(job, mode, list, count, event),
            None => next::getaddrinfo_a(mode, list, count, event),
        }
    }

    /// getnameinfo(3): finds the names of nodes.
    fn getnameinfo(
        address: *const sockaddr, len: socklen_t, host: *mut c_char, host_len: socklen_t,
        service: *mut c_char, service_len: socklen_t, flags: c_int
    ) -> c_int {
        match job() {
            Some(job) => resolve::names(job, address, len, host, host_len, service, service_len, flags),
            None => next::getnameinfo(address, len, host, host_len, service, service_len, flags),
        }
    }

    /// gethostbyname(3): finds nodes by their names.
    fn gethostbyname(name: *const c_char) -> *mut hostent {
        match job() {
            Some(job) => resolve::by_name(job, name),
            None => next::gethostbyname(name),
        }
    }

    /// gethostbyname2(3): finds nodes by their names.
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
        match job() {
            Some(job) => resolve::by_name2(job, name, family),
            None => next::gethostbyname2(name, family),
        }
    }

    /// gethostbyaddr(3): finds the names of nodes.
    fn gethostbyaddr(address: *const c_void, len: socklen_t, family: c_int) -> *mut hostent {
        match job() {
            Some(job) => resolve::by_address(job, address, len, family),
            None => next::gethostbyaddr(address, len, family),
        }
    }

    /// gethostbyname_r(3): finds nodes by their names.
    fn gethostbyname_r(
        name: *const c_char, entry: *mut hostent, buffer: *mut c_char, len: size_t,
        result: *mut *mut hostent, error: *mut c_int
    ) -> c_int {
        match job() {
            Some(job) => resolve::by_name_r(job, name, Room { entry, buffer, len, result, error }),
            None => next::gethostbyname_r(name, entry, buffer, len, result, error),
        }
    }

    /// gethostbyname2_r(3): finds nodes by their names.
    fn gethostbyname2_r(
        name: *const c_char, family: c_int, entry: *mut hostent, buffer: *mut c_char, len: size_t,
        result: *mut *mut hostent, error: *mut c_int
    ) -> c_int {
        match job() {
            Some(job) => resolve::by_name2_r(job, name, family, Room { entry, buffer, len, result, error }),
            None => next::gethostbyname2_r(name, family, entry, buffer, len, result, error),
        }
    }

    /// gethostbyaddr_r(3): finds the names of nodes.
    fn gethostbyaddr_r(
        address: *const c_void, address_len: socklen_t, family: c_int, entry: *mut hostent,
        buffer: *mut c_char, len: size_t, result: *mut *mut hostent, error: *mut c_int
    ) -> c_int {
        match job() {
            Some(job) => {
                let room = Room { entry, buffer, len, result, error };
                resolve::by_address_r(job, address, address_len, family, room)
            }
            None => next::gethostbyaddr_r(address, address_len, family, entry, buffer, len, result, error),
        }
    }
}
