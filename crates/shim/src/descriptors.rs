//! The process's descriptor table, searched: which descriptors stand for a socket, and
//! which epoll instances watch it. For sockets of which [`numbers`](crate::numbers) doesn't
//! know all.
//!
//! No allocation: connect may be called from a signal handler.

use std::ffi::{CStr, c_uint};
use std::io::Write as _;
use std::ops::Range;
use std::time::Duration;

use crate::sys::{self, Fd, Identity, OwnedFd};
use crate::watches::Watch;

/// How many numbers are asked about at once.
const AT_ONCE: usize = 256;

/// Calls `action` with each descriptor that stands for the socket of this cookie.
///
/// Number by number: that takes a tenth of what an entry of /proc/self/fd takes to list and
/// read.
pub(crate) fn each_socket(cookie: u64, mut action: impl FnMut(Fd)) {
    // A descriptor that isn't a socket's has no cookie.
    if cookie != 0 {
        each_open(0..table_size(), |fd| {
            if sys::cookie(fd) == cookie {
                action(fd);
            }
        });
    }
}

/// Calls `action` with each TCP socket that listens.
pub(crate) fn each_listener(mut action: impl FnMut(Fd)) {
    each_open(0..table_size(), |fd| {
        if sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1) && sys::tcp_state(fd).is_ok() {
            action(fd);
        }
    });
}

/// Calls `action` with each registration of a socket.
pub(crate) fn each_watch(socket: Identity, mut action: impl FnMut(Watch)) {
    each_open(0..table_size(), |epoll| {
        // Anonymous inodes, epoll instances among them, have no type.
        if sys::identity(epoll).is_ok_and(|identity| identity.kind == 0) && is_epoll(epoll) {
            each_line(epoll, |line| {
                if let Some(EpollRegistration { number, events, data, inode, device }) =
                    parse_registration(line)
                    && (inode, device) == (socket.inode, kernels_device(socket.device))
                {
                    action(Watch { epoll, number, events, data });
                }
            });
        }
    });
}

/// A device number of fstat(2) as the kernel writes it into fdinfo.
fn kernels_device(device: u64) -> u64 {
    const MINOR_BITS: u32 = 20;
    u64::from(libc::major(device)) << MINOR_BITS | u64::from(libc::minor(device))
}

/// Calls `action` with each number of a range of close_range(2) that may be open.
pub(crate) fn each_within(first: c_uint, last: c_uint, action: impl FnMut(Fd)) {
    let end = Fd::try_from(last).unwrap_or(Fd::MAX).saturating_add(1);
    let first = Fd::try_from(first).unwrap_or(Fd::MAX);
    let few = first.saturating_add(AT_ONCE as Fd);
    each_open(first..if end <= few { end } else { end.min(table_size()) }, action);
}

/// Calls `action` with each number of these that may be open. Most of a table tends to be empty.
/// poll(2) skips what is empty for a tenth of the price of asking for each number.
fn each_open(mut fds: Range<Fd>, mut action: impl FnMut(Fd)) {
    let nothing = libc::pollfd { fd: -1, events: 0, revents: 0 };
    while !fds.is_empty() {
        let mut entries = [nothing; AT_ONCE];
        let mut count = 0;
        for (entry, fd) in entries.iter_mut().zip(fds.by_ref()) {
            entry.fd = fd;
            count += 1;
        }
        let Some(entries) = entries.get_mut(..count) else { return };
        // The poll fails, for one, where the program may have fewer descriptors than are asked
        // about. Then all are looked at.
        let asked = sys::poll(entries, Some(Duration::ZERO)).is_ok();
        for entry in entries {
            if !asked || entry.revents & libc::POLLNVAL == 0 {
                action(entry.fd);
            }
        }
    }
}

/// How many numbers the descriptor table has room for.
fn table_size() -> Fd {
    /// A common size, where /proc is not there to ask.
    const GUESS: Fd = 1024;
    let mut buffer = [0; 512];
    let read = sys::open(c"/proc/self/status").and_then(|file| sys::read(file.raw(), &mut buffer));
    read.ok().and_then(|len| parse_table_size(buffer.get(..len)?)).unwrap_or(GUESS)
}

fn parse_table_size(status: &[u8]) -> Option<Fd> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"FDSize:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

fn is_epoll(fd: Fd) -> bool {
    let mut room = [0; 64];
    with_path("/proc/self/fd/", fd, |path| {
        sys::readlink(path, &mut room).is_ok_and(|target| target == b"anon_inode:[eventpoll]")
    })
}

/// A registration with an epoll instance: one line of the instance's fdinfo (proc_pid_fdinfo(5)).
#[derive(Debug, PartialEq, Eq)]
struct EpollRegistration {
    number: Fd,
    events: u32,
    data: u64,
    inode: u64,
    device: u64,
}

/// Reads `tfd: 5 events: 1d data: 5 pos:0 ino:f sdev:9`.
fn parse_registration(line: &[u8]) -> Option<EpollRegistration> {
    let line = std::str::from_utf8(line).ok()?;
    let after = |key: &str| line.split_once(key)?.1.split_ascii_whitespace().next();
    Some(EpollRegistration {
        number: after("tfd:")?.parse().ok()?,
        events: u32::from_str_radix(after("events:")?, 16).ok()?,
        data: u64::from_str_radix(after("data:")?, 16).ok()?,
        inode: u64::from_str_radix(after("ino:")?, 16).ok()?,
        device: u64::from_str_radix(after("sdev:")?, 16).ok()?,
    })
}

/// Calls `action` with each line of a descriptor's fdinfo.
fn each_line(fd: Fd, action: impl FnMut(&[u8])) {
    if let Ok(file) = with_path("/proc/self/fdinfo/", fd, sys::open) {
        each_line_of(&file, action);
    }
}

/// Calls `action` with each line of a file that isn't too long.
pub(crate) fn each_line_of(file: &OwnedFd, mut action: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    let mut kept = 0;
    while let Some(room) = buffer.get_mut(kept..)
        && !room.is_empty()
        && let Ok(read) = sys::read(file.raw(), room)
        && read > 0
    {
        let filled = kept.saturating_add(read);
        let Some(text) = buffer.get(..filled) else { return };
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end.saturating_add(1));
        text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n').for_each(&mut action);
        buffer.copy_within(whole..filled, 0);
        kept = filled.saturating_sub(whole);
    }
}

fn with_path<R>(directory: &str, fd: Fd, action: impl FnOnce(&CStr) -> R) -> R {
    let mut path = [0; 40];
    // The buffer is longer than any such path.
    let _ = write!(path.as_mut_slice(), "{directory}{fd}\0");
    action(CStr::from_bytes_until_nul(&path).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn table_size_is_read_from_status() {
        for (text, want) in [
            ("Name:\tx\nUmask:\t0022\nFDSize:\t256\nGroups:\t\n", Some(256)),
            ("FDSize:\t64", Some(64)),
            ("FDSize:\tmany\n", None),
            ("Name:\tx\n", None),
            ("", None),
        ] {
            assert_eq!(parse_table_size(text.as_bytes()), want, "{text:?}");
        }
        assert!(table_size() >= 3);
    }

    #[test]
    fn every_open_number_is_looked_at() {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        // In the first and in a later part of the table; so far that other tests
        // of this process take neither.
        let copies = [150, 700].map(|from| {
            sys::OwnedFd::from_raw(sys::fcntl(socket.raw(), libc::F_DUPFD_CLOEXEC, from).unwrap())
        });
        let [low, high] = [copies[0].raw(), copies[1].raw()];
        let mut found = Vec::new();
        each_open(0..high + 1, |fd| found.push(fd));
        assert!(found.is_sorted());
        for (fd, open) in [(socket.raw(), true), (low, true), (high - 1, false), (high, true)] {
            assert_eq!(found.contains(&fd), open, "{fd}");
        }
        found.clear();
        each_open(0..high, |fd| found.push(fd));
        assert!(!found.contains(&high));
        for (first, last, want) in
            [(low, high, true), (high, high, true), (low, high - 1, false), (high + 1, Fd::MAX, false)]
        {
            found.clear();
            each_within(first as c_uint, last as c_uint, |fd| found.push(fd));
            assert_eq!(found.contains(&high), want, "{first} to {last}");
        }
        found.clear();
        each_within(high as c_uint, c_uint::MAX, |fd| found.push(fd));
        each_within(c_uint::MAX, c_uint::MAX, |fd| found.push(fd));
        assert_eq!(found.first(), Some(&high));
    }

    #[test]
    fn registrations_are_read_from_fdinfo() {
        let line = b"tfd:        5 events:     201d data: deadbeef12345678  pos:0 ino:61af sdev:1d";
        let data = 0xdead_beef_1234_5678;
        let want = EpollRegistration { number: 5, events: 0x201d, data, inode: 0x61af, device: 0x1d };
        assert_eq!(parse_registration(line), Some(want));
        for other in ["pos:\t0", "flags:\t02", "tfd: 5 events: zz data: 5 ino:1", ""] {
            assert_eq!(parse_registration(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn a_real_socket_is_found_and_what_watches_it() {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        let dup = sys::OwnedFd::from_raw(sys::fcntl(socket.raw(), libc::F_DUPFD_CLOEXEC, 0).unwrap());
        // SAFETY: takes no pointer.
        let epoll = sys::OwnedFd::from_raw(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
        let identity = sys::identity(socket.raw()).unwrap();
        let mut sockets = Vec::new();
        each_socket(sys::cookie(socket.raw()), |fd| sockets.push(fd));
        each_socket(0, |_| panic!("what isn't a socket"));
        sockets.sort_unstable();
        assert_eq!(sockets, [socket.raw().min(dup.raw()), socket.raw().max(dup.raw())]);
        let watches = || {
            let mut found = Vec::new();
            each_watch(identity, |watch| found.push(watch));
            found
        };
        assert_eq!(watches(), []);

        // Many others, so that the list is longer than one read.
        let others: Vec<_> = (0..200)
            .map(|_| {
                let other = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
                let event = libc::epoll_event { events: 1, u64: u64::MAX };
                sys::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, other.raw(), event).unwrap();
                other
            })
            .collect();
        let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let event = libc::epoll_event { events, u64: 0xfeed_0000_0000_0001 };
        sys::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, dup.raw(), event).unwrap();
        let found = watches();
        let [watch] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((watch.epoll, watch.number), (epoll.raw(), dup.raw()));
        // The kernel adds EPOLLERR and EPOLLHUP.
        assert_eq!(watch.events & events, events);
        assert_eq!(watch.data, 0xfeed_0000_0000_0001);
        drop(others);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_registration(&bytes);
            let _ = parse_table_size(&bytes);
        }
    }
}
