//! Nodes that batch schedulers of sites give for one run, or for `isthmus alloc`. All pilots get their
//! nodes, or none keeps any.

mod args;
mod board;
mod call;
pub(crate) mod scheduler;
mod told;
mod wanted;

pub(crate) use args::{Asking, BatchArgs, of_site};
pub(crate) use board::Cost;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use isthmus_front::ask::Grid;
use isthmus_front::format::site;
use isthmus_front::local;
use isthmus_front::notes::Phase;
use isthmus_front::output::{message, print};
use isthmus_service::clock::{seconds, unix_seconds};
use isthmus_service::mac;
use isthmus_wire::proto::{Node, NodesWanted, PilotOrder};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::candidates;
use crate::nodes::ChoiceError;
use crate::notice::ends_in;
use crate::progress::Progress;
use crate::signals::{Interrupted, Signals};
use board::{Board, Entry};
use call::Call;
use told::Told;

/// How long the schedulers may take to end the pilots.
const END: Duration = Duration::from_secs(30);
/// How long a scheduler may take to say how it has ended a pilot, once the command has failed. Grid Engine
/// writes that down every 15 s (sge_conf(5), `flush_time`).
const ASK: Duration = Duration::from_secs(20);
/// For so long a scheduler may not have noticed that a batch job has ended.
const NOTICED: Duration = Duration::from_secs(3);
/// How often the schedulers are asked meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often the line about the pilots is written anew.
const SHOW: Duration = Duration::from_millis(500);

/// What calls have told of the pilots.
type Shared = Arc<watch::Sender<Board>>;

/// The pilots of a run, which have all their nodes.
#[derive(Debug)]
pub(crate) struct Pilots {
    board: Shared,
    calls: Vec<Call>,
    quiet: bool,
}

impl Pilots {
    /// Has the schedulers of the sites give nodes, as the command line says. `None` if it names none, or
    /// leaves their number to a profile.
    ///
    /// # Errors
    /// As [`Self::start`], or if a site's scheduler can't be asked.
    pub(crate) async fn find(
        asking: Asking<'_>,
        progress: &mut Progress,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<Self>> {
        if !asking.batch.has_numbers() {
            return Ok(None);
        }
        progress.show("looking for the agents that submit batch jobs");
        let orders = tokio::select! {
            orders = orders(asking) => orders?,
            signal = signals.next() => return Err(Interrupted(signal).into()),
        };
        let pilots = Self::start(asking, orders, progress, signals).await?;
        if !asking.quiet {
            progress.message(&pilots.board.borrow().given());
        }
        Ok(Some(pilots))
    }

    /// Orders pilots, and waits until all their nodes are there.
    ///
    /// # Errors
    /// If one gets no nodes in time; [`Interrupted`] if a signal comes. Nothing is left in a queue then.
    pub(crate) async fn start(
        asking: Asking<'_>,
        orders: Vec<PilotOrder>,
        progress: &mut Progress,
        signals: &mut Signals,
    ) -> anyhow::Result<Self> {
        let socket = asking.socket.cloned().unwrap_or_else(local::socket);
        asking.note.waits_for(orders.iter().map(|order| site(&order.node).to_owned()));
        let wanted = |order: &PilotOrder| order.wanted.as_ref().map_or(0, |wanted| wanted.nodes);
        let entries = orders.iter().map(|order| Entry::new(site(&order.node), wanted(order)));
        let board: Shared = Arc::new(watch::Sender::new(Board::new(entries.collect())));
        let call = |(index, order)| Call::start(socket.clone(), order, (board.clone(), index));
        let calls = orders.into_iter().enumerate().map(call).collect();
        let pilots = Self { board, calls, quiet: asking.quiet };
        let outcome = tokio::select! {
            outcome = pilots.all_there(asking, progress) => outcome,
            signal = signals.next() => Err(Interrupted(signal).into()),
        };
        if let Err(error) = outcome {
            progress.show("giving the nodes back");
            pilots.finish().await;
            return Err(error);
        }
        asking.note.is(Phase::Starts);
        Ok(pilots)
    }

    /// Waits until all nodes are there.
    async fn all_there(&self, asking: Asking<'_>, progress: &mut Progress) -> anyhow::Result<()> {
        let deadline = Instant::now() + asking.batch.wait();
        // Where no line is seen, as in a log, each change is a message.
        let (mut told, tells) = (Told::default(), !asking.quiet && !progress.is_visible());
        let mut changes = self.board.subscribe();
        loop {
            {
                let board = changes.borrow_and_update();
                if let Some(failure) = board.failure() {
                    bail!("not started: {failure}");
                }
                if board.is_complete() {
                    return Ok(());
                }
                let line = board.line(Instant::now());
                if tells && told.takes(&board) {
                    progress.message(&line);
                }
                progress.show(&line);
            }
            let held = self.board.borrow().held(Instant::now());
            if held.is_some_and(|held| held >= asking.batch.hold()) {
                bail!(
                    "not started: {} (--hold keeps nodes longer)",
                    self.board.borrow().line(Instant::now())
                );
            }
            if Instant::now() >= deadline {
                bail!("not started: {} (--wait gives them longer)", self.board.borrow().line(Instant::now()));
            }
            // The times in the line change by themselves.
            let _ = timeout(SHOW.min(deadline - Instant::now()), changes.changed()).await;
        }
    }

    /// The names of the nodes, in the order of the command line's sites.
    pub(crate) fn names(&self) -> Vec<String> {
        self.board.borrow().names()
    }

    /// The names of the nodes of one order.
    pub(crate) fn names_of(&self, order: usize) -> Vec<String> {
        self.board.borrow().names_of(order)
    }

    /// Waits until more pilots than `known` have ended, and returns why each has, in words.
    pub(crate) async fn failures(&self, known: usize) -> Vec<String> {
        let mut changes = self.board.subscribe();
        loop {
            let failures = changes.borrow_and_update().failures();
            if failures.len() > known {
                return failures;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the time of a pilot is over in less than `before`, and returns which, in words. Waits for
    /// ever if none has a time limit.
    pub(crate) fn nears_end(&self, before: Duration) -> impl Future<Output = String> + Send + use<> {
        let mut changes = self.board.subscribe();
        async move {
            loop {
                let first = changes.borrow_and_update().first_end();
                let left = first.as_ref().map(|(end, _)| end.saturating_duration_since(Instant::now()));
                let pause = left.map_or(Duration::MAX, |left| left.saturating_sub(before));
                match (timeout(pause, changes.changed()).await, first) {
                    (Err(_), Some((end, name))) => {
                        return ends_in(&name, end.saturating_duration_since(Instant::now()));
                    }
                    (Ok(Err(_)), _) => std::future::pending().await,
                    _ => {}
                }
            }
        }
    }

    /// How a scheduler ends one of the batch jobs, in words; `None` if none does, or doesn't say so in
    /// time.
    pub(crate) async fn end_of_job(&self) -> Option<String> {
        let mut changes = self.board.subscribe();
        let before = changes.borrow_and_update().answers();
        let noticed = Instant::now() + NOTICED;
        let told = async {
            loop {
                for call in &self.calls {
                    call.look();
                }
                {
                    let board = changes.borrow_and_update();
                    if let Some(failure) = board.failure() {
                        return Some(failure);
                    }
                    // Of two further answers one was asked for after the command has failed.
                    let more = |(now, before): (&u64, &u64)| *now >= before + 2;
                    let is_noticed = Instant::now() >= noticed;
                    if is_noticed && !board.is_ending() && board.answers().iter().zip(&before).all(more) {
                        return None;
                    }
                }
                if let Ok(Err(_)) = timeout(ASK_AGAIN, changes.changed()).await {
                    return None;
                }
            }
        };
        timeout(ASK, told).await.ok().flatten()
    }

    /// When the time of the first pilot is over, in seconds since 1970; `None` if none has a time limit.
    pub(crate) fn end_unix_seconds(&self) -> Option<u64> {
        let (end, _) = self.board.borrow().first_end()?;
        Some(unix_seconds(SystemTime::now() + end.saturating_duration_since(Instant::now())))
    }

    /// What was had until now of the pilots.
    pub(crate) fn costs(&self) -> Vec<Cost> {
        self.board.borrow().costs(Instant::now())
    }

    /// Ends the pilots, and waits until nothing of them is left.
    pub(crate) async fn finish(self) {
        for call in &self.calls {
            call.end();
        }
        let mut changes = self.board.subscribe();
        let _ = timeout(END, changes.wait_for(Board::is_over)).await;
        if let Some(hours) = self.board.borrow().hours(Instant::now()).filter(|_| !self.quiet) {
            message(&hours);
        }
        for line in self.board.borrow().left() {
            message(&line);
        }
    }
}

/// What the agents of the sites are asked for, as the command line says.
///
/// # Errors
/// If there is no agent that submits batch jobs at a site, or nodes that are to be used beside aren't
/// there.
async fn orders(asking: Asking<'_>) -> anyhow::Result<Vec<PilotOrder>> {
    let batch = asking.batch;
    let socket = asking.socket.cloned().unwrap_or_else(local::socket);
    let grid = Grid::of_agent(local::connect(&socket).await?, socket);
    let sites: Vec<String> = batch.pilots.iter().map(|wanted| wanted.site.clone()).collect();
    let submitters = submitters(&grid, &sites).await?;
    // Before anything waits in a queue.
    if !asking.beside.is_empty() {
        crate::nodes::chosen(asking.beside, |records| grid.list(records)).await?;
    }
    let each = submitters.iter().zip(&batch.pilots).map(|(submitter, wanted)| {
        let nodes = NodesWanted {
            nodes: wanted.nodes.unwrap_or_default(),
            time_seconds: batch.time.map_or(0, seconds),
            cores: wanted.cores,
            memory_bytes: batch.memory.map_or(0, |memory| memory.0),
            tags: batch.tags.clone(),
            ..NodesWanted::default()
        };
        order(batch, submitter, nodes)
    });
    Ok(each.collect())
}

/// Says when the schedulers would give the nodes that the command line asks for. Nothing is submitted.
///
/// # Errors
/// If a scheduler can't be asked.
pub(crate) async fn estimate(
    asking: Asking<'_>,
    progress: &mut Progress,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    progress.show("asking the batch schedulers");
    let socket = asking.socket.cloned().unwrap_or_else(local::socket);
    let lines = async {
        let agent = local::connect(&socket).await?;
        scheduler::starts_of(&agent, &orders(asking).await?).await
    };
    let lines = tokio::select! {
        lines = lines => lines?,
        signal = signals.next() => return Err(Interrupted(signal).into()),
    };
    progress.clear();
    print(&lines, &lines.iter().map(|line| format!("{line}\n")).collect::<String>(), false)
}

/// The user's agents that submit batch jobs: the first one of each of these sites, in their order, or of
/// all sites if none is named.
///
/// # Errors
/// If a site has none, or the grid can't be asked.
pub(crate) async fn submitters(grid: &Grid, sites: &[String]) -> anyhow::Result<Vec<Node>> {
    let found = candidates::own_nodes(|_| sites.to_vec(), |records| grid.list(records)).await?;
    let mut nodes = found.ok_or(ChoiceError::NotAttached)?;
    nodes.retain(|node| node.up && !node.submits.is_empty());
    if sites.is_empty() {
        let mut seen = BTreeSet::new();
        nodes.retain(|node| seen.insert(site(&node.name).to_owned()));
        return Ok(nodes);
    }
    let of_site = |wanted: &String| {
        let found = nodes.iter().find(|node| site(&node.name) == wanted).cloned();
        found.with_context(|| {
            format!(
                "no agent of yours submits batch jobs at {wanted}: start one on {wanted}'s login node (isthmus up \
                 --submit slurm)"
            )
        })
    };
    sites.iter().map(of_site).collect()
}

/// The order for these nodes to an agent that submits batch jobs. Queue, reservation and account are
/// those of the command line.
pub(crate) fn order(batch: &BatchArgs, submitter: &Node, nodes: NodesWanted) -> PilotOrder {
    let word = |values| of_site(values, site(&submitter.name)).unwrap_or_default().to_owned();
    PilotOrder {
        node: submitter.name.clone(),
        virtual_address: submitter.virtual_address,
        pilot: mac::random::<16>().to_vec(),
        wanted: Some(NodesWanted {
            queue: word(&batch.queue),
            reservation: word(&batch.reservation),
            account: word(&batch.account),
            ..nodes
        }),
        wait_seconds: seconds(batch.wait()),
        known: false,
    }
}
