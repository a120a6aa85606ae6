//! Nodes that batch schedulers of sites give for one run. All pilots of the run get their nodes, or
//! none keeps any.

mod board;
mod call;
mod wanted;

pub(crate) use wanted::{OfSite, SiteNodes};

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use isthmus_front::ask::Grid;
use isthmus_front::format::site;
use isthmus_front::local;
use isthmus_front::output::message;
use isthmus_service::clock::seconds;
use isthmus_service::mac;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{Node, NodeFilter, NodesWanted, PilotOrder};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::args::RunArgs;
use crate::progress::Progress;
use crate::signals::{Interrupted, Signals};
use board::{Board, Entry};
use call::Call;

/// How long the schedulers may take to end the pilots.
const END: Duration = Duration::from_secs(30);
/// How long a scheduler may take to say how it has ended a pilot, once the command has failed.
const ASK: Duration = Duration::from_secs(15);
/// How often the line about the pilots is written anew.
const SHOW: Duration = Duration::from_millis(500);

/// What calls have told of the pilots.
type Shared = Arc<watch::Sender<Board>>;

/// The pilots of a run, which have all their nodes.
#[derive(Debug)]
pub(crate) struct Pilots {
    board: Shared,
    calls: Vec<Call>,
}

impl Pilots {
    /// Has the schedulers of the sites give nodes, as the command line says. `None` if it names none.
    ///
    /// # Errors
    /// If a site's scheduler can't be asked, or a pilot gets no nodes in time; [`Interrupted`] if a
    /// signal comes. Nothing is left in a queue then.
    pub(crate) async fn find(
        args: &RunArgs,
        progress: &mut Progress,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<Self>> {
        if args.pilots.is_empty() {
            return Ok(None);
        }
        check(args)?;
        progress.show("looking for the agents that submit batch jobs");
        let socket = args.socket.clone().unwrap_or_else(local::socket);
        let orders = tokio::select! {
            orders = orders(args) => orders?,
            signal = signals.next() => return Err(Interrupted(signal).into()),
        };
        let wanted = |order: &PilotOrder| order.wanted.as_ref().map_or(0, |wanted| wanted.nodes);
        let entries = orders.iter().map(|order| Entry::new(site(&order.node), wanted(order)));
        let board: Shared = Arc::new(watch::Sender::new(Board::new(entries.collect())));
        let call = |(index, order)| Call::start(socket.clone(), order, (board.clone(), index));
        let calls = orders.into_iter().enumerate().map(call).collect();
        let pilots = Self { board, calls };
        let outcome = tokio::select! {
            outcome = pilots.all_there(args, progress) => outcome,
            signal = signals.next() => Err(Interrupted(signal).into()),
        };
        match outcome {
            Ok(()) => {
                if !args.quiet {
                    progress.message(&pilots.board.borrow().given());
                }
                Ok(Some(pilots))
            }
            Err(error) => {
                progress.show("giving the nodes back");
                pilots.finish().await;
                Err(error)
            }
        }
    }

    /// Waits until all nodes are there.
    async fn all_there(&self, args: &RunArgs, progress: &mut Progress) -> anyhow::Result<()> {
        let deadline = Instant::now() + args.wait;
        // Where no line is seen, as in a log, each change is a message.
        let (mut told, tells) = (Vec::new(), !args.quiet && !progress.is_visible());
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
                if tells && told != board.phases() {
                    told = board.phases();
                    progress.message(&line);
                }
                progress.show(&line);
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

    /// How a scheduler ends one of the batch jobs, in words; `None` if none does, or doesn't say so in
    /// time.
    pub(crate) async fn end_of_job(&self) -> Option<String> {
        let mut changes = self.board.subscribe();
        let before = changes.borrow_and_update().answers();
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
                    if !board.is_ending() && board.answers().iter().zip(&before).all(more) {
                        return None;
                    }
                }
                changes.changed().await.ok()?;
            }
        };
        timeout(ASK, told).await.ok().flatten()
    }

    /// Ends the pilots, and waits until nothing of them is left.
    pub(crate) async fn finish(self) {
        for call in &self.calls {
            call.end();
        }
        let mut changes = self.board.subscribe();
        let _ = timeout(END, changes.wait_for(Board::is_over)).await;
        for line in self.board.borrow().left() {
            message(&line);
        }
    }
}

/// What the agents of the sites are asked for.
async fn orders(args: &RunArgs) -> anyhow::Result<Vec<PilotOrder>> {
    let socket = args.socket.clone().unwrap_or_else(local::socket);
    let grid = Grid::of_agent(local::connect(&socket).await?, socket);
    let own = NodeFilter { own: true, ..NodeFilter::default() };
    let reply = grid.list(Records::Nodes(own)).await?;
    let head = reply.nodes.iter().find(|node| node.name == reply.own);
    let head = head.context("this node's own agent is not among the grid's nodes; is it attached?")?;
    let sites = args.pilots.iter().map(|wanted| wanted.site.clone()).collect();
    let filter = NodeFilter { sites, owner: head.owner.clone(), up: true, ..NodeFilter::default() };
    let nodes = grid.list(Records::Nodes(filter)).await?.nodes;
    // Before anything waits in a queue.
    if !args.nodes.is_empty() {
        crate::nodes::chosen(&args.nodes, |records| grid.list(records)).await?;
    }
    args.pilots.iter().map(|wanted| order(args, wanted, &nodes)).collect()
}

/// Refuses a command line that no batch job can make good.
fn check(args: &RunArgs) -> anyhow::Result<()> {
    let is_launcher = crate::command::launcher(&args.command)?.is_some();
    if !is_launcher && !args.each && !args.no_check {
        let program = args.command.first().map(String::as_str).unwrap_or_default();
        let path = std::env::var("PATH").unwrap_or_else(|_| crate::prepare::DEFAULT_PATH.to_owned());
        crate::startable::check(program, &path)?;
    }
    for (index, wanted) in args.pilots.iter().enumerate() {
        if args.pilots.iter().take(index).any(|other| other.site == wanted.site) {
            bail!("--pilots names site {} twice: add its nodes up", wanted.site);
        }
    }
    for (option, values) in
        [("--queue", &args.queue), ("--reservation", &args.reservation), ("--account", &args.account)]
    {
        for site in values.iter().filter_map(|value| value.site.as_ref()) {
            if !args.pilots.iter().any(|wanted| wanted.site == *site) {
                bail!("{option} names site {site}, of which --pilots asks for no nodes");
            }
        }
    }
    Ok(())
}

/// The order for one site, to the first of the user's agents there that submit batch jobs.
fn order(args: &RunArgs, wanted: &SiteNodes, nodes: &[Node]) -> anyhow::Result<PilotOrder> {
    let submits = |node: &&Node| site(&node.name) == wanted.site && !node.submits.is_empty();
    let submitter = nodes.iter().find(submits).with_context(|| {
        format!(
            "no agent of yours submits batch jobs at {0}: start one on {0}'s login node (isthmus up --submit slurm)",
            wanted.site
        )
    })?;
    let of_site = |values: &[OfSite]| {
        let named = values.iter().find(|value| value.site.as_ref() == Some(&wanted.site));
        let value = named.or_else(|| values.iter().find(|value| value.site.is_none()));
        value.map(|value| value.value.clone()).unwrap_or_default()
    };
    Ok(PilotOrder {
        node: submitter.name.clone(),
        virtual_address: submitter.virtual_address,
        pilot: mac::random::<16>().to_vec(),
        wanted: Some(NodesWanted {
            nodes: wanted.nodes,
            time_seconds: args.time.map_or(0, seconds),
            cores: wanted.cores,
            memory_bytes: args.memory.map_or(0, |memory| memory.0),
            tags: args.tags.clone(),
            queue: of_site(&args.queue),
            reservation: of_site(&args.reservation),
            account: of_site(&args.account),
        }),
        wait_seconds: seconds(args.wait),
    })
}
