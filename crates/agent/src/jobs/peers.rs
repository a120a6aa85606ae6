//! The Peer service, by which agents call each other, and its callers.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use isthmus_identity::{Identity, Role, audit};
use isthmus_rpc::grpc;
use isthmus_service::mac::Secret;
use isthmus_trunk::TrunkId;
use isthmus_wire::proto::peer_server::Peer;
use isthmus_wire::proto::{self, exec_up, job_news};
use isthmus_wire::settings::Host;
use isthmus_wire::text::first;
use isthmus_wire::topology::Topology;
use isthmus_wire::{GridName, JobId, patience};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use crate::jobs::begin::begin;
use crate::jobs::calls;
use crate::jobs::end;
use crate::jobs::hold;
use crate::jobs::job::{Job, Terms};
use crate::jobs::news::{NewsReceiver, NewsSender};
use crate::jobs::node::Node;
use crate::jobs::part;
use crate::jobs::partners::{self, Partners};
use crate::jobs::told;
use crate::jobs::tree;
use crate::pilots::serving::{self, Pilots};
use crate::starting::exec::{self, program_of};

/// Shortest time between two reports of a node's connections to the head.
pub(crate) const NEWS_INTERVAL: Duration = Duration::from_millis(100);
/// Most nodes that an error names: a status has no room for those of a large job.
const NAMED_MAX: usize = 16;
/// Most news that wait to be sent to the head.
pub(crate) const NEWS_QUEUE: usize = 256;

pub(crate) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The Peer service of this agent.
#[derive(Debug, Clone)]
pub(crate) struct PeerService {
    pub node: Arc<Node>,
    /// The pilots that this agent submits; `None` if it submits none.
    pub pilots: Option<Arc<Pilots>>,
}

impl PeerService {
    /// The caller's identity, if it is an agent of the same owner.
    ///
    /// # Errors If the caller is not, or is of another version.
    fn authorise<T>(&self, request: &Request<T>) -> Result<Arc<Identity>, Status> {
        let caller = grpc::caller(request)?;
        grpc::check_caller(&self.node.name().to_string(), &caller.to_string(), request)?;
        let own = self.node.owner();
        if caller.role() != Role::Agent {
            return Err(Status::permission_denied(format!("only agents may call an agent, not {caller}")));
        }
        if caller.owner() != Some(own) {
            let theirs = owner_text(caller.owner());
            return Err(Status::permission_denied(format!(
                "the agent of {} starts processes for user {own} only, and {caller} belongs to {theirs}",
                self.node.name()
            )));
        }
        Ok(caller)
    }

    fn job(&self, id: &str) -> Result<Arc<Job>, Status> {
        let (id, name) = (parse_job(id)?, self.node.name());
        self.node.job(id).ok_or_else(|| match self.node.given_up().why(id) {
            Some(reason) => Status::aborted(format!("{reason} (from {name})")),
            None => Status::not_found(format!("job {id} does not run on {name}")),
        })
    }
}

fn owner_text(owner: Option<&isthmus_identity::Owner>) -> String {
    owner.map_or_else(|| "no user".to_owned(), |owner| format!("user {owner}"))
}

/// Checks that a caller is a node of the job.
///
/// # Errors `PERMISSION_DENIED` if it is not.
fn check_node(nodes: &[Host], caller: &Identity) -> Result<(), Status> {
    if nodes.iter().any(|node| caller.grid_name().as_ref() == Some(&node.name)) {
        return Ok(());
    }
    Err(Status::permission_denied(format!("only the job's own nodes may do this, and {caller} is not one")))
}

/// Reads a job id.
///
/// # Errors `INVALID_ARGUMENT` if the text is no job id.
pub(crate) fn parse_job(id: &str) -> Result<JobId, Status> {
    id.parse().map_err(|error: isthmus_wire::DecodeError| Status::invalid_argument(error.to_string()))
}

/// Reads a job's nodes.
///
/// # Errors `INVALID_ARGUMENT` if a name or an address is invalid.
pub(crate) fn parse_nodes(nodes: &[proto::JobNode]) -> Result<Vec<Host>, Status> {
    nodes
        .iter()
        .map(|node| {
            Host::read(&node.name, node.virtual_address)
                .map_err(|reason| Status::invalid_argument(format!("node {:?}: {reason}", node.name)))
        })
        .collect()
}

/// Reads what a job's MPI library is told.
///
/// # Errors `INVALID_ARGUMENT` if the message makes no topology.
pub(crate) fn parse_topology(topology: Option<proto::Topology>) -> Result<Option<Topology>, Status> {
    let read = topology.map(Topology::try_from).transpose();
    read.map_err(|error| Status::invalid_argument(error.to_string()))
}

#[tonic::async_trait]
impl Peer for PeerService {
    type HoldStream = Answers<proto::JobNews>;
    type ExecStream = Answers<proto::ExecDown>;
    type PilotStream = Answers<proto::PilotDown>;

    async fn hold(&self, request: Request<proto::HoldRequest>) -> Result<Response<Self::HoldStream>, Status> {
        let caller = self.authorise(&request)?;
        let from = grpc::peer(&request).map(|peer| peer.address);
        let trunk = grpc::peer(&request).and_then(|peer| peer.trunk);
        let trunk = trunk.and_then(|id| self.node.trunks().find(&caller, TrunkId(id)));
        let request = request.into_inner();
        let nodes = parse_nodes(&request.nodes)?;
        check_node(&nodes, &caller)?;
        let token = Secret::from_slice(&request.token)
            .ok_or_else(|| Status::invalid_argument("the job's token is not 32 bytes"))?;
        let outlive = Duration::from_secs(request.outlive_seconds.into());
        let patience = patience::read(request.patience_seconds);
        let topology = parse_topology(request.topology.clone())?;
        let partners = Partners::read(request.partners.clone())?;
        let encrypt_to_nodes = request.encrypt_to_nodes;
        let terms = Terms {
            token,
            outlive,
            patience,
            encrypt_to_nodes,
            topology,
            partners,
            joined: None,
            leader: String::new(),
        };
        let (job, own_news) =
            begin(&self.node, parse_job(&request.job)?, terms, nodes).map_err(Status::from)?;
        audit::Entry::done("job").by(&caller).from(from).about(format!("job {}", job.id)).record();
        let (news_tx, news_rx) = mpsc::channel(NEWS_QUEUE);
        let (node, held) = (self.node.clone(), job.clone());
        part::spawn(&self.node, &held, "the job's part here", async move {
            match hold::prepare(&node, &job, request, &news_tx).await {
                Ok(held) => {
                    hold::follow_all(&node, &job, held, &news_tx);
                    tokio::select! {
                        () = send_news(&job, own_news, &news_tx) => {}
                        () = hold::holder_lost(&node, &job, trunk, &news_tx) => {}
                    }
                    if !job.ended.is_cancelled() {
                        // The node that held this one is gone, or lost.
                        if !job.holding.ending.is_cancelled() {
                            told::head(&node, &job, end::ENDED.to_owned(), Duration::ZERO).await;
                        }
                        end::end_all(&node, &job).await;
                    }
                }
                Err(status) => {
                    node.end(&job).await;
                    let _ = news_tx.send(Err(status)).await;
                }
            }
        });
        Ok(grpc::with_versions(Response::new(Box::pin(ReceiverStream::new(news_rx)))))
    }

    async fn exec(
        &self,
        request: Request<Streaming<proto::ExecUp>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        let caller = self.authorise(&request)?;
        let from = grpc::peer(&request).map(|peer| peer.address);
        let (command, up) = command_of(request.into_inner()).await?;
        let job = self.job(&command.job)?;
        check_node(&job.members.nodes, &caller)?;
        let subject = format!("job {}: {:?} on {}", job.id, program_of(&command.shell_command), command.node);
        audit::Entry::done("command").by(&caller).from(from).about(subject).record();
        Ok(Response::new(exec(&self.node, &job, command, up).await?))
    }

    async fn end(&self, request: Request<proto::EndRequest>) -> Result<Response<proto::EndReply>, Status> {
        let caller = self.authorise(&request)?;
        let job = self.job(&request.into_inner().job)?;
        check_node(&job.members.nodes, &caller)?;
        Ok(Response::new(end::end_all(&self.node, &job).await))
    }

    async fn tell(&self, request: Request<proto::TellRequest>) -> Result<Response<proto::TellReply>, Status> {
        let caller = self.authorise(&request)?;
        let request = request.into_inner();
        let job = self.job(&request.job)?;
        check_node(&job.members.nodes, &caller)?;
        told::take(&self.node, &job, &caller, request.lost)?;
        Ok(Response::new(proto::TellReply {}))
    }

    async fn partner(
        &self,
        request: Request<proto::PartnerRequest>,
    ) -> Result<Response<proto::PartnerReply>, Status> {
        let caller = self.authorise(&request)?;
        let request = request.into_inner();
        let job = self.job(&request.job)?;
        partners::take(&self.node, &job, caller.grid_name(), request.partners)?;
        Ok(Response::new(proto::PartnerReply {}))
    }

    async fn pilot(
        &self,
        request: Request<Streaming<proto::PilotUp>>,
    ) -> Result<Response<Self::PilotStream>, Status> {
        let caller = self.authorise(&request)?;
        let from = grpc::peer(&request).map(|peer| peer.address);
        let pilots = serving::pilots(&self.pilots, self.node.name())?;
        let (order, up) = serving::order_of(request.into_inner()).await?;
        let nodes = order.wanted.as_ref().map_or(0, |wanted| wanted.nodes);
        audit::Entry::done("pilot").by(&caller).from(from).about(format!("{nodes} nodes")).record();
        Ok(Response::new(serving::serve(pilots, &order, up)?))
    }

    async fn scheduler(
        &self,
        request: Request<proto::SchedulerRequest>,
    ) -> Result<Response<proto::SchedulerReply>, Status> {
        self.authorise(&request)?;
        let pilots = serving::pilots(&self.pilots, self.node.name())?;
        serving::ask(pilots, request.get_ref()).await.map(Response::new)
    }

    async fn arrive(
        &self,
        request: Request<proto::ArriveRequest>,
    ) -> Result<Response<proto::ArriveReply>, Status> {
        let caller = self.authorise(&request)?;
        let pilots = serving::pilots(&self.pilots, self.node.name())?;
        serving::arrive(pilots, self.node.name(), &caller, request.get_ref())?;
        Ok(Response::new(proto::ArriveReply {}))
    }
}

/// The command that an Exec call begins with, and the rest of the stream.
///
/// # Errors
/// `INVALID_ARGUMENT` if it begins with anything else.
pub(crate) async fn command_of(
    mut up: Streaming<proto::ExecUp>,
) -> Result<(proto::Command, Streaming<proto::ExecUp>), Status> {
    match up.message().await?.and_then(|message| message.kind) {
        Some(exec_up::Kind::Command(command)) => Ok((command, up)),
        _ => Err(Status::invalid_argument("the first message must be the command")),
    }
}

/// Sends a job's news from here until the job ends or the receiver is gone.
pub(crate) async fn send_news(job: &Arc<Job>, mut own: NewsReceiver, news_tx: &NewsSender) {
    let news = |kind| Ok(proto::JobNews { kind: Some(kind) });
    let mut changes = job.account.changes();
    let mut sent = Vec::new();
    loop {
        let message = tokio::select! {
            Ok(()) = changes.changed() => {
                tokio::time::sleep(NEWS_INTERVAL).await;
                let _ = changes.borrow_and_update();
                let joined = job.account.joined();
                let changed: Vec<_> = joined.iter().filter(|entry| !sent.contains(*entry)).cloned().collect();
                sent = joined;
                changed.into_iter().map(job_news::Kind::Joined).collect()
            }
            Some(other) = own.recv() => vec![other],
            () = job.ended.cancelled() => break,
            () = news_tx.closed() => return,
        };
        for kind in message {
            if news_tx.send(news(kind)).await.is_err() {
                return;
            }
        }
    }
    // News from just before the job's end may tell its cause.
    while let Ok(kind) = own.try_recv() {
        if news_tx.try_send(news(kind)).is_err() {
            return;
        }
    }
}

/// Runs a command on its node: this one, or another one of the job, perhaps by way of
/// one more agent.
///
/// # Errors
/// As [`find`], [`calls::connect`] and [`exec::run`].
pub(crate) async fn exec(
    node: &Arc<Node>,
    job: &Arc<Job>,
    command: proto::Command,
    up: Streaming<proto::ExecUp>,
) -> Result<Answers<proto::ExecDown>, Status> {
    let target = find(job, node.name(), &command.node)?;
    if target.name == *node.name() {
        return Ok(Box::pin(exec::run(node, job, &command, up)?));
    }
    let hop = tree::next_hop(&job.members.nodes, node.name(), target);
    let mut client = calls::channel(node, job, hop).await?;
    let first = proto::ExecUp { kind: Some(exec_up::Kind::Command(command)) };
    // An error of the launcher's stream is its end, and ends this stream, too.
    let rest = up.map_while(Result::ok);
    let down = client.exec(tokio_stream::once(first).chain(rest)).await?;
    Ok(Box::pin(down.into_inner()))
}

/// The node of a job that a launcher on the node `own` names.
///
/// # Errors
/// `NOT_FOUND` with the nodes that the job has.
pub(crate) fn find<'a>(job: &'a Job, own: &GridName, text: &str) -> Result<&'a Host, Status> {
    job.members.nodes.iter().find(|host| is_named(host, own, text)).ok_or_else(|| {
        let nodes = first(job.members.nodes.iter().map(|node| &node.name), 0, NAMED_MAX);
        Status::not_found(format!("{text:?} is not a node of this job: {nodes}"))
    })
}

/// Whether a text names this node: by grid name or virtual address, or at its own site by the
/// node's name alone.
fn is_named(host: &Host, own: &GridName, text: &str) -> bool {
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let is_short = host.name.site == own.site && host.name.node.as_str().eq_ignore_ascii_case(text);
    is_short || host.name.to_string().eq_ignore_ascii_case(text) || host.address.to_string() == text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_in_three_ways() {
        let own: GridName = "n1.alpha".parse().unwrap();
        for (node, text, named) in [
            ("n2.alpha", "n2.alpha", true),
            ("n2.alpha", "ada@N2.Alpha", true),
            ("n2.alpha", "240.64.1.2", true),
            ("n2.alpha", "n2", true),
            ("n2.alpha", "ada@N2", true),
            ("n1.alpha", "n1", true),
            ("n2.alpha", "n2.", false),
            ("n2.alpha", "n", false),
            ("n2.alpha", "alpha", false),
            ("n2.alpha", "", false),
            ("n2.beta", "n2.beta", true),
            ("n2.beta", "n2", false),
        ] {
            let host = Host::read(node, 0xf040_0102).unwrap();
            assert_eq!(is_named(&host, &own, text), named, "{node} {text}");
        }
    }
}
