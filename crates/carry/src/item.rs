//! What a worker carries.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::mailbox::Address;
use crate::socket::{EVENTS, Socket};
use crate::tools::Tools;
use crate::turn::Turn;
use crate::worker::token;
use crate::{splice, trunk};

/// A thing that a worker carries.
#[derive(Debug)]
pub(crate) enum Item {
    /// Two sockets whose bytes go to each other.
    Spliced(Box<splice::Pair>),
    /// Programs' sockets and carriers.
    Trunk(Box<trunk::Ends>),
}

/// What an item may use in a turn.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    pub(crate) tools: &'a mut Tools,
    /// Counts the bytes that are carried: those that programs wrote or got, and those that spliced
    /// sockets got.
    pub(crate) carried: &'a mut u64,
    pub(crate) epoll: &'a Epoll,
    pub(crate) key: usize,
    pub(crate) now: Instant,
}

impl Round<'_> {
    /// Has the worker get a socket's events. `number` tells the item's sockets apart.
    pub(crate) fn watch(&self, number: u32, socket: &Socket) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(EVENTS, token(self.key, number)))?)
    }
}

impl Item {
    pub(crate) fn watch(&self, round: &Round<'_>) -> io::Result<()> {
        let watch = |(number, socket)| round.watch(number, socket);
        match self {
            Self::Spliced(pair) => pair.sockets().try_for_each(watch),
            // A trunk has no sockets at its beginning.
            Self::Trunk(_) => Ok(()),
        }
    }

    /// The address by which other threads name the item; `None` for spliced pairs, which no other
    /// thread names.
    pub(crate) fn address(&self) -> Option<&Arc<Address>> {
        match self {
            Self::Spliced(_) => None,
            Self::Trunk(ends) => Some(ends.address()),
        }
    }

    pub(crate) fn on_event(&mut self, socket: u32, events: EpollFlags) {
        match self {
            Self::Spliced(pair) => pair.on_event(socket, events),
            Self::Trunk(ends) => ends.on_event(socket, events),
        }
    }

    pub(crate) fn turn(&mut self, round: &mut Round<'_>) -> Turn {
        match self {
            Self::Spliced(pair) => pair.turn(round.tools, round.carried, round.now),
            Self::Trunk(ends) => ends.turn(round),
        }
    }

    /// When the item wants a turn without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Spliced(pair) => pair.deadline(),
            Self::Trunk(ends) => ends.deadline(),
        }
    }

    /// Decides how programs' sockets end if the process is replaced. The sockets of an item that
    /// can't be handed over must not look as if their peers had ended in order.
    pub(crate) fn end_by_reset(&mut self, by_reset: bool) {
        match self {
            Self::Spliced(_) => {}
            Self::Trunk(ends) => ends.end_by_reset(by_reset),
        }
    }

    /// Has the item's sockets be reset when the item is dropped.
    pub(crate) fn reset(&mut self, round: &mut Round<'_>) {
        match self {
            Self::Spliced(pair) => pair.reset(),
            Self::Trunk(ends) => ends.reset(round),
        }
    }
}
