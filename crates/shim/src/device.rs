//! The interface that appears to hold the virtual address, as the kernel knows it.

use std::ffi::{c_char, c_int, c_ulong};
use std::net::Ipv4Addr;

use libc::ifreq;

use crate::job::Job;
use crate::sockaddr::Inet;
use crate::sys;

/// The interface's number; `None` if the node has no such interface.
pub(crate) fn index(job: &Job) -> Option<c_int> {
    // SAFETY: the kernel has written a number there.
    ask(job, libc::SIOCGIFINDEX).map(|entry| unsafe { entry.ifr_ifru.ifru_ifindex })
}

/// The interface's first address in the site's network; `None` if there is none.
pub(crate) fn address(job: &Job) -> Option<Ipv4Addr> {
    let entry = ask(job, libc::SIOCGIFADDR)?;
    // SAFETY: the kernel has written an address there; a union of plain bytes.
    let bytes = unsafe { std::mem::transmute::<libc::sockaddr, [u8; 16]>(entry.ifr_ifru.ifru_addr) };
    Inet::parse(&bytes).map(|inet| inet.ip)
}

fn ask(job: &Job, request: c_ulong) -> Option<ifreq> {
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM).ok()?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut entry: ifreq = unsafe { std::mem::zeroed() };
    let room = entry.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1);
    room.zip(job.interface.as_bytes()).for_each(|(to, from)| *to = *from as c_char);
    // SAFETY: `entry` is writable, and what these requests take.
    unsafe { sys::ioctl_raw(socket.raw(), request, (&raw mut entry).cast()) }.ok()?;
    Some(entry)
}
