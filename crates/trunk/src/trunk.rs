//! One end of a trunk.

mod carriers;
mod commands;
mod moved;
mod rails;
mod receive;
mod status;
mod transmit;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::carrier::Carrier;
use crate::credit::{Pool, Rtts};
use crate::need::Need;
use crate::progress::Progress;
use crate::rtt::UNKNOWN;
use crate::schedule::Schedule;
use crate::spare::Spare;
use crate::stream::Stream;
use crate::table::Table;
use crate::{CarrierId, CarrierState, Config, Ended, Event, Hello, PING_BUSY, SILENCE, StreamId};

pub use carriers::JoinError;
pub use commands::Direction;
pub use moved::Moved;
pub use status::{CarrierStatus, Status};

/// Most DATA frames that an end may have under way: sent or to be sent again, and not acknowledged.
/// So the peer has no more holes in the data of all streams.
pub const MAX_UNDER_WAY: usize = 1 << 15;

/// Most counted frames that a carrier may have under way. A peer that acknowledges none gets no
/// more, so this end remembers no more.
const MAX_COUNTED: usize = 2 * MAX_UNDER_WAY;

/// Most acknowledgements for carriers that have ended which wait for another carrier.
const MAX_LAST_ACKS: usize = 64;

/// For how many entries an empty queue keeps room.
const KEPT: usize = 1 << 10;

/// What is known of carriers that had room and were refused a frame of a lane, since others would
/// deliver it sooner.
#[derive(Debug, Clone, Copy, Default)]
struct Refused {
    /// When the first was refused since a frame of the lane last went out; `None` if none was.
    since: Option<Instant>,
    /// When to ask a refused carrier again.
    again: Option<Instant>,
}

/// One end of a trunk. The caller has the sockets and the clock; no call waits.
///
/// **Carriers**: [`carrier_joined`](Self::carrier_joined), [`leave`](Self::leave),
/// [`carrier_ended`](Self::carrier_ended). [`wanted`](Self::wanted) tells how many to
/// keep, [`carrier_measured`](Self::carrier_measured) takes what the system knows of them.
///
/// **Input**: [`receive`](Self::receive) takes what a carrier has delivered,
/// [`on_deadline`](Self::on_deadline) the time, when [`next_deadline`](Self::next_deadline)
/// is reached.
///
/// **Commands** of the program: [`open`](Self::open), [`write`](Self::write) or
/// [`write_copy`](Self::write_copy), [`finish`](Self::finish), [`reset`](Self::reset),
/// [`read`](Self::read) or [`peek`](Self::peek) with [`consume`](Self::consume),
/// [`close`](Self::close).
///
/// **Output**: after any of these, in any order, take [`poll_event`](Self::poll_event)
/// until it gives nothing, and [`poll_transmit`](Self::poll_transmit) or
/// [`fill`](Self::fill) for each carrier whose socket has room: one may get what another
/// was refused. Then ask for the next deadline.
#[derive(Debug)]
pub struct Trunk {
    config: Config,
    /// The peer's first HELLO, and the version that follows from it.
    peer: Option<(Hello, u16)>,
    ended: Option<Ended>,
    carriers: BTreeMap<CarrierId, Carrier>,
    next_carrier: u32,
    streams: Table,
    pool: Pool,
    schedule: Schedule,
    /// Streams whose data waits until fewer frames are under way.
    stalled: Vec<StreamId>,
    /// Streams with control frames to be sent.
    control: VecDeque<StreamId>,
    /// Whether the peer is to be told how many streams it may open.
    streams_due: bool,
    /// Streams that wait for memory, in the order in which they began to wait.
    waiting: VecDeque<StreamId>,
    /// Bytes that were accepted from the program and are not acknowledged.
    held: u64,
    /// How many DATA frames are under way or to be sent again.
    under_way: usize,
    /// How many holes the data of all streams has.
    holes: usize,
    /// ACKs for carriers that have ended: their numbers at the peer, and their counts of frames.
    last_acks: VecDeque<(u32, u64)>,
    events: VecDeque<Event>,
    /// Whether the program was refused to open a stream.
    open_refused: bool,
    nonce: u64,
    /// The time that the latest call has told.
    seen: Option<Instant>,
    /// The time that the first call has told.
    begun: Option<Instant>,
    /// What is known of refused carriers, for each lane.
    refused: [Refused; 2],
    /// How many bytes each stream may queue at least, so that all carriers are used.
    deep_queue: usize,
    need: Need,
    spare: Spare,
    /// Bytes of streams that were acknowledged, or have come, in all.
    carried: u64,
    progress: Progress,
    /// What carriers have carried of streams since [`take_moved`](Self::take_moved) was last
    /// called.
    moved: Vec<Moved>,
}

impl Trunk {
    /// A trunk without carriers. Bounds that no HELLO may have are brought into range.
    pub fn new(mut config: Config) -> Self {
        config.initial_credit = config.initial_credit.max(1);
        config.max_streams = config.max_streams.min(crate::hello::MAX_STREAMS);
        Self {
            config,
            peer: None,
            ended: None,
            carriers: BTreeMap::new(),
            next_carrier: 0,
            streams: Table::new(config.role, config.max_streams),
            pool: Pool::new(config.receive_pool, config.initial_credit, config.max_window),
            schedule: Schedule::default(),
            stalled: Vec::new(),
            control: VecDeque::new(),
            streams_due: false,
            waiting: VecDeque::new(),
            held: 0,
            under_way: 0,
            holes: 0,
            last_acks: VecDeque::new(),
            events: VecDeque::new(),
            open_refused: false,
            nonce: 0,
            seen: None,
            begun: None,
            refused: Default::default(),
            deep_queue: 0,
            need: Need::default(),
            spare: Spare::default(),
            carried: 0,
            progress: Progress::default(),
            moved: Vec::new(),
        }
    }

    /// The next thing that has happened, in order; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            self.events.shrink_to(KEPT);
        }
        event
    }

    /// The time at which [`Self::on_deadline`] is to be called, if nothing else happens.
    /// It changes with every other call.
    pub fn next_deadline(&self) -> Option<Instant> {
        let rtt = self.measured_rtt();
        let again = self.refused.iter().filter_map(|refused| refused.again);
        self.carriers.values().filter_map(|carrier| carrier.deadline(rtt)).chain(again).min()
    }

    /// The shortest round trip of a carrier, if any was measured.
    fn measured_rtt(&self) -> Option<Duration> {
        self.carriers.values().filter_map(|carrier| carrier.rtt.measured()).min()
    }

    /// Since when the oldest data waits that was sent and isn't acknowledged, whatever else has
    /// arrived meanwhile. `None` if no data waits.
    pub fn waits_since(&self) -> Option<Instant> {
        self.progress.since()
    }

    /// For how long data may wait: as long as it takes to find that a carrier is silent.
    pub fn patience(&self) -> Duration {
        let longest = self.carriers.values().filter_map(|carrier| carrier.rtt.measured()).max();
        PING_BUSY + SILENCE + 2 * longest.unwrap_or(UNKNOWN)
    }

    /// The round trips by which windows grow. Data waits for what comes over the longest carrier,
    /// so windows follow that one.
    fn rtts(&self) -> Rtts {
        let live = |carrier: &&Carrier| carrier.state == CarrierState::Live;
        let least = self.carriers.values().filter(live).filter_map(|carrier| carrier.rtt.least());
        let smoothed = self.measured_rtt().max(least.clone().max());
        Rtts { smoothed: smoothed.unwrap_or(UNKNOWN), least: least.min().unwrap_or(UNKNOWN) }
    }

    /// Notes the time that a call tells.
    fn see(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
        self.seen = Some(now);
    }

    /// Time since the first call, in ms. It wraps after 49 days, which does no harm.
    fn clock_ms(&self) -> u32 {
        match (self.begun, self.seen) {
            (Some(begun), Some(seen)) => seen.saturating_duration_since(begun).as_millis() as u32,
            _ => 0,
        }
    }

    /// A stream's state at its beginning.
    fn new_stream(&self) -> Stream {
        let peers_credit = self.peer.map_or(0, |(hello, _)| hello.credit);
        Stream::new(peers_credit, self.config.initial_credit, self.seen)
    }

    /// Puts a stream into the queue for control frames, if any of its are due.
    fn queue_control(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(id)
            && stream.due.any()
            && !stream.queued
        {
            stream.queued = true;
            self.control.push_back(id);
        }
    }

    /// Puts a stream into the schedule, if it has data.
    fn queue_data(&mut self, id: StreamId) {
        let clock_ms = self.clock_ms();
        if let Some(stream) = self.streams.get(id)
            && stream.sending.has_piece()
        {
            let lane = stream.scheduled.lane(stream.sending.waiting(), clock_ms);
            self.schedule.add(id, &mut stream.scheduled, lane);
        }
    }

    /// Notes that bytes and frames are acknowledged, or of no use any more. Tells writers that were
    /// refused, if there is room by now.
    fn release(&mut self, bytes: u64, frames: usize) {
        self.held -= bytes;
        self.under_way -= frames;
        if frames > 0 && self.under_way < MAX_UNDER_WAY {
            for id in std::mem::take(&mut self.stalled) {
                if let Some(stream) = self.streams.get(id) {
                    stream.stalled = false;
                }
                self.queue_data(id);
            }
        }
        // One writer for each share that is free; all of them if no acknowledgement is to
        // come any more that could wake the others.
        let share = (self.config.send_memory / 4).clamp(1, crate::frame::MAX_FRAME as u64);
        let mut free = self.config.send_memory.saturating_sub(self.held);
        while (free >= share || self.held == 0)
            && let Some(id) = self.waiting.pop_front()
        {
            if let Some(stream) = self.streams.get(id) {
                stream.waits_for_memory = false;
                stream.blocked = false;
                self.events.push_back(Event::Writable(id));
                free = free.saturating_sub(share);
            }
        }
    }

    /// How many bytes a stream may queue.
    fn stream_queue(&self) -> usize {
        self.config.stream_queue.max(self.deep_queue)
    }

    /// Tells a writer that was refused, if the stream has room by now.
    fn wake_writer(&mut self, id: StreamId) {
        let half = self.stream_queue() / 2;
        if let Some(stream) = self.streams.get(id)
            && stream.blocked
            && !stream.waits_for_memory
            && stream.sending.credit() > 0
            && stream.sending.queue.len() <= half
        {
            stream.blocked = false;
            self.events.push_back(Event::Writable(id));
        }
    }

    /// Tells a reader that has found nothing, if the stream has something by now.
    fn wake_reader(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(id)
            && stream.receiving.waits
            && stream.receiving.is_readable()
        {
            stream.receiving.waits = false;
            self.events.push_back(Event::Readable(id));
        }
    }

    /// Forgets a stream, if it is over.
    fn remove_if_over(&mut self, id: StreamId) {
        if self.streams.peek(id).is_some_and(Stream::is_over) {
            self.streams_due |= self.streams.remove(id);
        }
    }
}
