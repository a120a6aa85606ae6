//! Two sockets whose bytes go to each other. The end of one direction is passed on as
//! an end; if one socket breaks, the other is reset.

mod flow;
mod gather;
mod pipe;
mod share;

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use isthmus_wire::upgrade;
use nix::sys::epoll::EpollFlags;

pub(crate) use pipe::{Pipe, PipePool};
pub use share::Share;

use crate::socket::Socket;
use crate::tools::Tools;
use crate::turn::Turn;
use flow::{Broken, Flow};
use share::Member;

/// Two sockets, the ends of the pair. Flow `i` goes from end `i` to the other.
#[derive(Debug)]
pub(crate) struct Pair {
    ends: [Socket; 2],
    flows: [Flow; 2],
    /// `None` for a pair that shares nothing.
    member: Option<Member>,
}

impl Pair {
    pub(crate) fn new(ends: [Socket; 2], share: Option<&Arc<Share>>) -> Self {
        let mut member = share.map(Member::join);
        if let Some(member) = &mut member {
            member.carried(0, &ends);
        }
        Self { ends, flows: [Flow::new(), Flow::new()], member }
    }

    /// Whether the next program may get the pair. It knows of no shares.
    pub(crate) fn may_be_released(&self) -> bool {
        self.member.is_none()
    }

    /// Takes over a pair that another program had.
    pub(crate) fn adopt(pair: upgrade::Pair<OwnedFd>) -> io::Result<Self> {
        let ends = pair.ends.map(|upgrade::PairSocket { descriptor, urgent, failed }| {
            Socket::adopt(TcpStream::from(descriptor), urgent, failed)
        });
        let [there, back] = pair.flows;
        Ok(Self { ends, flows: [Flow::adopt(there)?, Flow::adopt(back)?], member: None })
    }

    /// The pair as the next program gets it.
    pub(crate) fn describe(&self) -> upgrade::Pair {
        let [one, other] = &self.ends;
        let [there, back] = &self.flows;
        upgrade::Pair { ends: [one.describe(), other.describe()], flows: [there.describe(), back.describe()] }
    }

    /// The descriptors of the pair, which the next program gets.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ends.iter().map(Socket::as_fd).chain(self.flows.iter().flat_map(Flow::descriptors))
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = (u32, &Socket)> {
        (0..).zip(&self.ends)
    }

    pub(crate) fn on_event(&mut self, end: u32, events: EpollFlags) {
        if let Some(socket) = self.ends.get_mut(end as usize) {
            socket.on_event(events);
        }
    }

    /// When the pair wants a turn without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.flows.iter().filter_map(Flow::deadline).min()
    }

    /// Gathers no more: another program gets the sockets.
    pub(crate) fn stop_gathering(&mut self) {
        for (flow, source) in self.flows.iter_mut().zip(&self.ends) {
            flow.stop_gathering(source);
        }
    }

    /// Gives both directions a turn; adds the bytes that reached a socket to `carried`.
    pub(crate) fn turn(&mut self, tools: &mut Tools, carried: &mut u64, now: Instant) -> Turn {
        let before = *carried;
        let turn = self.both(tools, carried, now);
        if let Some(member) = &mut self.member {
            member.carried(*carried - before, &self.ends);
        }
        turn
    }

    fn both(&mut self, tools: &mut Tools, carried: &mut u64, now: Instant) -> Turn {
        let mut unfinished = false;
        for from in 0..2 {
            match self.flow(from, tools, carried, now) {
                Ok(turn) => unfinished |= turn == Turn::Unfinished,
                Err(Broken::Source(error)) => return self.broken(&error),
                Err(Broken::Sink(error)) => {
                    // Bytes that the broken end sent before are still carried.
                    let _ = self.flow(1 - from, tools, carried, now);
                    return self.broken(&error);
                }
            }
        }
        let [one, other] = &self.flows;
        let reset_after_end = |from: usize| self.flows[from].ended() && self.ends[from].has_failed();
        if one.ended() && other.ended() {
            Turn::Ended
        } else if (0..2).any(reset_after_end) {
            self.reset();
            Turn::Ended
        } else if unfinished {
            Turn::Unfinished
        } else {
            Turn::Waits
        }
    }

    fn flow(
        &mut self,
        from: usize,
        tools: &mut Tools,
        carried: &mut u64,
        now: Instant,
    ) -> Result<Turn, Broken> {
        let [one, other] = &mut self.ends;
        let (source, sink) = if from == 0 { (one, other) } else { (other, one) };
        let (turn, read) = self.flows[from].turn(source, sink, tools, carried, now)?;
        if read {
            // It may be an answer to what came the other way.
            self.flows[1 - from].stop_gathering(sink);
        }
        Ok(turn)
    }

    fn broken(&self, error: &std::io::Error) -> Turn {
        tracing::debug!(%error, "a spliced connection broke");
        self.reset();
        Turn::Ended
    }

    pub(crate) fn reset(&self) {
        self.ends.iter().for_each(Socket::reset);
    }
}
