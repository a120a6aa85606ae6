//! The files of `/proc/net` that tell the node's addresses: `fib_trie` and `if_inet6`.
//!
//! A program that opens one gets a file of its own instead, in which the virtual address
//! stands for the node, as in [`interfaces`](crate::interfaces).

use std::ffi::{CStr, c_char, c_int};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;

use isthmus_wire::VirtualRange;

use crate::descriptors;
use crate::gate;
use crate::job::{Job, job};
use crate::sys::{self, Errno, Fd, OwnedFd, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    /// `fib_trie`: the routes of IPv4, and the own addresses below "Local".
    Trie,
    /// `if_inet6`: the addresses of IPv6, one a line. The last word of a line names the interface.
    V6,
}

/// Replacement for open(2) of one of these files; `None` for any other file.
///
/// # Safety
/// `path` is null or a C string.
pub(crate) unsafe fn open(path: *const c_char, flags: c_int) -> Option<Fd> {
    // SAFETY: the caller's promise.
    let path = if path.is_null() { return None } else { unsafe { CStr::from_ptr(path) } };
    let file = named(path.to_bytes())?;
    let job = job().filter(|_| flags & libc::O_ACCMODE == libc::O_RDONLY)?;
    let before = sys::errno();
    let made = make(job, file, path, flags).map(OwnedFd::into_raw);
    sys::set_errno(before);
    made.inspect(|fd| gate::renewed(*fd)).ok()
}

/// Replacement for fopen(3) of one of these files; `None` for any other file.
///
/// # Safety
/// `path` is null or a C string, and so is `mode`.
pub(crate) unsafe fn stream(path: *const c_char, mode: *const c_char) -> Option<*mut libc::FILE> {
    // SAFETY: the caller's promise.
    let letters = if mode.is_null() { return None } else { unsafe { CStr::from_ptr(mode) } }.to_bytes();
    if letters.first() != Some(&b'r') || letters.contains(&b'+') {
        return None;
    }
    let flags = if letters.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the caller's promise.
    let fd = unsafe { open(path, flags) }?;
    // SAFETY: the caller's promise.
    let stream = unsafe { libc::fdopen(fd, mode) };
    if stream.is_null() {
        let _ = sys::close(fd);
        return None;
    }
    Some(stream)
}

/// The file that a path names, through any process's directory; `None` for any other path.
fn named(path: &[u8]) -> Option<File> {
    let below = path.strip_prefix(b"/proc/")?;
    let name = below.strip_prefix(b"net/").or_else(|| {
        let slash = below.iter().position(|byte| *byte == b'/')?;
        below.get(slash..)?.strip_prefix(b"/net/")
    })?;
    match name {
        b"fib_trie" => Some(File::Trie),
        b"if_inet6" => Some(File::V6),
        _ => None,
    }
}

fn make(job: &Job, file: File, path: &CStr, flags: c_int) -> Result<OwnedFd> {
    let closes = if flags & libc::O_CLOEXEC == 0 { 0 } else { libc::MFD_CLOEXEC };
    let new = sys::memory_file(c"net", closes)?;
    match file {
        File::Trie => {
            let mut room = [0; 512];
            let text = trie(job.virtual_address.ip(), &mut room).map_err(|_| Errno(libc::ENOSPC))?;
            sys::write_at(new.raw(), text, 0)?;
        }
        File::V6 => {
            let real = sys::open(path)?;
            let mut end = 0;
            let mut written = Ok(());
            descriptors::each_line_of(&real, |line| {
                if line.ends_with(b" lo") && written.is_ok() {
                    written = sys::write_at(new.raw(), line, end)
                        .and_then(|()| sys::write_at(new.raw(), b"\n", end + line.len()));
                    end += line.len() + 1;
                }
            });
            written?;
        }
    }
    Ok(new)
}

/// The text of `fib_trie` on a node whose only address besides those of loopback is `own`.
fn trie(own: Ipv4Addr, room: &mut [u8]) -> io::Result<&[u8]> {
    let (base, prefix) = (VirtualRange::DEFAULT.base(), VirtualRange::DEFAULT.prefix_length());
    let mut text = io::Cursor::new(&mut *room);
    write!(
        text,
        "Main:\n  +-- 0.0.0.0/0 2 0 2\n     |-- {base}\n        /{prefix} link UNICAST\n\
         Local:\n  +-- 0.0.0.0/0 2 0 2\n     +-- 127.0.0.0/8 2 0 2\n\
         \x20       |-- 127.0.0.0\n           /8 host LOCAL\n        |-- 127.0.0.1\n           /32 host LOCAL\n\
         \x20    |-- {own}\n        /32 host LOCAL\n"
    )?;
    let len = usize::try_from(text.position()).unwrap_or(0);
    Ok(room.get(..len).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_addresses_are_named() {
        for (path, want) in [
            ("/proc/net/fib_trie", Some(File::Trie)),
            ("/proc/self/net/fib_trie", Some(File::Trie)),
            ("/proc/4711/net/if_inet6", Some(File::V6)),
            ("/proc/net/route", None),
            ("/proc/net/fib_triestat", None),
            ("/proc/fib_trie", None),
            ("/proc/", None),
            ("net/fib_trie", None),
            ("", None),
        ] {
            assert_eq!(named(path.as_bytes()), want, "{path}");
        }
    }

    /// Scripts look for the own address in the line before each "/32 host".
    #[test]
    fn the_own_address_is_where_scripts_look_for_it() {
        let mut room = [0; 512];
        let text = trie(Ipv4Addr::new(240, 127, 255, 254), &mut room).unwrap();
        let text = std::str::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let hosts: Vec<&str> = lines
            .windows(2)
            .filter(|pair| pair[1].contains("/32 host"))
            .filter_map(|pair| pair[0].split_whitespace().nth(1))
            .collect();
        assert_eq!(hosts, ["127.0.0.1", "240.127.255.254"], "{text}");
        assert!(lines.contains(&"     |-- 240.127.255.254"), "{text}");
    }
}
