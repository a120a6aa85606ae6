//! The agent that submits pilots.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use isthmus_batch::command::{LIMIT, Runner};
use isthmus_batch::{Batch as _, BatchError, GridEngine, Hosts, Scheduler, Slurm};
use isthmus_identity::{Credentials, Identity};
use isthmus_pilot::keeper::{Held, OrderError, Place};
use isthmus_pilot::{Arrived, Keeper, Phase};
use isthmus_service::files;
use isthmus_wire::GridName;
use isthmus_wire::proto::{self, pilot_up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::fields;
use super::grid::AgentGrid;
use crate::config::{AgentConfig, Submit};
use crate::jobs::peers::Answers;
use crate::uplink::upstream::Upstream;

/// Most messages that wait to be sent.
const QUEUE: usize = 16;

/// The pilots of this agent's user.
pub(crate) type Pilots = Keeper<Scheduler, AgentGrid>;

/// The keeper of pilots, if this agent is set up to submit some.
///
/// # Errors
/// If the directories of pilots can't be made.
pub(crate) fn start(
    config: &AgentConfig,
    (name, isthmus): (&GridName, &Path),
    credentials: &Credentials,
    upstream: &Upstream,
) -> anyhow::Result<Option<Arc<Pilots>>> {
    let Some(submit) = config.submit else { return Ok(None) };
    let directory = config.pilots_directory.as_deref().context("this agent has no directory for pilots")?;
    files::create_directory(directory)?;
    let runner = Runner::new(name.site.as_str(), LIMIT);
    let scheduler = match submit {
        Submit::Slurm => Scheduler::Slurm(Slurm::new(runner, &directory.join("slurm"))?),
        Submit::GridEngine => Scheduler::GridEngine(GridEngine::new(runner, &directory.join("grid-engine"))?),
        Submit::Hosts => {
            let hosts = config.hosts()?;
            Scheduler::Hosts(Hosts::new(runner, &directory.join("hosts"), hosts, Vec::new())?)
        }
    };
    let place = Place {
        cluster: name.site.to_string(),
        directory: directory.to_owned(),
        isthmus: isthmus.to_owned(),
        submitter: name.to_string(),
    };
    let grid = AgentGrid { credentials: credentials.clone(), upstream: upstream.clone() };
    Ok(Some(Keeper::new(scheduler, grid, place)))
}

/// The pilots of this agent.
///
/// # Errors `NOT_FOUND` if it submits none.
pub(crate) fn pilots<'a>(
    pilots: &'a Option<Arc<Pilots>>,
    name: &GridName,
) -> Result<&'a Arc<Pilots>, Status> {
    pilots.as_ref().ok_or_else(|| {
        Status::not_found(format!(
            "the agent of {name} submits no batch jobs; on the site's login node, isthmus up --submit slurm makes one \
             that does"
        ))
    })
}

/// The order that a call begins with, and the rest of the stream.
///
/// # Errors `INVALID_ARGUMENT` if it begins with anything else.
pub(crate) async fn order_of(
    mut up: Streaming<proto::PilotUp>,
) -> Result<(proto::PilotOrder, Streaming<proto::PilotUp>), Status> {
    match up.message().await?.and_then(|message| message.kind) {
        Some(pilot_up::Kind::Order(order)) => Ok((order, up)),
        _ => Err(Status::invalid_argument("the first message must be the order")),
    }
}

/// Serves a call for a pilot, until nothing of the pilot is left or the caller is gone.
///
/// # Errors
/// If there can be no such pilot.
pub(crate) fn serve(
    pilots: &Arc<Pilots>,
    order: &proto::PilotOrder,
    up: Streaming<proto::PilotUp>,
) -> Result<Answers<proto::PilotDown>, Status> {
    let id = fields::id(&order.pilot)?;
    let held = match order.known {
        true => pilots.held(id),
        false => pilots.order(id, fields::wanted(order)?),
    };
    let held = held.map_err(refused)?;
    let (down_tx, down_rx) = mpsc::channel(QUEUE);
    tokio::spawn(tell(pilots.batch().name(), held, up, down_tx));
    Ok(Box::pin(ReceiverStream::new(down_rx)))
}

async fn tell(
    scheduler: &'static str,
    mut held: Held,
    mut up: Streaming<proto::PilotUp>,
    down_tx: mpsc::Sender<Result<proto::PilotDown, Status>>,
) {
    let (mut told, mut status, mut is_open) = (Vec::new(), held.status(), true);
    loop {
        for message in fields::down(scheduler, &status, &mut told) {
            if down_tx.send(Ok(message)).await.is_err() {
                return;
            }
        }
        if matches!(status.phase, Phase::Ended(_)) {
            return;
        }
        let former = status.clone();
        while status == former {
            tokio::select! {
                next = held.next() => match next {
                    Some(next) => status = next,
                    None => return,
                },
                message = up.message(), if is_open => match message {
                    Ok(Some(message)) => match message.kind {
                        Some(pilot_up::Kind::End(true)) => held.end(),
                        Some(pilot_up::Kind::Look(true)) => held.look(),
                        _ => {}
                    },
                    Ok(None) => is_open = false,
                    Err(_) => return,
                },
                () = down_tx.closed() => return,
            }
        }
    }
}

/// What the scheduler has, or when it could start nodes.
///
/// # Errors
/// If it can't be asked.
pub(crate) async fn ask(
    pilots: &Pilots,
    request: &proto::SchedulerRequest,
) -> Result<proto::SchedulerReply, Status> {
    let batch = pilots.batch();
    let failed = |error: BatchError| Status::unavailable(error.to_string());
    match &request.estimate {
        None => Ok(fields::capacity(batch.name(), batch.capacity().await.map_err(failed)?)),
        Some(wanted) => {
            let estimate = batch.estimate(&fields::request(wanted)?).await.map_err(failed)?;
            Ok(fields::estimated(batch.name(), estimate))
        }
    }
}

/// Takes a node's word that it is there.
///
/// # Errors
/// If it isn't a node of this site, or of one of the pilots.
pub(crate) fn arrive(
    pilots: &Pilots,
    own: &GridName,
    caller: &Identity,
    request: &proto::ArriveRequest,
) -> Result<(), Status> {
    let name = caller.grid_name().filter(|name| name.site == own.site);
    let name =
        name.ok_or_else(|| Status::permission_denied(format!("{caller} isn't of site {}", own.site)))?;
    let node = Arrived { name: name.to_string(), host: fields::host(&request.host)? };
    pilots.arrive(fields::id(&request.pilot)?, node).map_err(refused)
}

fn refused(error: OrderError) -> Status {
    let text = error.to_string();
    match error {
        OrderError::TooMany => Status::resource_exhausted(text),
        OrderError::Unknown => Status::not_found(text),
        OrderError::Ends(_) | OrderError::Complete | OrderError::Unkept(_) => {
            Status::failed_precondition(text)
        }
    }
}
