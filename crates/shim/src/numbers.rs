//! What is known of the process's descriptor numbers without asking the kernel.
//!
//! A socket that may yet be connected to another node is known from the call that makes
//! it until it is connected: the numbers that stand for it form a ring, and each has a
//! list of the epoll instances that watch it. What it costs to exchange the socket so
//! doesn't depend on how many descriptors the process has. A call on any other number
//! costs two loads and takes no lock.
//!
//! Numbers also change past the hooks: by `close_range`, in messages that carry
//! descriptors, over exec. What is known is therefore checked before it is used, and what
//! isn't known is searched for ([`descriptors`]).

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::descriptors;
use crate::sys::{self, Fd, Pages, Result};
use crate::watches::{Head, Watch, Watches};

/// What a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Anything.
    Unknown,
    /// A TCP socket of the program that isn't connected.
    Idle,
    /// One whose connect is under way.
    Busy,
    /// A descriptor of the shim's own.
    Own,
}

/// No connect has this id.
pub(crate) const NO_CONNECT: u64 = 0;

/// One number. All-zero is an unknown one.
struct Slot {
    state: AtomicU8,
    /// The list of watches may lack some.
    lacks_watches: AtomicBool,
    /// The next number of the ring: itself if it is alone.
    next: AtomicI32,
    watches: AtomicU32,
    /// Id of the connect under way.
    connect: AtomicU64,
}

/// Numbers of a page of the table.
const PAGE: usize = 1024;
/// Of 4,096 times 1,024 numbers, four times as many as Linux allows unless told otherwise
/// (`fs.nr_open`). Those beyond stay unknown.
const PAGES: usize = 4096;

static TABLE: [AtomicPtr<Slot>; PAGES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGES];

fn place(fd: Fd) -> Option<(&'static AtomicPtr<Slot>, usize)> {
    let fd = usize::try_from(fd).ok()?;
    Some((TABLE.get(fd / PAGE)?, fd % PAGE))
}

fn slot(fd: Fd) -> Option<&'static Slot> {
    let (page, index) = place(fd)?;
    let page = page.load(Ordering::Acquire);
    // SAFETY: a page has room for PAGE slots, and stays.
    (!page.is_null()).then(|| unsafe { &*page.add(index) })
}

/// The same; its page is made if need be.
fn made_slot(fd: Fd) -> Option<&'static Slot> {
    let (page, _) = place(fd)?;
    if page.load(Ordering::Acquire).is_null() {
        let memory = Pages::new(PAGE * size_of::<Slot>()).ok()?;
        let new = memory.pointer().cast::<Slot>();
        // Another thread may be first; then its page is the one.
        if page.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            std::mem::forget(memory);
        }
    }
    slot(fd)
}

impl Slot {
    fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            1 => State::Idle,
            2 => State::Busy,
            3 => State::Own,
            _ => State::Unknown,
        }
    }

    fn set_state(&self, state: State) {
        let value = match state {
            State::Unknown => 0,
            State::Idle => 1,
            State::Busy => 2,
            State::Own => 3,
        };
        self.state.store(value, Ordering::Release);
    }

    fn watches(&self) -> Head {
        Head(self.watches.load(Ordering::Relaxed))
    }

    fn set_watches(&self, head: Head) {
        self.watches.store(head.0, Ordering::Relaxed);
    }
}

/// What a number stands for.
pub(crate) fn state(fd: Fd) -> State {
    slot(fd).map_or(State::Unknown, Slot::state)
}

/// Whether a hooked call on this number may concern the shim.
pub(crate) fn is_known(fd: Fd) -> bool {
    state(fd) != State::Unknown
}

/// The numbers of a range of which something is known, in ascending order; each as a
/// descriptor and as close_range(2) has it.
pub(crate) fn known(first: c_uint, last: c_uint) -> impl Iterator<Item = (Fd, c_uint)> {
    let pages = TABLE.iter().zip((0..).step_by(PAGE));
    pages
        .filter(|(page, _)| !page.load(Ordering::Acquire).is_null())
        .flat_map(|(_, start)| start..start + PAGE as Fd)
        .filter_map(|fd| c_uint::try_from(fd).ok().map(|number| (fd, number)))
        .filter(move |(fd, number)| (first..=last).contains(number) && is_known(*fd))
}

/// Notes a TCP socket that has just been made, under a number of which nothing is known.
pub(crate) fn note_socket(fd: Fd) {
    if let Some(slot) = made_slot(fd) {
        slot.next.store(fd, Ordering::Relaxed);
        slot.lacks_watches.store(false, Ordering::Relaxed);
        slot.set_state(State::Idle);
    }
}

/// The numbers that stand for the same socket, this one first.
pub(crate) fn ring(fd: Fd) -> impl Iterator<Item = Fd> {
    let mut at = Some(fd);
    std::iter::from_fn(move || {
        let this = at?;
        at = slot(this)
            .filter(|slot| matches!(slot.state(), State::Idle | State::Busy))
            .map(|slot| slot.next.load(Ordering::Relaxed))
            .filter(|next| *next != fd);
        Some(this)
    })
}

/// The id of the connect under way on a number, or [`NO_CONNECT`].
pub(crate) fn connect_of(fd: Fd) -> u64 {
    slot(fd).map_or(NO_CONNECT, |slot| slot.connect.load(Ordering::Relaxed))
}

/// A number that has left its ring.
pub(crate) struct Left {
    pub(crate) connect: u64,
    /// One that still stands for the socket.
    pub(crate) other: Option<Fd>,
}

/// Whether the process has made an epoll instance.
static HAS_EPOLL: AtomicBool = AtomicBool::new(false);

/// The program makes an epoll instance.
pub(crate) fn note_epoll() {
    HAS_EPOLL.store(true, Ordering::Relaxed);
}

/// What may be changed with the lock held only.
pub(crate) struct Numbers {
    watches: Watches,
}

impl Numbers {
    pub(crate) const fn new() -> Self {
        Self { watches: Watches::new() }
    }

    /// Notes a number of the shim's own.
    pub(crate) fn own(&mut self, fd: Fd) {
        self.leave(fd);
        if let Some(slot) = made_slot(fd) {
            slot.set_state(State::Own);
        }
    }

    /// Notes that `to` stands for what `from` does.
    pub(crate) fn join(&mut self, from: Fd, to: Fd) {
        self.leave(to);
        let Some(old) = slot(from).filter(|slot| matches!(slot.state(), State::Idle | State::Busy)) else {
            return;
        };
        let Some(new) = made_slot(to) else { return };
        new.next.store(old.next.swap(to, Ordering::Relaxed), Ordering::Relaxed);
        new.lacks_watches.store(old.lacks_watches.load(Ordering::Relaxed), Ordering::Relaxed);
        new.connect.store(old.connect.load(Ordering::Relaxed), Ordering::Relaxed);
        new.set_state(old.state());
    }

    /// Notes that a number no longer stands for what it did; `None` if that isn't known.
    pub(crate) fn leave(&mut self, fd: Fd) -> Option<Left> {
        let slot = slot(fd).filter(|slot| slot.state() != State::Unknown)?;
        let other = ring(fd).last().filter(|other| *other != fd);
        if let Some(before) = other.and_then(self::slot) {
            before.next.store(slot.next.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.watches.retain(slot.watches(), |_| false);
        slot.set_watches(Head::EMPTY);
        let connect = slot.connect.swap(NO_CONNECT, Ordering::Relaxed);
        slot.set_state(State::Unknown);
        Some(Left { connect, other })
    }

    /// Forgets a socket, under all its numbers.
    pub(crate) fn forget(&mut self, fd: Fd) {
        let mut at = Some(fd);
        while let Some(number) = at {
            at = self.leave(number).and_then(|left| left.other);
        }
    }

    /// Looks for a socket of which nothing is known.
    pub(crate) fn find(&mut self, fd: Fd) -> Result<()> {
        if matches!(state(fd), State::Idle | State::Busy) {
            return Ok(());
        }
        let identity = sys::identity(fd)?;
        note_socket(fd);
        if let Some(slot) = slot(fd) {
            slot.lacks_watches.store(true, Ordering::Relaxed);
        }
        descriptors::each_socket(identity, |number| {
            if number != fd {
                self.join(fd, number);
            }
        });
        Ok(())
    }

    /// Marks a socket as one whose connect is under way.
    pub(crate) fn begin(&mut self, fd: Fd, connect: u64) {
        self.mark(fd, State::Busy, connect);
    }

    /// Marks it as one whose connect is not under way any more.
    pub(crate) fn end(&mut self, fd: Fd) {
        self.mark(fd, State::Idle, NO_CONNECT);
    }

    fn mark(&mut self, fd: Fd, state: State, connect: u64) {
        for slot in ring(fd).filter_map(slot).filter(|slot| slot.state() != State::Unknown) {
            slot.connect.store(connect, Ordering::Relaxed);
            slot.set_state(state);
        }
    }

    /// Drops the numbers that no longer stand for the socket of this cookie. Returns one
    /// that does.
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

    /// Notes an epoll_ctl(2) that has succeeded.
    pub(crate) fn watched(&mut self, epoll: Fd, operation: i32, fd: Fd, event: Option<libc::epoll_event>) {
        let Some(slot) = slot(fd).filter(|slot| matches!(slot.state(), State::Idle | State::Busy)) else {
            return;
        };
        match event.filter(|_| operation != libc::EPOLL_CTL_DEL) {
            None => {
                slot.set_watches(self.watches.retain(slot.watches(), |watch| watch.epoll != epoll));
            }
            Some(libc::epoll_event { events, u64: data }) => {
                // Whether it has fired is for the kernel to say. While a connect is under
                // way there is nothing to fire for.
                let may_have_fired = events & libc::EPOLLONESHOT as u32 != 0 && slot.state() == State::Idle;
                match self.watches.set(slot.watches(), Watch { epoll, events, data }) {
                    Ok(head) if !may_have_fired => slot.set_watches(head),
                    Ok(head) => {
                        slot.set_watches(self.watches.retain(head, |watch| watch.epoll != epoll));
                        slot.lacks_watches.store(true, Ordering::Relaxed);
                    }
                    Err(_) => slot.lacks_watches.store(true, Ordering::Relaxed),
                }
            }
        }
    }

    /// Takes a socket out of all epoll instances; [`watch_again`](Self::watch_again) puts
    /// what stands under its numbers then into them. A registration belongs to an open
    /// file, not to a number: the old one's would stay behind, out of reach, as long as
    /// any copy is open.
    pub(crate) fn unwatch(&mut self, fd: Fd) {
        // Of a socket without any the program may have told the kernel past the hooks, such
        // as by io_uring.
        let has_some = ring(fd).filter_map(slot).any(|slot| slot.watches() != Head::EMPTY);
        let mut is_whole = has_some || !HAS_EPOLL.load(Ordering::Relaxed);
        for number in ring(fd) {
            let Some(slot) = slot(number) else { continue };
            is_whole &= !slot.lacks_watches.swap(false, Ordering::Relaxed);
            let left = self.watches.retain(slot.watches(), |watch| {
                let taken = remove(watch.epoll, number);
                is_whole &= taken;
                taken
            });
            slot.set_watches(left);
        }
        if !is_whole {
            self.unwatch_unknown(fd);
        }
    }

    /// The same for registrations that aren't known.
    fn unwatch_unknown(&mut self, fd: Fd) {
        let Ok(identity) = sys::identity(fd) else { return };
        descriptors::each_watch(identity, |number, watch| {
            if let Some(slot) = ring(fd).find(|known| *known == number).and_then(slot)
                && let Ok(head) = self.watches.set(slot.watches(), watch)
            {
                slot.set_watches(head);
                remove(watch.epoll, number);
            }
        });
    }

    /// Puts what stands under a socket's numbers where it was taken out.
    pub(crate) fn watch_again(&mut self, fd: Fd) {
        for number in ring(fd) {
            let Some(slot) = slot(number) else { continue };
            self.watches.each(slot.watches(), |Watch { epoll, events, data }| {
                let event = libc::epoll_event { events, u64: data };
                let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, number, event);
            });
        }
    }
}

fn remove(epoll: Fd, number: Fd) -> bool {
    let nothing = libc::epoll_event { events: 0, u64: 0 };
    sys::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, number, nothing).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::OwnedFd;

    fn tcp(numbers: &mut Numbers) -> OwnedFd {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        numbers.leave(socket.raw());
        note_socket(socket.raw());
        socket
    }

    fn copy(numbers: &mut Numbers, from: &OwnedFd) -> OwnedFd {
        let copy = OwnedFd::copy_of(from.raw()).unwrap();
        numbers.join(from.raw(), copy.raw());
        copy
    }

    fn sorted(fd: Fd) -> Vec<Fd> {
        let mut all: Vec<_> = ring(fd).collect();
        all.sort_unstable();
        all
    }

    /// An instance that has a socket or not; each is asked with the number that was added.
    fn has(epoll: &OwnedFd, fd: Fd) -> bool {
        let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        sys::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_MOD, fd, event).is_ok()
    }

    fn add(numbers: &mut Numbers, epoll: &OwnedFd, fd: Fd, is_told: bool) {
        let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        sys::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, fd, event).unwrap();
        if is_told {
            numbers.watched(epoll.raw(), libc::EPOLL_CTL_ADD, fd, Some(event));
        }
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
    fn a_socket_is_taken_out_of_instances_and_put_back() {
        let mut numbers = Numbers::new();
        let one = tcp(&mut numbers);
        let two = copy(&mut numbers, &one);
        let epolls: Vec<_> = (0..100).map(|_| sys::epoll_create().unwrap()).collect();
        for (epoll, told) in epolls.iter().zip([true, false].into_iter().cycle()) {
            add(&mut numbers, epoll, if told { one.raw() } else { two.raw() }, told);
        }
        numbers.watched(-1, libc::EPOLL_CTL_ADD, two.raw(), Some(libc::epoll_event { events: 1, u64: 0 }));
        let at = |index: usize| if index.is_multiple_of(2) { one.raw() } else { two.raw() };
        numbers.unwatch(one.raw());
        for (index, epoll) in epolls.iter().enumerate() {
            assert!(!has(epoll, at(index)), "{index}");
        }
        numbers.watch_again(one.raw());
        for (index, epoll) in epolls.iter().enumerate() {
            assert!(has(epoll, at(index)), "{index}");
        }
        numbers.watched(epolls[0].raw(), libc::EPOLL_CTL_DEL, one.raw(), None);
        numbers.forget(one.raw());
    }

    #[test]
    fn a_socket_that_comes_from_elsewhere_is_found() {
        let mut numbers = Numbers::new();
        let one = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        let two = OwnedFd::copy_of(one.raw()).unwrap();
        numbers.leave(one.raw());
        numbers.leave(two.raw());
        let epoll = sys::epoll_create().unwrap();
        add(&mut numbers, &epoll, two.raw(), false);
        numbers.find(one.raw()).unwrap();
        assert!(ring(one.raw()).any(|fd| fd == two.raw()));
        numbers.unwatch(one.raw());
        assert!(!has(&epoll, two.raw()));
        numbers.forget(one.raw());
        assert!(numbers.find(-1).is_err());
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
