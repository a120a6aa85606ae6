//! Network interfaces as programs see them: loopback, and the interface that appears to hold the
//! node's virtual address. All others are hidden. So are the real addresses, which mean nothing at
//! other sites.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::net::Ipv4Addr;

use isthmus_wire::VirtualRange;
use libc::{IFF_BROADCAST, IFF_LOOPBACK, IFF_RUNNING, IFF_UP, ifaddrs, ifconf, ifreq, sockaddr};

use crate::job::Job;
use crate::next;
use crate::sockaddr::{Family, Inet};
use crate::sys;

/// Bytes of an interface's longest name, with its final zero (`IFNAMSIZ`).
const NAME: usize = 16;
/// Bytes for an address of the families that interfaces have.
const ADDRESS: usize = 32;

type Address = [u8; ADDRESS];

/// One entry of the list and what its pointers lead to.
///
/// The whole list is one block that starts with its first entry, as the C library's own list is. So
/// freeifaddrs of either frees it.
#[repr(C)]
struct Entry {
    list: ifaddrs,
    name: [u8; NAME],
    address: Address,
    netmask: Address,
    broadcast: Address,
}

/// Replacement for getifaddrs(3).
///
/// # Safety
/// `list` is writable.
pub(crate) unsafe fn list(job: &Job, list: *mut *mut ifaddrs) -> c_int {
    let mut real = std::ptr::null_mut();
    // SAFETY: `real` is writable.
    if unsafe { next::getifaddrs(&raw mut real) } != 0 {
        return -1;
    }
    let mut entries = Vec::new();
    let mut node = real;
    while !node.is_null() {
        // SAFETY: a node of the C library's list.
        let item = unsafe { node.read() };
        // SAFETY: as above.
        if let Some(entry) = unsafe { shown(job, &item) } {
            entries.push(entry);
        }
        node = item.ifa_next;
    }
    // SAFETY: from `getifaddrs` above, and not used any more.
    unsafe { next::freeifaddrs(real) };
    let flags = entries.iter().find(|entry| entry.name == name_of(&job.interface)).map(|e| e.list.ifa_flags);
    entries.push(own(job, flags.unwrap_or(INVENTED_FLAGS)));
    // SAFETY: the caller's promise.
    unsafe { publish(entries, list) }
}

/// Replacement for freeifaddrs(3), for a list that [`list`] has made.
///
/// # Safety
/// `list` is null or from getifaddrs and not freed yet.
pub(crate) unsafe fn free(list: *mut ifaddrs) {
    // SAFETY: allocated as one block by `publish`.
    unsafe { libc::free(list.cast()) }
}

/// Flags that programs see of an interface that the node doesn't have.
const INVENTED_FLAGS: u32 = (IFF_UP | IFF_RUNNING | IFF_BROADCAST) as u32;

/// A copy of a real entry; `None` if it is hidden. Shown are the entries of loopback and the
/// hardware address of the job's interface.
///
/// # Safety
/// The pointers of `item` are null or valid.
unsafe fn shown(job: &Job, item: &ifaddrs) -> Option<Entry> {
    if item.ifa_name.is_null() {
        return None;
    }
    // SAFETY: a C string by the caller's promise.
    let name = unsafe { CStr::from_ptr(item.ifa_name) };
    // SAFETY: null or an address by the caller's promise.
    let address = unsafe { address(item.ifa_addr) };
    let hardware = family(&address) == libc::AF_PACKET && name == job.interface.as_c_str();
    if item.ifa_flags & IFF_LOOPBACK as u32 == 0 && !hardware {
        return None;
    }
    let mut entry = entry(name, item.ifa_flags);
    entry.address = address;
    // SAFETY: null or an address by the caller's promise.
    entry.netmask = unsafe { self::address(item.ifa_netmask) };
    // SAFETY: null or an address by the caller's promise.
    entry.broadcast = unsafe { self::address(item.ifa_ifu) };
    Some(entry)
}

/// The entry that shows the virtual address.
fn own(job: &Job, flags: u32) -> Entry {
    let range = VirtualRange::DEFAULT;
    let mut entry = entry(&job.interface, flags);
    entry.address = encode(job.virtual_address.ip());
    entry.netmask = encode(range.netmask());
    entry.broadcast = encode(range.broadcast());
    entry
}

fn entry(name: &CStr, flags: u32) -> Entry {
    // SAFETY: all-zero is a valid `ifaddrs`.
    let mut list: ifaddrs = unsafe { std::mem::zeroed() };
    list.ifa_flags = flags;
    Entry { list, name: name_of(name), address: [0; ADDRESS], netmask: [0; ADDRESS], broadcast: [0; ADDRESS] }
}

/// Lays the entries out in one block and links them.
///
/// # Safety
/// `list` is writable.
unsafe fn publish(entries: Vec<Entry>, list: *mut *mut ifaddrs) -> c_int {
    let count = entries.len();
    // SAFETY: a plain allocation.
    let block = unsafe { libc::calloc(count, size_of::<Entry>()) }.cast::<Entry>();
    if block.is_null() {
        sys::set_errno(libc::ENOMEM);
        return -1;
    }
    for (index, entry) in entries.into_iter().enumerate() {
        // SAFETY: `index` is below `count`.
        let at = unsafe { block.add(index) };
        let has = |address: &Address| family(address) != libc::AF_UNSPEC;
        let (address, netmask, broadcast) = (has(&entry.address), has(&entry.netmask), has(&entry.broadcast));
        // SAFETY: within the block, which calloc aligned.
        unsafe { at.write(entry) };
        // SAFETY: just written, and nobody else has it.
        let entry = unsafe { &mut *at };
        let pointer = |there: bool, bytes: &mut Address| -> *mut sockaddr {
            if there { bytes.as_mut_ptr().cast() } else { std::ptr::null_mut() }
        };
        entry.list.ifa_name = entry.name.as_mut_ptr().cast();
        entry.list.ifa_addr = pointer(address, &mut entry.address);
        entry.list.ifa_netmask = pointer(netmask, &mut entry.netmask);
        entry.list.ifa_ifu = pointer(broadcast, &mut entry.broadcast);
        entry.list.ifa_next = if index + 1 < count {
            // SAFETY: `index + 1` is below `count`.
            unsafe { block.add(index + 1) }.cast()
        } else {
            std::ptr::null_mut()
        };
    }
    // SAFETY: the caller's promise.
    unsafe { list.write(block.cast()) };
    0
}

fn encode(ip: Ipv4Addr) -> Address {
    let storage = Inet { family: Family::V4, ip, port: 0 }.encode();
    let mut out = [0; ADDRESS];
    out.iter_mut().zip(storage.bytes()).for_each(|(to, from)| *to = *from);
    out
}

fn family(address: &Address) -> c_int {
    c_int::from(u16::from_ne_bytes([address[0], address[1]]))
}

/// Copies an address of a family that interfaces have. The copy is all zero for any other, and for
/// null.
///
/// # Safety
/// `pointer` is null or leads to an address.
unsafe fn address(pointer: *const sockaddr) -> Address {
    let mut out = [0; ADDRESS];
    if pointer.is_null() {
        return out;
    }
    // SAFETY: every address starts with its family.
    let family = unsafe { pointer.cast::<u16>().read_unaligned() };
    let len = match c_int::from(family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        libc::AF_PACKET => size_of::<libc::sockaddr_ll>(),
        _ => return out,
    };
    // SAFETY: an address of this family has `len` bytes, and ADDRESS is no less.
    unsafe { std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), out.as_mut_ptr(), len) };
    out
}

fn name_of(name: &CStr) -> [u8; NAME] {
    let mut out = [0; NAME];
    let room = out.iter_mut().take(NAME - 1);
    room.zip(name.to_bytes()).for_each(|(to, from)| *to = *from);
    out
}

/// Replacement for ioctl(2), which answers the requests for addresses of interfaces.
///
/// # Safety
/// As ioctl(2).
pub(crate) unsafe fn ioctl(job: &Job, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    match request {
        libc::SIOCGIFCONF if !argument.is_null() => {
            // SAFETY: the argument of this request, by the caller's promise.
            unsafe { configuration(job, fd, argument.cast()) }
        }
        libc::SIOCGIFADDR
        | libc::SIOCGIFDSTADDR
        | libc::SIOCGIFNETMASK
        | libc::SIOCGIFBRDADDR
        | libc::SIOCGIFFLAGS
            if !argument.is_null() =>
        {
            // SAFETY: the argument of these requests, by the caller's promise.
            unsafe { one(job, fd, request, argument.cast()) }
        }
        // SAFETY: the caller's promise.
        _ => unsafe { next::ioctl(fd, request, argument) },
    }
}

/// Answers a request about one interface, such as `SIOCGIFADDR`.
///
/// # Safety
/// `argument` leads to an `ifreq`.
unsafe fn one(job: &Job, fd: c_int, request: c_ulong, argument: *mut ifreq) -> c_int {
    let before = sys::errno();
    // SAFETY: the caller's promise.
    let result = unsafe { next::ioctl(fd, request, argument.cast()) };
    if result != 0 && !matches!(sys::errno(), libc::ENODEV | libc::EADDRNOTAVAIL) {
        return result;
    }
    // SAFETY: the caller's promise.
    let mut entry = unsafe { argument.read_unaligned() };
    let own = entry_name(&entry) == name_of(&job.interface);
    if request == libc::SIOCGIFFLAGS {
        if result == 0 || !own {
            return result;
        }
        entry.ifr_ifru.ifru_flags = INVENTED_FLAGS as i16;
    } else {
        let ip = match request {
            libc::SIOCGIFADDR | libc::SIOCGIFDSTADDR => job.virtual_address.ip(),
            libc::SIOCGIFNETMASK => VirtualRange::DEFAULT.netmask(),
            _ => VirtualRange::DEFAULT.broadcast(),
        };
        if own {
            put_address(&mut entry, ip);
        } else {
            // SAFETY: the request wrote an address, or nothing, into a union of plain bytes.
            return if result != 0 || unsafe { is_loopback(fd, &entry) } {
                result
            } else {
                sys::set_errno(libc::EADDRNOTAVAIL);
                -1
            };
        }
    }
    sys::set_errno(before);
    // SAFETY: the caller's promise.
    unsafe { argument.write_unaligned(entry) };
    0
}

/// Whether the interface that an `ifreq` names is loopback.
///
/// # Safety
/// `fd` may be any number: the kernel checks it.
unsafe fn is_loopback(fd: c_int, entry: &ifreq) -> bool {
    let mut flags = *entry;
    // SAFETY: `flags` is a valid `ifreq`.
    let found = unsafe { next::ioctl(fd, libc::SIOCGIFFLAGS, (&raw mut flags).cast()) } == 0;
    // SAFETY: a union of plain bytes.
    found && c_int::from(unsafe { flags.ifr_ifru.ifru_flags }) & IFF_LOOPBACK != 0
}

/// Answers `SIOCGIFCONF`, which asks for the interfaces that have an IPv4 address.
///
/// # Safety
/// `argument` leads to an `ifconf`.
unsafe fn configuration(job: &Job, fd: c_int, argument: *mut ifconf) -> c_int {
    /// Most interfaces that are looked at; loopback comes first.
    const LIMIT: usize = 256;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut real: Vec<ifreq> = vec![unsafe { std::mem::zeroed() }; LIMIT];
    let bytes = size_of::<ifreq>().saturating_mul(LIMIT);
    let mut query = ifconf {
        ifc_len: c_int::try_from(bytes).unwrap_or(0),
        ifc_ifcu: libc::__c_anonymous_ifc_ifcu { ifcu_req: real.as_mut_ptr() },
    };
    // SAFETY: `query` names a buffer of the length it states.
    let result = unsafe { next::ioctl(fd, libc::SIOCGIFCONF, (&raw mut query).cast()) };
    if result != 0 {
        return result;
    }
    real.truncate(usize::try_from(query.ifc_len).unwrap_or(0) / size_of::<ifreq>());
    // SAFETY: a descriptor that just answered, and valid entries.
    real.retain(|entry| unsafe { is_loopback(fd, entry) });
    // SAFETY: all-zero is a valid `ifreq`.
    let mut own: ifreq = unsafe { std::mem::zeroed() };
    own.ifr_name.iter_mut().zip(name_of(&job.interface)).for_each(|(to, from)| *to = from as c_char);
    put_address(&mut own, job.virtual_address.ip());
    real.push(own);

    // SAFETY: the caller's promise.
    let mut answer = unsafe { argument.read_unaligned() };
    // SAFETY: both members of the union are pointers.
    let buffer = unsafe { answer.ifc_ifcu.ifcu_req };
    let mut count = real.len();
    if !buffer.is_null() {
        count = count.min(usize::try_from(answer.ifc_len).unwrap_or(0) / size_of::<ifreq>());
        // SAFETY: the program's buffer has room for `count` entries.
        unsafe {
            std::ptr::copy_nonoverlapping(
                real.as_ptr().cast::<u8>(),
                buffer.cast(),
                count * size_of::<ifreq>(),
            )
        };
    }
    answer.ifc_len = c_int::try_from(count * size_of::<ifreq>()).unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { argument.write_unaligned(answer) };
    0
}

fn put_address(entry: &mut ifreq, ip: Ipv4Addr) {
    let bytes = encode(ip);
    // SAFETY: any 16 bytes are a `sockaddr`, and `bytes` has more.
    entry.ifr_ifru.ifru_addr = unsafe { bytes.as_ptr().cast::<sockaddr>().read_unaligned() };
}

fn entry_name(entry: &ifreq) -> [u8; NAME] {
    let mut out = [0; NAME];
    let name = entry.ifr_name.iter().take(NAME - 1).take_while(|byte| **byte != 0);
    out.iter_mut().zip(name).for_each(|(to, from)| *to = *from as u8);
    out
}
