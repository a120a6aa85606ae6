//! A member that isn't the master: it runs tasks, and hands on tasks to its children if it has any.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::action::Action;
use crate::dispatch::{Dispatch, Link, Taker};
use crate::message::{
    Attach, Held, Lost, MASTER, MAX_FRAME, MAX_INLINE, MOST_RATE, MemberId, Message, Nothing, Number,
    Numbers, Outcome, Piece, Register, Task, TaskId, Want, in_lists, of_outcomes, of_tasks,
};
use crate::speed::{self, Average};

/// How long a boss waits for further results, as a share of its round trip to the parent, and at most.
const GATHERED: (f64, Duration) = (0.125, Duration::from_millis(5));
/// Results of so many bytes are sent at once.
const GATHERED_BYTES: usize = MAX_FRAME / 4;
/// The round trip to the parent is measured so often, while there is work.
const PING_EVERY: Duration = Duration::from_secs(1);
/// More tasks than those that are of use, by this factor and this number, are given back.
const TOO_MANY: (u64, u64) = (2, 8);

/// From whom it gets tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upward {
    /// From nobody, until the master has named somebody who is reached.
    Nobody,
    At(MemberId, Link),
}

/// A child.
#[derive(Debug)]
struct Below {
    member: MemberId,
    /// Tasks per second of it and all below it.
    rate: f64,
    /// Tasks that it and all below it run at once.
    slots: u64,
}

/// A member, as a machine: events in, [`Action`]s out. Times are since any moment, the same for all.
#[derive(Debug)]
pub struct Member {
    slots: u32,
    /// The link to the master, which stands as long as the member takes part.
    master: Link,
    number: Option<MemberId>,
    upward: Upward,
    /// Who is to be the parent, until it is reached.
    next: Option<MemberId>,
    /// Links to former parents, until all tasks from there are done.
    former: HashSet<Link>,
    /// Former parents that may still send tasks. Nobody else is asked for any meanwhile, so that none
    /// comes for whom no slot is free.
    leaving: HashSet<Link>,
    /// The link from which each task came that is here or below. The link may have ended.
    origins: HashMap<TaskId, Link>,
    dispatch: Dispatch,
    children: BTreeMap<Link, Below>,
    /// Results that are to be sent, by link; those whose link has ended.
    outcomes: BTreeMap<Link, Vec<Outcome>>,
    stranded: Vec<Outcome>,
    /// When results are sent at the latest.
    flush_at: Option<Duration>,
    /// What children said for the master while there was no parent.
    unsent: Vec<Message>,
    /// Tasks that came from the parent, and how many it was allowed to send.
    received: u64,
    announced: u64,
    round_trip: Average,
    pinged: Option<Duration>,
    task_time: Average,
    /// When each running task began.
    began: HashMap<TaskId, Duration>,
    /// Tasks whose arguments come in pieces, and what has come.
    fetching: HashMap<TaskId, (Task, BytesMut)>,
    /// Tasks whose results go to the master in pieces, and whether they failed.
    delivering: HashMap<TaskId, bool>,
    actions: Vec<Action>,
}

impl Member {
    /// A member that runs so many tasks at once, with a link to the master.
    pub fn new(master: Link, register: Register) -> Self {
        let mut dispatch = Dispatch::default();
        dispatch.allow(Taker::Own, u64::from(register.slots));
        let slots = register.slots;
        Self {
            slots,
            master,
            number: None,
            upward: Upward::Nobody,
            next: None,
            former: HashSet::new(),
            leaving: HashSet::new(),
            origins: HashMap::new(),
            dispatch,
            children: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            stranded: Vec::new(),
            flush_at: None,
            unsent: Vec::new(),
            received: 0,
            announced: 0,
            round_trip: Average::default(),
            pinged: None,
            task_time: Average::default(),
            began: HashMap::new(),
            fetching: HashMap::new(),
            delivering: HashMap::new(),
            actions: vec![Action::Send(master, Message::Register(register))],
        }
    }

    /// What is to be done, in this order.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Its number, once the master has given it one.
    pub fn number(&self) -> Option<MemberId> {
        self.number
    }

    /// When [`tick`](Self::tick) is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.flush_at
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) {
        self.settle(now);
    }

    /// The member that is to be the parent is reached over this link, or not at all.
    pub fn connected(&mut self, now: Duration, member: MemberId, link: Option<Link>) {
        let is_wanted = self.next == Some(member);
        match link {
            Some(link) if is_wanted => self.set_parent(member, link),
            Some(link) => self.actions.push(Action::Close(link)),
            None if is_wanted => {
                self.next = None;
                self.tell_lost(member);
            }
            None => {}
        }
        self.settle(now);
    }

    /// A message has come. Messages that don't belong there end the link.
    pub fn receive(&mut self, now: Duration, link: Link, message: Message) {
        if !self.take(now, link, message) {
            self.actions.push(Action::Close(link));
            self.closed(now, link);
        }
        self.settle(now);
    }

    /// A link has ended.
    pub fn closed(&mut self, now: Duration, link: Link) {
        if link == self.master {
            self.actions.push(Action::End);
            return;
        }
        // Otherwise the master has named another parent already.
        if let Some(parent) = self.lose_link(link)
            && self.next.is_none()
        {
            self.tell_lost(parent);
        }
        self.settle(now);
    }

    /// Does without a link. Returns the parent, if it was the link to it.
    fn lose_link(&mut self, link: Link) -> Option<MemberId> {
        let results = self.outcomes.remove(&link).unwrap_or_default();
        self.stranded.extend(results);
        self.leaving.remove(&link);
        if let Some(Below { member, .. }) = self.children.remove(&link) {
            let tasks = self.dispatch.lose(Taker::Child(link));
            self.report_lost(member, tasks);
        }
        match self.upward {
            Upward::At(member, at) if at == link => {
                self.upward = Upward::Nobody;
                Some(member)
            }
            _ => {
                if self.former.remove(&link) {
                    self.adopt_orphans();
                }
                None
            }
        }
    }

    /// A task that ran here has ended.
    pub fn finished(&mut self, now: Duration, id: TaskId, failed: bool, result: Bytes) {
        if let Some(began) = self.began.remove(&id) {
            self.task_time.note(now.saturating_sub(began));
        }
        self.dispatch.own_done(id);
        if result.len() > MAX_INLINE {
            self.delivering.insert(id, failed);
            self.actions.push(Action::SendLarge { link: self.master, id, bytes: result, failed });
        } else {
            self.report(Outcome { id: id.0, result, failed, delivered: false });
        }
        self.settle(now);
    }

    /// Tells whether the message belonged there.
    fn take(&mut self, now: Duration, link: Link, message: Message) -> bool {
        let from_master = link == self.master;
        let from_parent =
            matches!(self.upward, Upward::At(_, at) if at == link) || self.former.contains(&link);
        let from_child = self.children.contains_key(&link);
        match message {
            Message::Welcome(welcome) if from_master && self.number.is_none() => {
                self.number = Some(MemberId(welcome.member));
                self.actions.push(Action::Setup(welcome.setup));
            }
            Message::Parent(parent) if from_master => {
                self.drop_gone(MemberId(parent.gone));
                match MemberId(parent.member) {
                    MASTER => self.set_parent(MASTER, self.master),
                    // It stays with its parent until the next one is reached.
                    member => {
                        self.next = Some(member);
                        self.actions.push(Action::Connect { member, address: parent.address });
                    }
                }
            }
            Message::End(_) if from_master => self.actions.push(Action::End),
            Message::Piece(piece) if from_master => self.take_piece(now, piece),
            Message::Delivered(Number { number }) if from_master => {
                if let Some(failed) = self.delivering.remove(&TaskId(number)) {
                    self.report(Outcome { id: number, result: Bytes::new(), failed, delivered: true });
                }
            }
            Message::Tasks(tasks) if from_parent => {
                if !self.former.contains(&link) && !self.leaving.contains(&link) {
                    self.received += tasks.tasks.len() as u64;
                }
                for task in tasks.tasks {
                    // One that came again, as it was taken for lost, is here already.
                    if self.origins.insert(TaskId(task.id), link).is_none() {
                        self.dispatch.push(task);
                    }
                }
            }
            Message::Left(_) if from_parent => drop(self.leaving.remove(&link)),
            Message::Pong(Number { number }) if from_parent => {
                self.round_trip.note(now.saturating_sub(Duration::from_micros(number)));
            }
            Message::Attach(attach) if !from_master && !from_parent && !from_child => {
                let below =
                    Below { member: MemberId(attach.member), rate: 0.0, slots: u64::from(attach.slots) };
                self.children.insert(link, below);
            }
            message if from_child => return self.take_from_child(link, message),
            _ => return false,
        }
        true
    }

    fn take_from_child(&mut self, link: Link, message: Message) -> bool {
        let child = Taker::Child(link);
        match message {
            Message::Want(want) => {
                if let Some(below) = self.children.get_mut(&link) {
                    (below.rate, below.slots) = (want.rate, want.slots);
                }
                self.dispatch.allow(child, want.total);
            }
            Message::Outcomes(outcomes) => {
                for outcome in outcomes.outcomes {
                    self.dispatch.done(child, TaskId(outcome.id));
                    self.report(outcome);
                }
            }
            Message::Lost(lost) => {
                let tasks: Vec<_> = lost.tasks.into_iter().map(TaskId).collect();
                for id in &tasks {
                    self.dispatch.done(child, *id);
                }
                self.report_lost(MemberId(lost.member), tasks);
            }
            Message::Back(Numbers { numbers }) => {
                let tasks: Vec<_> = numbers.into_iter().map(TaskId).collect();
                for id in &tasks {
                    self.dispatch.done(child, *id);
                }
                self.give_back(&tasks);
            }
            Message::Held(mut held) => {
                let parent = match self.upward {
                    Upward::At(_, at) => Some(at),
                    Upward::Nobody => None,
                };
                for id in held.tasks.iter().copied().map(TaskId) {
                    self.dispatch.adopt(child, id);
                    // Without a parent it is an orphan, as if from a link that has ended.
                    self.origins.insert(id, parent.unwrap_or(link));
                }
                match parent {
                    Some(parent) => self.actions.push(Action::Send(parent, Message::Held(held))),
                    None if held.more => {}
                    // The next parent is told of the tasks as of this member's own.
                    None => {
                        held.tasks.clear();
                        self.unsent.push(Message::Held(held));
                    }
                }
            }
            Message::Leave(_) => {
                self.dispatch.leave(child);
                if let Some(below) = self.children.get_mut(&link) {
                    (below.rate, below.slots) = (0.0, 0);
                }
                self.actions.push(Action::Send(link, Message::Left(Nothing {})));
            }
            Message::Ping(number) => self.actions.push(Action::Send(link, Message::Pong(number))),
            _ => return false,
        }
        true
    }

    /// Arguments come in pieces. Those of a task that isn't waited for have been asked for twice.
    fn take_piece(&mut self, now: Duration, piece: Piece) {
        let id = TaskId(piece.id);
        let Some((task, bytes)) = self.fetching.get_mut(&id) else { return };
        bytes.extend_from_slice(&piece.bytes);
        if !piece.last && bytes.len() as u64 <= task.size {
            return;
        }
        if let Some((mut task, bytes)) = self.fetching.remove(&id) {
            task.arguments = bytes.freeze();
            if task.arguments.len() as u64 == task.size {
                self.run(now, task);
            } else {
                self.drop_task(id);
            }
        }
    }

    /// Doesn't run a task, as the master has its result already.
    fn drop_task(&mut self, id: TaskId) {
        self.dispatch.own_done(id);
        self.report(Outcome { id: id.0, result: Bytes::new(), failed: true, delivered: true });
    }

    fn run(&mut self, now: Duration, task: Task) {
        if task.suspect {
            self.actions.push(Action::Send(self.master, Message::Running(Number { number: task.id })));
        }
        self.began.insert(TaskId(task.id), now);
        self.actions.push(Action::Run(task));
    }

    /// Takes no further tasks from the parent.
    fn leave_parent(&mut self) {
        if let Upward::At(_, link) = self.upward {
            self.actions.push(Action::Send(link, Message::Leave(Nothing {})));
            self.former.insert(link);
            self.leaving.insert(link);
        }
        self.upward = Upward::Nobody;
    }

    fn set_parent(&mut self, member: MemberId, link: Link) {
        self.next = None;
        if self.upward == Upward::At(member, link) {
            return;
        }
        self.leave_parent();
        self.former.remove(&link);
        self.upward = Upward::At(member, link);
        (self.received, self.announced, self.round_trip, self.pinged) = (0, 0, Average::default(), None);
        if link != self.master {
            let number = self.number.unwrap_or(MASTER).0;
            let attach = Attach { member: number, slots: self.slots };
            self.actions.push(Action::Send(link, Message::Attach(attach)));
        }
        self.adopt_orphans();
        for message in std::mem::take(&mut self.unsent) {
            self.actions.push(Action::Send(link, message));
        }
    }

    /// Tells the master that a member isn't reached, or no longer.
    fn tell_lost(&mut self, member: MemberId) {
        let number = Number { number: u64::from(member.0) };
        self.actions.push(Action::Send(self.master, Message::ParentLost(number)));
    }

    /// A member is gone. If it is the parent, its link has ended, or will some time.
    fn drop_gone(&mut self, member: MemberId) {
        match self.upward {
            Upward::At(parent, link) if parent == member && link != self.master => {
                self.actions.push(Action::Close(link));
                self.lose_link(link);
            }
            _ => {}
        }
    }

    /// Tells the parent which tasks are here or below whose links have ended. They are as if they had come
    /// from the parent from now on. Does nothing while there is none.
    fn adopt_orphans(&mut self) {
        let Upward::At(_, parent) = self.upward else { return };
        // What is done already isn't missing.
        let stranded = std::mem::take(&mut self.stranded);
        self.send_results(parent, stranded);
        let former = &self.former;
        let mut orphans = Vec::new();
        for (id, origin) in &mut self.origins {
            if *origin != parent && !former.contains(origin) {
                *origin = parent;
                orphans.push(*id);
            }
        }
        orphans.sort_unstable();
        let member = self.number.unwrap_or(MASTER).0;
        let lists = in_lists(&orphans).map(|tasks| Held { member, tasks, more: true });
        let last = Held { member, tasks: Vec::new(), more: false };
        let held = lists.chain([last]).map(|held| Action::Send(parent, Message::Held(held)));
        self.actions.extend(held);
    }

    fn is_open(&self, link: Link) -> bool {
        self.former.contains(&link) || matches!(self.upward, Upward::At(_, at) if at == link)
    }

    /// A result goes to where the task came from.
    fn report(&mut self, outcome: Outcome) {
        let origin = self.origins.remove(&TaskId(outcome.id)).filter(|link| self.is_open(*link));
        let parent = match self.upward {
            Upward::At(_, link) => Some(link),
            _ => None,
        };
        match origin.or(parent) {
            Some(link) => self.outcomes.entry(link).or_default().push(outcome),
            None => self.stranded.push(outcome),
        }
    }

    /// Tells those from whom lost tasks came. What came from a link that has ended is found missing when
    /// the member says what it has.
    fn report_lost(&mut self, member: MemberId, tasks: Vec<TaskId>) {
        for (link, tasks) in self.by_origin(&tasks) {
            let lost = in_lists(&tasks).map(|tasks| Lost { member: member.0, tasks });
            self.actions.extend(lost.map(|lost| Action::Send(link, Message::Lost(lost))));
        }
    }

    /// Gives tasks back that nobody here or below has begun.
    fn give_back(&mut self, tasks: &[TaskId]) {
        for (link, tasks) in self.by_origin(tasks) {
            let back = in_lists(&tasks).map(|numbers| Message::Back(Numbers { numbers }));
            self.actions.extend(back.map(|back| Action::Send(link, back)));
        }
    }

    /// Forgets tasks. Returns them by the links from which they came, but for links that have ended.
    fn by_origin(&mut self, tasks: &[TaskId]) -> BTreeMap<Link, Vec<TaskId>> {
        let mut found: BTreeMap<Link, Vec<TaskId>> = BTreeMap::new();
        for id in tasks {
            if let Some(link) = self.origins.remove(id).filter(|link| self.is_open(*link)) {
                found.entry(link).or_default().push(*id);
            }
        }
        found
    }

    /// Hands out tasks, sends results, asks for more.
    fn settle(&mut self, now: Duration) {
        for (taker, tasks) in self.dispatch.hand_out() {
            match taker {
                Taker::Own => tasks.into_iter().for_each(|task| self.begin(now, task)),
                Taker::Child(link) => {
                    self.actions.extend(of_tasks(tasks).map(|message| Action::Send(link, message)));
                }
            }
        }
        self.send_outcomes(now);
        self.want(now);
        self.drop_former();
    }

    fn begin(&mut self, now: Duration, task: Task) {
        if task.size > task.arguments.len() as u64 {
            let id = task.id;
            self.fetching.insert(TaskId(id), (task, BytesMut::new()));
            self.actions.push(Action::Send(self.master, Message::Fetch(Number { number: id })));
        } else {
            self.run(now, task);
        }
    }

    fn send_outcomes(&mut self, now: Duration) {
        self.outcomes.retain(|_, outcomes| !outcomes.is_empty());
        if self.outcomes.is_empty() {
            self.flush_at = None;
            return;
        }
        // Who has children gathers their results: each message crosses to the parent's place.
        let (share, most) = GATHERED;
        let wait = self.round_trip.seconds().unwrap_or_default() * share;
        let wait = Duration::from_secs_f64(wait).min(most);
        let due = *self.flush_at.get_or_insert(now + wait);
        let bytes: usize = self.outcomes.values().flatten().map(|outcome| outcome.result.len()).sum();
        if due > now && bytes < GATHERED_BYTES && !self.children.is_empty() {
            return;
        }
        self.flush_at = None;
        for (link, outcomes) in std::mem::take(&mut self.outcomes) {
            self.send_results(link, outcomes);
        }
    }

    fn send_results(&mut self, link: Link, outcomes: Vec<Outcome>) {
        self.actions.extend(of_outcomes(outcomes).map(|message| Action::Send(link, message)));
    }

    fn want(&mut self, now: Duration) {
        let Upward::At(_, link) = self.upward else { return };
        if !self.leaving.is_empty() {
            return;
        }
        let below = self.children.values().map(|below| below.rate).sum::<f64>();
        let rate = (speed::rate(self.slots, self.task_time) + below).min(MOST_RATE);
        let slots =
            self.children.values().fold(u64::from(self.slots), |all, below| all.saturating_add(below.slots));
        let ahead = speed::ahead(rate, self.round_trip, slots);
        let waiting = self.dispatch.waiting();
        let of_use = self.dispatch.wanted().saturating_add(ahead);
        let (factor, besides) = TOO_MANY;
        if waiting > of_use.saturating_mul(factor).saturating_add(besides) {
            let back = self.dispatch.take_last(waiting - of_use);
            self.give_back(&back);
            return;
        }
        let total = self.received.saturating_add(of_use.saturating_sub(waiting));
        let more = total.saturating_sub(self.announced);
        // A message for an eighth of what is asked for ahead, at least, unless somebody is idle.
        if more > 0 && (waiting == 0 || more.saturating_mul(8) >= ahead) {
            self.announced = total;
            let want = Want { total, rate, slots };
            self.actions.push(Action::Send(link, Message::Want(want)));
            if self.pinged.is_none_or(|at| now >= at + PING_EVERY) {
                self.pinged = Some(now);
                let number = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
                self.actions.push(Action::Send(link, Message::Ping(Number { number })));
            }
        }
    }

    /// Closes links to former parents from which no task is left.
    fn drop_former(&mut self) {
        if self.former.is_empty() {
            return;
        }
        let busy: HashSet<Link> =
            self.origins.values().copied().chain(self.outcomes.keys().copied()).collect();
        let done: Vec<_> =
            self.former.difference(&self.leaving).copied().filter(|link| !busy.contains(link)).collect();
        for link in done {
            self.former.remove(&link);
            if link != self.master {
                self.actions.push(Action::Close(link));
            }
        }
    }
}
