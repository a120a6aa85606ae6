//! The addresses of a socket's two ends, as the program sees them.
//!
//! Handed-over sockets are known by their `SO_COOKIE`, which stays with a
//! socket through dup, fork and descriptor passing and is never given to
//! another one, so this table needs no notice of `close`. The agent answers for
//! sockets that this process has not seen or no longer has in its table.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use isthmus_wire::VirtualAddress;
use isthmus_wire::address::is_agents;
use isthmus_wire::shim::{Endpoint, Request};

use crate::agent;
use crate::job::Job;
use crate::lock::Lock;
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Fd};

/// The two ends of a handed-over socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) peer: Endpoint,
    pub(crate) local: Endpoint,
    /// How the program's own socket wrote addresses.
    pub(crate) family: Family,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Peer,
    Local,
}

/// What the kernel's address of an end means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The address stands for itself.
    Itself,
    /// The address stands for the node's own virtual address.
    Own,
    /// The socket may be a handed-over one: its ends are known by cookie, here or at the agent.
    HandedOver,
    /// The socket may be a handed-over one that is known here; asking the agent isn't worth it.
    Remembered,
}

/// The address of one side of `fd` as the program sees it; `kernel` is the
/// kernel's address.
pub(crate) fn name(job: &Job, fd: Fd, side: Side, kernel: Inet) -> Inet {
    let other = || {
        let name = match side {
            Side::Peer => sys::local_name(fd),
            Side::Local => sys::peer_name(fd),
        };
        name.ok().and_then(|name| Inet::parse(name.bytes())).map(|inet| inet.ip)
    };
    match meaning(job.virtual_address, side, kernel.ip, other) {
        Meaning::Itself => kernel,
        Meaning::Own => kernel.with_ip(job.virtual_address.ip()),
        Meaning::HandedOver => match recall(job, fd) {
            Some(Ends { peer, local, family }) => {
                let end = if side == Side::Peer { peer } else { local };
                // A datagram socket's own port is the kernel's.
                let port = if end.port == 0 { kernel.port } else { end.port };
                Inet { family, ip: end.address, port }
            }
            None if side == Side::Local && stands_for_node(fd, kernel.ip) => {
                kernel.with_ip(job.virtual_address.ip())
            }
            None => kernel,
        },
        Meaning::Remembered => {
            let cookie = sys::cookie(fd);
            match TABLE.with(|table| table.find(cookie).and_then(|entry| entry.ends())) {
                Some(Ends { local, family, .. }) => Inet { family, ip: local.address, port: local.port },
                None => kernel,
            }
        }
    }
}

/// Whether the program sees the node's virtual address as the local end of a socket that was not
/// handed over. It does if the socket is connected outside the grid. So programs that look there
/// for their own address find that of the grid. An address that a program has given to a datagram
/// socket itself stays.
fn stands_for_node(fd: Fd, local: Ipv4Addr) -> bool {
    let is_unicast = !local.is_loopback() && !local.is_multicast() && !local.is_broadcast();
    let is_stream = || sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_STREAM);
    is_unicast && (sys::peer_name(fd).is_ok() || is_stream())
}

/// The local end of an IPv6 socket as the program sees it; `kernel` is no IPv4 address. The node's
/// only address in the grid is an IPv4 one.
pub(crate) fn v6_name(job: &Job, fd: Fd, kernel: &Storage) -> Storage {
    match kernel.socket_address() {
        Some(SocketAddr::V6(local)) if is_global(local.ip()) && sys::peer_name(fd).is_ok() => {
            Inet { family: Family::Mapped, ip: job.virtual_address.ip(), port: local.port() }.encode()
        }
        Some(_) | None => *kernel,
    }
}

fn is_global(ip: &Ipv6Addr) -> bool {
    !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unicast_link_local()
}

/// What the kernel's address of one side means. `other` returns the kernel's address of the other
/// side.
fn meaning(
    own: VirtualAddress,
    side: Side,
    ip: Ipv4Addr,
    other: impl FnOnce() -> Option<Ipv4Addr>,
) -> Meaning {
    if ip == own.twin() {
        return Meaning::Own;
    }
    if ip.is_unspecified() {
        return Meaning::Itself;
    }
    match (side, ip.is_loopback()) {
        (Side::Peer, false) => Meaning::HandedOver,
        (Side::Peer, true) if is_agents(ip) => Meaning::HandedOver,
        // A client bound to no address reaches its own node's twin from
        // 127.0.0.1.
        (Side::Peer, true) => {
            if other() == Some(own.twin()) {
                Meaning::Own
            } else {
                Meaning::Itself
            }
        }
        (Side::Local, loopback) => match other() {
            // No TCP connection of the kernel's ends at a virtual address.
            Some(peer) if VirtualAddress::new(peer).is_some() => Meaning::Own,
            Some(peer) if is_agents(peer) || !peer.is_loopback() => Meaning::HandedOver,
            Some(peer) if loopback && peer == own.twin() => Meaning::Own,
            Some(_) => Meaning::Itself,
            // The socket is only bound, or its connection has ended.
            None if loopback => Meaning::Remembered,
            None => Meaning::HandedOver,
        },
    }
}

/// Notes the ends of a socket that was handed over.
pub(crate) fn remember(cookie: u64, ends: Ends, just_connected: bool) {
    TABLE.with(|table| {
        let is_lent = table.find(cookie).is_some_and(|entry| entry.is_lent);
        table.insert(Entry { is_lent, ..Entry::new(cookie, Some(ends), just_connected) });
    });
}

/// Notes that a socket's connection has been dissolved: its ends are what the kernel says.
pub(crate) fn forget(cookie: u64) {
    TABLE.with(|table| {
        if let Some(entry) = table.find(cookie) {
            *entry = Entry { is_lent: entry.is_lent, ..Entry::new(cookie, None, false) };
        }
    });
}

/// Notes that the shim has bound a datagram socket to the twin.
pub(crate) fn lend(cookie: u64) {
    TABLE.with(|table| table.insert(Entry { is_lent: true, ..Entry::new(cookie, None, false) }));
}

/// Whether the shim has bound a socket to the twin that the program hasn't bound.
pub(crate) fn is_lent(fd: Fd) -> bool {
    let cookie = sys::cookie(fd);
    TABLE.with(|table| table.find(cookie).is_some_and(|entry| entry.is_lent))
}

/// Whether a socket is an IPv6 one to its program, and an IPv4 one to the kernel.
pub(crate) fn is_v6_to_program(job: &Job, fd: Fd) -> bool {
    let before = sys::errno();
    let found = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET)
        && recall(job, fd).is_some_and(|ends| ends.family == Family::Mapped);
    sys::set_errno(before);
    found
}

/// Notes that a program has made its IPv6 socket an IPv4 one (`IPV6_ADDRFORM`).
pub(crate) fn becomes_v4(fd: Fd) {
    let cookie = sys::cookie(fd);
    TABLE.with(|table| {
        if let Some(entry) = table.find(cookie) {
            entry.ends.family = Family::V4;
        }
    });
}

/// Notes whether the program sees a socket without `TCP_NODELAY`, though the kernel has it. Returns
/// `false` if the socket isn't known here.
pub(crate) fn see_delays(cookie: u64, delays: bool) -> bool {
    TABLE.with(|table| table.find(cookie).map(|entry| entry.sees_delays = delays)).is_some()
}

/// Whether the program sees a socket without `TCP_NODELAY`, though the kernel has it.
pub(crate) fn sees_delays(cookie: u64) -> bool {
    TABLE.with(|table| table.find(cookie).is_some_and(|entry| entry.sees_delays))
}

/// Notes that the program has bound a socket to the node's address, which the kernel has at any
/// address.
pub(crate) fn bound(cookie: u64) {
    TABLE.with(|table| table.insert(Entry { is_bound: true, ..Entry::new(cookie, None, false) }));
}

/// Whether the program has bound a socket to the node's address, which the kernel has at any
/// address.
pub(crate) fn is_bound(fd: Fd) -> bool {
    let cookie = sys::cookie(fd);
    TABLE.with(|table| table.find(cookie).is_some_and(|entry| entry.is_bound))
}

/// Whether a socket was connected behind the program's back and the program
/// has not called connect since: the kernel's own connect then returns 0 once.
pub(crate) fn take_just_connected(cookie: u64) -> bool {
    TABLE.with(|table| {
        table.find(cookie).is_some_and(|entry| std::mem::replace(&mut entry.just_connected, false))
    })
}

/// Takes the lock on the table before a fork.
pub(crate) fn before_fork() {
    TABLE.before_fork(|_| {});
}

/// Releases the table after a fork, in parent and child.
pub(crate) fn after_fork() {
    TABLE.after_fork(|_| {});
}

fn recall(job: &Job, fd: Fd) -> Option<Ends> {
    let cookie = sys::cookie(fd);
    if let Some(known) = TABLE.with(|table| table.find(cookie).map(|entry| entry.ends())) {
        return known;
    }
    if cookie == 0 || sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) != Ok(libc::SOCK_STREAM) {
        return None;
    }
    let (reply, _) = agent::look_up(job, &Request::Whois { cookie }).ok()?;
    let family = if reply.is_v6 { Family::Mapped } else { Family::V4 };
    let ends = (reply.errno == 0).then_some(Ends { peer: reply.peer, local: reply.local, family });
    TABLE.with(|table| table.insert(Entry::new(cookie, ends, false)));
    ends
}

static TABLE: Lock<Table> = Lock::new(Table { entries: [Entry::NONE; CAPACITY] });

/// How many sockets the table holds: 3 MiB, mapped only when used, since a free entry is all zero.
/// The agent answers for entries that were evicted.
const CAPACITY: usize = 1 << 16;
/// Most places that an entry is away from its hash slot.
const REACH: u64 = 4;

#[derive(Clone, Copy)]
struct Entry {
    /// The socket's cookie; 0 for a free entry.
    cookie: u64,
    ends: Ends,
    /// Whether the agent handed the socket over; otherwise `ends` means nothing.
    is_handed_over: bool,
    just_connected: bool,
    sees_delays: bool,
    /// Whether the program has bound the socket to the node's address, and the kernel has it at
    /// any.
    is_bound: bool,
    /// Whether the shim has bound the socket to the twin: a datagram socket that the program hasn't
    /// bound.
    is_lent: bool,
}

impl Entry {
    const NONE: Self = Self {
        cookie: 0,
        ends: Ends { peer: Endpoint::NONE, local: Endpoint::NONE, family: Family::V4 },
        is_handed_over: false,
        just_connected: false,
        sees_delays: false,
        is_bound: false,
        is_lent: false,
    };

    fn new(cookie: u64, ends: Option<Ends>, just_connected: bool) -> Self {
        let is_handed_over = ends.is_some();
        Self { cookie, ends: ends.unwrap_or(Self::NONE.ends), is_handed_over, just_connected, ..Self::NONE }
    }

    fn ends(&self) -> Option<Ends> {
        self.is_handed_over.then_some(self.ends)
    }
}

/// A cache of fixed size without allocation: the hooked calls that use it may
/// come from a signal handler.
struct Table {
    entries: [Entry; CAPACITY],
}

impl Table {
    fn places(cookie: u64) -> impl Iterator<Item = usize> {
        (0..REACH).map(move |step| (cookie.wrapping_add(step) % CAPACITY as u64) as usize)
    }

    fn find(&mut self, cookie: u64) -> Option<&mut Entry> {
        let known = |place: &usize| self.entries.get(*place).is_some_and(|entry| entry.cookie == cookie);
        let place = Self::places(cookie).filter(|_| cookie != 0).find(known)?;
        self.entries.get_mut(place)
    }

    fn insert(&mut self, entry: Entry) {
        if let Some(known) = self.find(entry.cookie) {
            *known = entry;
            return;
        }
        // Cookies grow, so the smallest is the oldest; an empty place has none.
        let age = |place: &usize| self.entries.get(*place).map(|entry| entry.cookie);
        if let Some(place) = Self::places(entry.cookie).min_by_key(age)
            && let Some(slot) = self.entries.get_mut(place)
        {
            *slot = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_s_names_mean() {
        let own = VirtualAddress::new([240, 64, 1, 2].into()).unwrap();
        let twin = [127, 64, 1, 2];
        let localhost = [127, 0, 0, 1];
        let agents = [127, 128, 0, 1];
        let outside = [192, 168, 1, 9];
        use Meaning::{HandedOver, Itself, Own, Remembered};
        use Side::{Local, Peer};
        for (what, side, ip, other, want) in [
            ("listener on the twin", Local, twin, None, Own),
            ("wildcard listener", Local, [0, 0, 0, 0], None, Itself),
            ("listener on localhost, or an ended connection", Local, localhost, None, Remembered),
            ("accepted from own node", Peer, twin, Some(twin), Own),
            ("accepted from own node, client unbound", Peer, localhost, Some(twin), Own),
            ("unbound client of own node", Local, localhost, Some(twin), Own),
            ("plain loopback client", Local, localhost, Some(localhost), Itself),
            ("plain loopback server", Peer, localhost, Some(localhost), Itself),
            ("a stranger's use of another twin", Peer, [127, 64, 1, 3], Some(localhost), Itself),
            ("handed over raw", Peer, outside, Some([10, 0, 0, 1]), HandedOver),
            ("handed over raw", Local, [10, 0, 0, 1], Some(outside), HandedOver),
            ("handed over encrypted", Peer, agents, Some(localhost), HandedOver),
            ("handed over encrypted", Local, localhost, Some(agents), HandedOver),
            ("kept knock", Peer, agents, Some(twin), HandedOver),
            ("kept knock", Local, twin, Some(agents), Own),
            ("bound, or an ended connection", Local, outside, None, HandedOver),
            ("a datagram socket towards a node", Local, outside, Some([240, 64, 1, 9]), Own),
        ] {
            let got = meaning(own, side, ip.into(), || other.map(Ipv4Addr::from));
            assert_eq!(got, want, "{what}: {side:?} {ip:?}");
        }
    }

    #[test]
    fn the_node_s_address_stands_for_where_a_socket_left_the_node() {
        let connected = |domain, to: &str| {
            let socket = sys::socket(domain, libc::SOCK_DGRAM).unwrap();
            let to = to.parse().unwrap();
            let family = if domain == libc::AF_INET { Family::V4 } else { Family::Mapped };
            sys::connect(socket.raw(), &Inet { family, ip: to, port: 9 }.encode()).unwrap();
            socket
        };
        let one = connected(libc::AF_INET, "127.0.0.1");
        let bound = sys::socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
        let stream = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        for (what, fd, local, want) in [
            ("a connected datagram socket", &one, [10, 0, 0, 1], true),
            ("loopback", &one, [127, 0, 0, 1], false),
            ("a group", &one, [224, 0, 0, 251], false),
            ("all", &one, [255; 4], false),
            ("a datagram socket that was bound there", &bound, [10, 0, 0, 1], false),
            ("a stream", &stream, [10, 0, 0, 1], true),
        ] {
            assert_eq!(stands_for_node(fd.raw(), local.into()), want, "{what}");
        }
        for (ip, want) in [
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("fe80::1", false),
            ("::1", false),
            ("::", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_global(&ip.parse().unwrap()), want, "{ip}");
        }
    }

    #[test]
    fn the_table_forgets_the_oldest_first() {
        let mut table = Box::new(Table { entries: [Entry::NONE; CAPACITY] });
        let entry = |cookie| Entry::new(cookie, None, false);
        let same_place = |n: u64| 5 + n * CAPACITY as u64;
        for n in 0..=REACH {
            table.insert(entry(same_place(n)));
        }
        assert!(table.find(same_place(0)).is_none());
        for n in 1..=REACH {
            assert!(table.find(same_place(n)).is_some(), "{n}");
        }
    }

    #[test]
    fn a_late_answer_replaces_an_early_one() {
        let mut table = Box::new(Table { entries: [Entry::NONE; CAPACITY] });
        table.insert(Entry::new(9, None, false));
        let ends = Ends { peer: Endpoint::NONE, local: Endpoint::NONE, family: Family::V4 };
        table.insert(Entry::new(9, Some(ends), true));
        assert_eq!(table.find(9).unwrap().ends(), Some(ends));
    }
}
