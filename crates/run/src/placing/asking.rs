//! What the grid and its sites' schedulers have for a profile.

use std::time::Duration;

use anyhow::bail;
use isthmus_front::ask::Grid;
use isthmus_front::format::site;
use isthmus_front::local;
use isthmus_front::output::one_line;
use isthmus_service::clock::humane;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::{JobNode, Node, SchedulerReply, SchedulerRequest, SitePath};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::Source;
use super::offered::{Scheduler, Standing, of_queue, that_last};
use crate::candidates::Candidates;
use crate::given::Given;
use crate::pilots::{Asking, BatchArgs, scheduler};
use crate::progress::Progress;
use crate::tries::NotStarted;
use crate::{nodes, pilots, topology};

/// What there is.
pub(super) struct Found {
    /// This node's agent.
    pub agent: LocalClient<Channel>,
    pub standing: Vec<Standing>,
    pub schedulers: Vec<Scheduler>,
    pub paths: Vec<SitePath>,
    /// Schedulers that give no nodes, and why.
    pub unasked: Vec<String>,
}

/// Finds nodes with agents, and schedulers that may give nodes for `time`: of those that the command
/// line names, or that a batch job gives; else all of the user's.
///
/// # Errors
/// If the grid can't be asked, or something that the command line names isn't there.
pub(super) async fn find(
    source: &Source<'_>,
    time: Option<Duration>,
    progress: &mut Progress,
) -> anyhow::Result<Found> {
    let Source { asking: Asking { batch, socket, .. }, ref names, given, .. } = *source;
    let socket = given.and_then(Given::socket).or(socket);
    let socket = socket.cloned().unwrap_or_else(local::socket);
    let agent = local::connect(&socket).await?;
    let grid = Grid::of_agent(agent.clone(), socket).or_without_broker();
    let is_open = names.is_empty() && batch.pilots.is_empty();
    let mut standing = Vec::new();
    if is_open || !names.is_empty() {
        let candidates = Candidates::of(names, |records| grid.list(records)).await?;
        let mut chosen = nodes::choose(&candidates, names, is_open.then_some(0))?;
        if let Some(given) = given {
            given.set_slots(&mut chosen);
        }
        standing.extend(chosen.into_iter().filter(|node| node.slots > 0).map(|node| {
            let known = candidates.nodes.iter().find(|known| known.name == node.name);
            let architecture = known.map(|known| known.architecture.clone()).unwrap_or_default();
            let tags = given.map(|given| given.tags(&node.name, batch)).unwrap_or_default();
            Standing { node, architecture, tags }
        }));
    }
    let (mut schedulers, mut unasked) = (Vec::new(), Vec::new());
    if given.is_none() && (is_open || !batch.pilots.is_empty()) {
        progress.show("asking the batch schedulers for the nodes that they have");
        let sites: Vec<String> = batch.pilots.iter().map(|wanted| wanted.site.clone()).collect();
        let submitters = pilots::submitters(&grid, &sites).await?;
        for (submitter, answer) in capacities(&agent, submitters).await {
            let place = site(&submitter.name).to_owned();
            let may_pass = answer.is_err();
            match answer.and_then(|reply| usable(batch, time, submitter, reply)) {
                Ok(scheduler) => schedulers.push(scheduler),
                Err(reason) if is_open => unasked.push(format!("no nodes of {place}'s scheduler: {reason}")),
                Err(reason) => {
                    let reasons = format!("no nodes of {place}'s scheduler: {reason}");
                    bail!(NotStarted { text: format!("not started: {reasons}"), reasons, may_pass });
                }
            }
        }
    }
    let at_schedulers = schedulers.iter().map(|scheduler| {
        let name = scheduler.submitter.name.clone();
        JobNode { name, ..JobNode::default() }
    });
    let all: Vec<JobNode> =
        standing.iter().map(|standing| standing.node.clone()).chain(at_schedulers).collect();
    let paths = topology::of(&all, Vec::new(), |records| grid.list(records)).await?.paths;
    Ok(Found { agent, standing, schedulers, paths, unasked })
}

/// Asks all agents that submit for what their schedulers have, at one time. The answers are in the
/// order of the nodes.
async fn capacities(
    agent: &LocalClient<Channel>,
    submitters: Vec<Node>,
) -> Vec<(Node, Result<SchedulerReply, String>)> {
    let mut asked = JoinSet::new();
    for (index, submitter) in submitters.into_iter().enumerate() {
        let agent = agent.clone();
        asked.spawn(async move {
            let request = SchedulerRequest {
                node: submitter.name.clone(),
                virtual_address: submitter.virtual_address,
                estimate: None,
            };
            let answer = scheduler::ask(agent, request).await;
            (index, submitter, answer)
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(index, ..)| *index);
    answers.into_iter().map(|(_, submitter, answer)| (submitter, answer)).collect()
}

/// What a scheduler has in the queue that the run's jobs would be in, for as long as they take.
///
/// # Errors
/// Why nothing of it can be used.
fn usable(
    batch: &BatchArgs,
    time: Option<Duration>,
    submitter: Node,
    reply: SchedulerReply,
) -> Result<Scheduler, String> {
    let queue = pilots::of_site(&batch.queue, site(&submitter.name));
    let classes = of_queue(reply.classes, queue).map_err(|there| {
        let there: Vec<String> = there.iter().map(|name| one_line(name)).collect();
        let there = there.join(", ");
        match queue {
            Some(queue) => format!("{} has no queue {queue}; it has {there}", one_line(&reply.scheduler)),
            None => format!("--queue must name one of its queues: {there}"),
        }
    })?;
    let classes = that_last(classes, time).map_err(|most| {
        format!(
            "its jobs may take {} at most, and {} are asked for",
            humane(most),
            humane(time.unwrap_or_default())
        )
    })?;
    Ok(Scheduler { submitter, name: one_line(&reply.scheduler), classes })
}
