//! What agents ask of each other: the Peer service and its callers.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_net::mac::Secret;
use isthmus_net::{Identity, Role, grpc};
use isthmus_wire::proto::peer_client::PeerClient;
use isthmus_wire::proto::peer_server::Peer;
use isthmus_wire::proto::{self, exec_up, job_news};
use isthmus_wire::settings::Host;
use isthmus_wire::{JobId, VirtualAddress};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::carrier::Carrier;
use crate::exec;
use crate::job::{Job, lock};
use crate::node::{Faults, Node};
use crate::preflight;
use crate::reach::Purpose;

/// Shortest time between two reports of one node's connections.
pub const NEWS_INTERVAL: Duration = Duration::from_millis(100);
/// News waiting for the head.
pub const NEWS_QUEUE: usize = 256;

/// A stream of answers.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Channels of one job to its other agents.
#[derive(Debug, Default)]
pub struct PeerChannels(Mutex<HashMap<Ipv4Addr, PeerClient<Channel>>>);

/// A channel to the agent of another node, dialed like any connection.
///
/// # Errors
/// `UNAVAILABLE` with every way that was tried.
pub async fn connect(node: &Node, address: VirtualAddress) -> Result<PeerClient<Channel>, Status> {
    let unavailable = |reason: String| Status::unavailable(reason);
    let reached = node
        .reacher()
        .reach(address.ip(), Purpose::Peer)
        .await
        .map_err(|error| unavailable(error.to_string()))?;
    let Carrier::Tls(stream) = reached.carrier else {
        return Err(Status::internal("the connection to another agent is not encrypted"));
    };
    let channel = grpc::channel_over(*stream).await.map_err(|error| unavailable(error.to_string()))?;
    Ok(PeerClient::new(channel))
}

/// The job's channel to another of its nodes.
///
/// # Errors
/// As [`connect`].
pub async fn channel(node: &Node, job: &Job, address: VirtualAddress) -> Result<PeerClient<Channel>, Status> {
    if let Some(client) = lock(&job.peers.0).get(&address.ip()) {
        return Ok(client.clone());
    }
    let client = connect(node, address).await?;
    keep(job, address, client.clone());
    Ok(client)
}

/// Keeps a channel for the job.
pub fn keep(job: &Job, address: VirtualAddress, client: PeerClient<Channel>) {
    lock(&job.peers.0).insert(address.ip(), client);
}

/// What other agents may ask of this one.
#[derive(Debug, Clone)]
pub struct PeerService {
    /// The node.
    pub node: Arc<Node>,
}

impl PeerService {
    /// Only agents of the same owner may have this one run anything.
    fn authorise<T>(&self, request: &Request<T>) -> Result<Arc<Identity>, Status> {
        let caller = grpc::caller(request)?;
        let own = self.node.facilities().owner.as_ref();
        if caller.role() != Role::Agent {
            return Err(Status::permission_denied(format!("only agents may call an agent, not {caller}")));
        }
        if own.is_none() || caller.owner() != own {
            let (own, theirs) = (owner_text(own), owner_text(caller.owner()));
            return Err(Status::permission_denied(format!(
                "the agent of {} starts processes for {own} only, and {caller} belongs to {theirs}",
                self.node.name()
            )));
        }
        Ok(caller)
    }

    fn job(&self, id: &str) -> Result<Arc<Job>, Status> {
        let id = parse_job(id)?;
        self.node
            .job(id)
            .ok_or_else(|| Status::not_found(format!("job {id} does not run on {}", self.node.name())))
    }
}

fn owner_text(owner: Option<&isthmus_net::Owner>) -> String {
    owner.map_or_else(|| "nobody".to_owned(), |owner| format!("user {owner}"))
}

/// Reads a job id.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn parse_job(id: &str) -> Result<JobId, Status> {
    id.parse().map_err(|error: isthmus_wire::DecodeError| Status::invalid_argument(error.to_string()))
}

/// Reads a job's nodes.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn parse_nodes(nodes: &[proto::JobNode]) -> Result<Vec<Host>, Status> {
    nodes
        .iter()
        .map(|node| {
            let wrong = |reason: String| Status::invalid_argument(format!("node {:?}: {reason}", node.name));
            let address = VirtualAddress::new(node.virtual_address.into())
                .ok_or_else(|| wrong("its address is not virtual".to_owned()))?;
            Ok(Host { address, name: node.name.parse().map_err(|error| wrong(format!("{error}")))? })
        })
        .collect()
}

#[tonic::async_trait]
impl Peer for PeerService {
    type HoldStream = Answers<proto::JobNews>;
    type ExecStream = Answers<proto::ExecDown>;

    async fn hold(&self, request: Request<proto::HoldRequest>) -> Result<Response<Self::HoldStream>, Status> {
        self.authorise(&request)?;
        let request = request.into_inner();
        let token = Secret::from_slice(&request.token)
            .ok_or_else(|| Status::invalid_argument("the job's token is not 32 bytes"))?;
        let job = self
            .node
            .begin(parse_job(&request.job)?, token, parse_nodes(&request.nodes)?)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        let clock_unix_us = preflight::clock();
        let (news_tx, news_rx) = mpsc::channel(NEWS_QUEUE);
        let node = self.node.clone();
        tokio::spawn(async move {
            let faults = node.look_for(request.check.clone()).await;
            let reporting =
                preflight::report(&node, &job, request.check.as_ref(), request.preflight.as_ref());
            let report = tokio::select! {
                report = reporting => report,
                () = news_tx.closed() => None,
            };
            let reports =
                report.map(|report| proto::NodeReport { clock_unix_us, ..report }).into_iter().collect();
            tell_ready(&job, faults, reports, &news_tx).await;
            tell_news(&job, &news_tx).await;
            // The head is gone or has ended the job.
            node.end(&job).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(news_rx))))
    }

    async fn exec(
        &self,
        request: Request<Streaming<proto::ExecUp>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        self.authorise(&request)?;
        let (command, up) = command_of(request.into_inner()).await?;
        let job = self.job(&command.job)?;
        let down = exec::run(&self.node, &job, &command, up)?;
        Ok(Response::new(Box::pin(down)))
    }

    async fn end(&self, request: Request<proto::EndRequest>) -> Result<Response<proto::EndReply>, Status> {
        self.authorise(&request)?;
        let job = self.job(&request.into_inner().job)?;
        let processes_killed = self.node.end(&job).await;
        Ok(Response::new(account(&job, processes_killed)))
    }
}

/// What a job did here.
pub fn account(job: &Job, processes_killed: u32) -> proto::EndReply {
    proto::EndReply {
        joined: job.account.joined(),
        processes_killed,
        uncarried: job.started_uncarried(),
        commands_killed: lock(&job.killed).clone(),
        nodes_lost: Vec::new(),
    }
}

/// The command that an Exec call begins with, and what follows it.
///
/// # Errors
/// `INVALID_ARGUMENT` if it begins with anything else.
pub async fn command_of(
    mut up: Streaming<proto::ExecUp>,
) -> Result<(proto::Command, Streaming<proto::ExecUp>), Status> {
    match up.message().await?.and_then(|message| message.kind) {
        Some(exec_up::Kind::Command(command)) => Ok((command, up)),
        _ => Err(Status::invalid_argument("the first message must be the command")),
    }
}

/// Tells that a node takes part.
pub async fn tell_ready(
    job: &Job,
    faults: Faults,
    reports: Vec<proto::NodeReport>,
    news_tx: &mpsc::Sender<Result<proto::JobNews, Status>>,
) {
    let job_directory = job.directory.path().to_string_lossy().into_owned();
    let Faults { missing, uncarried } = faults;
    let ready = job_news::Kind::Ready(proto::Ready { job_directory, missing, reports, uncarried });
    // Who doesn't listen has gone, which the caller sees by itself.
    let _ = news_tx.send(Ok(proto::JobNews { kind: Some(ready) })).await;
}

/// Tells what happens to a job here until it ends or nobody listens.
pub async fn tell_news(job: &Arc<Job>, news_tx: &mpsc::Sender<Result<proto::JobNews, Status>>) {
    let news = |kind| Ok(proto::JobNews { kind: Some(kind) });
    let Some(mut others) = job.take_news() else { return };
    let mut changes = job.account.changes();
    let mut told = Vec::new();
    loop {
        let message = tokio::select! {
            Ok(()) = changes.changed() => {
                tokio::time::sleep(NEWS_INTERVAL).await;
                let _ = changes.borrow_and_update();
                let joined = job.account.joined();
                let changed: Vec<_> = joined.iter().filter(|entry| !told.contains(*entry)).cloned().collect();
                told = joined;
                changed.into_iter().map(job_news::Kind::Joined).collect()
            }
            Some(other) = others.recv() => vec![other],
            () = job.ended.cancelled() => return,
            () = news_tx.closed() => return,
        };
        for kind in message {
            if news_tx.send(news(kind)).await.is_err() {
                return;
            }
        }
    }
}

/// Passes an Exec call on to another agent.
///
/// # Errors
/// As the other agent's.
pub async fn forward_exec(
    mut client: PeerClient<Channel>,
    command: proto::Command,
    up: Streaming<proto::ExecUp>,
) -> Result<Answers<proto::ExecDown>, Status> {
    let first = proto::ExecUp { kind: Some(exec_up::Kind::Command(command)) };
    // An error upwards is the launcher's end; ending the stream says so.
    let rest = up.map_while(Result::ok);
    let down = client.exec(tokio_stream::once(first).chain(rest)).await?;
    Ok(Box::pin(down.into_inner()))
}
