//! The table of what is known of each number, which is read without a lock.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::sys::{Fd, Pages};
use crate::watches::Head;

use super::State;

/// What is known of one number. A slot that is all zero is that of an unknown number.
pub(super) struct Slot {
    state: AtomicU8,
    /// Whether the list of watches may lack registrations.
    pub(super) lacks_watches: AtomicBool,
    /// Whether the socket was in a message: the ring may lack numbers.
    pub(super) was_sent: AtomicBool,
    /// The next number of the ring; the number itself if it is alone.
    pub(super) next: AtomicI32,
    watches: AtomicU32,
    /// Id of the connect under way, or `NO_CONNECT`.
    pub(super) connect: AtomicU64,
    /// The cookie of the socket that the number stands for.
    pub(super) cookie: AtomicU64,
}

/// How many numbers a page of the table has.
pub(super) const PAGE: usize = 1024;
/// How many pages the table may have. They hold four times as many numbers as Linux allows unless
/// told otherwise (`fs.nr_open`). Numbers beyond stay unknown.
pub(super) const PAGES: usize = 4096;

static TABLE: [AtomicPtr<Slot>; PAGES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGES];

fn place(fd: Fd) -> Option<(&'static AtomicPtr<Slot>, usize)> {
    let fd = usize::try_from(fd).ok()?;
    Some((TABLE.get(fd / PAGE)?, fd % PAGE))
}

pub(super) fn slot(fd: Fd) -> Option<&'static Slot> {
    let (page, index) = place(fd)?;
    let page = page.load(Ordering::Acquire);
    // SAFETY: a page has room for PAGE slots, and stays.
    (!page.is_null()).then(|| unsafe { &*page.add(index) })
}

/// The slot of a number, whose page is made if need be. `None` if there is no memory, or the number
/// is beyond the table.
pub(super) fn made_slot(fd: Fd) -> Option<&'static Slot> {
    let (page, _) = place(fd)?;
    if page.load(Ordering::Acquire).is_null() {
        let memory = Pages::new(PAGE * size_of::<Slot>()).ok()?;
        let new = memory.pointer().cast::<Slot>();
        // Another thread may be first; then its page is used.
        if page.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            std::mem::forget(memory);
        }
    }
    slot(fd)
}

impl Slot {
    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            1 => State::Idle,
            2 => State::Busy,
            3 => State::Own,
            4 => State::Netlink,
            _ => State::Unknown,
        }
    }

    pub(super) fn set_state(&self, state: State) {
        let value = match state {
            State::Unknown => 0,
            State::Idle => 1,
            State::Busy => 2,
            State::Own => 3,
            State::Netlink => 4,
        };
        self.state.store(value, Ordering::Release);
    }

    pub(super) fn is_socket(&self) -> bool {
        matches!(self.state(), State::Idle | State::Busy)
    }

    pub(super) fn watches(&self) -> Head {
        Head(self.watches.load(Ordering::Relaxed))
    }

    pub(super) fn set_watches(&self, head: Head) {
        self.watches.store(head.0, Ordering::Relaxed);
    }
}

/// The numbers of a range of which something is known, in ascending order. Each comes as a
/// descriptor and as close_range(2) has it.
pub(crate) fn known(first: c_uint, last: c_uint) -> impl Iterator<Item = (Fd, c_uint)> {
    let pages = TABLE.iter().zip((0..).step_by(PAGE));
    pages
        .filter(|(page, _)| !page.load(Ordering::Acquire).is_null())
        .flat_map(|(_, start)| start..start + PAGE as Fd)
        .filter_map(|fd| c_uint::try_from(fd).ok().map(|number| (fd, number)))
        .filter(move |(fd, number)| {
            (first..=last).contains(number) && slot(*fd).is_some_and(|slot| slot.state() != State::Unknown)
        })
}
