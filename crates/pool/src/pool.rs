//! The two ends of a pool, for programs: [`Pool`] submits tasks and takes results, [`Worker`] runs tasks.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use isthmus_workers::message::{MAX_FRAME, MOST_SLOTS, Register, TaskId};
use isthmus_workers::{Counts, Finished, MAX_BYTES, Master, Settings, SiteCounts};

use crate::engine::{self, Answer, Command, End, Engine, Machine, Shared};
use crate::greeting::{GreetingError, Key};
use crate::options::{Options, WrongOption};
use crate::ticket::{NoTicket, Ticket};

/// Longest arguments of the initializer, in bytes: they travel in one message.
const MAX_SETUP: usize = MAX_FRAME / 2;

/// Why a pool can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] WrongOption),
    /// The ticket is wrong.
    #[error(transparent)]
    Ticket(#[from] NoTicket),
    /// There is no key.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// Other members can't reach this one.
    #[error("cannot listen on port {port}: {error}")]
    Listen {
        /// The port, or 0 for any.
        port: u16,
        /// What the system says.
        error: io::Error,
    },
    /// The master isn't reached.
    #[error("cannot reach the pool's master at {address}: {error}. Is its program still running?")]
    Unreachable {
        /// Where it was tried.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// The system gives no thread, or no socket.
    #[error("cannot begin: {0}")]
    Begin(io::Error),
    /// Arguments or a result are too long.
    #[error("{what} take {bytes} bytes; at most {most} are allowed")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// The pool has ended.
    #[error(transparent)]
    Ended(#[from] End),
}

/// A running engine, and what both ends of a pool do with it.
#[derive(Debug)]
pub(crate) struct Running {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    fn start(engine: Engine) -> Result<Self, PoolError> {
        let shared = engine.shared();
        let thread = std::thread::Builder::new().name("isthmus-pool".into()).spawn(move || engine.run());
        let thread = Mutex::new(Some(thread.map_err(PoolError::Begin)?));
        Ok(Self { shared, thread })
    }

    /// Waits for the next task to run in this process.
    pub(crate) fn task(&self, within: Option<Duration>) -> Result<Option<(TaskId, Bytes)>, End> {
        self.shared.wait(within, |state| state.tasks.pop_front())
    }

    /// Gives a task's result.
    pub(crate) fn done(&self, id: TaskId, failed: bool, result: Bytes) -> Result<(), PoolError> {
        within_bounds("the result", &result, MAX_BYTES)?;
        self.shared.command(self.shared.lock(), Command::Done { id, failed, result });
        Ok(())
    }

    /// Why the pool has ended, if it has.
    pub(crate) fn why(&self) -> Option<End> {
        self.shared.lock().ended.clone()
    }

    pub(crate) fn end(&self) {
        self.shared.command(self.shared.lock(), Command::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there is told by the message that it prints.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen(port: u16) -> Result<TcpListener, PoolError> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(|error| PoolError::Listen { port, error })
}

fn within_bounds(what: &'static str, bytes: &[u8], most: usize) -> Result<(), PoolError> {
    match bytes.len() {
        length if length > most => Err(PoolError::TooLong { what, bytes: length, most }),
        _ => Ok(()),
    }
}

/// The master's end of a pool.
#[derive(Debug)]
pub struct Pool {
    pub(crate) running: Running,
    ticket: String,
    /// How many workers will join, and how long they have for it.
    expects: u64,
    patience: Duration,
}

impl Pool {
    /// Begins a pool. Each worker runs `setup` before its first task.
    ///
    /// # Errors
    /// An option is wrong, or nobody could connect.
    pub fn begin(options: &str, setup: Bytes) -> Result<Self, PoolError> {
        let options = Options::read(options)?;
        within_bounds("the initializer and its arguments", &setup, MAX_SETUP)?;
        let listener = listen(options.port)?;
        let port = listener.local_addr().map_err(PoolError::Begin)?.port();
        let key = match options.key {
            Some(key) => format!("-:0:{key}").parse::<Ticket>()?.key,
            None => Key::random()?,
        };
        let host = options.host.unwrap_or_else(host_name);
        let ticket = Ticket { host, port, key: key.clone() }.to_string();
        let settings = Settings {
            places: options.places,
            attempts: options.attempts,
            flat_below: options.flat_below,
            setup,
            slots: options.slots.unwrap_or(0).min(MOST_SLOTS),
        };
        let machine = Machine::Master(Box::new(Master::new(settings)));
        let engine = Engine::new(listener, machine, key).map_err(PoolError::Begin)?;
        let Options { expects, patience, .. } = options;
        Ok(Self { running: Running::start(engine)?, ticket, expects, patience })
    }

    /// What workers need to join: it is a secret.
    pub fn ticket(&self) -> &str {
        &self.ticket
    }

    /// Adds a task with its arguments.
    ///
    /// # Errors
    /// The arguments are too long, or the pool has ended.
    pub fn submit(&self, arguments: Bytes) -> Result<TaskId, PoolError> {
        within_bounds("the arguments", &arguments, MAX_BYTES)?;
        let mut state = self.running.shared.lock();
        if let Some(end) = &state.ended {
            return Err(end.clone().into());
        }
        let id = TaskId(state.submitted);
        state.submitted += 1;
        self.running.shared.command(state, Command::Submit(arguments));
        Ok(id)
    }

    /// Takes a task back that no worker has got yet. Tells whether it did: it has no result then.
    pub fn cancel(&self, id: TaskId) -> bool {
        let answer = Arc::new(Answer::default());
        self.running.shared.command(self.running.shared.lock(), Command::Cancel(id, answer.clone()));
        answer.wait()
    }

    /// Waits for the next task that has ended. `None` if none has within that time.
    ///
    /// # Errors
    /// The pool has ended.
    pub fn next(&self, within: Option<Duration>) -> Result<Option<(TaskId, Finished)>, End> {
        let found = self.running.shared.wait(within, engine::State::take_finished)?;
        if found.is_some() {
            self.running.shared.took();
        }
        Ok(found)
    }

    /// Waits for a task that is to be run in this process, which it is if the option `slots` says so.
    ///
    /// # Errors
    /// The pool has ended.
    pub fn task(&self, within: Option<Duration>) -> Result<Option<(TaskId, Bytes)>, End> {
        self.running.task(within)
    }

    /// Gives the result of a task that was run in this process.
    ///
    /// # Errors
    /// The result is too long.
    pub fn done(&self, id: TaskId, failed: bool, result: Bytes) -> Result<(), PoolError> {
        self.running.done(id, failed, result)
    }

    /// How many tasks and members there are.
    pub fn counts(&self) -> Counts {
        self.running.shared.lock().counts
    }

    /// The workers and the tasks that were done at each site, by its name.
    pub fn sites(&self) -> BTreeMap<String, SiteCounts> {
        let answer = Arc::new(Answer::default());
        self.running.shared.command(self.running.shared.lock(), Command::Sites(answer.clone()));
        answer.wait()
    }

    /// Why the pool has ended, if it has.
    pub fn why(&self) -> Option<End> {
        self.running.why()
    }

    /// Ends the pool for all. Threads that wait for something get an error. Workers that have yet to join
    /// are waited for, as far as the options `expects` and `patience_s` say: nobody would tell them later.
    pub fn end(&self) {
        let have_joined = |state: &mut engine::State| (state.counts.joined() >= self.expects).then_some(());
        // An error says that it has ended already.
        let _ = self.running.shared.wait(Some(self.patience), have_joined);
        self.running.end();
    }
}

/// A worker's end of a pool.
#[derive(Debug)]
pub struct Worker {
    pub(crate) running: Running,
}

impl Worker {
    /// Joins the pool of this ticket. Tries for as long as the option `patience_s` says.
    ///
    /// # Errors
    /// The ticket or an option is wrong, or the master isn't reached.
    pub fn join(ticket: &str, options: &str) -> Result<Self, PoolError> {
        let options = Options::read(options)?;
        let ticket: Ticket = ticket.parse()?;
        let address = format!("{}:{}", ticket.host, ticket.port);
        let unreachable = |error| PoolError::Unreachable { address: address.clone(), error };
        let stream = engine::connect_patiently(&address, options.patience).map_err(unreachable)?;
        let listener = listen(0)?;
        let own = stream.local_addr().map_err(PoolError::Begin)?.ip();
        let at = listener.local_addr().map_err(PoolError::Begin)?;
        let register = Register {
            places: options.places,
            slots: options.slots.unwrap_or(1).clamp(1, MOST_SLOTS),
            address: engine::address(own, at),
        };
        let mut engine =
            Engine::new(listener, Machine::Joining(register), ticket.key).map_err(PoolError::Begin)?;
        engine.add_master(stream).map_err(PoolError::Begin)?;
        Ok(Self { running: Running::start(engine)? })
    }

    /// Waits for what is to be run before the first task.
    ///
    /// # Errors
    /// The pool has ended.
    pub fn setup(&self) -> Result<Bytes, End> {
        let found = self.running.shared.wait(None, |state| state.setup.take())?;
        Ok(found.unwrap_or_default())
    }

    /// Waits for the next task. `None` if there is none within that time.
    ///
    /// # Errors
    /// The pool has ended.
    pub fn task(&self, within: Option<Duration>) -> Result<Option<(TaskId, Bytes)>, End> {
        self.running.task(within)
    }

    /// Gives a task's result, or its error.
    ///
    /// # Errors
    /// The result is too long: give an error in its place.
    pub fn done(&self, id: TaskId, failed: bool, result: Bytes) -> Result<(), PoolError> {
        self.running.done(id, failed, result)
    }

    /// Why the pool has ended, if it has.
    pub fn why(&self) -> Option<End> {
        self.running.why()
    }

    /// Leaves the pool. Threads that wait for something get an error. What it ran is run again elsewhere.
    pub fn end(&self) {
        self.running.end();
    }
}

/// The name of this host, as the C library tells it: that is where isthmus gives a node's name in the grid.
fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
