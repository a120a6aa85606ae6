//! Signs of life that the program doesn't notice.
//!
//! The agent sets keepalives on a socket that leaves the site ([`isthmus_wire::keepalive`]),
//! because NATs forget idle connections. The program sees the options as it set them, or as they
//! are on a new socket. What the program sets is merged with what the agent sets. So idle
//! connections show life as often as isthmus wants, and end when the program wants.
//!
//! A socket that has exactly the agent's values is one for which the program has set nothing. So
//! the table has only sockets for which the program has set something. A socket that was passed on
//! is known, too, as long as its program has set nothing.

use std::ffi::{c_int, c_void};

use isthmus_wire::keepalive::{INTERVAL_SECONDS, PROBES};
use libc::{IPPROTO_TCP, SOL_SOCKET, socklen_t};

use crate::lock::Lock;
use crate::sys::{self, Fd, Result};

const INTERVAL: c_int = INTERVAL_SECONDS as c_int;
/// The highest value of `TCP_KEEPCNT` that the kernel takes.
const MOST_PROBES: c_int = PROBES as c_int;

/// The options of keepalives that a socket has, or that its program sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Keepalive {
    /// `SO_KEEPALIVE`: whether the kernel sends signs of life.
    on: bool,
    /// `TCP_KEEPIDLE`: seconds without data until the first sign.
    idle_seconds: c_int,
    /// `TCP_KEEPINTVL`: seconds between signs without an answer.
    interval_seconds: c_int,
    /// `TCP_KEEPCNT`: unanswered signs after which the connection ends.
    probes: c_int,
}

/// The values that the agent sets.
const AGENTS: Keepalive =
    Keepalive { on: true, idle_seconds: INTERVAL, interval_seconds: INTERVAL, probes: MOST_PROBES };

impl Keepalive {
    /// The values that a socket has; `None` if it isn't a TCP socket.
    fn of(fd: Fd) -> Option<Self> {
        let tcp = |name| sys::get_int(fd, IPPROTO_TCP, name).ok();
        Some(Self {
            on: sys::get_int(fd, SOL_SOCKET, libc::SO_KEEPALIVE).ok()? != 0,
            idle_seconds: tcp(libc::TCP_KEEPIDLE)?,
            interval_seconds: tcp(libc::TCP_KEEPINTVL)?,
            probes: tcp(libc::TCP_KEEPCNT)?,
        })
    }

    /// The values that a new socket has.
    fn of_new_socket() -> Option<Self> {
        let fresh = sys::socket(libc::AF_INET, libc::SOCK_STREAM).ok()?;
        Self::of(fresh.raw())
    }

    /// The values to give the kernel for a program that sees these values.
    ///
    /// The connection ends as late as the program wants, but at most after the longest time that
    /// the kernel can count. A limit by `TCP_USER_TIMEOUT` counts from the first sign. So a program
    /// that has set that limit gets what it set and no more.
    fn merged(self, has_user_timeout: bool) -> Self {
        if has_user_timeout {
            return self;
        }
        if !self.on {
            return AGENTS;
        }
        let idle_seconds = self.idle_seconds.min(INTERVAL);
        let interval_seconds = self.interval_seconds.clamp(1, INTERVAL);
        let patience = self.interval_seconds.saturating_mul(self.probes).saturating_add(self.idle_seconds);
        let after_first = patience.saturating_sub(idle_seconds);
        let probes = after_first.saturating_add(interval_seconds - 1) / interval_seconds;
        Self { on: true, idle_seconds, interval_seconds, probes: probes.clamp(1, MOST_PROBES) }
    }

    /// The value of the option with this name.
    fn value(self, name: c_int) -> c_int {
        match name {
            libc::TCP_KEEPIDLE => self.idle_seconds,
            libc::TCP_KEEPINTVL => self.interval_seconds,
            libc::TCP_KEEPCNT => self.probes,
            _ => c_int::from(self.on),
        }
    }

    /// These values with another value for one option, which the kernel has taken.
    fn with(self, (level, name): (c_int, c_int), value: c_int) -> Self {
        match (level, name) {
            (SOL_SOCKET, libc::SO_KEEPALIVE) => Self { on: value != 0, ..self },
            (IPPROTO_TCP, libc::TCP_KEEPIDLE) => Self { idle_seconds: value, ..self },
            (IPPROTO_TCP, libc::TCP_KEEPINTVL) => Self { interval_seconds: value, ..self },
            (IPPROTO_TCP, libc::TCP_KEEPCNT) => Self { probes: value, ..self },
            _ => self,
        }
    }

    /// Sets these values on a socket.
    fn put(self, to: Fd) {
        let has = Self::of(to);
        let set = |level, name| {
            if has.is_none_or(|has| has.value(name) != self.value(name)) {
                let _ = sys::set_int(to, level, name, self.value(name));
            }
        };
        set(IPPROTO_TCP, libc::TCP_KEEPIDLE);
        set(IPPROTO_TCP, libc::TCP_KEEPINTVL);
        set(IPPROTO_TCP, libc::TCP_KEEPCNT);
        set(SOL_SOCKET, libc::SO_KEEPALIVE);
    }
}

/// Whether an option is one of those of keepalives.
pub(crate) fn shows(level: c_int, name: c_int) -> bool {
    matches!(
        (level, name),
        (SOL_SOCKET, libc::SO_KEEPALIVE)
            | (IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT)
    )
}

/// Whether the values that isthmus sets depend on an option.
pub(crate) fn depends_on(level: c_int, name: c_int) -> bool {
    shows(level, name) || (level, name) == (IPPROTO_TCP, libc::TCP_USER_TIMEOUT)
}

/// Gives `to` the values of `from`, and lets `to` show life if the agent wants that.
/// `TCP_USER_TIMEOUT` must have been given to `to` before.
pub(crate) fn carry(from: Fd, to: Fd) {
    let Some(wanted) = seen(from).or_else(|| Keepalive::of(from)) else { return };
    if Keepalive::of(to) == Some(AGENTS) {
        settle(to, wanted);
    } else {
        wanted.put(to);
    }
}

/// Replacement for setsockopt(2), for an option on which the values that isthmus sets depend.
///
/// # Safety
/// As setsockopt(2).
pub(crate) unsafe fn set(
    fd: Fd,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Result<c_int> {
    let errno = sys::errno();
    let before = seen(fd);
    // SAFETY: the caller's promise.
    let done = unsafe { sys::set_option_raw(fd, level, name, value, len) }?;
    if let Some(before) = before {
        // SAFETY: the kernel has read an int there: it takes nothing shorter.
        let value = unsafe { value.cast::<c_int>().read_unaligned() };
        settle(fd, before.with((level, name), value));
    }
    sys::set_errno(errno);
    Ok(done)
}

/// Replaces what getsockopt(2) has just written by what the program is to see.
///
/// # Safety
/// `value` and `len` are as they were passed to a getsockopt that succeeded.
pub(crate) unsafe fn report(fd: Fd, name: c_int, value: *mut c_int, len: *mut socklen_t) {
    // SAFETY: the caller's promise.
    let whole = unsafe { len.read_unaligned() } as usize >= size_of::<c_int>();
    if !whole {
        return;
    }
    let before = sys::errno();
    if let Some(seen) = seen(fd) {
        // SAFETY: the call wrote an int there.
        unsafe { value.write_unaligned(seen.value(name)) };
    }
    sys::set_errno(before);
}

/// The values that the program sees of a socket whose signs of life isthmus sets; `None` for any
/// other socket.
fn seen(fd: Fd) -> Option<Keepalive> {
    let cookie = sys::cookie(fd);
    if cookie == 0 {
        return None;
    }
    TABLE
        .with(|table| table.find(cookie))
        .or_else(|| if Keepalive::of(fd) == Some(AGENTS) { Keepalive::of_new_socket() } else { None })
}

/// Sets a socket to what its program wants, merged with the signs of life that isthmus needs.
fn settle(fd: Fd, wanted: Keepalive) {
    let has_user_timeout = sys::get_int(fd, IPPROTO_TCP, libc::TCP_USER_TIMEOUT).is_ok_and(|time| time != 0);
    wanted.merged(has_user_timeout).put(fd);
    let is_default = !has_user_timeout && Keepalive::of_new_socket() == Some(wanted);
    let cookie = sys::cookie(fd);
    TABLE.with(|table| if is_default { table.remove(cookie) } else { table.insert(cookie, wanted) });
}

/// Takes the lock on the table before a fork.
pub(crate) fn before_fork() {
    TABLE.before_fork(|_| {});
}

/// Releases the lock on the table after a fork, in parent and child.
pub(crate) fn after_fork() {
    TABLE.after_fork(|_| {});
}

static TABLE: Lock<Table> = Lock::new(Table { entries: [NONE; CAPACITY] });

/// Most sockets in the table. It takes 2 MiB, mapped only when used. Of a socket that was evicted,
/// the program sees the kernel's values; the socket shows life as before.
const CAPACITY: usize = 1 << 16;

/// A free entry. It is all zero, so that the table takes memory only where it is used.
const NONE: (u64, Keepalive) = (0, Keepalive { on: false, idle_seconds: 0, interval_seconds: 0, probes: 0 });

/// What programs have set, by the socket's cookie. No other socket ever gets that cookie, and it
/// isn't 0.
struct Table {
    entries: [(u64, Keepalive); CAPACITY],
}

impl Table {
    #[expect(clippy::indexing_slicing, reason = "the remainder is less than the length")]
    fn place(&mut self, cookie: u64) -> &mut (u64, Keepalive) {
        &mut self.entries[(cookie % CAPACITY as u64) as usize]
    }

    fn find(&mut self, cookie: u64) -> Option<Keepalive> {
        Some(*self.place(cookie)).filter(|(known, _)| *known == cookie).map(|(_, wanted)| wanted)
    }

    fn insert(&mut self, cookie: u64, wanted: Keepalive) {
        *self.place(cookie) = (cookie, wanted);
    }

    fn remove(&mut self, cookie: u64) {
        let place = self.place(cookie);
        if place.0 == cookie {
            *place = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> sys::OwnedFd {
        sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap()
    }

    fn keepalive(on: bool, idle_seconds: c_int, interval_seconds: c_int, probes: c_int) -> Keepalive {
        Keepalive { on, idle_seconds, interval_seconds, probes }
    }

    #[test]
    fn a_connection_shows_life_and_ends_when_its_program_wants() {
        for (name, wanted, user_timeout, want) in [
            ("nothing set", keepalive(false, 7200, 75, 9), false, AGENTS),
            ("the kernel's defaults", keepalive(true, 7200, 75, 9), false, AGENTS),
            ("as Open MPI has it", keepalive(true, 300, 20, 9), false, keepalive(true, 15, 15, 31)),
            ("impatient", keepalive(true, 10, 5, 3), false, keepalive(true, 10, 5, 3)),
            ("few and long", keepalive(true, 20, 60, 1), false, keepalive(true, 15, 15, 5)),
            ("beyond the kernel's", keepalive(true, 32767, 32767, 127), false, AGENTS),
            ("a limit of its own", keepalive(false, 7200, 75, 9), true, keepalive(false, 7200, 75, 9)),
            ("both", keepalive(true, 60, 10, 5), true, keepalive(true, 60, 10, 5)),
        ] {
            assert_eq!(wanted.merged(user_timeout), want, "{name}");
        }
    }

    /// Sets an option as a program does.
    fn put(fd: Fd, option: (c_int, c_int), value: c_int) {
        let len = socklen_t::try_from(size_of::<c_int>()).unwrap();
        // SAFETY: the value is readable for its length.
        unsafe { set(fd, option, (&raw const value).cast(), len) }.unwrap();
    }

    /// Reads an option as a program does.
    fn get(fd: Fd, (level, name): (c_int, c_int)) -> c_int {
        let mut value = sys::get_int(fd, level, name).unwrap();
        let mut len = socklen_t::try_from(size_of::<c_int>()).unwrap();
        // SAFETY: both are as after a getsockopt.
        unsafe { report(fd, name, &raw mut value, &raw mut len) };
        value
    }

    const ON: (c_int, c_int) = (SOL_SOCKET, libc::SO_KEEPALIVE);
    const IDLE: (c_int, c_int) = (IPPROTO_TCP, libc::TCP_KEEPIDLE);

    #[test]
    fn the_program_sees_what_it_set() {
        let (own, agents) = (tcp(), tcp());
        AGENTS.put(agents.raw());
        let new = Keepalive::of_new_socket().unwrap();
        carry(own.raw(), agents.raw());
        assert_eq!(Keepalive::of(agents.raw()), Some(AGENTS));
        assert_eq!((get(agents.raw(), ON), get(agents.raw(), IDLE)), (0, new.idle_seconds));
        put(agents.raw(), IDLE, 300);
        assert_eq!((get(agents.raw(), ON), get(agents.raw(), IDLE)), (0, 300));
        assert_eq!(Keepalive::of(agents.raw()), Some(AGENTS));
        put(agents.raw(), ON, 1);
        assert_eq!((get(agents.raw(), ON), get(agents.raw(), IDLE)), (1, 300));
        let has = Keepalive::of(agents.raw()).unwrap();
        assert_eq!((has.on, has.idle_seconds), (true, 15));
        put(agents.raw(), ON, 0);
        put(agents.raw(), IDLE, new.idle_seconds);
        assert_eq!(Keepalive::of(agents.raw()), Some(AGENTS));
        assert_eq!((get(agents.raw(), ON), get(agents.raw(), IDLE)), (0, new.idle_seconds));
        put(agents.raw(), (IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 9000);
        assert_eq!(Keepalive::of(agents.raw()), Some(new));
        put(agents.raw(), (IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 0);
        assert_eq!(Keepalive::of(agents.raw()), Some(AGENTS));
    }

    #[test]
    fn other_sockets_are_left_alone() {
        let fd = tcp();
        put(fd.raw(), ON, 1);
        put(fd.raw(), IDLE, 77);
        assert_eq!((get(fd.raw(), ON), get(fd.raw(), IDLE)), (1, 77));
        let has = Keepalive::of(fd.raw()).unwrap();
        assert_eq!((has.on, has.idle_seconds), (true, 77));
    }
}
