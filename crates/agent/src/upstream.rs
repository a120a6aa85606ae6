//! The agent's attachment to its gateway: who we are, who the others are, and
//! requests to dial out.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_net::seen::for_plans;
use isthmus_net::{Credentials, grpc};
use isthmus_wire::VirtualAddress;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tracing::{info, warn};

use crate::job::lock;

/// How long a call to the gateway may take.
const CALL_DEADLINE: Duration = Duration::from_secs(15);
/// How long a call waits for the gateway to come back.
const ATTACH_DEADLINE: Duration = Duration::from_secs(10);
/// How long the gateway may take to welcome an agent.
const WELCOME_DEADLINE: Duration = Duration::from_secs(15);
/// First and longest pause between attempts to attach.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Messages waiting to be sent.
const QUEUE: usize = 64;

type Contacts = Arc<Mutex<HashMap<Ipv4Addr, Arc<proto::LookupReply>>>>;

/// What the attachment looks like from the rest of the agent.
#[derive(Debug, Clone)]
pub struct Upstream {
    attached: watch::Receiver<Option<Attached>>,
    contacts: Contacts,
    /// the rest of the agent → gateway
    up_tx: mpsc::Sender<attach_up::Kind>,
    gateway: Arc<str>,
    site: Arc<str>,
}

/// A standing attachment.
#[derive(Debug, Clone)]
struct Attached {
    address: VirtualAddress,
    client: RegistryClient<Channel>,
}

/// The working end of the attachment; [`Attachment::run`] keeps it up.
#[derive(Debug)]
pub struct Attachment {
    credentials: Credentials,
    node_up: proto::NodeUp,
    attached_tx: watch::Sender<Option<Attached>>,
    contacts: Contacts,
    up_rx: mpsc::Receiver<attach_up::Kind>,
    /// gateway → agent: dial out to meet somebody.
    dials_tx: mpsc::Sender<proto::DialRequest>,
    /// gateway → agent: measure the way to another node.
    measures_tx: mpsc::Sender<proto::MeasureOrder>,
}

/// Why an attachment ended.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The gateway won't have this agent; trying again is of no use.
    #[error("the gateway refuses this agent: {0}")]
    Refused(String),
    /// It can't be reached or the connection broke.
    #[error("{0}")]
    Broken(String),
}

/// Makes both ends.
pub fn upstream(
    credentials: Credentials,
    node_up: proto::NodeUp,
    dials_tx: mpsc::Sender<proto::DialRequest>,
    measures_tx: mpsc::Sender<proto::MeasureOrder>,
) -> (Upstream, Attachment) {
    let (attached_tx, attached) = watch::channel(None);
    let (up_tx, up_rx) = mpsc::channel(QUEUE);
    let contacts = Contacts::default();
    let gateway = credentials.upstream().into();
    let site = credentials.identity().site().map(ToString::to_string).unwrap_or_default().into();
    let upstream = Upstream { attached, contacts: contacts.clone(), up_tx, gateway, site };
    (upstream, Attachment { credentials, node_up, attached_tx, contacts, up_rx, dials_tx, measures_tx })
}

impl Attachment {
    /// Keeps the agent attached until the gateway refuses it.
    ///
    /// # Errors
    /// Only [`AttachError::Refused`], and only before the agent was ever
    /// attached: afterwards jobs may be running, and it tries again.
    pub async fn run(mut self) -> Result<(), AttachError> {
        let mut pause = BACKOFF.0;
        let mut ever_attached = false;
        loop {
            let error = match self.attach(&mut ever_attached, &mut pause).await {
                Ok(()) => AttachError::Broken("the gateway closed the connection".to_owned()),
                Err(AttachError::Refused(reason)) if !ever_attached => {
                    return Err(AttachError::Refused(reason));
                }
                Err(error) => error,
            };
            self.attached_tx.send_replace(None);
            // Whatever changed meanwhile was not told to us.
            lock(&self.contacts).clear();
            warn!(gateway = self.credentials.upstream(), %error, retry_in = ?pause, "not attached");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    async fn attach(&mut self, ever_attached: &mut bool, pause: &mut Duration) -> Result<(), AttachError> {
        let broken = |status: Status| AttachError::Broken(grpc::reason(&status));
        let site = self.credentials.identity().site().map(ToString::to_string).unwrap_or_default();
        let address = self.credentials.upstream().to_owned();
        let channel = grpc::connect(&address, &format!("gateway.{site}"), &self.credentials)
            .await
            .map_err(|error| AttachError::Broken(error.to_string()))?;
        let mut client = RegistryClient::new(channel);
        let (up_tx, up_rx) = mpsc::channel(QUEUE);
        let hello = attach_up::Kind::NodeUp(self.node_up.clone());
        let send = |kind| {
            let up_tx = up_tx.clone();
            async move {
                let message = proto::AttachUp { kind: Some(kind) };
                up_tx.send(message).await.map_err(|_| AttachError::Broken("the connection broke".to_owned()))
            }
        };
        send(hello).await?;
        let opening = client.attach(ReceiverStream::new(up_rx));
        let mut down = tokio::time::timeout(WELCOME_DEADLINE, opening)
            .await
            .map_err(|_| AttachError::Broken(format!("no answer within {WELCOME_DEADLINE:?}")))?
            .map_err(broken)?
            .into_inner();
        let mut welcomed = false;
        let welcome_deadline = tokio::time::sleep(WELCOME_DEADLINE);
        tokio::pin!(welcome_deadline);
        loop {
            let message = tokio::select! {
                message = down.message() => message.map_err(broken)?,
                Some(kind) = self.up_rx.recv() => {
                    if let attach_up::Kind::Seen(seen) = &kind {
                        // The next gateway is told at once, and plans depend on it.
                        let former = self.node_up.seen.replace(seen.clone());
                        if for_plans(former.as_ref()) != for_plans(Some(seen)) {
                            lock(&self.contacts).clear();
                        }
                    }
                    send(kind).await?;
                    continue;
                }
                () = &mut welcome_deadline, if !welcomed => {
                    return Err(AttachError::Broken(format!("no welcome within {WELCOME_DEADLINE:?}")));
                }
            };
            let Some(message) = message else { return Ok(()) };
            match message.kind {
                Some(attach_down::Kind::Welcome(welcome)) => {
                    let Some(virtual_address) = VirtualAddress::new(welcome.virtual_address.into()) else {
                        return Err(AttachError::Broken(
                            "was given an address that is not virtual".to_owned(),
                        ));
                    };
                    info!(node = welcome.node, %virtual_address, gateway = address, "attached");
                    (welcomed, *ever_attached, *pause) = (true, true, BACKOFF.0);
                    let attached = Attached { address: virtual_address, client: client.clone() };
                    self.attached_tx.send_replace(Some(attached));
                }
                Some(attach_down::Kind::Dial(request)) => {
                    if self.dials_tx.try_send(request).is_err() {
                        warn!("too many requests to dial out at once, one is dropped");
                    }
                }
                Some(attach_down::Kind::Measure(order)) => {
                    if self.measures_tx.try_send(order).is_err() {
                        warn!("too many requests to measure at once, one is dropped");
                    }
                }
                Some(attach_down::Kind::ContactChanged(changed)) => {
                    lock(&self.contacts).remove(&Ipv4Addr::from(changed.virtual_address));
                }
                Some(attach_down::Kind::Refusal(refusal)) => {
                    return Err(AttachError::Refused(refusal.reason));
                }
                Some(attach_down::Kind::RelayKey(_) | attach_down::Kind::Probe(_)) | None => {}
            }
        }
    }
}

impl Upstream {
    async fn attached(&self) -> Result<Attached, Status> {
        let mut attached = self.attached.clone();
        let wait = attached.wait_for(Option::is_some);
        let gone = || Status::unavailable("this agent is not attached to its gateway");
        let found = tokio::time::timeout(ATTACH_DEADLINE, wait).await.map_err(|_| gone())?;
        found.map_err(|_| gone())?.clone().ok_or_else(gone)
    }

    /// Where this node reaches its gateway, `HOST:PORT`.
    pub fn gateway(&self) -> &str {
        &self.gateway
    }

    /// This node's site.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// This node's virtual address, if the agent is attached.
    pub fn own_address(&self) -> Option<VirtualAddress> {
        self.attached.borrow().as_ref().map(|attached| attached.address)
    }

    /// Waits until the agent is attached.
    pub async fn ready(&self) -> Option<VirtualAddress> {
        let mut attached = self.attached.clone();
        let found = attached.wait_for(Option::is_some).await.ok()?;
        found.as_ref().map(|attached| attached.address)
    }

    /// Where a node is and how to get there; asked once and then cached until
    /// the gateway says that it changed.
    ///
    /// # Errors
    /// The gateway's status; `UNAVAILABLE` if it can't be reached.
    pub async fn lookup(&self, address: Ipv4Addr) -> Result<Arc<proto::LookupReply>, Status> {
        if let Some(reply) = lock(&self.contacts).get(&address) {
            return Ok(reply.clone());
        }
        let mut client = self.attached().await?.client;
        let request = proto::LookupRequest { virtual_address: address.into(), name: String::new() };
        let reply = Arc::new(call(client.lookup(request)).await?);
        lock(&self.contacts).insert(address, reply.clone());
        Ok(reply)
    }

    /// Forgets a contact that turned out wrong.
    pub fn forget(&self, address: Ipv4Addr) {
        lock(&self.contacts).remove(&address);
    }

    /// Has the destination's agent dial out to meet this one, as `request` says;
    /// its initiator is filled in.
    ///
    /// # Errors
    /// The broker's status.
    pub async fn rendezvous(
        &self,
        request: proto::RendezvousRequest,
    ) -> Result<proto::RendezvousReply, Status> {
        let Attached { address, mut client } = self.attached().await?;
        call(client.rendezvous(proto::RendezvousRequest { initiator: address.ip().into(), ..request })).await
    }

    /// Has a relay dial this node, as `request` says; its initiator is filled in.
    ///
    /// # Errors
    /// The broker's status.
    pub async fn probe(&self, request: proto::ProbeRequest) -> Result<proto::ProbeReply, Status> {
        let Attached { address, mut client } = self.attached().await?;
        call(client.probe(proto::ProbeRequest { initiator: address.ip().into(), ..request })).await
    }

    /// How one node would reach another.
    ///
    /// # Errors
    /// The broker's status.
    pub async fn explain(&self, request: proto::ExplainRequest) -> Result<proto::ExplainReply, Status> {
        let mut client = self.attached().await?.client;
        call(client.explain(request)).await
    }

    /// Has one node measure the way to another one, or tells how that went.
    ///
    /// # Errors
    /// The broker's status.
    pub async fn measure(&self, request: proto::MeasureRequest) -> Result<proto::MeasureReply, Status> {
        let mut client = self.attached().await?.client;
        call(client.measure(request)).await
    }

    /// Everything in the grid.
    ///
    /// # Errors
    /// The gateway's status.
    pub async fn grid(&self) -> Result<proto::GridReply, Status> {
        let mut client = self.attached().await?.client;
        call(client.grid(proto::GridRequest {})).await
    }

    /// Tells how a job is doing.
    pub fn report(&self, report: proto::JobReport) {
        // Reports are totals: the next one says what this one would have.
        let _ = self.up_tx.try_send(attach_up::Kind::Job(report));
    }

    /// Tells the gateway something, once it can be told.
    pub async fn tell(&self, kind: attach_up::Kind) {
        // It fails only when the agent ends.
        let _ = self.up_tx.send(kind).await;
    }
}

async fn call<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Status> {
    let late = || {
        Status::new(Code::DeadlineExceeded, format!("the gateway did not answer within {CALL_DEADLINE:?}"))
    };
    Ok(tokio::time::timeout(CALL_DEADLINE, call).await.map_err(|_| late())??.into_inner())
}
