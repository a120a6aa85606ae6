//! Registrations with epoll instances, in lists.
//!
//! The memory is the kernel's (mmap(2)): `epoll_ctl` may be called where malloc(3) may not.

use crate::sys::{Fd, Pages, Result};

/// One registration of a socket with an epoll instance, under a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) epoll: Fd,
    pub(crate) number: Fd,
    pub(crate) events: u32,
    pub(crate) data: u64,
}

/// A list of registrations, named by its first entry; 0 for an empty list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head(pub(crate) u32);

impl Head {
    pub(crate) const EMPTY: Self = Self(0);
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    watch: Watch,
    next: Head,
}

/// The entries of all lists, which are counted from 1.
pub(crate) struct Watches {
    memory: Option<Pages>,
    room: u32,
    used: u32,
    free: Head,
}

impl Watches {
    pub(crate) const fn new() -> Self {
        Self { memory: None, room: 0, used: 0, free: Head::EMPTY }
    }

    fn entry(&mut self, at: Head) -> Option<&mut Entry> {
        let index = at.0.checked_sub(1).filter(|index| *index < self.used)?;
        let start = self.memory.as_ref()?.pointer().cast::<Entry>();
        // SAFETY: the memory has room for `room` entries, of which `used` were written.
        Some(unsafe { &mut *start.add(index as usize) })
    }

    /// Doubles the memory for entries.
    fn grow(&mut self) -> Result<()> {
        let room = (self.room * 2).max(128);
        let memory = Pages::new(room as usize * size_of::<Entry>())?;
        if let Some(old) = &self.memory {
            // SAFETY: the new memory is longer than what is copied, and apart from the old.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    old.pointer().cast::<Entry>(),
                    memory.pointer().cast::<Entry>(),
                    self.used as usize,
                );
            }
        }
        (self.memory, self.room) = (Some(memory), room);
        Ok(())
    }

    fn new_entry(&mut self, entry: Entry) -> Result<Head> {
        let free = self.free;
        if let Some(slot) = self.entry(free) {
            let next = std::mem::replace(slot, entry).next;
            self.free = next;
            return Ok(free);
        }
        if self.used == self.room {
            self.grow()?;
        }
        self.used += 1;
        let at = Head(self.used);
        if let Some(slot) = self.entry(at) {
            *slot = entry;
        }
        Ok(at)
    }

    /// Adds a registration to a list, in the place of what the list had for the same number and
    /// epoll instance. Returns the list.
    ///
    /// # Errors
    /// If there is no memory; the list is as it was.
    pub(crate) fn set(&mut self, head: Head, watch: Watch) -> Result<Head> {
        let mut at = head;
        while let Some(entry) = self.entry(at) {
            if (entry.watch.epoll, entry.watch.number) == (watch.epoll, watch.number) {
                entry.watch = watch;
                return Ok(head);
            }
            at = entry.next;
        }
        self.new_entry(Entry { watch, next: head })
    }

    /// Drops the registrations of a list for which `keep` says `false`. Returns the list that is
    /// left.
    pub(crate) fn retain(&mut self, head: Head, mut keep: impl FnMut(Watch) -> bool) -> Head {
        let (mut first, mut last, mut at) = (Head::EMPTY, Head::EMPTY, head);
        while let Some(Entry { watch, next }) = self.entry(at).copied() {
            if keep(watch) {
                match self.entry(last) {
                    Some(last) => last.next = at,
                    None => first = at,
                }
                last = at;
            } else {
                let free = self.free;
                if let Some(entry) = self.entry(at) {
                    entry.next = free;
                }
                self.free = at;
            }
            at = next;
        }
        if let Some(last) = self.entry(last) {
            last.next = Head::EMPTY;
        }
        first
    }

    /// Whether `is_it` says `true` for a registration of a list.
    pub(crate) fn any(&mut self, head: Head, is_it: impl Fn(Watch) -> bool) -> bool {
        let mut found = false;
        self.each(head, |watch| found |= is_it(watch));
        found
    }

    /// Calls `action` with each registration of a list.
    pub(crate) fn each(&mut self, head: Head, mut action: impl FnMut(Watch)) {
        let mut at = head;
        while let Some(Entry { watch, next }) = self.entry(at).copied() {
            action(watch);
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(epoll: Fd, data: u64) -> Watch {
        Watch { epoll, number: 3, events: 1, data }
    }

    fn listed(watches: &mut Watches, head: Head) -> Vec<Watch> {
        let mut all = Vec::new();
        watches.each(head, |watch| all.push(watch));
        all
    }

    #[test]
    fn lists_keep_to_themselves() {
        let mut watches = Watches::new();
        let mut heads = [Head::EMPTY; 3];
        for epoll in 0..500 {
            for (head, data) in heads.iter_mut().zip(0..) {
                *head = watches.set(*head, watch(epoll, data)).unwrap();
            }
        }
        for (head, data) in heads.into_iter().zip(0..) {
            let all = listed(&mut watches, head);
            assert_eq!(all.len(), 500);
            assert!(all.iter().all(|watch| watch.data == data));
        }
        let used = watches.used;
        heads[1] = watches.retain(heads[1], |watch| watch.epoll % 5 == 0);
        assert_eq!(listed(&mut watches, heads[1]).len(), 100);
        assert_eq!(watches.retain(heads[0], |_| false), Head::EMPTY);
        let mut again = Head::EMPTY;
        for epoll in 0..900 {
            again = watches.set(again, watch(epoll, 9)).unwrap();
        }
        assert_eq!(watches.used, used, "what was freed is used again");
        assert_eq!(listed(&mut watches, heads[2]).len(), 500);
    }

    #[test]
    fn a_number_has_one_entry_for_an_instance() {
        let mut watches = Watches::new();
        let head = watches.set(Head::EMPTY, watch(4, 1)).unwrap();
        let head = watches.set(head, watch(5, 2)).unwrap();
        let head = watches.set(head, watch(4, 3)).unwrap();
        assert_eq!(listed(&mut watches, head), [watch(5, 2), watch(4, 3)]);
        let other = Watch { number: 8, ..watch(4, 9) };
        let head = watches.set(head, other).unwrap();
        assert_eq!(listed(&mut watches, head), [other, watch(5, 2), watch(4, 3)]);
        assert!(watches.any(head, |watch| watch.number == 8) && !watches.any(head, |watch| watch.epoll == 9));
    }
}
