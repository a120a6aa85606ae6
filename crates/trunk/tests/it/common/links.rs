//! Two ends of a trunk over carriers that have a rate, a length and a socket's buffer
//! each, and a clock that the test moves.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use isthmus_trunk::frame::MAX_FRAME;
use isthmus_trunk::{CarrierId, Event, Measured, Purpose, Role, StreamId, Trunk};

use super::{A, B, SIDES, config};

/// How many bytes a socket holds of a carrier that the link has not taken (`TCP_NOTSENT_LOWAT`).
pub const BUFFER: usize = 64 << 10;

/// The link that a carrier goes over, and what the carrier is for.
#[derive(Debug, Clone, Copy)]
pub struct CarrierLink {
    pub bytes_per_second: f64,
    pub latency: Duration,
    pub purpose: Purpose,
}

/// One direction of a carrier.
#[derive(Debug)]
struct CarrierDirection {
    /// When the link will have taken all that is in the socket.
    free: Instant,
    flying: VecDeque<(Instant, Bytes)>,
    swallows: bool,
}

#[derive(Debug)]
pub struct Rail {
    pub link: CarrierLink,
    pub ids: [Option<CarrierId>; 2],
    directions: [CarrierDirection; 2],
    /// Bytes that went into the rail, by end.
    pub bytes: [usize; 2],
}

impl Rail {
    fn unsent(&self, side: usize, now: Instant) -> f64 {
        self.directions[side].free.saturating_duration_since(now).as_secs_f64() * self.link.bytes_per_second
    }

    /// When the socket has room for a frame.
    fn room_at(&self, side: usize) -> Instant {
        let full = (BUFFER - MAX_FRAME) as f64 / self.link.bytes_per_second;
        self.directions[side]
            .free
            .checked_sub(Duration::from_secs_f64(full))
            .unwrap_or(self.directions[side].free)
    }

    fn put(&mut self, side: usize, frame: Vec<u8>, now: Instant) {
        let takes = Duration::from_secs_f64(frame.len() as f64 / self.link.bytes_per_second);
        self.bytes[side] += frame.len();
        let direction = &mut self.directions[side];
        direction.free = direction.free.max(now) + takes;
        if !direction.swallows {
            direction.flying.push_back((direction.free + self.link.latency, frame.into()));
        }
    }
}

/// A message on a stream of its own, or more of one.
#[derive(Debug)]
pub struct Message {
    pub stream: StreamId,
    rest: Bytes,
    left: usize,
    begun: Instant,
    pub took: Option<Duration>,
}

#[derive(Debug)]
pub struct Links {
    pub ends: [Trunk; 2],
    pub rails: Vec<Rail>,
    pub now: Instant,
    /// Whether carriers are asked in reverse order.
    pub reversed: bool,
    /// Whether the embedding reports what it measures.
    pub reports: bool,
    reported: Instant,
    pub events: [Vec<Event>; 2],
    pub messages: Vec<Message>,
}

impl Links {
    pub fn new(links: &[CarrierLink]) -> Self {
        let now = Instant::now();
        let ends = [Role::Initiator, Role::Acceptor].map(|role| Trunk::new(config(role)));
        let mut this = Self {
            ends,
            rails: Vec::new(),
            now,
            reversed: false,
            reports: false,
            reported: now,
            events: Default::default(),
            messages: Vec::new(),
        };
        for link in links {
            this.join(*link);
        }
        this.run(Duration::from_secs(1));
        this
    }

    /// Joins a carrier over a link, which end A has dialed.
    pub fn join(&mut self, link: CarrierLink) -> usize {
        let ids = [
            self.ends[A].carrier_joined_for(link.purpose, self.now).ok(),
            self.ends[B].carrier_joined(self.now).ok(),
        ];
        let direction = || CarrierDirection { free: self.now, flying: VecDeque::new(), swallows: false };
        self.rails.push(Rail { link, ids, directions: [direction(), direction()], bytes: [0; 2] });
        self.rails.len() - 1
    }

    /// Lets nothing through a rail from here on, which nobody notices.
    pub fn silence(&mut self, rail: usize) {
        for direction in &mut self.rails[rail].directions {
            direction.swallows = true;
            direction.flying.clear();
        }
    }

    /// Tells an end that a carrier is gone.
    pub fn notice(&mut self, side: usize, rail: usize) {
        if let Some(id) = self.rails[rail].ids[side].take() {
            self.ends[side].carrier_ended(id);
        }
    }

    /// Begins a message from A to B.
    pub fn send(&mut self, stream: StreamId, bytes: usize) {
        let (rest, begun) = (Bytes::from(vec![1; bytes]), self.now);
        self.messages.push(Message { stream, rest, left: bytes, begun, took: None });
    }

    /// Sends a message and waits until all of it is read.
    pub fn message(&mut self, bytes: usize) -> Duration {
        let stream = self.ends[A].open().unwrap();
        self.send(stream, bytes);
        while self.messages.iter().any(|message| message.took.is_none()) {
            assert!(self.step(self.now + Duration::from_secs(60)), "nothing happens any more");
        }
        self.messages.pop().unwrap().took.unwrap()
    }

    /// Lets so much time pass, step by step.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step(until);
        }
    }

    /// Does all that can be done now, and goes to the next time at which something can. Returns
    /// `false` if that isn't before `until`.
    pub fn step(&mut self, until: Instant) -> bool {
        let mut rounds = 0;
        while self.round() {
            rounds += 1;
            assert!(rounds < 10_000, "no end");
        }
        let flying = self.rails.iter().flat_map(|rail| &rail.directions);
        let arrivals = flying.filter_map(|direction| direction.flying.front().map(|(at, _)| *at));
        let rooms = self.rails.iter().flat_map(|rail| SIDES.map(|side| rail.room_at(side)));
        let deadlines = self.ends.iter().filter_map(Trunk::next_deadline);
        let next = arrivals.chain(rooms.filter(|at| *at > self.now)).chain(deadlines).min();
        self.now = next.unwrap_or(until).clamp(self.now, until);
        self.now < until
    }

    fn round(&mut self) -> bool {
        let mut moved = self.arrive();
        for side in SIDES {
            if self.ends[side].next_deadline().is_some_and(|at| at <= self.now) {
                self.ends[side].on_deadline(self.now);
                moved = true;
            }
            while let Some(event) = self.ends[side].poll_event() {
                self.events[side].push(event);
            }
        }
        if self.reports && self.now >= self.reported + Duration::from_millis(10) {
            self.report();
        }
        moved |= self.programs();
        for index in 0..self.rails.len() {
            let index = if self.reversed { self.rails.len() - 1 - index } else { index };
            for side in SIDES {
                moved |= self.transmit(side, index);
            }
        }
        moved
    }

    fn arrive(&mut self) -> bool {
        let mut moved = false;
        for rail in &mut self.rails {
            for side in SIDES {
                let direction = &mut rail.directions[side];
                while direction.flying.front().is_some_and(|(at, _)| *at <= self.now) {
                    let (_, bytes) = direction.flying.pop_front().unwrap();
                    if let Some(id) = rail.ids[1 - side] {
                        self.ends[1 - side].receive(id, bytes, self.now);
                    }
                    moved = true;
                }
            }
        }
        moved
    }

    fn report(&mut self) {
        self.reported = self.now;
        for rail in &self.rails {
            for side in SIDES {
                let unsent = rail.unsent(side, self.now);
                let rtt = Some(rail.link.latency * 2);
                let measured = Measured {
                    rtt,
                    min_rtt: rtt,
                    bytes_per_second: (unsent > 0.0).then_some(rail.link.bytes_per_second as u64),
                    app_limited: false,
                    unsent: Some(unsent as u64),
                    held_back: false,
                };
                if let Some(id) = rail.ids[side] {
                    self.ends[side].carrier_measured(id, measured, self.now);
                }
            }
        }
    }

    /// Has programs write what they have left and read what has come.
    fn programs(&mut self) -> bool {
        let mut moved = false;
        for message in self.messages.iter_mut().filter(|message| message.took.is_none()) {
            while !message.rest.is_empty()
                && self.ends[A].write(message.stream, &mut message.rest).unwrap() > 0
            {
                moved = true;
            }
            while message.left > 0
                && let Ok(isthmus_trunk::Read::Data(bytes)) =
                    self.ends[B].read(message.stream, message.left, self.now)
            {
                message.left -= bytes.len();
                moved = true;
            }
            if message.left == 0 {
                message.took = Some(self.now - message.begun);
            }
        }
        moved
    }

    fn transmit(&mut self, side: usize, index: usize) -> bool {
        let mut moved = false;
        let rail = &mut self.rails[index];
        while let Some(id) = rail.ids[side]
            && rail.room_at(side) <= self.now
            && let Some(frame) = self.ends[side].poll_transmit(id, MAX_FRAME, self.now)
        {
            rail.put(side, frame.to_vec(), self.now);
            moved = true;
        }
        moved
    }
}
