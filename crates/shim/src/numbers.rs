//! What is known of the process's descriptor numbers without asking the kernel.
//!
//! A socket that may yet be connected to another node is known from the call that makes it until it
//! is connected. The numbers that stand for it form a ring. Each number has a list of the epoll
//! instances that watch it ([`epoll`]). So the cost of exchanging the socket doesn't depend on how
//! many descriptors the process has. A call on any other number costs two loads and takes no lock.
//!
//! Numbers also change past the hooks: by `close_range`, in messages that carry descriptors, over
//! exec. So what is known is checked before it is used, and what isn't known is searched for
//! ([`descriptors`]).

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::descriptors;
use crate::sys::{self, Fd, Result};
use crate::watches::{Head, Watches};

use slot::{Slot, made_slot, slot};

mod epoll;
mod slot;

pub(crate) use epoll::note_epoll;
pub(crate) use slot::known;

/// What is known of what a descriptor number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is known: the number may stand for anything, or be closed.
    Unknown,
    /// A TCP socket of the program that isn't connected.
    Idle,
    /// A TCP socket of the program whose connect is under way.
    Busy,
    /// A descriptor of the shim's own.
    Own,
    /// A socket by which the program asks for interfaces and routes.
    Netlink,
}

/// An id that no connect has.
pub(crate) const NO_CONNECT: u64 = 0;

/// How many times an exchange has begun or ended: odd while one is going on.
static EXCHANGES: AtomicU64 = AtomicU64::new(0);

/// Notes that an exchange begins or ends.
pub(crate) fn turn() {
    EXCHANGES.fetch_add(1, Ordering::AcqRel);
}

/// The moment before a call on a number of which nothing is known. The number may become known
/// during the call.
pub(crate) fn before() -> Before {
    Before(EXCHANGES.load(Ordering::Acquire))
}

/// The moment before a call, as the count of exchanges.
#[derive(Clone, Copy)]
pub(crate) struct Before(u64);

impl Before {
    /// Whether a socket may have been exchanged since that moment.
    pub(crate) fn may_have_missed(self) -> bool {
        !self.0.is_multiple_of(2) || EXCHANGES.load(Ordering::Acquire) != self.0
    }
}

/// What is known of what a number stands for.
pub(crate) fn state(fd: Fd) -> State {
    slot(fd).map_or(State::Unknown, Slot::state)
}

/// Whether a hooked call on this number may concern the shim.
pub(crate) fn is_known(fd: Fd) -> bool {
    state(fd) != State::Unknown
}

/// Notes that a TCP socket has just been made, under a number of which nothing is known.
pub(crate) fn note_socket(fd: Fd) {
    if let Some(slot) = made_slot(fd) {
        slot.next.store(fd, Ordering::Relaxed);
        slot.lacks_watches.store(false, Ordering::Relaxed);
        slot.was_sent.store(false, Ordering::Relaxed);
        slot.cookie.store(sys::cookie(fd), Ordering::Relaxed);
        slot.set_state(State::Idle);
    }
}

/// Notes that a socket of rtnetlink(7) has just been made, under a number of which nothing is
/// known.
pub(crate) fn note_netlink(fd: Fd) {
    if let Some(slot) = made_slot(fd) {
        slot.set_state(State::Netlink);
    }
}

/// The numbers that stand for the same socket as `fd`, which comes first.
pub(crate) fn ring(fd: Fd) -> impl Iterator<Item = Fd> {
    let mut at = Some(fd);
    std::iter::from_fn(move || {
        let this = at?;
        at = slot(this)
            .filter(|slot| slot.is_socket())
            .map(|slot| slot.next.load(Ordering::Relaxed))
            .filter(|next| *next != fd);
        Some(this)
    })
}

/// Notes that a number's list of watches may lack registrations.
fn lacks_watches(fd: Fd) {
    if let Some(slot) = slot(fd) {
        slot.lacks_watches.store(true, Ordering::Relaxed);
    }
}

/// Whether a number was noted for a socket and stands for something else now. It was closed and
/// given out again past the hooks.
pub(crate) fn is_stale(fd: Fd) -> bool {
    slot(fd).is_some_and(|slot| slot.is_socket() && slot.cookie.load(Ordering::Relaxed) != sys::cookie(fd))
}

/// The id of the connect under way on a number, or [`NO_CONNECT`].
pub(crate) fn connect_of(fd: Fd) -> u64 {
    slot(fd).map_or(NO_CONNECT, |slot| slot.connect.load(Ordering::Relaxed))
}

/// A number on which the connect with this id is under way, preferably `fd`. `None` if there is
/// none.
pub(crate) fn with_connect(connect: u64, fd: Fd) -> Option<Fd> {
    std::iter::once(fd)
        .chain(known(0, c_uint::MAX).map(|(fd, _)| fd))
        .find(|number| connect_of(*number) == connect)
}

/// A number that has left its ring.
pub(crate) struct Left {
    pub(crate) connect: u64,
    /// Another number that still stands for the socket; `None` if there is none.
    pub(crate) other: Option<Fd>,
    /// Whether the socket was in a message: further numbers may come for it.
    pub(crate) was_sent: bool,
}

/// What may be changed only with the lock of the list held.
pub(crate) struct Numbers {
    watches: Watches,
}

impl Numbers {
    pub(crate) const fn new() -> Self {
        Self { watches: Watches::new() }
    }

    /// Notes that a number is one of the shim's own.
    pub(crate) fn own(&mut self, fd: Fd) {
        self.leave(fd);
        if let Some(slot) = made_slot(fd) {
            slot.set_state(State::Own);
        }
    }

    /// Notes that `to` stands for what `from` stands for.
    pub(crate) fn join(&mut self, from: Fd, to: Fd) {
        self.leave(to);
        if state(from) == State::Netlink {
            return note_netlink(to);
        }
        let Some(old) = slot(from).filter(|slot| slot.is_socket()) else { return };
        let Some(new) = made_slot(to) else { return };
        new.next.store(old.next.swap(to, Ordering::Relaxed), Ordering::Relaxed);
        for (new, old) in [(&new.lacks_watches, &old.lacks_watches), (&new.was_sent, &old.was_sent)] {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (new, old) in [(&new.connect, &old.connect), (&new.cookie, &old.cookie)] {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        new.set_state(old.state());
    }

    /// Notes that a number no longer stands for what it did. Returns what it has left; `None` if
    /// nothing was known of the number.
    pub(crate) fn leave(&mut self, fd: Fd) -> Option<Left> {
        let slot = slot(fd).filter(|slot| slot.state() != State::Unknown)?;
        let other = ring(fd).last().filter(|other| *other != fd);
        if let Some(before) = other.and_then(self::slot) {
            before.next.store(slot.next.load(Ordering::Relaxed), Ordering::Relaxed);
            // A registration belongs to the open file, and outlives the number.
            if slot.watches() != Head::EMPTY || slot.lacks_watches.load(Ordering::Relaxed) {
                before.lacks_watches.store(true, Ordering::Relaxed);
            }
        }
        self.watches.retain(slot.watches(), |_| false);
        slot.set_watches(Head::EMPTY);
        let connect = slot.connect.swap(NO_CONNECT, Ordering::Relaxed);
        let was_sent = slot.was_sent.load(Ordering::Relaxed);
        slot.set_state(State::Unknown);
        Some(Left { connect, other, was_sent })
    }

    /// Forgets what is known of a socket, under all its numbers.
    pub(crate) fn forget(&mut self, fd: Fd) {
        let mut at = Some(fd);
        while let Some(number) = at {
            at = self.leave(number).and_then(|left| left.other);
        }
    }

    /// Notes the socket of a number of which nothing is known, with its further numbers.
    ///
    /// # Errors
    /// If the number isn't open.
    pub(crate) fn find(&mut self, fd: Fd) -> Result<()> {
        if slot(fd).is_some_and(Slot::is_socket) {
            return Ok(());
        }
        sys::identity(fd)?;
        note_socket(fd);
        lacks_watches(fd);
        self.search(fd, sys::cookie(fd));
        Ok(())
    }

    /// Looks for the numbers that a socket's ring lacks, by the socket's cookie.
    fn search(&mut self, fd: Fd, cookie: u64) {
        descriptors::each_socket(cookie, |number| {
            if !ring(fd).any(|known| known == number) {
                self.join(fd, number);
                lacks_watches(number);
            }
        });
    }

    /// Notes that a socket is in a message: this process may receive it under other numbers.
    pub(crate) fn send(&mut self, fd: Fd) {
        for slot in ring(fd).filter_map(slot).filter(|slot| slot.is_socket()) {
            slot.was_sent.store(true, Ordering::Relaxed);
        }
    }

    /// Looks for further numbers of a socket that was in a message. Every copy is taken for
    /// the program's, so the shim may have none.
    pub(crate) fn receive(&mut self, fd: Fd) {
        if let Some(slot) = slot(fd).filter(|slot| slot.is_socket() && slot.was_sent.load(Ordering::Relaxed))
        {
            self.search(fd, slot.cookie.load(Ordering::Relaxed));
        }
    }

    /// A number under which the socket with this cookie has come in a message, after its last known
    /// number was closed. Notes that `connect` is under way on it.
    pub(crate) fn received(&mut self, cookie: u64, connect: u64) -> Option<Fd> {
        let mut first = None;
        descriptors::each_socket(cookie, |number| first = first.or(Some(number)));
        let first = first?;
        if is_stale(first) {
            self.leave(first);
        }
        if !is_known(first) {
            self.find(first).ok()?;
            self.begin(first, connect);
        }
        Some(first)
    }

    /// Notes that the numbers of a socket now stand for the socket with this cookie.
    pub(crate) fn renew(&mut self, fd: Fd, cookie: u64) {
        for slot in ring(fd).filter_map(slot) {
            slot.cookie.store(cookie, Ordering::Relaxed);
        }
    }

    /// Notes that the connect of a socket is under way.
    pub(crate) fn begin(&mut self, fd: Fd, connect: u64) {
        self.mark(fd, State::Busy, connect);
    }

    /// Notes that the connect of a socket is not under way any more.
    pub(crate) fn end(&mut self, fd: Fd) {
        self.mark(fd, State::Idle, NO_CONNECT);
    }

    fn mark(&mut self, fd: Fd, state: State, connect: u64) {
        for slot in ring(fd).filter_map(slot).filter(|slot| slot.state() != State::Unknown) {
            slot.connect.store(connect, Ordering::Relaxed);
            slot.set_state(state);
        }
    }

    /// Drops the numbers of a ring that no longer stand for the socket with this cookie. Returns a
    /// number that does; `None` if there is none.
    pub(crate) fn check(&mut self, fd: Fd, cookie: u64) -> Option<Fd> {
        let mut found = None;
        let mut at = fd;
        for _ in 0..ring(fd).count() {
            let next = slot(at).map_or(fd, |slot| slot.next.load(Ordering::Relaxed));
            if sys::cookie(at) == cookie {
                found = found.or(Some(at));
            } else {
                self.leave(at);
            }
            at = next;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::slot::{PAGE, PAGES};
    use super::*;
    use crate::sys::OwnedFd;

    pub(super) fn tcp(numbers: &mut Numbers) -> OwnedFd {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        numbers.leave(socket.raw());
        note_socket(socket.raw());
        socket
    }

    pub(super) fn copy(numbers: &mut Numbers, from: &OwnedFd) -> OwnedFd {
        let copy = OwnedFd::copy_of(from.raw()).unwrap();
        numbers.join(from.raw(), copy.raw());
        copy
    }

    fn sorted(fd: Fd) -> Vec<Fd> {
        let mut all: Vec<_> = ring(fd).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn copies_form_a_ring() {
        let mut numbers = Numbers::new();
        let one = tcp(&mut numbers);
        let two = copy(&mut numbers, &one);
        let three = copy(&mut numbers, &two);
        let mut all = vec![one.raw(), two.raw(), three.raw()];
        all.sort_unstable();
        assert_eq!(sorted(two.raw()), all);
        numbers.begin(three.raw(), 9);
        assert_eq!((state(one.raw()), connect_of(two.raw())), (State::Busy, 9));
        let left = numbers.leave(one.raw()).unwrap();
        assert_eq!(left.connect, 9);
        assert!(left.other.is_some_and(|other| other != one.raw()));
        assert_eq!(state(one.raw()), State::Unknown);
        numbers.end(two.raw());
        assert_eq!((state(three.raw()), connect_of(three.raw())), (State::Idle, NO_CONNECT));
        numbers.forget(two.raw());
        assert!(!is_known(two.raw()) && !is_known(three.raw()));
        assert!(numbers.leave(three.raw()).is_none());
    }

    #[test]
    fn copies_of_a_socket_of_netlink_are_ones() {
        let mut numbers = Numbers::new();
        let one = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW).unwrap();
        numbers.leave(one.raw());
        note_netlink(one.raw());
        let two = copy(&mut numbers, &one);
        assert_eq!([&one, &two].map(|fd| state(fd.raw())), [State::Netlink; 2]);
        numbers.leave(one.raw());
        assert_eq!([&one, &two].map(|fd| state(fd.raw())), [State::Unknown, State::Netlink]);
        numbers.leave(two.raw());
    }

    #[test]
    fn a_socket_that_comes_from_elsewhere_is_found() {
        let mut numbers = Numbers::new();
        let one = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        let two = OwnedFd::copy_of(one.raw()).unwrap();
        numbers.leave(one.raw());
        numbers.leave(two.raw());
        numbers.find(one.raw()).unwrap();
        assert!(ring(one.raw()).any(|fd| fd == two.raw()));
        numbers.forget(one.raw());
        assert!(numbers.find(-1).is_err());
    }

    #[test]
    fn a_number_that_was_given_out_again_is_stale() {
        let mut numbers = Numbers::new();
        let (one, other) = (tcp(&mut numbers), sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap());
        assert!(!is_stale(one.raw()) && !is_stale(other.raw()));
        sys::dup3(other.raw(), one.raw(), libc::O_CLOEXEC).unwrap();
        assert!(is_stale(one.raw()));
        numbers.renew(one.raw(), sys::cookie(other.raw()));
        assert!(!is_stale(one.raw()));
        numbers.forget(one.raw());
    }

    #[test]
    fn numbers_that_come_in_messages_are_looked_for() {
        let mut numbers = Numbers::new();
        let one = tcp(&mut numbers);
        let cookie = sys::cookie(one.raw());
        numbers.begin(one.raw(), 5);
        let two = OwnedFd::copy_of(one.raw()).unwrap();
        numbers.leave(two.raw());
        numbers.receive(one.raw());
        assert_eq!(sorted(one.raw()), [one.raw()], "not in a message");
        numbers.send(one.raw());
        numbers.receive(one.raw());
        assert!(ring(one.raw()).any(|fd| fd == two.raw()));
        assert_eq!(with_connect(5, -1).map(|fd| fd == one.raw() || fd == two.raw()), Some(true));
        numbers.forget(one.raw());
        drop(one);
        assert_eq!(numbers.received(cookie, 5), Some(two.raw()));
        assert_eq!(connect_of(two.raw()), 5);
        numbers.forget(two.raw());
        drop(two);
        assert_eq!(numbers.received(cookie, 5), None);
    }

    #[test]
    fn numbers_that_stand_for_something_else_now_are_dropped() {
        let mut numbers = Numbers::new();
        let one = tcp(&mut numbers);
        let two = copy(&mut numbers, &one);
        let cookie = sys::cookie(one.raw());
        let other = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        sys::dup3(other.raw(), two.raw(), libc::O_CLOEXEC).unwrap();
        assert_eq!(numbers.check(two.raw(), cookie), Some(one.raw()));
        assert_eq!(sorted(one.raw()), [one.raw()]);
        sys::dup3(other.raw(), one.raw(), libc::O_CLOEXEC).unwrap();
        assert_eq!(numbers.check(one.raw(), cookie), None);
    }

    #[test]
    fn numbers_far_out_are_known_or_not_without_harm() {
        let mut numbers = Numbers::new();
        for fd in [-1, Fd::MAX, (PAGE * PAGES) as Fd] {
            note_socket(fd);
            assert_eq!(state(fd), State::Unknown, "{fd}");
            assert!(numbers.leave(fd).is_none());
            assert_eq!(ring(fd).collect::<Vec<_>>(), [fd]);
        }
        let last = (PAGE * PAGES) as Fd - 1;
        note_socket(last);
        assert_eq!(state(last), State::Idle);
        numbers.forget(last);
    }
}
