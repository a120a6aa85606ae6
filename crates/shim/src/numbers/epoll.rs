//! Sockets in epoll instances: noted, taken out before an exchange and put back after it.
//!
//! A registration belongs to an open file and has the number under which it was made (epoll(7),
//! question 6). The registration outlives that number if another number stands for the file.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptors;
use crate::kept::Kept;
use crate::sys::{self, Fd, OwnedFd};
use crate::watches::{Head, Watch};

use super::{Numbers, lacks_watches, ring, slot};

/// Whether the process has made an epoll instance.
static HAS_EPOLL: AtomicBool = AtomicBool::new(false);

/// Notes that the program makes an epoll instance.
pub(crate) fn note_epoll() {
    HAS_EPOLL.store(true, Ordering::Relaxed);
}

impl Numbers {
    /// Notes an epoll_ctl(2) that has succeeded.
    pub(crate) fn watched(&mut self, epoll: Fd, operation: i32, fd: Fd, event: Option<libc::epoll_event>) {
        let Some(slot) = slot(fd).filter(|slot| slot.is_socket()) else { return };
        let is_this = |watch: Watch| (watch.epoll, watch.number) == (epoll, fd);
        let is_noted = self.watches.any(slot.watches(), is_this);
        if is_noted == (operation == libc::EPOLL_CTL_ADD) {
            // The instance has another number, too, or the number stood for another
            // instance: what is noted may be wrong.
            slot.set_watches(self.watches.retain(slot.watches(), |_| false));
            lacks_watches(fd);
            return;
        }
        let Some(libc::epoll_event { events, u64: data }) =
            event.filter(|_| operation != libc::EPOLL_CTL_DEL)
        else {
            slot.set_watches(self.watches.retain(slot.watches(), |watch| !is_this(watch)));
            return;
        };
        // Whether the registration has fired is for the kernel to say. While a connect is under way
        // there is nothing to fire for.
        let may_have_fired = events & libc::EPOLLONESHOT as u32 != 0 && slot.state() == super::State::Idle;
        match self.watches.set(slot.watches(), Watch { epoll, number: fd, events, data }) {
            Ok(head) if !may_have_fired => slot.set_watches(head),
            Ok(head) => {
                slot.set_watches(self.watches.retain(head, |watch| !is_this(watch)));
                lacks_watches(fd);
            }
            Err(_) => lacks_watches(fd),
        }
    }

    /// Takes a socket out of all epoll instances. [`watch_again`](Self::watch_again) puts back what
    /// its numbers stand for then. The registrations of the old socket would stay behind, out of
    /// reach, as long as any copy of it is open.
    pub(crate) fn unwatch(&mut self, fd: Fd) {
        // The program may have registered a socket past the hooks, such as by io_uring.
        let has_some = ring(fd).filter_map(slot).any(|slot| slot.watches() != Head::EMPTY);
        let mut is_whole = has_some || !HAS_EPOLL.load(Ordering::Relaxed);
        for slot in ring(fd).filter_map(slot) {
            is_whole &= !slot.lacks_watches.swap(false, Ordering::Relaxed);
            let left = self.watches.retain(slot.watches(), |watch| {
                let taken = remove(fd, watch);
                is_whole &= taken;
                taken
            });
            slot.set_watches(left);
        }
        if !is_whole {
            self.unwatch_unknown(fd);
        }
    }

    /// Takes a socket out of the epoll instances with registrations that aren't known, and notes
    /// them.
    fn unwatch_unknown(&mut self, fd: Fd) {
        let Ok(identity) = sys::identity(fd) else { return };
        descriptors::each_watch(identity, |watch| {
            let number = ring(fd).find(|known| *known == watch.number).unwrap_or(fd);
            if let Some(slot) = slot(number)
                && let Ok(head) = self.watches.set(slot.watches(), watch)
            {
                slot.set_watches(head);
                remove(fd, watch);
            }
        });
    }

    /// Puts what stands under a socket's numbers into the epoll instances out of which
    /// [`unwatch`](Self::unwatch) took the old socket.
    pub(crate) fn watch_again(&mut self, fd: Fd) {
        for slot in ring(fd).filter_map(slot) {
            self.watches.each(slot.watches(), |Watch { epoll, number, events, data }| {
                let event = libc::epoll_event { events, u64: data };
                let add = |number| sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, number, event);
                let _ = match lent(fd, number) {
                    Lent::Open => add(number),
                    Lent::Free(number) => add(number.raw()),
                    Lent::Taken => OwnedFd::copy_of(fd).and_then(|other| add(other.raw())),
                };
            });
        }
    }
}

/// Takes a socket out of an epoll instance. Returns whether it was registered there, or can't be
/// taken out before its last number is closed.
fn remove(fd: Fd, Watch { epoll, number, .. }: Watch) -> bool {
    let nothing = libc::epoll_event { events: 0, u64: 0 };
    let delete = |number| sys::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, number, nothing).is_ok();
    match lent(fd, number) {
        Lent::Open => delete(number),
        Lent::Free(number) => delete(number.raw()),
        // The registration goes with the last number of the old socket.
        Lent::Taken => true,
    }
}

/// What the number of a registration stands for.
enum Lent {
    /// The number stands for the socket.
    Open,
    /// The program has closed the number. It stands for the socket as long as this descriptor is
    /// kept.
    Free(Kept),
    /// The program has closed the number, and it stands for something else.
    Taken,
}

/// Has a number stand for the socket `fd`, unless it stands for something else.
fn lent(fd: Fd, number: Fd) -> Lent {
    if ring(fd).any(|known| known == number) {
        return Lent::Open;
    }
    let copy = sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, i64::from(number)).map(OwnedFd::from_raw);
    match copy.and_then(Kept::new) {
        Ok(copy) if copy.raw() == number => Lent::Free(copy),
        Ok(_) | Err(_) => Lent::Taken,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{copy, tcp};
    use super::*;

    const IN: u32 = libc::EPOLLIN as u32;

    fn control(numbers: &mut Numbers, epoll: &OwnedFd, operation: i32, fd: Fd, data: u64) {
        let event = libc::epoll_event { events: IN, u64: data };
        sys::epoll_ctl(epoll.raw(), operation, fd, event).unwrap();
        numbers.watched(epoll.raw(), operation, fd, Some(event));
    }

    /// The registrations of a socket that an epoll instance has: numbers and data.
    fn listed(epoll: &OwnedFd, socket: &OwnedFd) -> Vec<(Fd, u64)> {
        let mut all = Vec::new();
        descriptors::each_watch(sys::identity(socket.raw()).unwrap(), |watch| {
            if watch.epoll == epoll.raw() {
                all.push((watch.number, watch.data));
            }
        });
        all.sort_unstable();
        all
    }

    #[test]
    fn a_socket_is_taken_out_of_instances_and_put_back() {
        let mut numbers = Numbers::new();
        let one = tcp(&mut numbers);
        let two = copy(&mut numbers, &one);
        let epolls: Vec<_> = (0..100).map(|_| sys::epoll_create().unwrap()).collect();
        let at = |index: usize| if index.is_multiple_of(2) { one.raw() } else { two.raw() };
        for (index, epoll) in epolls.iter().enumerate() {
            // Every third is told past the hooks.
            if index % 3 == 0 {
                let event = libc::epoll_event { events: IN, u64: 7 };
                sys::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, at(index), event).unwrap();
            } else {
                control(&mut numbers, epoll, libc::EPOLL_CTL_ADD, at(index), 7);
            }
        }
        numbers.watched(-1, libc::EPOLL_CTL_ADD, two.raw(), Some(libc::epoll_event { events: 1, u64: 0 }));
        numbers.unwatch(one.raw());
        assert!(epolls.iter().all(|epoll| listed(epoll, &one).is_empty()));
        numbers.watch_again(one.raw());
        for (index, epoll) in epolls.iter().enumerate() {
            assert_eq!(listed(epoll, &one), [(at(index), 7)], "{index}");
        }
        numbers.forget(one.raw());
    }

    #[test]
    fn a_registration_outlives_its_number() {
        for is_free in [true, false] {
            let mut numbers = Numbers::new();
            let (one, epoll) = (tcp(&mut numbers), sys::epoll_create().unwrap());
            // So far that other tests don't take it.
            let number = sys::fcntl(one.raw(), libc::F_DUPFD_CLOEXEC, 820).unwrap();
            let two = OwnedFd::from_raw(number);
            numbers.join(one.raw(), number);
            control(&mut numbers, &epoll, libc::EPOLL_CTL_ADD, number, 9);
            numbers.leave(number);
            drop(two);
            let other = sys::open(c"/dev/null").unwrap();
            let taken = (!is_free).then(|| {
                sys::dup3(other.raw(), number, libc::O_CLOEXEC).unwrap();
                OwnedFd::from_raw(number)
            });
            let new = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
            numbers.unwatch(one.raw());
            sys::dup3(new.raw(), one.raw(), libc::O_CLOEXEC).unwrap();
            numbers.watch_again(one.raw());
            let found = listed(&epoll, &one);
            let [(under, 9)] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(*under == number, is_free);
            drop(taken);
            numbers.forget(one.raw());
        }
    }

    #[test]
    fn an_instance_may_have_two_numbers_and_a_number_two_instances() {
        let mut numbers = Numbers::new();
        let one = tcp(&mut numbers);
        let (epoll, other) = (sys::epoll_create().unwrap(), sys::epoll_create().unwrap());
        let again = OwnedFd::copy_of(epoll.raw()).unwrap();
        control(&mut numbers, &epoll, libc::EPOLL_CTL_ADD, one.raw(), 1);
        control(&mut numbers, &again, libc::EPOLL_CTL_MOD, one.raw(), 2);
        // The first number stands for another instance now.
        sys::dup3(other.raw(), epoll.raw(), libc::O_CLOEXEC).unwrap();
        control(&mut numbers, &epoll, libc::EPOLL_CTL_ADD, one.raw(), 3);
        let new = sys::socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        numbers.unwatch(one.raw());
        sys::dup3(new.raw(), one.raw(), libc::O_CLOEXEC).unwrap();
        numbers.watch_again(one.raw());
        assert_eq!(listed(&again, &one), [(one.raw(), 2)]);
        assert_eq!(listed(&other, &one), [(one.raw(), 3)]);
        numbers.forget(one.raw());
    }
}
