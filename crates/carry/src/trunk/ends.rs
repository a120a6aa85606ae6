//! One end of a trunk on its worker.

mod account;
mod waits;
mod wanted;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use isthmus_identity::tls::Parts;
use isthmus_trunk::{
    CarrierId, Config, Direction, Ended, Event, IdMap, Read, Reason, Role, StreamId, Trunk, Wanted,
};
use nix::sys::epoll::EpollFlags;
use tokio::sync::{mpsc, oneshot};

use self::account::Accounts;
use super::attached::{Attached, FAILED};
use super::carrier::Carrier;
use super::handle::{Attach, CarrierSnapshot, Command, Inbox, Joining, Notice, Snapshot, Waits};
use super::stream::{INTRODUCTION, Note, Stream};
use crate::item::Round;
use crate::socket::Socket;
use crate::turn::Turn;

/// A stream's code of reset: nobody at this end takes the stream.
const UNWANTED: u32 = 3;

/// A stream at this end.
#[derive(Debug)]
struct Entry {
    state: State,
    /// Whether the stream stands in the queue of those that are due.
    queued: bool,
}

#[derive(Debug)]
enum State {
    /// Two agents introduce the stream. What comes goes to the agent at this end, up to a limit.
    Introduced(Introduced),
    /// The stream has a program's socket, of this number.
    Attached(Box<Attached>, u32),
}

/// A stream that two agents introduce to each other.
#[derive(Debug)]
struct Introduced {
    notes: mpsc::UnboundedSender<Note>,
    /// Bytes that the agent at this end was given.
    given: usize,
    /// Whether the agent at this end was told of the direction's end.
    is_over: bool,
}

/// What a socket belongs to.
#[derive(Debug, Clone, Copy)]
enum Whose {
    Carrier(CarrierId),
    Stream(StreamId),
}

/// One end of a trunk, as its worker carries it.
#[derive(Debug)]
pub(crate) struct Ends {
    core: Trunk,
    inbox: Arc<Inbox>,
    notices: mpsc::UnboundedSender<Notice>,
    carriers: Vec<(Carrier, u32)>,
    streams: IdMap<StreamId, Entry>,
    /// Which carriers have carried what; `None` if nobody asks.
    accounts: Option<Accounts>,
    due: VecDeque<StreamId>,
    /// Streams that are to be reset behind what their programs wrote.
    failing: Vec<StreamId>,
    /// What each socket belongs to, by a number that is given only once.
    sockets: IdMap<u32, Whose>,
    next_socket: u32,
    /// Waiting callers, each of whom gets a stream once it may be opened.
    opening: VecDeque<oneshot::Sender<Stream>>,
    /// How many carriers this end keeps; `None` if it dials none.
    wanted: Option<Wanted>,
    /// When this end asks again whether it still needs as many carriers.
    reconsider: Option<Instant>,
    /// What the keeper was last told of what waits to be acknowledged.
    waits: Option<Waits>,
    /// Whether programs' sockets end by a reset if the process ends now.
    by_reset: bool,
    ended: bool,
}

impl Ends {
    pub(crate) fn new(config: Config, inbox: Arc<Inbox>, notices: mpsc::UnboundedSender<Notice>) -> Self {
        let accounts = config.notes_moved.then(Accounts::default);
        Self {
            core: Trunk::new(config),
            wanted: Some(Wanted::LEAST).filter(|_| config.role == Role::Initiator),
            reconsider: None,
            inbox,
            notices,
            carriers: Vec::new(),
            streams: IdMap::default(),
            accounts,
            due: VecDeque::new(),
            failing: Vec::new(),
            sockets: IdMap::default(),
            next_socket: 0,
            opening: VecDeque::new(),
            waits: None,
            by_reset: false,
            ended: false,
        }
    }

    pub(crate) fn address(&self) -> &Arc<crate::mailbox::Address> {
        &self.inbox.address
    }

    pub(crate) fn on_event(&mut self, number: u32, events: EpollFlags) {
        match self.sockets.get(&number) {
            Some(&Whose::Carrier(id)) => {
                if let Some(carrier) = self.carrier(id) {
                    carrier.socket().on_event(events);
                }
            }
            Some(&Whose::Stream(id)) => {
                if let Some(Entry { state: State::Attached(attached, _), .. }) = self.streams.get_mut(&id) {
                    attached.socket().on_event(events);
                }
                self.queue(id);
            }
            None => {}
        }
    }

    /// When this end of the trunk wants a turn without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let closing = self.carriers.iter().filter_map(|(carrier, _)| carrier.deadline());
        closing.chain(self.core.next_deadline()).chain(self.reconsider).chain(self.too_late()).min()
    }

    /// Does what there is to do, up to a limit.
    pub(crate) fn turn(&mut self, round: &mut Round<'_>) -> Turn {
        let now = round.now;
        // It tells the time, too, to what takes none.
        self.core.on_deadline(now);
        for command in self.inbox.take() {
            self.command(command, round);
        }
        let mut unfinished = self.receive(round);
        self.take_events(now);
        unfinished |= self.turn_streams(round);
        self.take_events(now);
        unfinished |= self.transmit(round);
        if self.reset_failing() {
            unfinished |= self.transmit(round);
        }
        for (carrier, _) in &mut self.carriers {
            carrier.measure(&mut self.core, now);
            carrier.pace(now);
        }
        self.keep_wanted(now);
        self.take_events(now);
        if let Some(accounts) = &mut self.accounts {
            accounts.pass(&mut self.core, self.streams.len());
        }
        self.tell_waits(false, now);
        if self.ended && self.carriers.is_empty() {
            return Turn::Ended;
        }
        if unfinished || !self.due.is_empty() { Turn::Unfinished } else { Turn::Waits }
    }

    fn command(&mut self, command: Command, round: &mut Round<'_>) {
        match command {
            Command::Join(carrier, joining, joined_tx) => {
                // The caller may be gone.
                let _ = joined_tx.send(self.join(*carrier, joining, round));
            }
            Command::EndCarrier(id) => self.end_carrier(id, "no longer needed", round.now),
            Command::Leave(id) => self.core.leave(id, round.now),
            Command::Open(opened_tx) => {
                self.opening.push_back(opened_tx);
                self.open();
            }
            Command::OpenNow(opened_tx) => {
                if self.opening.is_empty()
                    && let Ok(id) = self.core.open()
                {
                    let _ = opened_tx.send(self.introduce(id));
                }
            }
            Command::Send(id, message) => {
                if let Some(accounts) = &mut self.accounts {
                    accounts.said(id, message.len());
                }
                // Writing fails if the peer has reset the stream: then the agents learn of that.
                let _ = self.core.write(id, &mut Bytes::from(message));
            }
            Command::Attach(id, attach) => self.attach(id, attach, round),
            Command::Drop(id) => {
                let _ = self.core.finish(id);
                self.refuse(id);
            }
            Command::Reset(id) => self.reset_attached(id),
            Command::Status(status_tx) => {
                let carriers = self.carriers.iter().filter_map(|(carrier, _)| {
                    let status = self.core.carrier(carrier.id)?;
                    Some(CarrierSnapshot {
                        id: carrier.id,
                        status,
                        tcp: carrier.tcp_info(),
                        control: carrier.control(),
                        ends: carrier.ends(),
                    })
                });
                let _ = status_tx.send(Snapshot { trunk: self.core.status(), carriers: carriers.collect() });
            }
            Command::Close(reason) => self.core.close(reason, ""),
        }
    }

    fn join(&mut self, parts: Parts, joining: Joining, round: &Round<'_>) -> Result<CarrierId, String> {
        let joined = self.core.carrier_joined_for(joining.purpose, round.now);
        let id = joined.map_err(|error| error.to_string())?;
        if joining.primes {
            self.core.prime(id);
        }
        let carrier = Carrier::new(parts, id, &mut self.core, round.now);
        let joined = carrier.and_then(|mut carrier| {
            let number = self.watch(carrier.socket(), Whose::Carrier(id), round)?;
            self.carriers.push((carrier, number));
            Ok(id)
        });
        joined.map_err(|error| {
            self.core.carrier_ended(id);
            error.to_string()
        })
    }

    fn watch(&mut self, socket: &Socket, whose: Whose, round: &Round<'_>) -> io::Result<u32> {
        let number = self.next_socket;
        round.watch(number, socket)?;
        self.next_socket = number.wrapping_add(1);
        self.sockets.insert(number, whose);
        Ok(number)
    }

    /// Drops a carrier that has ended, or that the core has given up. Tells the core and the keeper
    /// of its end.
    fn end_carrier(&mut self, id: CarrierId, why: &str, now: Instant) {
        // What is known of the carrier is told first: its end is the last that is heard of it.
        self.take_events(now);
        let Some(place) = self.carriers.iter().position(|(carrier, _)| carrier.id == id) else { return };
        let (_, number) = self.carriers.swap_remove(place);
        self.sockets.remove(&number);
        self.tell_waits(true, now);
        self.core.carrier_ended(id);
        self.tell(Notice::CarrierEnded(id, why.to_owned()));
    }

    fn carrier(&mut self, id: CarrierId) -> Option<&mut Carrier> {
        self.carriers.iter_mut().map(|(carrier, _)| carrier).find(|carrier| carrier.id == id)
    }

    fn tell(&self, notice: Notice) {
        // The keeper may be gone: then the trunk is about to end.
        let _ = self.notices.send(notice);
    }

    /// Opens streams for the callers that wait, as many as the peer allows.
    fn open(&mut self) {
        while let Some(opened_tx) = self.opening.pop_front() {
            if opened_tx.is_closed() {
                continue;
            }
            let Ok(id) = self.core.open() else {
                self.opening.push_front(opened_tx);
                return;
            };
            // If the caller doesn't wait any more, the stream is dropped, which ends it.
            let _ = opened_tx.send(self.introduce(id));
        }
    }

    /// Makes a new stream, which two agents are to introduce.
    fn introduce(&mut self, id: StreamId) -> Stream {
        let (notes_tx, notes_rx) = mpsc::unbounded_channel();
        let state = State::Introduced(Introduced { notes: notes_tx, given: 0, is_over: false });
        self.streams.insert(id, Entry { state, queued: false });
        self.queue(id);
        Stream::new(Arc::clone(&self.inbox), id, notes_rx)
    }

    fn attach(&mut self, id: StreamId, attach: Attach, round: &Round<'_>) {
        let Attach { socket, unread: mut first, mut notes, traffic, alive } = attach;
        let mut early_end = None;
        while let Ok(note) = notes.try_recv() {
            match note {
                Note::Data(data) => first.extend_from_slice(&data),
                Note::End(end) => early_end = Some(end),
            }
        }
        if let (Some(accounts), Some(entry)) = (&mut self.accounts, self.streams.get(&id)) {
            let given = if let State::Introduced(introduced) = &entry.state { introduced.given } else { 0 };
            accounts.attached(id, given.saturating_sub(first.len()), traffic.clone());
        }
        let socket = Socket::new(socket);
        socket.end_by_reset(self.by_reset);
        match self.watch(&socket, Whose::Stream(id), round) {
            Ok(number) => {
                let attached = Box::new(Attached::new(socket, first, early_end, (traffic, alive)));
                self.streams.insert(id, Entry { state: State::Attached(attached, number), queued: false });
                self.queue(id);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot watch the socket of a stream");
                socket.reset();
                let _ = self.core.reset(id, Direction::ToPeer, UNWANTED);
                self.refuse(id);
            }
        }
    }

    fn reset_attached(&mut self, id: StreamId) {
        let Some(Entry { state: State::Attached(attached, number), .. }) = self.streams.get_mut(&id) else {
            return;
        };
        attached.socket().reset();
        let number = *number;
        self.sockets.remove(&number);
        let _ = self.core.reset(id, Direction::ToPeer, UNWANTED);
        self.refuse(id);
    }

    /// Takes no more of a stream, and forgets it.
    fn refuse(&mut self, id: StreamId) {
        let _ = self.core.reset(id, Direction::FromPeer, UNWANTED);
        self.streams.remove(&id);
    }

    fn queue(&mut self, id: StreamId) {
        if let Some(entry) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut entry.queued, true)
        {
            self.due.push_back(id);
        }
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Established { version } => {
                    tracing::debug!(version, "a trunk is established");
                    self.tell(Notice::Established(
                        self.core.peers_incarnation(),
                        self.core.peers_addresses(),
                    ));
                    self.open();
                }
                Event::CanOpen => self.open(),
                Event::Opened(id) => {
                    let stream = self.introduce(id);
                    self.tell(Notice::Opened(stream));
                }
                Event::Readable(id) | Event::Writable(id) | Event::Reset(id, _) | Event::Stopped(id, _) => {
                    self.queue(id);
                }
                Event::CarrierLive(id) if self.carrier(id).is_some() => {
                    self.tell_waits(true, now);
                    self.tell(Notice::Live(id));
                }
                Event::CarrierSilent(id) if self.carrier(id).is_some() => {
                    self.tell_waits(true, now);
                    let unanswered = self.core.carrier(id).and_then(|status| status.unanswered);
                    self.tell(Notice::Silent(id, unanswered.unwrap_or(now)));
                }
                Event::CarrierLarge { carrier, both } => self.tell(Notice::Large(carrier, both)),
                // It could not be watched, or has ended.
                Event::CarrierLive(_) | Event::CarrierSilent(_) => {}
                Event::CarrierDone(id, why) => {
                    tracing::debug!(carrier = id.0, ?why, "a carrier is done");
                    if let Some(carrier) = self.carrier(id) {
                        carrier.close(now);
                    }
                }
                Event::Closed(why) => self.closed(&why),
            }
        }
    }

    fn closed(&mut self, why: &Ended) {
        self.ended = true;
        self.inbox.close();
        self.opening.clear();
        let ids: Vec<_> = self.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.queue(id));
        self.tell(Notice::Closed(text(why)));
    }

    /// Takes frames in from all carriers; returns whether there are more.
    fn receive(&mut self, round: &mut Round<'_>) -> bool {
        let mut unfinished = false;
        let mut broken = Vec::new();
        let mut closed = Vec::new();
        for (carrier, _) in &mut self.carriers {
            match carrier.receive(&mut self.core, round.tools, round.now) {
                Ok(Turn::Ended) => closed.push(carrier.id),
                Ok(turn) => unfinished |= turn == Turn::Unfinished,
                Err(error) => broken.push((carrier.id, error)),
            }
        }
        self.end_closed(closed, round.now);
        self.end_broken(broken, round.now);
        unfinished
    }

    /// Sends frames over all carriers; returns whether there are more.
    fn transmit(&mut self, round: &mut Round<'_>) -> bool {
        let mut unfinished = false;
        let mut broken = Vec::new();
        let mut closed = Vec::new();
        for (carrier, _) in &mut self.carriers {
            match carrier.transmit(&mut self.core, round.tools, round.now) {
                Ok(Turn::Ended) => closed.push(carrier.id),
                Ok(turn) => unfinished |= turn == Turn::Unfinished,
                Err(error) => broken.push((carrier.id, error)),
            }
        }
        self.end_closed(closed, round.now);
        self.end_broken(broken, round.now);
        unfinished
    }

    /// Resets the streams whose programs have failed, if all that they wrote is in frames;
    /// returns whether there was one.
    fn reset_failing(&mut self) -> bool {
        let (ready, waiting): (Vec<_>, _) = self.failing.drain(..).partition(|id| self.core.unsent(*id) == 0);
        self.failing = waiting;
        for id in &ready {
            let _ = self.core.reset(*id, Direction::ToPeer, FAILED);
        }
        !ready.is_empty()
    }

    fn end_closed(&mut self, closed: Vec<CarrierId>, now: Instant) {
        closed.into_iter().for_each(|id| self.end_carrier(id, "closed in order", now));
    }

    fn end_broken(&mut self, broken: Vec<(CarrierId, io::Error)>, now: Instant) {
        for (id, error) in broken {
            tracing::debug!(carrier = id.0, %error, "a carrier broke");
            self.end_carrier(id, &error.to_string(), now);
        }
    }

    /// Gives each stream that is due a turn; returns whether there is more to do.
    fn turn_streams(&mut self, round: &mut Round<'_>) -> bool {
        for _ in 0..self.due.len() {
            let Some(id) = self.due.pop_front() else { break };
            let Some(entry) = self.streams.get_mut(&id) else { continue };
            entry.queued = false;
            let turn = match &mut entry.state {
                State::Introduced(introduced) => introduced.turn(&mut self.core, id, round.now),
                State::Attached(attached, _) => {
                    let failed = attached.has_failed();
                    let turn =
                        attached.turn(&mut self.core, id, &mut round.tools.buffer, round.now, round.carried);
                    if attached.has_failed() && !failed {
                        self.failing.push(id);
                    }
                    turn
                }
            };
            match turn {
                Turn::Waits => {}
                Turn::Unfinished => self.queue(id),
                Turn::Ended => {
                    if let Some(Entry { state: State::Attached(_, number), .. }) = self.streams.remove(&id) {
                        self.sockets.remove(&number);
                    }
                }
            }
        }
        !self.due.is_empty()
    }

    /// Decides how programs' sockets end if the process is replaced.
    pub(crate) fn end_by_reset(&mut self, by_reset: bool) {
        self.by_reset = by_reset;
        for entry in self.streams.values_mut() {
            if let State::Attached(attached, _) = &mut entry.state {
                attached.socket().end_by_reset(by_reset);
            }
        }
    }

    /// Has all sockets be reset when this end is dropped.
    pub(crate) fn reset(&mut self, round: &mut Round<'_>) {
        for entry in self.streams.values_mut() {
            if let State::Attached(attached, _) = &mut entry.state {
                attached.socket().reset();
            }
        }
        self.core.close(Reason::Done, "");
        self.inbox.close();
        // The peer learns of the end, unless the socket is full.
        self.transmit(round);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // A caller that waits for an answer learns that none comes.
        self.inbox.close();
    }
}

impl Introduced {
    /// Gives the agent at this end what has come on the stream.
    fn turn(&mut self, core: &mut Trunk, id: StreamId, now: Instant) -> Turn {
        while self.given < INTRODUCTION && !self.is_over {
            let note = match core.read(id, INTRODUCTION - self.given, now) {
                Ok(Read::Data(data)) => {
                    self.given += data.len();
                    Note::Data(data.to_vec())
                }
                Ok(Read::Blocked) => break,
                end => {
                    self.is_over = true;
                    Note::End(end.unwrap_or(Read::Reset(UNWANTED)))
                }
            };
            // Sending fails if the stream is being attached or dropped: the receiver goes with that
            // command.
            let _ = self.notes.send(note);
        }
        Turn::Waits
    }
}

/// Why a trunk or carrier has ended, for a person. The peer's text is escaped.
fn text(why: &Ended) -> String {
    match why {
        Ended::Here(reason) => reason.to_string(),
        Ended::ByPeer { reason, text } => format!("the other end: {reason} ({})", text.escape_debug()),
        Ended::Broke(error) => error.to_string(),
    }
}
