//! A thread that carries its share of the connections.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use slab::Slab;

use crate::alarm::Alarm;
use crate::item::{Item, Round};
use crate::mailbox::{Mail, Mailbox};
use crate::released::Collection;
use crate::splice::Pair;
use crate::tools::Tools;
use crate::turn::Turn;

/// The epoll data of the worker's mailbox, which no socket has.
const MAILBOX: u64 = u64::MAX;
/// The epoll data of the worker's alarm, which no socket has.
const ALARM: u64 = u64::MAX - 1;
/// Most events that are taken from the kernel at once.
const BATCH: usize = 256;

#[derive(Debug)]
struct Carried {
    item: Item,
    /// Whether the item stands in the queue of those that are due.
    queued: bool,
    /// The item's entry in the queue of timers. When the item wants a turn without an event, or
    /// earlier.
    timer: Option<Instant>,
}

/// The state of one worker thread.
#[derive(Debug)]
pub(crate) struct Worker {
    mailbox: Arc<Mailbox>,
    epoll: Epoll,
    carried: Slab<Carried>,
    due: VecDeque<usize>,
    timers: BTreeSet<(Instant, usize)>,
    alarm: Alarm,
    tools: Tools,
}

impl Worker {
    pub(crate) fn new() -> io::Result<(Self, Arc<Mailbox>)> {
        let mailbox = Arc::new(Mailbox::new()?);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&mailbox.wake, EpollEvent::new(EpollFlags::EPOLLIN, MAILBOX))?;
        let alarm = Alarm::new()?;
        epoll.add(&alarm, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, ALARM))?;
        let worker = Self {
            mailbox: Arc::clone(&mailbox),
            epoll,
            carried: Slab::new(),
            due: VecDeque::new(),
            timers: BTreeSet::new(),
            alarm,
            tools: Tools::new(),
        };
        Ok((worker, mailbox))
    }

    /// Carries items until [`Mailbox::stop`].
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); BATCH];
        loop {
            let timeout = self.timeout()?;
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let now = Instant::now();
            let mut woken = false;
            for event in &events[..count] {
                match event.data() {
                    MAILBOX => woken = true,
                    ALARM => self.alarm.rang(),
                    token => self.on_event(token, event.events()),
                }
            }
            self.queue_timers(now);
            for _ in 0..self.due.len() {
                if let Some(key) = self.due.pop_front() {
                    self.turn(key, now);
                }
            }
            // Messages come last, so that no key of this round's events is given to a new item.
            if woken && !self.on_mail(now) {
                return Ok(());
            }
        }
    }

    /// How long to wait for events: not at all if an item is due. Otherwise the alarm ends the wait.
    fn timeout(&mut self) -> io::Result<EpollTimeout> {
        if !self.due.is_empty() {
            return Ok(EpollTimeout::ZERO);
        }
        if let Some((next, _)) = self.timers.first() {
            self.alarm.ring_by(*next)?;
        }
        Ok(EpollTimeout::NONE)
    }

    /// Queues each item whose deadline has come.
    fn queue_timers(&mut self, now: Instant) {
        while let Some(&(timer, key)) = self.timers.first()
            && timer <= now
        {
            self.timers.pop_first();
            let Some(carried) = self.carried.get_mut(key) else { continue };
            carried.timer = None;
            match carried.item.deadline() {
                Some(deadline) if deadline <= now => self.queue(key),
                // The deadline has moved since.
                Some(deadline) => {
                    carried.timer = Some(deadline);
                    self.timers.insert((deadline, key));
                }
                None => {}
            }
        }
    }

    /// Takes the messages that have come; returns whether to go on.
    fn on_mail(&mut self, now: Instant) -> bool {
        let (arrivals, stop) = self.mailbox.take();
        for mail in arrivals {
            match mail {
                Mail::New(item) => self.add(item, now),
                Mail::Nudge(address) => {
                    if let Some(key) = address.key() {
                        self.queue(key);
                    }
                }
                Mail::Release(collection) => self.release(&collection, now),
                Mail::Resume => {
                    self.carried.iter_mut().for_each(|(_, carried)| carried.item.end_by_reset(false))
                }
            }
        }
        if stop {
            let keys: Vec<_> = self.carried.iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| self.reset(key, now));
        }
        !stop
    }

    fn add(&mut self, item: Item, now: Instant) {
        let key = self.carried.insert(Carried { item, queued: false, timer: None });
        let Some(Carried { item, .. }) = self.carried.get(key) else { return };
        if let Some(address) = item.address() {
            address.set(Some(key));
        }
        let round = Round { tools: &mut self.tools, carried: &mut 0, epoll: &self.epoll, key, now };
        match item.watch(&round) {
            Ok(()) => self.queue(key),
            Err(error) => {
                tracing::warn!(%error, "cannot watch the sockets of a new connection");
                self.reset(key, now);
            }
        }
    }

    /// Gives all spliced pairs to a collection.
    fn release(&mut self, collection: &Collection, now: Instant) {
        let keys: Vec<_> = self.carried.iter().map(|(key, _)| key).collect();
        let pairs = keys.into_iter().filter_map(|key| self.take_pair(key)).collect();
        for pair in collection.give(pairs) {
            self.mailbox.running.fetch_add(1, Relaxed);
            self.add(Item::Spliced(Box::new(pair)), now);
        }
        self.carried.iter_mut().for_each(|(_, carried)| carried.item.end_by_reset(true));
    }

    fn take_pair(&mut self, key: usize) -> Option<Pair> {
        if !matches!(&self.carried.get(key)?.item, Item::Spliced(pair) if pair.may_be_released()) {
            return None;
        }
        let Item::Spliced(mut pair) = self.remove(key)?.item else { return None };
        pair.stop_gathering();
        for (_, socket) in pair.sockets() {
            // Each was added when the pair came.
            let _ = self.epoll.delete(socket);
        }
        Some(*pair)
    }

    fn on_event(&mut self, token: u64, events: EpollFlags) {
        let (key, socket) = key_and_socket(token);
        if let Some(carried) = self.carried.get_mut(key) {
            carried.item.on_event(socket, events);
            self.queue(key);
        }
    }

    /// Has the item with this key get a turn.
    fn queue(&mut self, key: usize) {
        if let Some(carried) = self.carried.get_mut(key)
            && !std::mem::replace(&mut carried.queued, true)
        {
            self.due.push_back(key);
        }
    }

    fn turn(&mut self, key: usize, now: Instant) {
        let Some(carried) = self.carried.get_mut(key) else { return };
        carried.queued = false;
        let mut bytes = 0;
        let mut round = Round { tools: &mut self.tools, carried: &mut bytes, epoll: &self.epoll, key, now };
        let turn = carried.item.turn(&mut round);
        // A deadline that has moved away is looked at when the earlier one comes: most of them move
        // with each message.
        if let Some(deadline) = carried.item.deadline()
            && carried.timer.is_none_or(|timer| deadline < timer)
        {
            if let Some(former) = carried.timer.replace(deadline) {
                self.timers.remove(&(former, key));
            }
            self.timers.insert((deadline, key));
        }
        if bytes > 0 {
            self.mailbox.bytes.fetch_add(bytes, Relaxed);
        }
        match turn {
            Turn::Waits => {}
            Turn::Unfinished => self.queue(key),
            Turn::Ended => drop(self.remove(key)),
        }
    }

    fn reset(&mut self, key: usize, now: Instant) {
        let mut round = Round { tools: &mut self.tools, carried: &mut 0, epoll: &self.epoll, key, now };
        if let Some(carried) = self.carried.get_mut(key) {
            carried.item.reset(&mut round);
        }
        self.remove(key);
    }

    fn remove(&mut self, key: usize) -> Option<Carried> {
        let carried = self.carried.try_remove(key)?;
        if let Some(timer) = carried.timer {
            self.timers.remove(&(timer, key));
        }
        if let Some(address) = carried.item.address() {
            address.set(None);
        }
        self.mailbox.running.fetch_sub(1, Relaxed);
        Some(carried)
    }
}

/// The epoll data of one socket of the item with this key.
pub(crate) fn token(key: usize, socket: u32) -> u64 {
    (key as u64) << 32 | u64::from(socket)
}

fn key_and_socket(token: u64) -> (usize, u32) {
    (usize::try_from(token >> 32).unwrap_or(usize::MAX), token as u32)
}
