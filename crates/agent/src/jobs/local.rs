//! The service for the node's own users, over the agent's Unix socket; and the head
//! of a job.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_carry::trunk::seen;
use isthmus_identity::audit;
use isthmus_rpc::grpc;
use isthmus_service::clock::{micros, seconds, unix_ms};
use isthmus_service::mac::Secret;
use isthmus_service::{lock, silence};
use isthmus_wire::patience;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::local_server::Local;
use isthmus_wire::proto::{self, exec_down, job_news};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status, Streaming};

use crate::jobs::begin::begin;
use crate::jobs::end;
use crate::jobs::hold::{self, Held};
use crate::jobs::job::{Job, Terms};
use crate::jobs::news::{NewsReceiver, NewsSender};
use crate::jobs::node::Node;
use crate::jobs::part;
use crate::jobs::partners::{self, Joined, Partners};
use crate::jobs::peers::{self, Answers, NEWS_QUEUE, parse_job, parse_nodes, parse_topology};
use crate::observing::measure;
use crate::pilots::asking;
use crate::pilots::serving::{self, Pilots};
use crate::starting::exec::program_of;

/// How long the gateway may take to tell of its trunks.
const SITE_TRUNKS_DEADLINE: Duration = Duration::from_secs(5);
/// Shortest time between two reports of a job to the broker.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct LocalService {
    pub node: Arc<Node>,
    /// The pilots that this agent submits; `None` if it submits none.
    pub pilots: Option<Arc<Pilots>>,
}

/// Binds the agent's own Unix socket, for its own user alone. The directory is the
/// agent's runtime directory.
///
/// # Errors
/// If another agent has it; the file system's.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
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

/// The caller's user id.
///
/// # Errors If the caller may not call.
fn authorise<T>(request: &Request<T>) -> Result<u32, Status> {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    grpc::check_caller("this node's agent", "the command", request)?;
    let own = nix::unistd::geteuid().as_raw();
    match peer {
        Some(peer) if peer.uid() == own || peer.uid() == 0 => Ok(peer.uid()),
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
    type PilotStream = Answers<proto::PilotDown>;

    async fn start(
        &self,
        request: Request<proto::StartRequest>,
    ) -> Result<Response<Self::StartStream>, Status> {
        let uid = authorise(&request)?;
        let request = request.into_inner();
        let nodes = parse_nodes(&request.nodes)?;
        let token = Secret::random();
        let outlive = Duration::from_secs(request.outlive_seconds.into());
        let patience = patience::read(request.patience_seconds);
        let topology = parse_topology(request.topology.clone())?;
        let encrypt_to_nodes = request.encrypt_to_nodes;
        let leader = request.nodes.iter().find(|node| node.slots > 0).or(request.nodes.first());
        let leader = leader.map(|node| node.name.clone()).unwrap_or_default();
        let begin = |joined, partners| {
            let terms =
                Terms { token, outlive, patience, encrypt_to_nodes, topology, partners, joined, leader };
            begin(&self.node, parse_job(&request.job)?, terms, nodes).map_err(Status::from)
        };
        let (job, own_news, root) = if request.join.is_empty() {
            let (job, own_news) = begin(None, Partners::default())?;
            (job, own_news, None)
        } else {
            let _turn = lock(self.node.joining());
            let (root, partners) = partners::find(&self.node, &request.join, &request.nodes)?;
            let joined = Joined { job: root.id, leader: root.leader.clone() };
            let (job, own_news) = begin(Some(joined), partners)?;
            partners::add(&self.node, &job);
            (job, own_news, Some(root))
        };
        let nodes: Vec<_> = job.members.nodes.iter().map(|node| node.name.to_string()).collect();
        let subject = format!("job {}: {:?} on {}", job.id, request.program, nodes.join(" "));
        audit::Entry::done("job").by_user(uid).about(subject).record();
        let (news_tx, news_rx) = mpsc::channel(NEWS_QUEUE);
        let program = request.program.clone();
        let head = Head { node: self.node.clone(), job: job.clone(), root, news_tx, program };
        // A task of its own: this call may be dropped at any moment, and then the job
        // must be ended.
        let heading = head.start(own_news, request);
        part::spawn(&self.node, &job, "the job's head", heading);
        Ok(Response::new(Box::pin(ReceiverStream::new(news_rx))))
    }

    async fn exec(
        &self,
        request: Request<Streaming<proto::ExecUp>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        authorise(&request)?;
        let asked = Instant::now();
        let caller = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred?.pid());
        let (mut command, up) = peers::command_of(request.into_inner()).await?;
        let job = self.job(&command.job)?;
        command.job_directory = job.directory.path().to_string_lossy().into_owned();
        let node = peers::find(&job, self.node.name(), &command.node)?.name.to_string();
        // At another site, a node's name alone means another node.
        command.node.clone_from(&node);
        if let Some(caller) = caller.and_then(|caller| u32::try_from(caller).ok()) {
            job.starters.launches(caller, &node);
        }
        let program = program_of(&command.shell_command).to_owned();
        let down = peers::exec(&self.node, &job, command, up).await?;
        let down = down.map(move |message| {
            if let Ok(proto::ExecDown { kind: Some(exec_down::Kind::Started(_)) }) = &message {
                let took_us = micros(asked.elapsed());
                let (node, command) = (node.clone(), program.clone());
                job.news.send(job_news::Kind::CommandStarted(proto::CommandStarted {
                    node,
                    command,
                    took_us,
                }));
            }
            message
        });
        Ok(Response::new(Box::pin(down)))
    }

    async fn end(&self, request: Request<proto::EndRequest>) -> Result<Response<proto::EndReply>, Status> {
        authorise(&request)?;
        let job = self.job(&request.into_inner().job)?;
        Ok(Response::new(end::end_all(&self.node, &job).await))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        authorise(&request)?;
        let mut request = request.into_inner();
        let own = self.node.name().to_string();
        if let Some(Records::Nodes(filter)) = &mut request.records
            && std::mem::take(&mut filter.own)
        {
            filter.names.push(own.clone());
        }
        let reply = self.node.upstream().list(request).await?;
        Ok(Response::new(proto::ListReply { own, ..reply }))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainReply>, Status> {
        authorise(&request)?;
        let request = request.into_inner();
        let own = request.from == self.node.name().to_string();
        let mut reply = self.node.upstream().explain(request).await?;
        if own {
            self.node.dialer().demote(&mut reply);
        }
        Ok(Response::new(reply))
    }

    async fn measure(
        &self,
        request: Request<proto::MeasureRequest>,
    ) -> Result<Response<proto::MeasureReply>, Status> {
        authorise(&request)?;
        self.node.upstream().measure(request.into_inner()).await.map(Response::new)
    }

    async fn trunks(
        &self,
        request: Request<proto::TrunksRequest>,
    ) -> Result<Response<proto::TrunksReply>, Status> {
        authorise(&request)?;
        let asking = self.node.upstream().site_trunks(SITE_TRUNKS_DEADLINE);
        let (mut reply, of_site) = tokio::join!(self.node.trunks().seen(), asking);
        match of_site {
            Ok(mut of_site) => {
                // The gateway has made the list, so its length is bounded here.
                of_site.trunks.truncate(seen::MOST);
                (reply.site_trunks, reply.site_left_out) = (of_site.trunks, of_site.left_out);
            }
            Err(status) => reply.site_failure = grpc::reason(&status),
        }
        Ok(Response::new(reply))
    }

    async fn packets(
        &self,
        request: Request<proto::PacketsRequest>,
    ) -> Result<Response<proto::PacketsReply>, Status> {
        authorise(&request)?;
        measure::holes::upwards(&self.node).await.map(Response::new)
    }

    async fn pilot(
        &self,
        request: Request<Streaming<proto::PilotUp>>,
    ) -> Result<Response<Self::PilotStream>, Status> {
        let uid = authorise(&request)?;
        let (order, up) = serving::order_of(request.into_inner()).await?;
        let nodes = order.wanted.as_ref().map_or(0, |wanted| wanted.nodes);
        let subject = format!("{nodes} nodes of {}", order.node);
        audit::Entry::done("pilot").by_user(uid).about(subject).record();
        if order.node == self.node.name().to_string() {
            let pilots = serving::pilots(&self.pilots, self.node.name())?;
            return Ok(Response::new(serving::serve(pilots, &order, up)?));
        }
        asking::pilot(&self.node, order, up).await.map(Response::new)
    }

    async fn scheduler(
        &self,
        request: Request<proto::SchedulerRequest>,
    ) -> Result<Response<proto::SchedulerReply>, Status> {
        authorise(&request)?;
        let request = request.into_inner();
        if request.node == self.node.name().to_string() {
            let pilots = serving::pilots(&self.pilots, self.node.name())?;
            return serving::ask(pilots, &request).await.map(Response::new);
        }
        asking::scheduler(&self.node, request).await.map(Response::new)
    }

    async fn arrive(
        &self,
        request: Request<proto::ArriveRequest>,
    ) -> Result<Response<proto::ArriveReply>, Status> {
        authorise(&request)?;
        asking::arrive(&self.node, request.into_inner()).await?;
        Ok(Response::new(proto::ArriveReply {}))
    }
}

impl LocalService {
    fn job(&self, id: &str) -> Result<Arc<Job>, Status> {
        let id = parse_job(id)?;
        self.node.job(id).ok_or_else(|| Status::not_found(format!("job {id} has ended")))
    }
}

/// The head of a running job.
struct Head {
    node: Arc<Node>,
    job: Arc<Job>,
    /// The job that this one has joined; `None` for a job by itself.
    root: Option<Arc<Job>>,
    /// The way of news from the head to `isthmus run`.
    news_tx: NewsSender,
    program: String,
}

impl Head {
    async fn start(
        self,
        own_news: NewsReceiver,
        proto::StartRequest { nodes, check, preflight, topology, .. }: proto::StartRequest,
    ) {
        let request = proto::HoldRequest {
            job: self.job.id.to_string(),
            token: self.job.token.expose().to_vec(),
            nodes,
            check,
            preflight,
            outlive_seconds: seconds(self.job.outlive),
            encrypt_to_nodes: self.job.encrypt_to_nodes,
            patience_seconds: seconds(self.job.patience),
            topology,
            partners: Some(self.job.partners.message()),
        };
        match hold::prepare(&self.node, &self.job, request, &self.news_tx).await {
            Ok(held) => self.run(held, own_news).await,
            Err(status) => {
                self.node.end(&self.job).await;
                let _ = self.news_tx.send(Err(status)).await;
            }
        }
        // Unless its end has begun before.
        partners::remove(&self.node, &self.job);
    }

    async fn run(&self, held: Vec<Held>, own_news: NewsReceiver) {
        let started_unix_ms = unix_ms();
        let (all_tx, mut all_rx) = mpsc::channel(NEWS_QUEUE);
        hold::follow_all(&self.node, &self.job, held, &all_tx);
        let own_tx = all_tx.clone();
        let own_job = self.job.clone();
        tokio::spawn(async move { peers::send_news(&own_job, own_news, &own_tx).await });
        let mut joined: Vec<proto::Joined> = Vec::new();
        let mut changed = false;
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        let mut pulses = tokio::time::interval(silence::INTERVAL);
        pulses.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pulsed = Instant::now();
        let report = |joined: &[proto::Joined], ended: bool| {
            self.node.upstream().report(proto::JobReport {
                job: self.job.id.to_string(),
                owner: self.node.owner().to_string(),
                program: self.program.clone(),
                nodes: self.job.members.nodes.iter().map(|node| node.name.to_string()).collect(),
                started_unix_ms,
                ended,
                joined: joined.to_vec(),
                ..proto::JobReport::default()
            });
        };
        // The gateway heeds signs of life only of a job that it knows: an agent that freezes
        // just now is missed, too.
        report(&joined, false);
        let (mut is_ending, mut is_joined) = (false, true);
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
                _ = ticks.tick() => if !is_ending && std::mem::take(&mut changed) {
                    report(&joined, false);
                },
                // The broker is told before the job has ended everywhere: a node that can't be
                // reached learns of the end by it.
                () = self.job.holding.ending.cancelled(), if !is_ending => {
                    is_ending = true;
                    // Nobody is to connect to what ends.
                    partners::remove(&self.node, &self.job);
                    report(&joined, true);
                }
                () = self.joined_ends(), if is_joined => {
                    is_joined = false;
                    let root = self.root.as_ref().map(|root| root.id.to_string()).unwrap_or_default();
                    let ends = job_news::Kind::JoinedEnds(root);
                    if self.news_tx.send(Ok(proto::JobNews { kind: Some(ends) })).await.is_err() {
                        break;
                    }
                }
                _ = pulses.tick() => self.pulse(&mut pulsed),
                () = self.job.ended.cancelled() => break,
                () = self.news_tx.closed() => break,
            }
        }
        if !is_ending {
            report(&joined, true);
        }
        if !self.job.ended.is_cancelled() {
            tracing::warn!(job = %self.job.id, "`isthmus run` is gone: the job ends");
            end::end_all(&self.node, &self.job).await;
        }
    }

    /// Returns once the job ends that this one has joined; never for a job that has joined none.
    async fn joined_ends(&self) {
        match &self.root {
            Some(root) => tokio::select! {
                () = root.holding.ending.cancelled() => {}
                () = root.ended.cancelled() => {}
            },
            None => std::future::pending().await,
        }
    }

    /// Shows that this agent isn't frozen, and by how much this pulse comes late. It tells `isthmus
    /// run`, and the gateway if other sites take part.
    fn pulse(&self, last: &mut Instant) {
        let late = last.elapsed().saturating_sub(silence::INTERVAL);
        *last = Instant::now();
        let late_ms = u32::try_from(late.as_millis()).unwrap_or(u32::MAX);
        if self.job.members.cross_sites {
            let (job, patience_seconds) = (self.job.id.to_string(), seconds(self.job.patience));
            self.node.upstream().head_lives(proto::HeadLives { job, late_ms, patience_seconds });
        }
        // A stopped `isthmus run` takes nothing: the news get the room that is left.
        if self.news_tx.capacity() > NEWS_QUEUE / 2 {
            let pulse = job_news::Kind::Pulse(proto::Pulse { late_ms });
            let _ = self.news_tx.try_send(Ok(proto::JobNews { kind: Some(pulse) }));
        }
    }
}

fn same_joint(a: &proto::Joined, b: &proto::Joined) -> bool {
    let key = |joined: &proto::Joined| {
        (
            joined.initiator.clone(),
            joined.acceptor.clone(),
            (joined.route, joined.dial),
            joined.relay.clone(),
            joined.encryption,
        )
    };
    key(a) == key(b)
}
