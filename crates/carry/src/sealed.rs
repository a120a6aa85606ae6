//! A program's socket and a TLS connection to another agent, whose records are sealed
//! and opened on the way.
//!
//! Between agents, `close_notify` of TLS is an end, and the network's end without it is
//! a failure. A reset between agents would overtake data.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use tokio::sync::oneshot;

use crate::program::{Program, Said};
use crate::socket::{Received, Socket};
use crate::tls::Tls;
use crate::tools::Tools;
use crate::traffic::Traffic;
use crate::turn::{TURN_BYTES, Turn};

/// How long the rest of a broken connection may take: until the program has read the
/// remaining data, or the other side has ended it, too.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

const PROGRAM: u32 = 0;
const NETWORK: u32 = 1;

/// The state of the direction from the program to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outgoing {
    /// The program may write.
    Open,
    /// The program has ended its direction, or is gone. What it wrote before is being sent.
    Ending,
    /// All has been sent, with an end of TLS or without.
    Ended,
}

/// The state of the direction from the network to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Incoming {
    /// The other side may write.
    Open,
    /// The other side has ended its direction. What it wrote before is being passed on.
    Ending,
    /// All data has been passed on, and then the end.
    Ended,
    /// The connection was cut off, and all data before that is passed on.
    CutOff,
}

/// A program's socket and a TLS connection to another agent, whose bytes go to each other.
#[derive(Debug)]
pub(crate) struct Pair {
    program: Program,
    network: Tls,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Whether nothing more can be written to the network.
    network_lost: bool,
    /// Plaintext that the program didn't take, from `start` on.
    held: Vec<u8>,
    start: usize,
    /// When a broken connection is closed at the latest; `None` while it isn't broken.
    deadline: Option<Instant>,
    traffic: Arc<dyn Traffic>,
    /// Dropped with the pair, which tells that the connection has ended.
    _ended: oneshot::Sender<()>,
}

impl Pair {
    /// Begins with `plain` and what `network` has read already: both go to the program first.
    pub(crate) fn new(
        program: Socket,
        network: Tls,
        plain: Vec<u8>,
        traffic: Arc<dyn Traffic>,
        ended: oneshot::Sender<()>,
    ) -> Self {
        let mut pair = Self {
            program: Program::new(program),
            network,
            outgoing: Outgoing::Open,
            incoming: Incoming::Open,
            network_lost: false,
            held: plain,
            start: 0,
            deadline: None,
            traffic,
            _ended: ended,
        };
        let mut opened = Vec::new();
        let received = pair.network.open_rest(|plain| opened.extend_from_slice(plain));
        pair.held.append(&mut opened);
        pair.came(&received);
        pair
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = (u32, &Socket)> {
        [(PROGRAM, &self.program.socket), (NETWORK, &self.network.socket)].into_iter()
    }

    pub(crate) fn on_event(&mut self, socket: u32, events: EpollFlags) {
        match socket {
            PROGRAM => self.program.socket.on_event(events),
            _ => self.network.socket.on_event(events),
        }
    }

    /// When the pair wants a turn without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Gives both directions a turn.
    pub(crate) fn turn(&mut self, tools: &mut Tools, now: Instant, carried: &mut u64) -> Turn {
        self.network.borrow(&mut tools.sealed);
        // Incoming first: TLS may make an answer, which outgoing then sends.
        let mut unfinished = self.turn_incoming(tools, carried);
        unfinished |= self.turn_outgoing(tools, carried);
        self.network.give_back(&mut tools.sealed);
        let incoming = matches!(self.incoming, Incoming::Ended | Incoming::CutOff) && self.held.is_empty();
        if incoming && (self.outgoing == Outgoing::Ended || self.network_lost) {
            self.close(true);
            return Turn::Ended;
        }
        if self.program.is_lost() || self.network_lost {
            let deadline = *self.deadline.get_or_insert(now + DRAIN_TIMEOUT);
            if now >= deadline {
                self.close(false);
                return Turn::Ended;
            }
        }
        if unfinished { Turn::Unfinished } else { Turn::Waits }
    }

    /// Moves bytes from the network to the program; returns whether there is more to do.
    fn turn_incoming(&mut self, tools: &mut Tools, carried: &mut u64) -> bool {
        let mut left = TURN_BYTES;
        loop {
            if !self.flush_program(carried) {
                return false;
            }
            match self.incoming {
                Incoming::Open if left == 0 => return true,
                Incoming::Open => {}
                Incoming::Ending => {
                    self.program.finish();
                    self.incoming = Incoming::Ended;
                    return false;
                }
                Incoming::Ended | Incoming::CutOff => return false,
            }
            let Tools { buffer, opened, .. } = tools;
            opened.clear();
            let received = self.network.receive(buffer, |plain| opened.extend_from_slice(plain));
            let taken = self.pass(opened, carried);
            self.held.extend_from_slice(&opened[taken..]);
            self.came(&received);
            match received {
                Ok(Received::Bytes(count)) => left = left.saturating_sub(count),
                Ok(Received::Nothing) => return false,
                Ok(Received::End) | Err(_) => {}
            }
        }
    }

    /// Notes what a read from the network gave.
    fn came(&mut self, received: &std::io::Result<Received>) {
        match received {
            Ok(Received::End) => self.incoming = Incoming::Ending,
            Ok(_) => {}
            Err(error) => {
                self.incoming = Incoming::CutOff;
                self.lose_network(error);
            }
        }
    }

    fn lose_network(&mut self, error: &std::io::Error) {
        tracing::debug!(%error, "an encrypted connection broke");
        self.network_lost = true;
    }

    /// Writes plaintext to the program; returns how many bytes it took.
    fn pass(&mut self, plain: &[u8], carried: &mut u64) -> usize {
        if plain.is_empty() || !self.held.is_empty() {
            return 0;
        }
        let lost = self.program.is_lost();
        let taken = self.program.send(&[IoSlice::new(plain)]);
        if !lost && !self.program.is_lost() {
            self.traffic.received(taken as u64);
            *carried += taken as u64;
        }
        taken
    }

    /// Writes the held plaintext to the program; returns whether none is left.
    fn flush_program(&mut self, carried: &mut u64) -> bool {
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.start += self.pass(&held[self.start..], carried);
            if self.start < held.len() {
                self.held = held;
                return false;
            }
            self.start = 0;
        }
        true
    }

    /// Moves bytes from the program to the network; returns whether there is more to do.
    fn turn_outgoing(&mut self, tools: &mut Tools, carried: &mut u64) -> bool {
        let mut left = TURN_BYTES;
        loop {
            if self.network_lost {
                return self.discard(tools);
            }
            match self.network.flush() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    self.lose_network(&error);
                    continue;
                }
            }
            match self.outgoing {
                Outgoing::Open if left == 0 => return true,
                Outgoing::Open => {}
                Outgoing::Ending => {
                    self.outgoing = Outgoing::Ended;
                    if let Err(error) = self.network.socket.finish() {
                        self.lose_network(&error);
                    }
                    continue;
                }
                Outgoing::Ended => return false,
            }
            match self.program.receive(&mut tools.buffer) {
                Said::Nothing => return false,
                Said::Bytes(count) => {
                    left = left.saturating_sub(count);
                    self.traffic.sent(count as u64);
                    *carried += count as u64;
                    if let Err(error) = self.network.seal(&tools.buffer[..count]) {
                        self.lose_network(&error);
                    }
                }
                Said::End => {
                    self.network.seal_end();
                    self.outgoing = Outgoing::Ending;
                }
                Said::Failed => self.outgoing = Outgoing::Ending,
            }
        }
    }

    /// Discards the program's writes after the network broke, while the program reads
    /// the remaining data. A program that writes before it reads would block otherwise.
    fn discard(&mut self, tools: &mut Tools) -> bool {
        for _ in 0..TURN_BYTES / tools.buffer.len() {
            match self.program.receive(&mut tools.buffer) {
                Said::Bytes(_) => {}
                Said::Nothing => return false,
                Said::End | Said::Failed => {
                    self.outgoing = Outgoing::Ended;
                    return false;
                }
            }
        }
        true
    }

    /// Decides how both sockets are closed. `settled` says that nothing was left to do.
    fn close(&self, settled: bool) {
        // After an end in order a plain close suffices: the kernel answers later data with a reset.
        if self.network_lost && self.incoming != Incoming::Ended || !settled {
            self.program.socket.reset();
        }
        if !settled {
            self.network.socket.reset();
        }
    }

    /// Has both sockets be reset when the pair is dropped.
    pub(crate) fn reset(&self) {
        self.program.socket.reset();
        self.network.socket.reset();
    }
}
