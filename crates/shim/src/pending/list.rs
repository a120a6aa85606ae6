//! What is done to the list of connects under way, with its lock held.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::time::Duration;

use isthmus_wire::shim::Reply;

use crate::abandoned;
use crate::agent::{self, Asked, Exchange};
use crate::kept::Kept;
use crate::limit;
use crate::numbers::{self, Left, NO_CONNECT, State};
use crate::standing;
use crate::sys::{Errno, Fd, OwnedFd, Result};

use super::old::Old;
use super::{Ask, List, Pending, wait_for};

/// A number that stands for nothing.
const NO_NUMBER: Fd = -1;

impl List {
    /// Has the helper look at the list again.
    pub(crate) fn wake(&self) {
        if let Some(wakers) = &self.wakers {
            wakers.wake();
        }
    }

    /// Whether one more request may be sent, which takes a descriptor.
    pub(crate) fn has_room(&self) -> bool {
        (self.items.len().saturating_sub(self.later.len()) as u64) < limit::share()
    }

    /// Closes old sockets, and moves the descriptors of requests beyond the limit that the program
    /// has reached. Returns whether there is room now. The limit is raised only if there is something
    /// to move: meanwhile it is so for every thread, and for programs that they start.
    pub(crate) fn give_way(&mut self) -> bool {
        let Some(first) = limit::of_program().and_then(|limit| Fd::try_from(limit).ok()) else {
            return false;
        };
        let mut has_moved = !self.old.is_empty();
        self.old.clear();
        let Self { items, numbers, .. } = self;
        let (mut is_in_way, mut count) = (false, 0);
        each_request(items, &mut |kept| {
            is_in_way |= kept.raw() < first && kept.intact();
            count += 1;
        });
        if is_in_way {
            limit::beyond_by(count, || {
                each_request(items, &mut |kept| {
                    if kept.move_beyond(first) {
                        numbers.own(kept.raw());
                        has_moved = true;
                    }
                });
            });
        }
        has_moved
    }

    /// Notes the socket of a number, under all its numbers.
    ///
    /// # Errors
    /// If the number isn't open.
    pub(crate) fn find(&mut self, fd: Fd) -> Result<()> {
        if numbers::is_stale(fd) {
            self.left(fd);
        }
        self.numbers.find(fd)
    }

    /// Ends the connects of sockets for which threads waited that this process doesn't have.
    pub(super) fn end_lost(&mut self) {
        for (fd, _) in numbers::known(0, c_uint::MAX) {
            if self.is_awaited(fd) {
                self.numbers.end(fd);
            }
        }
    }

    /// Whether a thread waits in connect for this socket.
    pub(crate) fn is_awaited(&self, fd: Fd) -> bool {
        let id = numbers::connect_of(fd);
        id != NO_CONNECT && !self.items.contains_key(&id)
    }

    pub(crate) fn add(&mut self, pending: Pending) -> Result<()> {
        let (number, deadline) = (pending.number, pending.deadline);
        self.last_id += 1;
        let id = self.last_id;
        if let Ask::Later(_) = pending.ask {
            self.later.push_back(id);
        }
        self.items.insert(id, pending);
        if let Err(errno) = self.await_reply(id) {
            self.items.remove(&id);
            return Err(errno);
        }
        self.numbers.begin(number, id);
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        Ok(())
    }

    /// Has the helper wait for the reply to a request. Does nothing if the request isn't sent.
    ///
    /// # Errors
    /// If the kernel has no room for that, or the program has closed the request.
    pub(crate) fn await_reply(&mut self, id: u64) -> Result<()> {
        let (Some(pending), Some(wakers)) = (self.items.get_mut(&id), &self.wakers) else { return Ok(()) };
        let (Ask::Sent(exchange) | Ask::Parent(exchange, _)) = &mut pending.ask else { return Ok(()) };
        // The program may have closed the descriptor.
        if !exchange.kept_mut().intact() {
            return Err(Errno(libc::ENETDOWN));
        }
        self.numbers.own(exchange.raw());
        wakers.await_reply(id, exchange.raw())
    }

    /// Reads the reply to the request of a connect; `None` if it isn't there yet. From then on the
    /// list has the socket that came with it. The program may close all numbers that aren't known
    /// as the shim's (`close_range`).
    pub(crate) fn collect(&mut self, id: u64) -> Option<Result<Reply>> {
        let pending = self.items.get_mut(&id)?;
        let ask = std::mem::replace(&mut pending.ask, Ask::Answered(None));
        let reply = match &ask {
            Ask::Sent(exchange) | Ask::Parent(exchange, _) => exchange.collect(),
            Ask::Later(_) | Ask::Answered(_) => Err(Errno(libc::EAGAIN)),
        };
        pending.ask = match (reply, ask) {
            (Ok((reply, socket)), ask) => {
                drop(ask);
                let (reply, socket) = match agent::connected(reply, socket) {
                    Ok(connected) => connected,
                    Err(errno) => return Some(Err(errno)),
                };
                self.hold(id, socket);
                return Some(Ok(reply));
            }
            (Err(Errno(libc::EAGAIN | libc::EINTR)), ask) => ask,
            // The parent has ended, or closed its socket.
            (Err(errno), Ask::Parent(_, own)) => match *own {
                // The connection had come to the parent.
                Ask::Answered(_) => return Some(Err(errno)),
                own @ Ask::Later(_) => {
                    self.later.push_back(id);
                    own
                }
                own => own,
            },
            (Err(errno), _) => return Some(Err(errno)),
        };
        self.await_reply(id).err().map(Err)
    }

    /// Keeps the request of the wait `id` open, until the thread takes it.
    pub(super) fn wait_for(&mut self, id: u64, fd: Fd, exchange: Exchange) -> Asked {
        let exchange = exchange.raised();
        self.numbers.own(exchange.raw());
        let asked = exchange.into_asked();
        abandoned::note(id, asked, fd);
        asked
    }

    /// Has the list hold the socket that a connect is to get.
    pub(crate) fn hold(&mut self, id: u64, socket: OwnedFd) {
        let Some(pending) = self.items.get_mut(&id) else { return };
        if let Ok(socket) = Kept::new(socket.raised()) {
            self.numbers.own(socket.raw());
            pending.ask = Ask::Answered(Some(socket));
        }
    }

    /// Whether the connect of the socket that a connect is to get was refused. poll reports the
    /// error and leaves it there.
    pub(crate) fn is_refused(&self, id: u64) -> bool {
        let Some(Ask::Answered(Some(socket))) = self.items.get(&id).map(|pending| &pending.ask) else {
            return true;
        };
        wait_for(socket.raw(), Duration::ZERO).is_ok()
    }

    /// Keeps the connection to the agent that stays; with `None`, closes the one that was kept.
    pub(crate) fn stand(&mut self, kept: Option<Kept>) {
        if let Some(kept) = &kept {
            self.numbers.own(kept.raw());
        }
        standing::note(kept.as_ref());
        self.standing = kept;
    }

    /// Keeps an old socket for its sleepers, and at most `most` of them.
    pub(crate) fn keep(&mut self, mut old: Old, most: usize) {
        if self.old.len() >= most {
            self.old.pop_front();
        }
        self.numbers.own(old.kept_mut().raw());
        self.old.push_back(old);
    }

    /// Calls `action` on all descriptors of the shim's own. Like all that close may come to, this
    /// allocates nothing and frees nothing.
    fn each_kept(&mut self, action: &mut dyn FnMut(&mut Kept)) {
        if let Some(wakers) = &mut self.wakers {
            wakers.each_kept(action);
        }
        self.standing.iter_mut().for_each(&mut *action);
        self.old.iter_mut().map(Old::kept_mut).for_each(&mut *action);
        each_request(&mut self.items, action);
    }

    /// Whether a number is one of the shim's own.
    pub(crate) fn owns(&mut self, fd: Fd) -> bool {
        let mut found = false;
        if numbers::state(fd) == State::Own {
            self.each_kept(&mut |kept| found |= kept.raw() == fd && kept.intact());
        }
        found
    }

    /// Moves a descriptor of the shim's own away from a number that the program wants to use
    /// (dup2).
    pub(crate) fn make_way(&mut self, fd: Fd) {
        if !self.owns(fd) {
            return;
        }
        let mut moved = None;
        self.each_kept(&mut |kept| {
            if kept.raw() == fd {
                kept.relocate();
                moved = Some(kept.raw());
            }
        });
        if let Some(moved) = moved {
            self.numbers.own(moved);
        }
        standing::note(self.standing.as_ref());
        self.wake();
    }

    /// Notes that a number no longer stands for its socket. With its last number a connect is given
    /// up.
    pub(crate) fn left(&mut self, fd: Fd) {
        if numbers::ring(fd).nth(1).is_none() {
            self.numbers.receive(fd);
        }
        match self.numbers.leave(fd) {
            Some(Left { connect: NO_CONNECT, .. }) | None => {}
            // The socket may be received from its message until it is connected.
            Some(Left { connect, other: None, was_sent: true }) => self.stands(connect, NO_NUMBER),
            Some(Left { connect, other: None, .. }) => self.give_up(connect),
            Some(Left { connect, other: Some(other), .. }) => self.stands(connect, other),
        }
    }

    /// Notes the number by which the socket of a connect is known.
    fn stands(&mut self, connect: u64, number: Fd) {
        if let Some(pending) = self.items.get_mut(&connect) {
            pending.number = number;
        }
    }

    /// Forgets all that is known of the process, which does without the shim from now on.
    pub(crate) fn forget_all(&mut self) {
        self.items.clear();
        self.later.clear();
        self.old.clear();
        self.wake();
        for (fd, _) in numbers::known(0, c_uint::MAX) {
            self.numbers.leave(fd);
        }
        self.stand(None);
    }

    /// Has the helper drop a connect.
    pub(super) fn give_up(&mut self, id: u64) {
        if let Some(pending) = self.items.get_mut(&id) {
            pending.given_up = true;
            self.has_given_up = true;
            self.wake();
        }
    }
}

/// Calls `action` on the descriptors of all requests, and of the ways to forked processes that wait
/// for the same connections.
fn each_request(items: &mut BTreeMap<u64, Pending>, action: &mut dyn FnMut(&mut Kept)) {
    abandoned::each_kept(action);
    for pending in items.values_mut() {
        pending.ask.each_kept(action);
        pending.child_channels.iter_mut().for_each(&mut *action);
    }
}

impl Ask {
    fn each_kept(&mut self, action: &mut dyn FnMut(&mut Kept)) {
        match self {
            Self::Sent(exchange) => action(exchange.kept_mut()),
            Self::Parent(exchange, own) => {
                action(exchange.kept_mut());
                own.each_kept(action);
            }
            Self::Answered(socket) => socket.iter_mut().for_each(action),
            Self::Later(_) => {}
        }
    }
}
