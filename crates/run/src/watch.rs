//! Watching a job while its command runs: news of its agents, and what ends it.

mod left;
mod news;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use isthmus_agent::starting::processes::SUPERVISOR;
use isthmus_agent::starting::supervise::handle;
use isthmus_front::output::one_line;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::{self, Links, RankEnded};
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use left::RanksLeft;

use super::culprit::{self, Culprit, Event, Events};
use super::pauses::Pauses;
use super::progress::{Daemons, Progress};
use super::pulses::Pulses;
use super::signals::{Received, Signals};
use super::silent::Silent;
use super::timing::Stopwatch;
use super::waits::Waits;
use super::wire_up::WireUp;
use super::work::Work;

/// How long a command may take to end by itself after a signal to do so.
const TERM_GRACE: Duration = Duration::from_secs(4);
/// How long the command may take to end by itself after a node was lost. By then seconds have
/// passed, and the launcher may wait for that node for ever.
const LOST_GRACE: Duration = Duration::from_secs(1);
/// How long a launcher may take to end its job when a rank has ended badly.
const RANK_GRACE: Duration = Duration::from_secs(5);
/// How long a launcher may take to end its job when one of its daemons was killed. The launcher
/// mostly notices, and its own message has more detail.
const DAEMON_GRACE: Duration = Duration::from_secs(3);

/// How the command came to its end, with its exit status.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    /// The command ended by itself, or by a signal.
    Command(i32),
    /// The command was ended because a node or the agent was lost.
    Lost(i32),
}

/// The task that has the agents end the job, and its result.
pub(super) type Ending = JoinHandle<Result<proto::EndReply, Status>>;

/// A job whose command has begun.
pub(super) struct Begun {
    /// The command, or the commands of all nodes.
    pub work: Work,
    /// Whether to print errors only.
    pub quiet: bool,
    /// Whether the job goes on when a connection can't be made.
    pub keep_going: bool,
    /// Whether the command is an MPI's launcher.
    pub is_launcher: bool,
    /// The signals that this process gets.
    pub signals: Signals,
    /// The line that the user sees meanwhile.
    pub progress: Progress,
    /// The daemons that the launcher waits for.
    pub daemons: Daemons,
    /// Records when each phase of the start was over.
    pub stopwatch: Stopwatch,
    /// The client of this node's agent.
    pub agent: LocalClient<Channel>,
    /// The id of the job.
    pub job: String,
    /// The grid name of this node.
    pub head: String,
    /// What is known of the agent's life.
    pub pulses: Pulses,
}

/// What the user has read of a job so far, and what has happened to it.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Programs that the user was warned of, by node and file.
    warned: HashSet<(String, PathBuf)>,
    /// The connections that could not be made, of which the user hasn't read yet.
    pub failures: Vec<String>,
    /// The texts on resources that have run out, of which the user has read.
    short: HashSet<String>,
    /// Pairs of nodes that had to take another way, with the dial of that way.
    ways: HashSet<(String, String, i32)>,
    /// The connections that are still being made.
    waits: Waits,
    /// Sites that are cut off at the moment, and nodes at which nothing arrives.
    silent: Silent,
    /// When a rank last ended badly, and how; `None` if a launcher has started a daemon since.
    rank_ended: Option<(Instant, RankEnded)>,
    /// Whether the user has read that a rank has ended.
    rank_told: bool,
    /// The nodes on which ranks run.
    ranks_left: RanksLeft,
    /// Nodes from which another node is cut off: the fault isn't theirs.
    cut_off: HashSet<String>,
    /// Sites that were cut off for a while.
    pub pauses: Vec<Pauses>,
    /// What may have ended the job, if it wasn't the command itself.
    pub events: Events,
    /// Whether a launcher's daemon was killed.
    pub daemon_killed: bool,
    /// The job that this run has joined, if that has ended.
    pub joined_ended: Option<String>,
    /// Whether this node's agent is gone.
    pub agent_gone: bool,
    /// Links between nodes that no agent handed over.
    pub links: Vec<Links>,
}

pub(super) struct Watch {
    pub work: Work,
    quiet: bool,
    keep_going: bool,
    is_launcher: bool,
    signals: Signals,
    pub progress: Progress,
    daemons: Daemons,
    /// How far the connections of the start are made.
    pub wire_up: WireUp,
    pub stopwatch: Stopwatch,
    pub observed: Observed,
    agent: LocalClient<Channel>,
    job: String,
    head: String,
    started: Instant,
    /// What is known of the agent's life.
    pub pulses: Pulses,
    /// The task that has the agents end the job; `None` before the job is to end.
    ending: Option<Ending>,
    /// Whether the command has ended.
    is_over: bool,
    /// How many interrupts came from the keyboard so far.
    interrupts: u32,
}

impl Watch {
    pub(super) fn new(begun: Begun, started: Instant) -> Self {
        let Begun {
            work,
            quiet,
            keep_going,
            is_launcher,
            signals,
            progress,
            daemons,
            stopwatch,
            agent,
            job,
            head,
            pulses,
        } = begun;
        Self {
            work,
            quiet,
            keep_going,
            is_launcher,
            signals,
            progress,
            daemons,
            wire_up: WireUp::new(started),
            stopwatch,
            observed: Observed::default(),
            agent,
            job,
            head,
            started,
            pulses,
            ending: None,
            is_over: false,
            interrupts: 0,
        }
    }

    /// Returns once the command has ended.
    pub(super) async fn until_end(&mut self, news: &mut Streaming<proto::JobNews>) -> Ended {
        let mut outcome = self.work.outcome();
        let (mut lost, mut news_end) = (false, false);
        let mut deadline: Option<tokio::time::Instant> = None;
        let mut is_ending = false;
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
                signal = self.signals.any() => {
                    if self.take(signal).await && !is_ending {
                        is_ending = true;
                        deadline = Some(tokio::time::Instant::now() + TERM_GRACE);
                    }
                }
                message = news.message(), if !news_end => match message {
                    Ok(Some(proto::JobNews { kind })) => {
                        lost |= self.take_news(kind);
                    }
                    Ok(None) | Err(_) => {
                        news_end = true;
                        self.pulses.end();
                        if self.ending.is_none() {
                            self.agent_gone();
                            lost = true;
                        }
                    }
                },
                _ = ticks.tick() => {
                    self.wire_up.tick(Instant::now(), self.stopwatch.commands());
                    self.show_start();
                    lost |= !is_ending && self.outlives_its_ranks();
                    self.show_rank(is_ending || lost);
                    if let Some((silent, reason)) = self.pulses.passed(Instant::now()) {
                        self.note_ago(silent, Event::Lost(reason));
                        lost = true;
                    }
                }
                () = grace => {
                    deadline = None;
                    self.work.end().await;
                    // The job ends on all nodes at once: what is left of the time counts.
                    self.end();
                }
            }
            if self.observed.daemon_killed && !is_ending {
                is_ending = true;
                deadline = Some(tokio::time::Instant::now() + DAEMON_GRACE);
            }
            if self.observed.joined_ended.is_some() && !is_ending {
                is_ending = true;
                deadline = Some(tokio::time::Instant::now() + TERM_GRACE);
                self.work.signal(nix::libc::SIGTERM, false).await;
            }
            if self.waits_in_vain() && !is_ending {
                is_ending = true;
                deadline = Some(tokio::time::Instant::now() + TERM_GRACE);
            }
            if lost && !was_lost {
                is_ending = true;
                deadline = Some(tokio::time::Instant::now() + LOST_GRACE);
                self.work.signal(nix::libc::SIGTERM, false).await;
            }
        }
    }

    /// Tells the user of a rank that has ended badly, if the command goes on: not every launcher
    /// ends its job then.
    fn show_rank(&mut self, is_ending: bool) {
        if let Some((at, ended)) = &self.observed.rank_ended
            && at.elapsed() >= RANK_GRACE
            && !(is_ending || self.quiet || self.observed.rank_told)
        {
            let words = culprit::rank_words(ended);
            self.progress.message(&one_line(&format!("{words}; the command goes on (Ctrl-C ends it)")));
            self.observed.rank_told = true;
        }
    }

    /// Whether the launcher goes on though no rank is left, and one has ended badly: the launcher
    /// may wait for ever.
    fn outlives_its_ranks(&mut self) -> bool {
        let since = self.observed.ranks_left.none_since().filter(|_| self.is_launcher);
        let (Some(since), Some((at, ended))) = (since, &self.observed.rank_ended) else { return false };
        let is_over = since.elapsed() >= RANK_GRACE && at.elapsed() >= RANK_GRACE;
        if is_over {
            let words = culprit::rank_words(ended);
            let text = format!("{words}, and no rank is left; the launcher goes on, so isthmus ends it");
            self.progress.message(&one_line(&text));
        }
        is_over
    }

    /// Shows what the start waits for, if that takes long.
    fn show_start(&mut self) {
        if self.wire_up.is_done() || self.wire_up.ranks_joined(self.stopwatch.commands()) {
            self.daemons.over();
        }
        match self.daemons.text(Instant::now()) {
            Some(text) => self.progress.show(&text),
            None => self.progress.clear(),
        }
    }

    /// Notes that the command, of this name, has ended. From then on a connection that can't be
    /// made may explain that end, and ends nothing any more.
    pub(super) fn command_ended(&mut self, command: &str) {
        self.is_over = true;
        let outcome = *self.work.outcome().borrow();
        let (signal, command) = if outcome.supervisor_killed {
            (Some(nix::libc::SIGKILL), format!("{SUPERVISOR}{command}"))
        } else {
            (outcome.signalled, command.to_owned())
        };
        if let Some(signal) = signal {
            let node = self.head.clone();
            self.note(Event::Launcher(proto::CommandKilled { node, command, signal }));
        }
        if let Some(words) = self.work.failure() {
            self.note(Event::Each(words));
        }
        for node in self.observed.silent.nodes() {
            self.note(Event::Silent(node));
        }
    }

    /// Notes that the connection to this node's agent broke.
    pub(super) fn agent_gone(&mut self) {
        self.observed.agent_gone = true;
        self.note(Event::Lost(format!("this node's agent is gone ({})", self.head)));
    }

    /// Notes an event of just now that may have ended the job.
    pub(super) fn note(&mut self, event: Event) {
        self.note_ago(Duration::ZERO, event);
    }

    /// Notes an event that happened so long `ago` and may have ended the job.
    pub(super) fn note_ago(&mut self, ago: Duration, event: Event) {
        self.observed.events.add(self.started.elapsed(), ago, event);
    }

    /// The event that ended the job, whose command has run for this time; `None` if only the
    /// command is to blame.
    pub(super) fn culprit(&self, took: Duration) -> Option<Culprit> {
        self.observed.events.culprit(took)
    }

    /// Has the agents end the job, unless this was asked for before.
    pub(super) fn end(&mut self) -> &mut Ending {
        self.ending.get_or_insert_with(|| {
            let (mut agent, job) = (self.agent.clone(), self.job.clone());
            tokio::spawn(async move {
                agent.end(proto::EndRequest { job }).await.map(tonic::Response::into_inner)
            })
        })
    }

    /// Passes a signal on to the command. Returns whether the command must end by it.
    async fn take(&mut self, signal: Received) -> bool {
        self.work.signal(signal.number, signal.from_terminal).await;
        if signal.is_notice() {
            return false;
        }
        self.note(Event::Signal(signal));
        self.interrupts += u32::from(!signal.is_final());
        signal.is_final() || self.interrupts > 1
    }

    /// Whether the command waits for a site that is cut off, though it is to end: by an interrupt,
    /// or since a rank was killed.
    fn waits_in_vain(&self) -> bool {
        let observed = &self.observed;
        let is_killed = |since: &Instant| {
            let killed = observed.rank_ended.as_ref().filter(|(_, ended)| ended.signal != 0);
            killed.is_some_and(|(at, _)| since.saturating_duration_since(*at) <= TERM_GRACE)
        };
        match self.interrupts {
            0 => observed.silent.since().any(is_killed),
            _ => observed.silent.since().next().is_some(),
        }
    }
}
