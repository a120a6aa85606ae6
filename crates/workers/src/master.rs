//! The master: it has all tasks at first, knows all members, and takes each result once.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::action::Action;
use crate::dispatch::{Dispatch, Link, Taker};
use crate::message::{
    MASTER, MAX_INLINE, MemberId, Message, Nothing, Number, Numbers, Parent, Piece, Register, Task, TaskId,
    Welcome, of_tasks,
};
use crate::roster::Roster;

/// How long lost tasks wait for members that may still have them.
const RETURN_WITHIN: Duration = Duration::from_secs(5);
/// Longest arguments and results, in bytes.
pub const MAX_BYTES: usize = (2 << 30) - 1;

/// How a pool works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the master runs, from the outermost level to its node.
    pub places: Vec<String>,
    /// A task isn't run again once so many processes have certainly ended while they ran it. Of the first
    /// one it isn't certain.
    pub attempts: u32,
    /// Below so many members all get their tasks from the master.
    pub flat_below: usize,
    /// What each worker runs once before its first task.
    pub setup: Bytes,
    /// How many tasks the master itself runs at once.
    pub slots: u32,
}

/// What came of a task, once for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// What it returned.
    Done(Bytes),
    /// Its error.
    Failed(Bytes),
    /// The process that ran it ended, so many times, last at this place.
    Lost {
        /// How many processes.
        times: u32,
        /// Where the last one ran.
        place: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    /// With the master.
    Waiting,
    /// With the master, which runs it.
    Here,
    /// With a child of the master, or below it.
    Out(Link),
    /// With a member that is gone.
    Missing,
}

#[derive(Debug)]
struct Entry {
    arguments: Bytes,
    at: Where,
    /// How many processes have certainly ended while they ran it.
    deaths: u32,
    /// It was lost once. Who runs it says so before.
    suspect: bool,
    /// Who said last that it is about to run it.
    runs_at: Option<MemberId>,
}

#[derive(Debug)]
struct Known {
    link: Link,
    address: String,
}

/// A member, now or before.
#[derive(Debug, Default)]
struct Ran {
    /// Where it runs, from the outermost level to its node.
    places: Vec<String>,
    /// Tasks that have a result from it or from below it.
    done: u64,
}

/// Lost tasks, until members that may have them have said which they have.
#[derive(Debug)]
struct Missing {
    of: MemberId,
    tasks: Vec<TaskId>,
    awaited: HashSet<MemberId>,
    until: Duration,
}

/// Counts for those who watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks that wait for a worker.
    pub waiting: u64,
    /// Tasks at workers, or on the way.
    pub out: u64,
    /// Tasks with a result.
    pub done: u64,
    /// Times that a task was given to another worker since one was lost.
    pub again: u64,
    /// Results that came for a second time, and were dropped.
    pub dropped: u64,
    /// Workers that take part.
    pub members: u64,
    /// Workers that were lost.
    pub lost: u64,
}

impl Counts {
    /// Workers that have ever taken part.
    pub fn joined(&self) -> u64 {
        self.members + self.lost
    }
}

/// Counts of a site, or of whatever is the outermost of its workers' places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Workers that take part, without the master.
    pub workers: u64,
    /// Tasks that have a result from there.
    pub done: u64,
}

/// The master, as a machine: events in, [`Action`]s out.
#[derive(Debug)]
pub struct Master {
    settings: Settings,
    roster: Roster,
    dispatch: Dispatch,
    tasks: HashMap<TaskId, Entry>,
    next_task: u64,
    members: BTreeMap<MemberId, Known>,
    links: HashMap<Link, MemberId>,
    /// The master and all members, also those that are gone.
    ran: HashMap<MemberId, Ran>,
    next_member: u32,
    missing: Vec<Missing>,
    /// Results that come in pieces.
    coming: HashMap<(Link, TaskId), BytesMut>,
    finished: VecDeque<(TaskId, Finished)>,
    counts: Counts,
    actions: Vec<Action>,
}

impl Master {
    /// A master without members.
    pub fn new(settings: Settings) -> Self {
        let mut dispatch = Dispatch::default();
        if settings.slots > 0 {
            dispatch.allow(Taker::Own, u64::from(settings.slots));
        }
        Self {
            ran: HashMap::from([(MASTER, Ran { places: settings.places.clone(), done: 0 })]),
            roster: Roster::new(settings.places.clone(), settings.flat_below),
            settings,
            dispatch,
            tasks: HashMap::new(),
            next_task: 0,
            members: BTreeMap::new(),
            links: HashMap::new(),
            next_member: MASTER.0 + 1,
            missing: Vec::new(),
            coming: HashMap::new(),
            finished: VecDeque::new(),
            counts: Counts::default(),
            actions: Vec::new(),
        }
    }

    /// What is to be done, in this order.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The next task that has ended, with what came of it.
    pub fn next_finished(&mut self) -> Option<(TaskId, Finished)> {
        self.finished.pop_front()
    }

    /// When [`tick`](Self::tick) is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.missing.iter().map(|missing| missing.until).min()
    }

    /// How many tasks and members there are.
    pub fn counts(&self) -> Counts {
        let waiting = self.dispatch.waiting();
        let out = (self.tasks.len() as u64).saturating_sub(waiting);
        Counts { waiting, out, members: self.members.len() as u64, ..self.counts }
    }

    /// The same by site, where somebody is or something was done. All members below one are at its site.
    pub fn sites(&self) -> BTreeMap<String, SiteCounts> {
        let mut sites: BTreeMap<String, SiteCounts> = BTreeMap::new();
        for (member, Ran { places, done }) in &self.ran {
            let workers = u64::from(self.members.contains_key(member));
            if workers + done > 0 {
                let counts = sites.entry(places.first().cloned().unwrap_or_default()).or_default();
                counts.workers += workers;
                counts.done += done;
            }
        }
        sites
    }

    /// Adds a task with its arguments, of [`MAX_BYTES`] at most.
    pub fn submit(&mut self, arguments: Bytes) -> TaskId {
        let id = TaskId(self.next_task);
        self.next_task += 1;
        let entry = Entry { arguments, at: Where::Waiting, deaths: 0, suspect: false, runs_at: None };
        self.dispatch.push(message_of(id, &entry));
        self.tasks.insert(id, entry);
        self.settle();
        id
    }

    /// Takes a task back that no worker has got yet. Tells whether it did: it has no result then.
    pub fn cancel(&mut self, id: TaskId) -> bool {
        let is_waiting = self.tasks.get(&id).is_some_and(|entry| entry.at == Where::Waiting);
        if is_waiting {
            self.tasks.remove(&id);
            self.dispatch.take_back(id);
        }
        is_waiting
    }

    /// Ends the pool for all members.
    pub fn end(&mut self) {
        for known in self.members.values() {
            self.actions.push(Action::Send(known.link, Message::End(Nothing {})));
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) {
        self.find_missing(now);
        self.settle();
    }

    /// A task that ran in this process has ended.
    pub fn finished(&mut self, id: TaskId, failed: bool, result: Bytes) {
        self.dispatch.own_done(id);
        self.finish(id, Some(MASTER), if failed { Finished::Failed(result) } else { Finished::Done(result) });
        self.settle();
    }

    /// A message has come. Messages that don't belong there end the link.
    pub fn receive(&mut self, now: Duration, link: Link, message: Message) {
        if !self.take(now, link, message) {
            self.actions.push(Action::Close(link));
            self.closed(now, link);
        }
        self.settle();
    }

    /// A link has ended.
    pub fn closed(&mut self, now: Duration, link: Link) {
        let Some(member) = self.links.remove(&link) else { return };
        self.coming.retain(|(at, _), _| *at != link);
        let tasks = self.dispatch.lose(Taker::Child(link));
        self.lose(now, member, link, tasks);
        self.members.remove(&member);
        self.counts.lost += 1;
        let below: Vec<_> = self.roster.children(member).collect();
        for missing in &mut self.missing {
            if missing.awaited.remove(&member) {
                missing.awaited.extend(&below);
            }
        }
        let changes = self.roster.remove(member);
        let (orphans, others): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(changed, _)| below.contains(changed));
        self.tell_parents(orphans, member);
        self.tell_parents(others, MASTER);
        self.find_missing(now);
        self.settle();
    }

    fn take(&mut self, now: Duration, link: Link, message: Message) -> bool {
        let Some(member) = self.links.get(&link).copied() else {
            return match message {
                Message::Register(register) => self.register(link, register),
                _ => false,
            };
        };
        let child = Taker::Child(link);
        match message {
            Message::Want(want) => self.dispatch.allow(child, want.total),
            Message::Outcomes(outcomes) => {
                for outcome in outcomes.outcomes {
                    let id = TaskId(outcome.id);
                    self.dispatch.done(child, id);
                    let found = match outcome.failed {
                        true => Finished::Failed(outcome.result),
                        false => Finished::Done(outcome.result),
                    };
                    if !outcome.delivered {
                        self.finish(id, Some(member), found);
                    }
                }
            }
            Message::Lost(lost) => {
                let tasks: Vec<_> = lost.tasks.into_iter().map(TaskId).collect();
                for id in &tasks {
                    self.dispatch.done(child, *id);
                }
                self.lose(now, MemberId(lost.member), link, tasks);
                self.find_missing(now);
            }
            Message::Back(Numbers { numbers }) => {
                // The first one goes first again.
                for id in numbers.into_iter().map(TaskId) {
                    self.dispatch.done(child, id);
                    self.take_waiting(id, link);
                }
            }
            Message::Held(held) => {
                self.take_up(link, &held.tasks);
                if !held.more {
                    self.has_answered(MemberId(held.member));
                    self.find_missing(now);
                }
            }
            Message::Leave(_) => {
                self.dispatch.leave(child);
                self.actions.push(Action::Send(link, Message::Left(Nothing {})));
            }
            Message::ParentLost(Number { number }) => {
                let parent = u32::try_from(number).map_or(MASTER, MemberId);
                if parent != MASTER {
                    // If the parent has been replaced already, the member has been told.
                    let changes = self.roster.part(member, parent);
                    self.tell_parents(changes, MASTER);
                }
            }
            Message::Running(Number { number }) => {
                if let Some(entry) = self.tasks.get_mut(&TaskId(number)) {
                    entry.runs_at = Some(member);
                }
            }
            Message::Fetch(Number { number }) => {
                let id = TaskId(number);
                self.actions.push(match self.tasks.get(&id) {
                    Some(entry) => {
                        Action::SendLarge { link, id, bytes: entry.arguments.clone(), failed: false }
                    }
                    // It has a result already, so that nobody needs its arguments.
                    None => Action::Send(
                        link,
                        Message::Piece(Piece { id: number, last: true, ..Piece::default() }),
                    ),
                });
            }
            Message::Piece(piece) => return self.take_piece(link, piece),
            Message::Ping(number) => self.actions.push(Action::Send(link, Message::Pong(number))),
            _ => return false,
        }
        true
    }

    fn register(&mut self, link: Link, register: Register) -> bool {
        let member = MemberId(self.next_member);
        let Some(next) = self.next_member.checked_add(1) else { return false };
        self.next_member = next;
        let Register { places, address, .. } = register;
        self.ran.insert(member, Ran { places: places.clone(), done: 0 });
        self.links.insert(link, member);
        self.members.insert(member, Known { link, address });
        let welcome = Welcome { member: member.0, setup: self.settings.setup.clone() };
        self.actions.push(Action::Send(link, Message::Welcome(welcome)));
        let changes = self.roster.add(member, places);
        self.tell_parents(changes, MASTER);
        true
    }

    /// Tells members of their new parents, and which member is gone that was the former one, if not the
    /// master.
    fn tell_parents(&mut self, changes: Vec<(MemberId, MemberId)>, gone: MemberId) {
        for (member, parent) in changes {
            let Some(link) = self.members.get(&member).map(|known| known.link) else { continue };
            let address = self.members.get(&parent).map(|known| known.address.clone()).unwrap_or_default();
            let parent = Parent { member: parent.0, address, gone: gone.0 };
            self.actions.push(Action::Send(link, Message::Parent(parent)));
        }
    }

    /// Tasks are lost with a member, unless it or one below it still has them. One that is no longer where
    /// the loss is told from has been found or given again.
    fn lose(&mut self, now: Duration, of: MemberId, from: Link, mut tasks: Vec<TaskId>) {
        tasks.retain(|id| match self.tasks.get_mut(id) {
            Some(entry) if entry.at == Where::Out(from) => {
                entry.at = Where::Missing;
                true
            }
            _ => false,
        });
        // Who lives has what is below it.
        let awaited = match self.members.contains_key(&of) {
            true => HashSet::from([of]),
            false => HashSet::new(),
        };
        self.missing.push(Missing { of, tasks, awaited, until: now + RETURN_WITHIN });
    }

    /// A task that nobody has begun comes back.
    fn take_waiting(&mut self, id: TaskId, from: Link) {
        if let Some(entry) = self.tasks.get_mut(&id).filter(|entry| entry.at == Where::Out(from)) {
            entry.at = Where::Waiting;
            let task = message_of(id, entry);
            self.dispatch.push_first(task);
        }
    }

    /// A member that is gone, or has said which tasks it has, isn't waited for.
    fn has_answered(&mut self, member: MemberId) {
        for missing in &mut self.missing {
            missing.awaited.remove(&member);
        }
    }

    /// Members below a link have these tasks, also if they were given to somebody else meanwhile.
    fn take_up(&mut self, link: Link, ids: &[u64]) {
        for id in ids.iter().copied().map(TaskId) {
            let Some(entry) = self.tasks.get_mut(&id) else { continue };
            match entry.at {
                Where::Here => continue,
                Where::Out(other) => drop(self.dispatch.done(Taker::Child(other), id)),
                Where::Waiting | Where::Missing => {}
            }
            entry.at = Where::Out(link);
            self.dispatch.adopt(Taker::Child(link), id);
        }
    }

    /// Has lost tasks done again that nobody has.
    fn find_missing(&mut self, now: Duration) {
        let (over, left) = std::mem::take(&mut self.missing)
            .into_iter()
            .partition(|missing: &Missing| missing.awaited.is_empty() || missing.until <= now);
        self.missing = left;
        for Missing { of, tasks, .. } in over {
            // The first one goes first again.
            for id in tasks.into_iter().rev() {
                self.again(id, of);
            }
        }
    }

    fn again(&mut self, id: TaskId, of: MemberId) {
        let Some(entry) = self.tasks.get_mut(&id).filter(|entry| entry.at == Where::Missing) else {
            return;
        };
        if entry.runs_at == Some(of) {
            entry.deaths += 1;
        }
        entry.suspect = true;
        if entry.deaths >= self.settings.attempts {
            let times = entry.deaths;
            let place = self.ran.get(&of).and_then(|ran| ran.places.last()).cloned().unwrap_or_default();
            self.finish(id, None, Finished::Lost { times, place });
            return;
        }
        entry.at = Where::Waiting;
        self.counts.again += 1;
        self.dispatch.push_first(message_of(id, entry));
    }

    /// A result comes in pieces. Tells whether it is within bounds.
    fn take_piece(&mut self, link: Link, piece: Piece) -> bool {
        let key = (link, TaskId(piece.id));
        let bytes = self.coming.entry(key).or_default();
        if bytes.len() + piece.bytes.len() > MAX_BYTES {
            return false;
        }
        bytes.extend_from_slice(&piece.bytes);
        if piece.last {
            let result = self.coming.remove(&key).unwrap_or_default().freeze();
            let (_, id) = key;
            let found = if piece.failed { Finished::Failed(result) } else { Finished::Done(result) };
            self.finish(id, self.links.get(&link).copied(), found);
            self.actions.push(Action::Send(link, Message::Delivered(Number { number: id.0 })));
        }
        true
    }

    /// Takes a task's result, if it is the first, from the master or a member, if it is from one.
    fn finish(&mut self, id: TaskId, from: Option<MemberId>, found: Finished) {
        let Some(entry) = self.tasks.remove(&id) else {
            self.counts.dropped += 1;
            return;
        };
        match entry.at {
            Where::Out(link) => drop(self.dispatch.done(Taker::Child(link), id)),
            Where::Waiting => self.dispatch.take_back(id),
            Where::Here | Where::Missing => {}
        }
        self.counts.done += 1;
        if let Some(ran) = from.and_then(|member| self.ran.get_mut(&member)) {
            ran.done += 1;
        }
        self.finished.push_back((id, found));
    }

    /// Hands out tasks.
    fn settle(&mut self) {
        for (taker, tasks) in self.dispatch.hand_out() {
            let Taker::Child(link) = taker else {
                for mut task in tasks {
                    if let Some(entry) = self.tasks.get_mut(&TaskId(task.id)) {
                        entry.at = Where::Here;
                        task.arguments = entry.arguments.clone();
                    }
                    self.actions.push(Action::Run(task));
                }
                continue;
            };
            for task in &tasks {
                if let Some(entry) = self.tasks.get_mut(&TaskId(task.id)) {
                    entry.at = Where::Out(link);
                }
            }
            self.actions.extend(of_tasks(tasks).map(|message| Action::Send(link, message)));
        }
    }
}

fn message_of(id: TaskId, entry: &Entry) -> Task {
    let size = entry.arguments.len();
    let arguments = if size > MAX_INLINE { Bytes::new() } else { entry.arguments.clone() };
    Task { id: id.0, arguments, size: size as u64, suspect: entry.suspect }
}
