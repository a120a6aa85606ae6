//! Watching a job while its command runs: what ends it, and what is heard of
//! it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use isthmus_agent::starting::processes::DAEMONS;
use isthmus_agent::starting::supervise::handle;
use isthmus_net::enums::dial_name;
use isthmus_wire::proto::job_news::Kind;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::{self, Joined, Links, UncarriedProgram, WayFailed};
use nix::sys::signal::Signal;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::progress::Progress;
use super::signals::{Received, Signals};
use super::timing::Stopwatch;
use super::uncarried;
use super::work::Work;

/// How long a command may take to end by itself after it was told to.
const TERM_GRACE: Duration = Duration::from_secs(4);
/// The same after a node was lost: by then seconds have passed, and the
/// launcher may wait for that node for ever.
const LOST_GRACE: Duration = Duration::from_secs(1);
/// The same after one of the launcher's daemons was killed: it mostly notices,
/// and says more.
const DAEMON_GRACE: Duration = Duration::from_secs(3);

/// How the command came to its end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    /// By itself, or by a signal.
    Command(i32),
    /// Because a node or the agent was lost.
    Lost(i32),
}

/// The job's end at its agents.
pub(super) type Ending = JoinHandle<Result<proto::EndReply, Status>>;

/// What is watched while the command runs.
pub(crate) struct Watch {
    /// The command.
    pub work: Work,
    /// Nothing but errors is told.
    pub quiet: bool,
    /// Nodes and files of programs that were told of.
    pub warned: HashSet<(String, String)>,
    /// Signals to this process.
    pub signals: Signals,
    /// What the user sees meanwhile.
    pub progress: Progress,
    /// How the start goes.
    pub wire_up: WireUp,
    /// When what happened.
    pub stopwatch: Stopwatch,
    /// Connections that could not be made.
    pub failures: Vec<String>,
    /// Pairs of nodes that had to take another way, and the dial of it.
    pub ways: HashSet<(String, String, i32)>,
    /// What ended the job, if it wasn't the command itself.
    pub cause: Option<String>,
    /// Commands on nodes that a signal of somebody else ended.
    pub killed: Vec<String>,
    /// Whether one of them was a launcher's daemon.
    pub daemon_killed: bool,
    /// What was seen on each node that no agent handed over.
    pub links: Vec<Links>,
    /// The agent.
    pub agent: LocalClient<Channel>,
    /// The job's id.
    pub job: String,
    /// The job's end at its agents, once it was asked for.
    pub ending: Option<Ending>,
    /// Interrupts from the keyboard so far.
    pub interrupts: u32,
}

impl Watch {
    /// Returns once the command has ended.
    pub(crate) async fn until_end(&mut self, news: &mut Streaming<proto::JobNews>) -> Ended {
        let mut outcome = self.work.outcome();
        let (mut lost, mut news_end) = (false, false);
        let mut deadline: Option<tokio::time::Instant> = None;
        let mut told_to_end = false;
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        loop {
            let grace = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let was_lost = lost;
            tokio::select! {
                biased;
                status = handle::status(&mut outcome) => {
                    return if lost { Ended::Lost(status) } else { Ended::Command(status) };
                }
                signal = self.signals.next() => {
                    if self.take(signal).await && !told_to_end {
                        told_to_end = true;
                        deadline = Some(tokio::time::Instant::now() + TERM_GRACE);
                    }
                }
                message = news.message(), if !news_end => match message {
                    Ok(Some(proto::JobNews { kind })) => {
                        if let Some(reason) = self.hear(kind) {
                            self.lose(reason);
                            lost = true;
                        }
                    }
                    Ok(None) | Err(_) => {
                        news_end = true;
                        if self.ending.is_none() {
                            self.lose("this node's agent is gone".to_owned());
                            lost = true;
                        }
                    }
                },
                _ = ticks.tick() => {
                    self.wire_up.tick(Instant::now(), self.stopwatch.commands());
                    self.progress.tick(&self.wire_up);
                }
                () = grace => {
                    deadline = None;
                    self.work.end().await;
                    // Everywhere at once: what is left of the time counts.
                    self.end();
                }
            }
            if self.daemon_killed && !told_to_end {
                told_to_end = true;
                deadline = Some(tokio::time::Instant::now() + DAEMON_GRACE);
            }
            if lost && !was_lost {
                told_to_end = true;
                deadline = Some(tokio::time::Instant::now() + LOST_GRACE);
                self.work.signal(nix::libc::SIGTERM, false).await;
            }
        }
    }

    /// Has the agents end the job, unless they were told already.
    pub(super) fn end(&mut self) -> &mut Ending {
        self.ending.get_or_insert_with(|| {
            let (mut agent, job) = (self.agent.clone(), self.job.clone());
            tokio::spawn(async move {
                agent.end(proto::EndRequest { job }).await.map(tonic::Response::into_inner)
            })
        })
    }

    /// Passes a signal on; says whether the command must end by it.
    async fn take(&mut self, signal: Received) -> bool {
        self.work.signal(signal.number, signal.from_terminal).await;
        let from = if signal.from_terminal { "from the terminal" } else { "to `isthmus run`" };
        self.cause.get_or_insert_with(|| format!("{} {from}", signal.name()));
        self.interrupts += u32::from(!signal.is_final());
        signal.is_final() || self.interrupts > 1
    }

    /// A node or the agent is lost, and with it the job.
    pub(super) fn lose(&mut self, reason: String) {
        self.progress.say(&format!("{reason}; the job ends"));
        self.cause.get_or_insert(reason);
    }

    /// Tells of programs that aren't carried, once of each.
    pub(super) fn warn(&mut self, mut programs: Vec<UncarriedProgram>) {
        let key = |program: &UncarriedProgram| (program.node.clone(), program.file.clone());
        programs.retain(|program| !self.warned.contains(&key(program)));
        self.warned.extend(programs.iter().map(key));
        if let Some(text) = uncarried::describe(&programs).filter(|_| !self.quiet) {
            self.progress.say(&format!("warning: {text}"));
        }
    }

    /// Takes in a piece of news; says why if a node is lost.
    pub(super) fn hear(&mut self, kind: Option<Kind>) -> Option<String> {
        match kind {
            Some(Kind::Joined(joined)) => self.wire_up.joined(joined, Instant::now()),
            Some(Kind::ConnectFailed(failed)) => {
                let text = format!(
                    "{} could not connect to {}: {}",
                    failed.initiator, failed.acceptor, failed.reason
                );
                if !self.failures.contains(&text) {
                    self.failures.push(text);
                }
            }
            Some(Kind::WayFailed(failed)) => {
                // Connections that were begun together meet it together.
                let way = (failed.initiator.clone(), failed.acceptor.clone(), failed.dial);
                if self.ways.insert(way) && !self.quiet {
                    self.progress.say(&way_failed(&failed));
                }
            }
            Some(Kind::NodeLost(lost)) => {
                return Some(format!("lost node {}: {}", lost.node, lost.reason));
            }
            Some(Kind::CommandKilled(killed)) => {
                let signal = Signal::try_from(killed.signal).map_or("a signal", Signal::as_str);
                let text = format!("{} on {} was ended by {signal}", killed.command, killed.node);
                // Told as news and again at the end, which may be at once.
                self.daemon_killed |= DAEMONS.contains(&killed.command.as_str());
                if !self.killed.contains(&text) {
                    self.progress.say(&text);
                    self.killed.push(text.clone());
                    self.cause.get_or_insert(text);
                }
            }
            Some(Kind::Links(links)) => {
                self.links.retain(|other| other.node != links.node);
                self.links.push(links);
            }
            Some(Kind::CommandStarted(started)) => {
                // Later ones belong to processes that the program spawns.
                if !self.wire_up.is_done() {
                    self.stopwatch.command_started(started);
                }
            }
            Some(Kind::Uncarried(program)) => self.warn(vec![program]),
            Some(Kind::Ready(_)) | None => {}
        }
        None
    }
}

/// What a user is told of a way that failed where another one worked.
fn way_failed(failed: &WayFailed) -> String {
    let WayFailed { initiator, acceptor, failures, relay, .. } = failed;
    let relay = if relay.is_empty() { String::new() } else { format!(" {relay}") };
    format!(
        "{initiator} reaches {acceptor} by {}{relay} now: {}",
        dial_name(failed.dial()),
        failures.join("; ")
    )
}

/// When the connections of the start stood: at the first second in which no
/// new one came, or more if only daemons were joined to their launcher by then.
#[derive(Debug)]
pub(crate) struct WireUp {
    started: Instant,
    first: Option<Instant>,
    latest: Option<Instant>,
    done: bool,
    pairs: Vec<Joined>,
}

impl WireUp {
    /// Quiet time after which the start is over.
    const QUIET: Duration = Duration::from_secs(1);
    /// The same while there are no more connections than commands on nodes: those
    /// have yet to start the ranks.
    const RANKS: Duration = Duration::from_secs(10);

    pub(crate) fn new(started: Instant) -> Self {
        Self { started, first: None, latest: None, done: false, pairs: Vec::new() }
    }

    /// A pair of nodes has so many connections.
    pub(crate) fn joined(&mut self, joined: Joined, now: Instant) {
        let same = |old: &Joined| {
            (&old.initiator, &old.acceptor, (old.route, old.dial), &old.relay)
                == (&joined.initiator, &joined.acceptor, (joined.route, joined.dial), &joined.relay)
        };
        let more = match self.pairs.iter_mut().find(|old| same(old)) {
            Some(old) => std::mem::replace(&mut old.connections, joined.connections) < joined.connections,
            None => {
                self.pairs.push(joined);
                true
            }
        };
        if more && !self.done {
            self.first.get_or_insert(now);
            self.latest = Some(now);
        }
    }

    /// From time to time; `commands` have been started on nodes so far.
    pub(crate) fn tick(&mut self, now: Instant, commands: usize) {
        let ranks_joined = self.connections() > commands as u64;
        let quiet = if ranks_joined { Self::QUIET } else { Self::RANKS };
        self.done |= self.latest.is_some_and(|latest| now.duration_since(latest) >= quiet);
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.pairs.iter().map(|joined| joined.connections).sum()
    }

    /// Whether the start is over.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// When the first and the last connection of the start came.
    pub(crate) fn span(&self) -> Option<(Instant, Instant)> {
        self.first.zip(self.latest)
    }

    /// Time from the start to the last connection of it.
    pub(crate) fn result(&self) -> Option<Duration> {
        self.latest.map(|latest| latest.duration_since(self.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_over_when_nothing_comes_any_more() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs_f64(seconds);
        let joined = |connections| Joined { connections, ..Joined::default() };
        for (name, counts, commands, looked_at, want) in [
            ("nothing yet", vec![], 0, 60.0, (false, None)),
            ("one that just came", vec![(0.5, 1)], 0, 1.4, (false, Some(0.5))),
            ("quiet", vec![(0.5, 1), (0.7, 2)], 0, 1.8, (true, Some(0.7))),
            ("daemons, and ranks to come", vec![(0.5, 7)], 7, 9.0, (false, Some(0.5))),
            ("ranks that came late", vec![(0.5, 7), (5.0, 30)], 7, 6.1, (true, Some(5.0))),
            ("ranks that never come", vec![(0.5, 7)], 7, 10.6, (true, Some(0.5))),
        ] {
            let mut wire_up = WireUp::new(began);
            for (seconds, connections) in counts {
                wire_up.joined(joined(connections), after(seconds));
            }
            wire_up.tick(after(looked_at), commands);
            let result = wire_up.result().map(|result| result.as_secs_f64());
            assert_eq!((wire_up.is_done(), result), want, "{name}");
        }
    }
}
