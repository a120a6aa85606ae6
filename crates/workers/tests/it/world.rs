//! A network of members in one process, with time of its own. Links deliver in order, after a delay.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use isthmus_workers::message::{MemberId, Message, Piece, Register, TaskId};
use isthmus_workers::{Action, Finished, Link, Master, Member, Settings};

/// Number of a process. The master is 0.
pub(crate) type Process = usize;

/// What happens.
#[derive(Debug)]
enum Event {
    Deliver {
        to: Process,
        link: Link,
        message: Box<Message>,
    },
    Close {
        to: Process,
        link: Link,
    },
    /// What a member asked for: the process that it connects with, if there is one.
    Connected {
        of: Process,
        member: MemberId,
        with: Option<Process>,
    },
    Ran {
        at: Process,
        task: TaskId,
        arguments: Bytes,
    },
    Tick(Process),
}

enum Machine {
    Master(Box<Master>),
    Member(Box<Member>),
}

struct Place {
    machine: Machine,
    /// The other end of each link.
    links: BTreeMap<Link, (Process, Link)>,
    ended: bool,
}

/// The world: processes, links, and what is under way.
pub(crate) struct World {
    pub now: Duration,
    processes: BTreeMap<Process, Place>,
    next_process: Process,
    next_link: u64,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    events: HashMap<u64, Event>,
    order: u64,
    addresses: HashMap<String, Process>,
    /// Where each process runs.
    sites: HashMap<Process, String>,
    /// One way within a site, and between sites.
    delays: [Duration; 2],
    /// When the last message on each direction of a link arrives: none overtakes another.
    arrivals: HashMap<(Process, Link), Duration>,
    pub random: fastrand::Rng,
    /// How long tasks take.
    pub task_time: fn(&mut fastrand::Rng) -> Duration,
    /// All results, in the order in which they came.
    pub results: Vec<(TaskId, Finished)>,
    /// How often a task was begun.
    pub runs: u64,
    /// Messages between the master and others.
    pub crossings: u64,
    /// The share of connections between members that can't be made.
    pub unreachable: f64,
    /// A process that runs this task ends by it.
    pub deadly: Option<TaskId>,
}

/// What a task returns.
pub(crate) fn answer(arguments: &[u8]) -> Bytes {
    arguments.iter().rev().copied().collect::<Vec<_>>().into()
}

impl World {
    pub(crate) fn new(seed: u64, settings: Settings) -> Self {
        let site = settings.places.first().cloned().unwrap_or_default();
        let master = Place {
            machine: Machine::Master(Box::new(Master::new(settings))),
            links: BTreeMap::new(),
            ended: false,
        };
        Self {
            now: Duration::ZERO,
            processes: BTreeMap::from([(0, master)]),
            next_process: 1,
            next_link: 0,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            order: 0,
            addresses: HashMap::new(),
            sites: HashMap::from([(0, site)]),
            delays: [Duration::from_micros(100), Duration::from_millis(10)],
            arrivals: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
            task_time: |random| Duration::from_micros(random.u64(100..20_000)),
            results: Vec::new(),
            runs: 0,
            crossings: 0,
            unreachable: 0.0,
            deadly: None,
        }
    }

    pub(crate) fn master(&mut self) -> &mut Master {
        match self.processes.get_mut(&0).map(|place| &mut place.machine) {
            Some(Machine::Master(master)) => master,
            _ => panic!("process 0 is the master"),
        }
    }

    pub(crate) fn submit(&mut self, arguments: Bytes) -> TaskId {
        let id = self.master().submit(arguments);
        self.act(0);
        id
    }

    /// Starts a member at `site/node`.
    pub(crate) fn start(&mut self, site: &str, node: &str, slots: u32) -> Process {
        let process = self.next_process;
        self.next_process += 1;
        let address = format!("p{process}:1");
        self.addresses.insert(address.clone(), process);
        self.sites.insert(process, site.to_owned());
        let [ours, theirs] = self.link();
        let register = Register { places: vec![site.to_owned(), node.to_owned()], slots, address };
        let place = Place {
            machine: Machine::Member(Box::new(Member::new(ours, register))),
            links: BTreeMap::from([(ours, (0, theirs))]),
            ended: false,
        };
        self.processes.insert(process, place);
        self.at(0).links.insert(theirs, (process, ours));
        self.act(process);
        process
    }

    /// Members that live.
    pub(crate) fn members(&self) -> Vec<Process> {
        self.processes.keys().copied().filter(|process| *process != 0).collect()
    }

    /// Ends a process at once. Others find out when its links end.
    pub(crate) fn kill(&mut self, process: Process) {
        self.vanish(process, 0.0);
    }

    /// Ends a process with its machine. Others find out later, each for itself, within some seconds.
    pub(crate) fn vanish(&mut self, process: Process, seconds: f64) {
        let Some(place) = self.processes.remove(&process) else { return };
        for (to, link) in place.links.into_values() {
            let later = Duration::from_secs_f64(self.random.f64() * seconds);
            let at = self.arrival(process, to, link) + later;
            self.happen(at, Event::Close { to, link });
        }
    }

    /// Ends a link between members, and neither of them.
    pub(crate) fn cut(&mut self) {
        let links: Vec<_> = self
            .processes
            .iter()
            .filter(|(process, _)| **process != 0)
            .flat_map(|(process, place)| place.links.iter().map(move |(link, end)| (*process, *link, *end)))
            .filter(|(_, _, (to, _))| *to != 0)
            .collect();
        if links.is_empty() {
            return;
        }
        let (process, link, (to, theirs)) = links[self.random.usize(..links.len())];
        self.close_at(process, to, theirs);
        self.close_at(to, process, link);
    }

    /// Does the next thing that happens. Tells whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        let Some(Reverse((at, order))) = self.queue.pop() else { return false };
        self.now = at;
        let Some(event) = self.events.remove(&order) else { return true };
        let now = self.now;
        let process = match event {
            Event::Deliver { to, link, message } => {
                // The link has ended at this end.
                let Some(place) = self.processes.get_mut(&to).filter(|place| place.links.contains_key(&link))
                else {
                    return true;
                };
                match &mut place.machine {
                    Machine::Master(master) => master.receive(now, link, *message),
                    Machine::Member(member) => member.receive(now, link, *message),
                }
                to
            }
            Event::Close { to, link } => {
                let Some(place) = self.processes.get_mut(&to) else { return true };
                if place.links.remove(&link).is_none() {
                    return true;
                }
                match &mut place.machine {
                    Machine::Master(master) => master.closed(now, link),
                    Machine::Member(member) => member.closed(now, link),
                }
                to
            }
            Event::Connected { of, member, with } => {
                if !self.processes.contains_key(&of) {
                    return true;
                }
                let is_reached = self.random.f64() >= self.unreachable;
                let with = with.filter(|with| is_reached && self.processes.contains_key(with));
                let link = with.map(|with| {
                    let [ours, theirs] = self.link();
                    self.at(of).links.insert(ours, (with, theirs));
                    self.at(with).links.insert(theirs, (of, ours));
                    ours
                });
                if let Some(Machine::Member(machine)) =
                    self.processes.get_mut(&of).map(|place| &mut place.machine)
                {
                    machine.connected(now, member, link);
                }
                of
            }
            Event::Ran { at, task, arguments } => {
                if !self.processes.contains_key(&at) {
                    return true;
                }
                if self.deadly == Some(task) {
                    self.kill(at);
                    return true;
                }
                match self.processes.get_mut(&at).map(|place| &mut place.machine) {
                    Some(Machine::Master(master)) => master.finished(task, false, answer(&arguments)),
                    Some(Machine::Member(member)) => member.finished(now, task, false, answer(&arguments)),
                    None => {}
                }
                at
            }
            Event::Tick(process) => {
                match self.processes.get_mut(&process).map(|place| &mut place.machine) {
                    Some(Machine::Master(master)) => master.tick(now),
                    Some(Machine::Member(member)) => member.tick(now),
                    None => return true,
                }
                process
            }
        };
        self.act(process);
        true
    }

    /// Goes on until all tasks that were submitted have a result.
    pub(crate) fn finish(&mut self, tasks: usize) {
        for _ in 0..20_000_000 {
            if self.results.len() >= tasks {
                return;
            }
            if !self.step() {
                let counts = self.master().counts();
                panic!(
                    "nothing happens any more after {} of {tasks} results: {counts:?}",
                    self.results.len()
                );
            }
        }
        panic!("it doesn't end: {} of {tasks} results", self.results.len());
    }

    fn at(&mut self, process: Process) -> &mut Place {
        self.processes.get_mut(&process).expect("a process that lives")
    }

    fn link(&mut self) -> [Link; 2] {
        self.next_link += 2;
        [Link(self.next_link), Link(self.next_link + 1)]
    }

    fn delay(&mut self, from: Process, to: Process) -> Duration {
        let is_near = self.sites.get(&from) == self.sites.get(&to);
        let delay = self.delays[usize::from(!is_near)];
        delay.mul_f64(1.0 + self.random.f64() / 10.0)
    }

    fn happen(&mut self, at: Duration, event: Event) {
        self.order += 1;
        self.events.insert(self.order, event);
        self.queue.push(Reverse((at, self.order)));
    }

    /// When what is sent now arrives over a link that ends there.
    fn arrival(&mut self, from: Process, to: Process, link: Link) -> Duration {
        let at = self.now + self.delay(from, to);
        let last = self.arrivals.entry((to, link)).or_default();
        *last = at.max(*last + Duration::from_nanos(1));
        *last
    }

    fn close_at(&mut self, from: Process, to: Process, link: Link) {
        let at = self.arrival(from, to, link);
        self.happen(at, Event::Close { to, link });
    }

    fn deliver(&mut self, from: Process, link: Link, message: Message) {
        let Some((to, theirs)) = self.at(from).links.get(&link).copied() else { return };
        self.crossings += u64::from(self.sites.get(&from) != self.sites.get(&to));
        // As bytes, so that what can't be written or read is found.
        let mut bytes = BytesMut::new();
        message.write(&mut bytes);
        let message = Message::read(&mut bytes).expect("a message").expect("all of it");
        let at = self.arrival(from, to, theirs);
        self.happen(at, Event::Deliver { to, link: theirs, message: Box::new(message) });
    }

    /// Does what a process asks for.
    fn act(&mut self, process: Process) {
        let Some(place) = self.processes.get_mut(&process) else { return };
        let (actions, deadline) = match &mut place.machine {
            Machine::Master(master) => {
                while let Some(result) = master.next_finished() {
                    self.results.push(result);
                }
                (master.actions(), master.deadline())
            }
            Machine::Member(member) => (member.actions(), member.deadline()),
        };
        for action in actions {
            match action {
                Action::Send(link, message) => self.deliver(process, link, message),
                Action::SendLarge { link, id, bytes, failed } => {
                    let pieces: Vec<_> = bytes.chunks(200_000).collect();
                    let count = pieces.len();
                    for (at, piece) in pieces.into_iter().enumerate() {
                        let last = at + 1 == count;
                        let piece = Piece { id: id.0, bytes: piece.to_vec().into(), last, failed };
                        self.deliver(process, link, Message::Piece(piece));
                    }
                }
                Action::Close(link) => {
                    if let Some((to, theirs)) = self.at(process).links.remove(&link) {
                        self.close_at(process, to, theirs);
                    }
                }
                Action::Connect { member, address } => {
                    let with = self.addresses.get(&address).copied();
                    let at = self.now + self.delay(process, with.unwrap_or_default()) * 2;
                    self.happen(at, Event::Connected { of: process, member, with });
                }
                Action::Setup(_) => {}
                Action::Run(task) => {
                    self.runs += 1;
                    assert_eq!(task.arguments.len() as u64, task.size, "all arguments are there");
                    let at = self.now + (self.task_time)(&mut self.random);
                    let (task, arguments) = (TaskId(task.id), task.arguments);
                    self.happen(at, Event::Ran { at: process, task, arguments });
                }
                Action::End => {
                    self.at(process).ended = true;
                    self.kill(process);
                    return;
                }
            }
        }
        if let Some(at) = deadline {
            self.happen(at.max(self.now), Event::Tick(process));
        }
    }
}
