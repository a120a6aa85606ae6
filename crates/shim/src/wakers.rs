//! The descriptors with which the helper waits and is woken.

use std::ffi::c_int;

use crate::kept::Kept;
use crate::numbers::NO_CONNECT;
use crate::sys::{self, Fd, OwnedFd, Result};

/// The descriptors with which the helper waits and is woken.
pub(crate) struct Wakers {
    /// The epoll instance of the helper. It has the exchanges that wait for a reply, by the ids of
    /// their connects, and `helpers` as [`NO_CONNECT`].
    epoll: Kept,
    /// One of a pair of sockets, with `helpers`. What is sent on it wakes the helper.
    ours: Kept,
    helpers: Kept,
    /// A copy of `helpers`. It lends its number for a moment where the program has used all others.
    spare: Kept,
}

impl Wakers {
    pub(crate) fn new() -> Result<Self> {
        let (ours, helpers) = sys::socket_pair(libc::SOCK_DGRAM)?;
        let keep = |fd: OwnedFd| Kept::new(fd.raised());
        let spare = keep(OwnedFd::copy_of(helpers.raw())?)?;
        let new =
            Self { epoll: keep(sys::epoll_create()?)?, ours: keep(ours)?, helpers: keep(helpers)?, spare };
        let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: NO_CONNECT };
        sys::epoll_ctl(new.epoll.raw(), libc::EPOLL_CTL_ADD, new.helpers.raw(), event)?;
        Ok(new)
    }

    /// The epoll instance on which the helper waits.
    pub(crate) fn epoll(&self) -> Fd {
        self.epoll.raw()
    }

    /// Has the helper wait for the reply to a connect's request, once.
    ///
    /// # Errors
    /// If the kernel has no room for that.
    pub(crate) fn await_reply(&self, id: u64, exchange: Fd) -> Result<()> {
        let event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32, u64: id };
        let again = sys::epoll_ctl(self.epoll.raw(), libc::EPOLL_CTL_MOD, exchange, event);
        again.or_else(|_| sys::epoll_ctl(self.epoll.raw(), libc::EPOLL_CTL_ADD, exchange, event)).map(drop)
    }

    /// Has the helper look at the list again.
    pub(crate) fn wake(&self) {
        if self.ours.intact() {
            // A full pair is as good: the helper has not looked yet.
            let _ = sys::send(self.ours.raw(), &[1]);
        }
    }

    /// Forgets that the helper was woken: the helper looks at the list now.
    pub(crate) fn drain(&self) {
        if self.are_intact() {
            let mut buffer = [0; 64];
            while sys::read(self.helpers.raw(), &mut buffer).is_ok() {}
        }
    }

    /// Has the spare number stand for the file of `fd` until [`take_back`](Self::take_back).
    pub(crate) fn lend(&self, fd: Fd) -> Option<Fd> {
        self.spare.intact().then(|| self.set_spare(fd).ok()).flatten()
    }

    /// Has the spare number stand for the helper's socket again.
    pub(crate) fn take_back(&self) {
        let _ = self.set_spare(self.helpers.raw());
    }

    fn set_spare(&self, fd: Fd) -> Result<c_int> {
        sys::replace(fd, self.spare.raw(), libc::O_CLOEXEC)
    }

    /// Calls `action` on each of the descriptors.
    pub(crate) fn each_kept(&mut self, action: &mut dyn FnMut(&mut Kept)) {
        [&mut self.epoll, &mut self.ours, &mut self.helpers, &mut self.spare].into_iter().for_each(action);
    }

    /// Whether all descriptors are open: the program may have closed some.
    pub(crate) fn are_intact(&self) -> bool {
        [&self.epoll, &self.ours, &self.helpers, &self.spare].into_iter().all(Kept::intact)
    }
}
