//! The thread that has a member's sockets. Programs' threads leave what they ask for in [`Shared`], and find
//! tasks and results there.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as Blocking, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use isthmus_workers::message::{MASTER, Register, TaskId};
use isthmus_workers::{Action, Counts, Finished, Link, Master, Member, MemberId, SiteCounts};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::connection::{Connection, Ended, Purpose};
use crate::greeting::{Greeting, Key, Side};

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
/// The first number of a connection.
const FIRST: u64 = 2;
/// Most connections whose ends don't know each other yet.
const MOST_GREETING: usize = 4096;
/// Nothing more is taken from other members while so many bytes wait for the program, or for the parent.
const MOST_WAITING: usize = 256 << 20;
const MOST_UNSENT: usize = 8 << 20;
/// How long a connection takes at most.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Whom nobody connects with.
const NOBODY: MemberId = MemberId(u32::MAX);
/// How long what is to be sent may take to leave at the end.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// What a program asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Submit(Bytes),
    Cancel(TaskId, Arc<Answer<bool>>),
    Sites(Arc<Answer<BTreeMap<String, SiteCounts>>>),
    Done { id: TaskId, failed: bool, result: Bytes },
    End,
}

/// How long after a refused descriptor connections are accepted again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

impl Command {
    /// Answers whoever waits for it.
    fn refuse(self) {
        match self {
            Self::Cancel(_, answer) => answer.give(false),
            Self::Sites(answer) => answer.give(BTreeMap::new()),
            Self::Submit(_) | Self::Done { .. } | Self::End => {}
        }
    }
}

/// An answer, once it is known.
#[derive(Debug, Default)]
pub(crate) struct Answer<T>(Mutex<Option<T>>, Condvar);

impl<T: Default> Answer<T> {
    fn give(&self, answer: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.1.notify_all();
    }

    /// Waits for the answer, which always comes: at the latest when the pool ends.
    pub(crate) fn wait(&self) -> T {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found =
            self.1.wait_while(found, |found| found.is_none()).unwrap_or_else(PoisonError::into_inner);
        found.take().unwrap_or_default()
    }
}

/// What the engine has for its program.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub commands: Vec<Command>,
    /// How many tasks were submitted.
    pub submitted: u64,
    /// Results, at the master.
    pub finished: VecDeque<(TaskId, Finished)>,
    /// Tasks to run.
    pub tasks: VecDeque<(TaskId, Bytes)>,
    /// What runs before the first task, at a worker.
    pub setup: Option<Bytes>,
    /// Bytes of results that wait, and whether they are too many.
    pub waiting: usize,
    pub is_full: bool,
    pub counts: Counts,
    /// Why the pool has ended.
    pub ended: Option<End>,
}

/// Why a pool has ended, for one of its members.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The master has ended it.
    #[error("the pool has ended")]
    Over,
    /// The link to the master has ended.
    #[error("the pool's master is gone: {0}")]
    Gone(String),
    /// The engine has failed.
    #[error("the pool has failed: {0}")]
    Failed(String),
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    waker: Waker,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the engine for something. After the end nobody does it.
    pub(crate) fn command(&self, mut state: MutexGuard<'_, State>, command: Command) {
        if state.ended.is_some() {
            return command.refuse();
        }
        let was_empty = state.commands.is_empty();
        state.commands.push(command);
        drop(state);
        if was_empty {
            self.wake();
        }
    }

    /// The program has taken a result: more may be taken from other members, if too much waited.
    pub(crate) fn took(&self) {
        let mut state = self.lock();
        if state.is_full && state.waiting < MOST_WAITING {
            state.is_full = false;
            drop(state);
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        // It fails only where the engine is gone already.
        let _ = self.waker.wake();
    }

    /// Waits until something is there, the pool has ended, or the time is over.
    pub(crate) fn wait<T>(
        &self,
        within: Option<Duration>,
        mut take: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, End> {
        let deadline = within.and_then(|within| Instant::now().checked_add(within));
        let mut state = self.lock();
        loop {
            if let Some(found) = take(&mut state) {
                return Ok(Some(found));
            }
            if let Some(end) = &state.ended {
                return Err(end.clone());
            }
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Ok(None),
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// The master or another member.
pub(crate) enum Machine {
    Master(Box<Master>),
    /// It begins once the master is greeted.
    Joining(Register),
    Member(Box<Member>),
}

/// Tells the program of the end when it is dropped.
struct Ends {
    shared: Arc<Shared>,
    end: Option<End>,
}

impl Ends {
    fn end(mut self, end: End) {
        self.end = Some(end);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = self.end.take();
        // Nobody wants their results any more.
        state.tasks.clear();
        let commands = std::mem::take(&mut state.commands);
        drop(state);
        commands.into_iter().for_each(Command::refuse);
        self.shared.changed.notify_all();
    }
}

pub(crate) struct Engine {
    poll: Poll,
    listener: TcpListener,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    machine: Machine,
    key: Key,
    began: Instant,
    shared: Arc<Shared>,
    /// Connections to parents, as other threads make them.
    connected_tx: std::sync::mpsc::Sender<(MemberId, io::Result<Blocking>)>,
    connected_rx: std::sync::mpsc::Receiver<(MemberId, io::Result<Blocking>)>,
    /// Why the connection to the master has ended.
    gone: Option<String>,
    /// Tasks that are to run once everything is sent.
    ready: Vec<(TaskId, Bytes)>,
    /// Members may be waiting to be accepted.
    accepts: bool,
}

impl Engine {
    /// An engine whose other members connect at `listener`.
    pub(crate) fn new(listener: std::net::TcpListener, machine: Machine, key: Key) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), waker });
        let (connected_tx, connected_rx) = std::sync::mpsc::channel();
        Ok(Self {
            poll,
            listener,
            connections: BTreeMap::new(),
            next: FIRST,
            machine,
            key,
            began: Instant::now(),
            shared,
            connected_tx,
            connected_rx,
            gone: None,
            ready: Vec::new(),
            accepts: false,
        })
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Takes over a connection that was made to the master.
    pub(crate) fn add_master(&mut self, stream: Blocking) -> io::Result<()> {
        self.add(stream, Purpose::Master).map(drop)
    }

    /// Runs until the pool has ended.
    pub(crate) fn run(mut self) {
        // Also if something here panics: whoever waits must not wait for ever.
        let guard =
            Ends { shared: self.shared.clone(), end: Some(End::Failed("its thread panicked".into())) };
        let end = loop {
            match self.turn() {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(error) => break End::Failed(error.to_string()),
            }
        };
        guard.end(end);
        self.leave();
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn turn(&mut self) -> io::Result<Option<End>> {
        let mut events = Events::with_capacity(1024);
        let timeout = self.timeout();
        match self.poll.poll(&mut events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            found => found?,
        }
        for event in &events {
            match event.token() {
                WAKER => {}
                LISTENER => self.accepts = true,
                Token(number) => {
                    if let Some(connection) = self.connections.get_mut(&(number as u64)) {
                        connection.readable |=
                            event.is_readable() || event.is_read_closed() || event.is_error();
                        if event.is_writable() || event.is_error() {
                            connection.may_write();
                        }
                    }
                }
            }
        }
        if self.accepts {
            self.accepts = !self.accept();
        }
        if let Some(end) = self.obey() {
            return Ok(Some(end));
        }
        self.take_connected();
        self.read();
        self.tick();
        // What is lost while it is sent to asks for more.
        loop {
            if let Some(end) = self.act() {
                return Ok(Some(end));
            }
            if !self.flush() {
                break;
            }
        }
        // After what was to be said before: a task may end the process at once.
        if !self.ready.is_empty() {
            self.shared.lock().tasks.extend(self.ready.drain(..));
            self.shared.changed.notify_all();
        }
        Ok(None)
    }

    /// How long nothing is to be done unless something happens.
    fn timeout(&self) -> Option<Duration> {
        let takes = self.takes();
        if self.connections.values().any(|connection| connection.readable && (takes || !connection.waits())) {
            return Some(Duration::ZERO);
        }
        let machine = match &self.machine {
            Machine::Master(master) => master.deadline(),
            Machine::Member(member) => member.deadline(),
            Machine::Joining(_) => None,
        };
        let machine = machine.map(|at| at.saturating_sub(self.now()));
        let now = Instant::now();
        let greeting = self.connections.values().filter_map(Connection::deadline).min();
        let greeting = greeting.map(|at| at.saturating_duration_since(now));
        let accepts = self.accepts.then_some(ACCEPT_AGAIN);
        machine.into_iter().chain(greeting).chain(accepts).min()
    }

    /// Whether messages are taken from members that have connected here: what waits for the program, or for
    /// the parent, is bounded.
    fn takes(&self) -> bool {
        let is_stuck = |connection: &Connection| {
            connection.purpose != Purpose::Accepted && connection.unsent() > MOST_UNSENT
        };
        let mut state = self.shared.lock();
        state.is_full = state.waiting >= MOST_WAITING;
        !state.is_full && !self.connections.values().any(is_stuck)
    }

    /// Accepts connections. Tells whether there are no more; else it is tried again.
    fn accept(&mut self) -> bool {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let mut greeting =
                        self.connections.iter().filter(|(_, connection)| !connection.is_open());
                    let oldest = greeting.next().map(|(number, _)| *number);
                    // Whoever says nothing gives way.
                    if let Some(oldest) = oldest.filter(|_| greeting.count() + 1 >= MOST_GREETING) {
                        self.lose(oldest, &Ended::Closed);
                    }
                    // A connection that can't be watched is closed.
                    let _ = self.watch(stream, Purpose::Accepted, self.number());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                // No descriptors are left: others will end.
                Err(_) => return false,
            }
        }
    }

    /// The own number; that of nobody before the master has given one.
    fn number(&self) -> MemberId {
        match &self.machine {
            Machine::Master(_) => MASTER,
            Machine::Member(member) => member.number().unwrap_or(NOBODY),
            Machine::Joining(_) => NOBODY,
        }
    }

    fn add(&mut self, stream: Blocking, purpose: Purpose) -> io::Result<u64> {
        stream.set_nonblocking(true)?;
        let acceptor = match purpose {
            Purpose::Parent(parent) => parent,
            Purpose::Master | Purpose::Accepted => MASTER,
        };
        self.watch(TcpStream::from_std(stream), purpose, acceptor)
    }

    fn watch(&mut self, mut stream: TcpStream, purpose: Purpose, acceptor: MemberId) -> io::Result<u64> {
        let number = self.next;
        self.next += 1;
        let token = usize::try_from(number).map_err(io::Error::other)?;
        self.poll.registry().register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)?;
        let side = if purpose == Purpose::Accepted { Side::Acceptor } else { Side::Dialer };
        let greeting = Greeting::begin(self.key.clone(), side, acceptor).map_err(io::Error::other)?;
        self.connections.insert(number, Connection::new(stream, purpose, greeting, Instant::now()));
        Ok(number)
    }

    /// Does what the program asks for.
    fn obey(&mut self) -> Option<End> {
        let now = self.now();
        let commands = std::mem::take(&mut self.shared.lock().commands);
        let mut ends = false;
        for command in commands {
            match (command, &mut self.machine) {
                (Command::Submit(arguments), Machine::Master(master)) => drop(master.submit(arguments)),
                (Command::Cancel(id, answer), Machine::Master(master)) => answer.give(master.cancel(id)),
                (Command::Sites(answer), Machine::Master(master)) => answer.give(master.sites()),
                (Command::Done { id, failed, result }, Machine::Master(master)) => {
                    master.finished(id, failed, result)
                }
                (Command::Done { id, failed, result }, Machine::Member(member)) => {
                    member.finished(now, id, failed, result);
                }
                (Command::End, Machine::Master(master)) => {
                    master.end();
                    ends = true;
                }
                (Command::End, _) => ends = true,
                (command, _) => command.refuse(),
            }
        }
        if ends {
            let _ = self.act();
        }
        ends.then_some(End::Over)
    }

    /// Takes over connections that other threads have made.
    fn take_connected(&mut self) {
        while let Ok((member, found)) = self.connected_rx.try_recv() {
            let added = found.and_then(|stream| self.add(stream, Purpose::Parent(member)));
            if added.is_err() {
                let now = self.now();
                if let Machine::Member(machine) = &mut self.machine {
                    machine.connected(now, member, None);
                }
            }
        }
    }

    fn read(&mut self) {
        let numbers: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.readable)
            .map(|(number, _)| *number)
            .collect();
        let takes = self.takes();
        for number in numbers {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            if connection.waits() && !takes {
                continue;
            }
            match connection.read() {
                Err(ended) => self.lose(number, &ended),
                Ok((messages, has_greeted)) => {
                    if has_greeted {
                        self.greeted(number);
                    }
                    let now = self.now();
                    for message in messages {
                        match &mut self.machine {
                            Machine::Master(master) => master.receive(now, Link(number), message),
                            Machine::Member(member) => member.receive(now, Link(number), message),
                            Machine::Joining(_) => {}
                        }
                    }
                }
            }
        }
    }

    /// Both ends of a connection know each other.
    fn greeted(&mut self, number: u64) {
        let now = self.now();
        let Some(connection) = self.connections.get(&number) else { return };
        match (connection.purpose, &mut self.machine) {
            (Purpose::Master, Machine::Joining(register)) => {
                let member = Member::new(Link(number), register.clone());
                self.machine = Machine::Member(Box::new(member));
            }
            (Purpose::Parent(parent), Machine::Member(member)) => {
                member.connected(now, parent, Some(Link(number)))
            }
            _ => {}
        }
    }

    /// A connection has ended.
    fn lose(&mut self, number: u64, why: &Ended) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let now = self.now();
        let is_open = connection.is_open();
        if connection.purpose == Purpose::Master {
            self.gone = Some(why.to_string());
        }
        match (&mut self.machine, connection.purpose) {
            (Machine::Member(member), Purpose::Parent(parent)) if !is_open => {
                member.connected(now, parent, None)
            }
            (Machine::Member(member), _) if is_open => member.closed(now, Link(number)),
            (Machine::Master(master), _) if is_open => master.closed(now, Link(number)),
            _ => {}
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        match &mut self.machine {
            Machine::Master(master) if master.deadline().is_some_and(|at| at <= now) => master.tick(now),
            Machine::Member(member) if member.deadline().is_some_and(|at| at <= now) => member.tick(now),
            _ => {}
        }
        let late = Instant::now();
        let overdue: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.deadline().is_some_and(|at| at <= late))
            .map(|(number, _)| *number)
            .collect();
        for number in overdue {
            self.lose(number, &Ended::Io(io::ErrorKind::TimedOut.into()));
        }
    }

    /// Does what the machine asks for. Returns why the pool has ended, if it has.
    fn act(&mut self) -> Option<End> {
        let actions = match &mut self.machine {
            Machine::Master(master) => {
                let mut state = self.shared.lock();
                let before = state.finished.len();
                while let Some((id, found)) = master.next_finished() {
                    state.waiting += bytes_of(&found);
                    state.finished.push_back((id, found));
                }
                let joined = state.counts.joined();
                state.counts = master.counts();
                let has_new = state.finished.len() > before || state.counts.joined() > joined;
                drop(state);
                if has_new {
                    self.shared.changed.notify_all();
                }
                master.actions()
            }
            Machine::Member(member) => member.actions(),
            Machine::Joining(_) => {
                let gone = self.gone.clone();
                return gone.map(End::Gone);
            }
        };
        for action in actions {
            match action {
                Action::Send(Link(number), message) => {
                    if let Some(connection) = self.connections.get_mut(&number) {
                        connection.send(message);
                    }
                }
                Action::SendLarge { link: Link(number), id, bytes, failed } => {
                    if let Some(connection) = self.connections.get_mut(&number) {
                        connection.send_large(id, bytes, failed);
                    }
                }
                Action::Close(Link(number)) => {
                    if let Some(connection) = self.connections.get_mut(&number) {
                        connection.closing = true;
                    }
                }
                Action::Connect { member, address } => self.connect(member, address),
                Action::Setup(setup) => {
                    self.shared.lock().setup = Some(setup);
                    self.shared.changed.notify_all();
                }
                Action::Run(task) => self.ready.push((TaskId(task.id), task.arguments)),
                Action::End => return Some(self.gone.clone().map_or(End::Over, End::Gone)),
            }
        }
        None
    }

    /// Connects in a thread of its own: names are looked up there, too.
    fn connect(&self, member: MemberId, address: String) {
        let (tx, shared) = (self.connected_tx.clone(), self.shared.clone());
        let connect = move || {
            // Nobody waits for it if the pool has ended.
            let _ = tx.send((member, connect(&address, CONNECT_WITHIN)));
            shared.wake();
        };
        let started = std::thread::Builder::new().name("isthmus-pool-connect".into()).spawn(connect);
        if let Err(error) = started {
            let _ = self.connected_tx.send((member, Err(error)));
            self.shared.wake();
        }
    }

    /// Sends what connections take. Tells whether one has been lost by that.
    fn flush(&mut self) -> bool {
        let mut ended = Vec::new();
        for (number, connection) in &mut self.connections {
            match connection.flush() {
                Err(why) => ended.push((*number, why)),
                Ok(()) if connection.closing && connection.is_idle() => ended.push((*number, Ended::Closed)),
                Ok(()) => {}
            }
        }
        let mut has_lost = false;
        for (number, why) in ended {
            // The machine has asked for it itself, and knows.
            if self.connections.get(&number).is_some_and(|connection| connection.closing) {
                self.connections.remove(&number);
            } else {
                self.lose(number, &why);
                has_lost = true;
            }
        }
        has_lost
    }

    /// Sends what is left, and waits until the other ends have closed, for a while. A connection that is
    /// closed with something unread loses what was sent last.
    fn leave(&mut self) {
        let deadline = Instant::now() + LEAVE_WITHIN;
        let mut events = Events::with_capacity(64);
        loop {
            self.connections.retain(|_, connection| connection.is_open() && connection.leave());
            let left = deadline.saturating_duration_since(Instant::now());
            if self.connections.is_empty() || left.is_zero() {
                return;
            }
            match self.poll.poll(&mut events, Some(left)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
                _ => {}
            }
            for event in &events {
                if let Some(connection) = self.connections.get_mut(&(event.token().0 as u64)) {
                    connection.readable = true;
                    connection.may_write();
                }
            }
        }
    }
}

fn bytes_of(found: &Finished) -> usize {
    match found {
        Finished::Done(bytes) | Finished::Failed(bytes) => bytes.len(),
        Finished::Lost { .. } => 0,
    }
}

impl State {
    /// Takes the next result.
    pub(crate) fn take_finished(&mut self) -> Option<(TaskId, Finished)> {
        let (id, found) = self.finished.pop_front()?;
        self.waiting = self.waiting.saturating_sub(bytes_of(&found));
        Some((id, found))
    }
}

/// Connects with `host:port`, by any of its addresses, each within this time.
pub(crate) fn connect(address: &str, within: Duration) -> io::Result<Blocking> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for address in address.to_socket_addrs()? {
        match Blocking::connect_timeout(&address, within) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The same, and tries again for as long as `patience` says, as where nobody listens yet.
pub(crate) fn connect_patiently(address: &str, patience: Duration) -> io::Result<Blocking> {
    const PAUSE: Duration = Duration::from_millis(200);
    let began = Instant::now();
    loop {
        match connect(address, CONNECT_WITHIN) {
            Err(_) if began.elapsed() + PAUSE < patience => std::thread::sleep(PAUSE),
            found => return found,
        }
    }
}

/// How others reach a listener of this process, by the address from which it has connected.
pub(crate) fn address(of: IpAddr, listener: SocketAddr) -> String {
    SocketAddr::new(of, listener.port()).to_string()
}
