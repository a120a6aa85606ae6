//! The commands of a job that run on this node.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use isthmus_service::lock;
use isthmus_wire::launchers::DAEMONS;
use tokio::sync::{mpsc, watch};

use crate::starting::supervise::handle;
use crate::starting::supervise::{GRACE, Outcome, Supervised};

/// Most signals that wait for a command's task.
const CONTROL_QUEUE: usize = 16;
/// How long processes may take to end: the supervisor's grace period and a margin for
/// a loaded machine.
const GONE_DEADLINE: Duration = GRACE.saturating_add(Duration::from_secs(5));

/// In messages, stands before the name of a command whose supervisor was killed, and the command
/// with it.
pub const SUPERVISOR: &str = "the supervisor of ";

/// In messages, stands before the name of a node: the process that a launcher starts for it in
/// place of ssh was killed.
pub const LAUNCH: &str = "`isthmus launch ";

/// The commands of one job that run, or have left processes behind.
#[derive(Debug, Default)]
pub struct Processes {
    running: Mutex<HashMap<u64, Running>>,
    next: AtomicU64,
    closed: AtomicBool,
}

#[derive(Debug, Clone)]
pub(crate) struct Running {
    /// The way of signals to the command's task.
    pub(crate) control_tx: mpsc::Sender<Control>,
    pub(crate) outcome: watch::Receiver<Outcome>,
    /// The program's name in messages.
    program: String,
}

impl Running {
    /// The signal that ended a process and the process's name, if neither the launcher nor this
    /// agent sent the signal. `None` if no such end is known by now. While a job is `ending`,
    /// daemons kill their ranks, so only a daemon's end counts.
    pub(crate) fn killed(&self, ending: bool) -> Option<(i32, String)> {
        let outcome = *self.outcome.borrow();
        let (signal, name) = outcome.killed()?;
        let command = if name.is_empty() { self.program.clone() } else { name };
        let counts = !ending || DAEMONS.contains(&command.as_str());
        let command = if outcome.supervisor_killed { format!("{SUPERVISOR}{command}") } else { command };
        (counts && is_crash(signal)).then_some((signal, command))
    }
}

#[derive(Debug)]
pub(crate) enum Control {
    Signal(i32),
    End,
}

impl Processes {
    /// Whether no further command may start.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Lets no further command start, ends all commands with their descendants, and waits for that.
    /// Returns the number of processes that had to be killed. Also returns each command that
    /// another party's signal ended, with the signal.
    pub(crate) async fn end_all(&self) -> (u32, Vec<(i32, String)>) {
        self.closed.store(true, Ordering::SeqCst);
        let running: Vec<_> = lock(&self.running).values().cloned().collect();
        for command in &running {
            let _ = command.control_tx.send(Control::End).await;
        }
        let (mut killed, mut by_others) = (0, Vec::new());
        for mut command in running {
            let gone = handle::gone(&mut command.outcome);
            killed += tokio::time::timeout(GONE_DEADLINE, gone).await.unwrap_or(0);
            by_others.extend(command.killed(true));
        }
        (killed, by_others)
    }

    pub(crate) fn remove(&self, key: u64) {
        lock(&self.running).remove(&key);
    }

    pub(crate) fn add(&self, supervised: Supervised, program: String) -> (u64, Running) {
        let (control_tx, mut control_rx) = mpsc::channel(CONTROL_QUEUE);
        let running = Running { control_tx, outcome: supervised.outcome(), program };
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.running).insert(key, running.clone());
        let mut supervised = supervised;
        tokio::spawn(async move {
            let mut outcome = supervised.outcome();
            loop {
                tokio::select! {
                    control = control_rx.recv() => {
                        match control {
                            Some(Control::Signal(signal)) => supervised.signal(signal, false).await,
                            Some(Control::End) | None => supervised.end().await,
                        }
                    }
                    _ = handle::gone(&mut outcome) => return,
                }
            }
        });
        (key, running)
    }
}

/// Whether launchers never end their daemons by this signal.
fn is_crash(signal: i32) -> bool {
    use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV};
    [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV].contains(&signal)
}
