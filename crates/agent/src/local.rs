//! What the node's own users ask of the agent, over its Unix socket; and the
//! head of a job, which holds all its nodes together.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use isthmus_net::grpc;
use isthmus_net::mac::Secret;
use isthmus_wire::proto::local_server::Local;
use isthmus_wire::proto::{self, job_news};
use isthmus_wire::settings::Host;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status, Streaming};

use crate::exec;
use crate::job::{Job, lock};
use crate::node::Node;
use crate::peers::{self, Answers, NEWS_QUEUE, parse_job, parse_nodes};
use crate::preflight;
use crate::pulse;

/// How long one node may take to take part in a job.
const HOLD_DEADLINE: Duration = Duration::from_secs(30);
/// How long one node may take to end a job.
const END_DEADLINE: Duration = Duration::from_secs(10);
/// Shortest time between two reports of a job to the broker.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The Local service.
#[derive(Debug, Clone)]
pub struct LocalService {
    /// The node.
    pub node: Arc<Node>,
}

/// Binds the agent's own Unix socket, for its own user alone.
///
/// # Errors
/// If another agent has it, or as the file system's.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent runs on this node already"));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn authorise<T>(request: &Request<T>) -> Result<(), Status> {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    let own = nix::unistd::geteuid().as_raw();
    match peer {
        Some(peer) if peer.uid() == own || peer.uid() == 0 => Ok(()),
        Some(peer) => Err(Status::permission_denied(format!(
            "this agent works for user id {own}, not {}; run an agent of your own",
            peer.uid()
        ))),
        None => Err(Status::permission_denied("the caller's user id is unknown")),
    }
}

#[tonic::async_trait]
impl Local for LocalService {
    type StartStream = Answers<proto::JobNews>;
    type ExecStream = Answers<proto::ExecDown>;

    async fn start(
        &self,
        request: Request<proto::StartRequest>,
    ) -> Result<Response<Self::StartStream>, Status> {
        authorise(&request)?;
        let request = request.into_inner();
        let nodes = parse_nodes(&request.nodes)?;
        let token = Secret::random();
        let job = self
            .node
            .begin(parse_job(&request.job)?, token, nodes)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        let (news_tx, news_rx) = mpsc::channel(NEWS_QUEUE);
        let head = Head { node: self.node.clone(), job, news_tx, program: request.program };
        // A task of its own: this call may be dropped at any moment, and the
        // job must then be ended.
        tokio::spawn(head.start(request.nodes, request.check, request.preflight));
        Ok(Response::new(Box::pin(ReceiverStream::new(news_rx))))
    }

    async fn exec(
        &self,
        request: Request<Streaming<proto::ExecUp>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        authorise(&request)?;
        let (command, up) = peers::command_of(request.into_inner()).await?;
        let job = self.job(&command.job)?;
        let target = job.nodes.iter().find(|host| names(host, &command.node)).ok_or_else(|| {
            Status::not_found(format!("{:?} is not a node of this job: {}", command.node, list(&job.nodes)))
        })?;
        if target.name == *self.node.name() {
            return Ok(Response::new(Box::pin(exec::run(&self.node, &job, &command, up)?)));
        }
        let client = peers::channel(&self.node, &job, target.address).await?;
        Ok(Response::new(peers::forward_exec(client, command, up).await?))
    }

    async fn end(&self, request: Request<proto::EndRequest>) -> Result<Response<proto::EndReply>, Status> {
        authorise(&request)?;
        let job = self.job(&request.into_inner().job)?;
        Ok(Response::new(end_all(&self.node, &job).await))
    }

    async fn grid(&self, request: Request<proto::GridRequest>) -> Result<Response<proto::GridReply>, Status> {
        authorise(&request)?;
        let mut grid = self.node.reacher().upstream.grid().await?;
        grid.own = self.node.name().to_string();
        Ok(Response::new(grid))
    }
}

impl LocalService {
    fn job(&self, id: &str) -> Result<Arc<Job>, Status> {
        let id = parse_job(id)?;
        self.node.job(id).ok_or_else(|| Status::not_found(format!("job {id} has ended")))
    }
}

/// Whether a launcher means this node: by grid name or virtual address.
fn names(host: &Host, text: &str) -> bool {
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    host.name.to_string().eq_ignore_ascii_case(text) || host.address.to_string() == text
}

fn list(nodes: &[Host]) -> String {
    nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>().join(", ")
}

/// A node that takes part.
struct Held {
    host: Host,
    /// Its further news.
    news: Streaming<proto::JobNews>,
    /// What it found.
    ready: proto::Ready,
}

/// Has all other nodes take part, in parallel; all or nothing.
async fn hold_all(
    node: &Arc<Node>,
    job: &Arc<Job>,
    wanted: &[proto::JobNode],
    check: Option<&proto::ProgramCheck>,
    preflight: Option<&proto::Preflight>,
) -> Result<Vec<Held>, Status> {
    let request = proto::HoldRequest {
        job: job.id.to_string(),
        token: job.token.expose().to_vec(),
        nodes: wanted.to_vec(),
        check: check.cloned(),
        preflight: preflight.cloned(),
    };
    let mut holding = JoinSet::new();
    for host in job.nodes.iter().filter(|host| host.name != *node.name()).cloned() {
        let (node, job, request) = (node.clone(), job.clone(), request.clone());
        holding.spawn(async move {
            let name = host.name.clone();
            let held = tokio::time::timeout(HOLD_DEADLINE, hold(&node, &job, host, request)).await;
            let late = || Status::deadline_exceeded(format!("no answer within {HOLD_DEADLINE:?}"));
            held.unwrap_or_else(|_| Err(late()))
                .map_err(|status| format!("{name}: {}", grpc::reason(&status)))
        });
    }
    let mut held = Vec::new();
    let mut failed = Vec::new();
    for result in holding.join_all().await {
        match result {
            Ok(node) => held.push(node),
            Err(reason) => failed.push(reason),
        }
    }
    if failed.is_empty() {
        return Ok(held);
    }
    failed.sort();
    Err(Status::unavailable(failed.join("\n")))
}

async fn hold(node: &Node, job: &Job, host: Host, request: proto::HoldRequest) -> Result<Held, Status> {
    let mut client = peers::connect(node, host.address).await?;
    let (asked, asked_at) = (Instant::now(), preflight::clock());
    let mut news = client.hold(request).await?.into_inner();
    let round_trip = asked.elapsed();
    match news.message().await?.and_then(|news| news.kind) {
        Some(job_news::Kind::Ready(mut ready)) => {
            peers::keep(job, host.address, client);
            for report in &mut ready.reports {
                preflight::set_skew(report, asked_at, round_trip);
            }
            Ok(Held { host, news, ready })
        }
        _ => Err(Status::internal("the node did not say that it is ready")),
    }
}

/// Ends a job on all its nodes, in parallel, and adds up the account.
async fn end_all(node: &Arc<Node>, job: &Arc<Job>) -> proto::EndReply {
    job.ending.store(true, Ordering::SeqCst);
    let mut ending = JoinSet::new();
    let lost = lock(&job.lost).clone();
    let others = job.nodes.iter().filter(|host| host.name != *node.name() && !lost.contains(&host.name));
    for host in others.cloned() {
        let (node, job) = (node.clone(), job.clone());
        ending.spawn(async move {
            let request = proto::EndRequest { job: job.id.to_string() };
            let ending = async { peers::channel(&node, &job, host.address).await?.end(request).await };
            match tokio::time::timeout(END_DEADLINE, ending).await {
                Ok(Ok(reply)) => reply.into_inner(),
                Ok(Err(status)) => {
                    // It ends the job by itself when it loses this agent.
                    let reason = grpc::reason(&status);
                    tracing::warn!(node = %host.name, reason, "cannot end the job there");
                    let lost = proto::NodeLost { node: host.name.to_string(), reason };
                    proto::EndReply { nodes_lost: vec![lost], ..proto::EndReply::default() }
                }
                Err(_) => {
                    tracing::warn!(node = %host.name, "the job did not end there within {END_DEADLINE:?}");
                    proto::EndReply::default()
                }
            }
        });
    }
    let own_killed = node.end_processes(job).await;
    let mut total = peers::account(job, own_killed);
    for reply in ending.join_all().await {
        total.joined.extend(reply.joined);
        total.uncarried.extend(reply.uncarried);
        total.processes_killed += reply.processes_killed;
        total.commands_killed.extend(reply.commands_killed);
        total.nodes_lost.extend(reply.nodes_lost);
    }
    node.end(job).await;
    total
}

/// What stands at the head of a running job.
struct Head {
    node: Arc<Node>,
    job: Arc<Job>,
    /// head → `isthmus run`
    news_tx: mpsc::Sender<Result<proto::JobNews, Status>>,
    program: String,
}

impl Head {
    async fn start(
        self,
        wanted: Vec<proto::JobNode>,
        check: Option<proto::ProgramCheck>,
        preflight: Option<proto::Preflight>,
    ) {
        let preparing = async {
            tokio::join!(
                hold_all(&self.node, &self.job, &wanted, check.as_ref(), preflight.as_ref()),
                preflight::report(&self.node, &self.job, check.as_ref(), preflight.as_ref())
            )
        };
        let (held, own) = tokio::select! {
            prepared = preparing => prepared,
            () = self.news_tx.closed() => (Err(Status::cancelled("`isthmus run` is gone")), None),
        };
        match held {
            Ok(held) => {
                let mut faults = self.node.look_for(check).await;
                for held in &held {
                    faults.missing.extend(held.ready.missing.iter().cloned());
                    faults.uncarried.extend(held.ready.uncarried.iter().cloned());
                }
                let reports = held.iter().flat_map(|held| held.ready.reports.iter().cloned());
                let reports = own.into_iter().chain(reports).collect();
                peers::tell_ready(&self.job, faults, reports, &self.news_tx).await;
                self.run(held).await;
            }
            Err(status) => {
                self.node.end(&self.job).await;
                let _ = self.news_tx.send(Err(status)).await;
            }
        }
    }

    async fn run(self, held: Vec<Held>) {
        let started_unix_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        let (all_tx, mut all_rx) = mpsc::channel(NEWS_QUEUE);
        for Held { host, news, .. } in held {
            tokio::spawn(follow(self.node.clone(), self.job.clone(), host, news, all_tx.clone()));
        }
        let own_tx = all_tx.clone();
        let own_job = self.job.clone();
        tokio::spawn(async move { peers::tell_news(&own_job, &own_tx).await });
        let mut joined: Vec<proto::Joined> = Vec::new();
        let mut changed = true;
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        let report = |joined: &[proto::Joined], ended: bool| {
            self.node.reacher().upstream.report(proto::JobReport {
                job: self.job.id.to_string(),
                owner: self.node.facilities().owner.as_ref().map(ToString::to_string).unwrap_or_default(),
                program: self.program.clone(),
                nodes: self.job.nodes.iter().map(|node| node.name.to_string()).collect(),
                started_unix_ms,
                ended,
                joined: joined.to_vec(),
            });
        };
        loop {
            tokio::select! {
                Some(news) = all_rx.recv() => {
                    if let Ok(proto::JobNews { kind: Some(job_news::Kind::Joined(entry)) }) = &news {
                        changed = true;
                        joined.retain(|old| !same_joint(old, entry));
                        joined.push(entry.clone());
                    }
                    if self.news_tx.send(news).await.is_err() {
                        break;
                    }
                }
                _ = ticks.tick() => if std::mem::take(&mut changed) {
                    report(&joined, false);
                },
                () = self.job.ended.cancelled() => break,
                () = self.news_tx.closed() => break,
            }
        }
        report(&joined, true);
        if !self.job.ended.is_cancelled() {
            tracing::warn!(job = %self.job.id, "`isthmus run` is gone: the job ends");
            end_all(&self.node, &self.job).await;
        }
    }
}

fn same_joint(a: &proto::Joined, b: &proto::Joined) -> bool {
    let key = |joined: &proto::Joined| {
        (
            joined.initiator.clone(),
            joined.acceptor.clone(),
            joined.dial,
            joined.relay.clone(),
            joined.encrypted,
        )
    };
    key(a) == key(b)
}

/// Passes one node's news on; says so when the node is lost.
async fn follow(
    node: Arc<Node>,
    job: Arc<Job>,
    host: Host,
    mut news: Streaming<proto::JobNews>,
    all_tx: mpsc::Sender<Result<proto::JobNews, Status>>,
) {
    let silent = pulse::watch(&node, &job, &host);
    tokio::pin!(silent);
    let reason = loop {
        let message = tokio::select! {
            message = news.message() => message,
            quiet = &mut silent => break format!(
                "no sign of life for {:.1} s: it is frozen, or its network is cut",
                quiet.as_secs_f64()
            ),
            () = job.ended.cancelled() => return,
        };
        match message {
            Ok(Some(message)) => {
                if all_tx.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            Ok(None) => break "its agent left the job".to_owned(),
            Err(status) => break grpc::reason(&status),
        }
    };
    lock(&job.lost).insert(host.name.clone());
    if !job.ending.load(Ordering::SeqCst) {
        let lost = proto::NodeLost { node: host.name.to_string(), reason };
        let _ = all_tx.send(Ok(proto::JobNews { kind: Some(job_news::Kind::NodeLost(lost)) })).await;
    }
}
