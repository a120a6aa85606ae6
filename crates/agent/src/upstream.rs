//! What the rest of the agent asks its gateway: who the others are, and to be met.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_net::Credentials;
use isthmus_net::lock;
use isthmus_reach::ControlPlane;
use isthmus_wire::VirtualAddress;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_up};
use tokio::sync::{mpsc, watch};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::attachment::{Attachment, Opener};

/// How long a call to the gateway may take.
const CALL_DEADLINE: Duration = Duration::from_secs(15);
/// How long a call waits for the gateway to come back.
const ATTACH_DEADLINE: Duration = Duration::from_secs(10);
/// How long an answer may come after its gateway has gone.
const GRACE: Duration = Duration::from_millis(100);
/// Messages waiting to be sent.
const QUEUE: usize = 64;

pub(crate) type Contacts = Arc<Mutex<HashMap<Ipv4Addr, Arc<proto::LookupReply>>>>;

/// What the attachment looks like from the rest of the agent.
#[derive(Debug, Clone)]
pub struct Upstream {
    attached: watch::Receiver<Option<Attached>>,
    /// This node's, from the first attachment on.
    own_address: Arc<Mutex<Option<VirtualAddress>>>,
    contacts: Contacts,
    /// the rest of the agent → gateway
    up_tx: mpsc::Sender<attach_up::Kind>,
    site: Arc<str>,
}

/// A standing attachment.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    /// Counts attachments.
    pub(crate) number: u64,
    pub(crate) address: VirtualAddress,
    /// Where its gateway is reached, `HOST:PORT`.
    pub(crate) gateway: Arc<str>,
    pub(crate) client: RegistryClient<Channel>,
}

/// Makes both ends; `gateways` are those that the agent may attach to, in the
/// order of its preference.
pub fn upstream(
    credentials: Credentials,
    gateways: Vec<String>,
    node_up: proto::NodeUp,
    dials_tx: mpsc::Sender<proto::DialRequest>,
    measures_tx: mpsc::Sender<proto::MeasureOrder>,
) -> (Upstream, Attachment) {
    let (attached_tx, attached) = watch::channel(None);
    let (up_tx, up_rx) = mpsc::channel(QUEUE);
    let (contacts, own_address) = (Contacts::default(), Arc::default());
    let site = credentials.identity().site().map(ToString::to_string).unwrap_or_default().into();
    let upstream =
        Upstream { attached, own_address: Arc::clone(&own_address), contacts: contacts.clone(), up_tx, site };
    let gateways = gateways.iter().map(|gateway| Arc::from(gateway.as_str())).collect();
    let node_up = Arc::new(Mutex::new(node_up));
    let opener = Opener { credentials, gateways, node_up, contacts, dials_tx, measures_tx };
    (upstream, Attachment::new(opener, attached_tx, own_address, up_rx))
}

impl Upstream {
    async fn attachment(&self) -> Result<Attached, Status> {
        self.attached_but(None).await
    }

    /// The attachment, once it is another than the one with this number.
    async fn attached_but(&self, former: Option<u64>) -> Result<Attached, Status> {
        let mut attached = self.attached.clone();
        let another = |now: &Option<Attached>| now.as_ref().is_some_and(|now| Some(now.number) != former);
        let wait = attached.wait_for(another);
        let gone = || Status::unavailable("this agent is not attached to its gateway");
        let found = tokio::time::timeout(ATTACH_DEADLINE, wait).await.map_err(|_| gone())?;
        found.map_err(|_| gone())?.clone().ok_or_else(gone)
    }

    /// Asks the gateway something that does no harm if it is asked twice: if that
    /// one goes away before it has answered, the next one is asked.
    async fn ask<T, F>(&self, call: impl Fn(Attached) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let attached = self.attachment().await?;
        let number = attached.number;
        let mut watched = self.attached.clone();
        let is_lost = |now: &Option<Attached>| now.as_ref().is_none_or(|now| now.number != number);
        let answer = tokio::select! {
            answer = within_deadline(call(attached)) => answer,
            // A channel that still stands answers all the same.
            _ = async {
                let _ = watched.wait_for(is_lost).await;
                tokio::time::sleep(GRACE).await;
            } => Err(Status::unavailable("the gateway went away")),
        };
        match answer {
            Err(status) if broke(&status) || is_lost(&self.attached.borrow()) => {
                // What the first one met says more than that nobody else came.
                let Ok(other) = self.attached_but(Some(number)).await else { return Err(status) };
                within_deadline(call(other)).await
            }
            answer => answer,
        }
    }

    /// This node's virtual address, if the agent is attached or has been.
    pub fn own_address(&self) -> Option<VirtualAddress> {
        *lock(&self.own_address)
    }

    /// How one node would reach another.
    ///
    /// # Errors
    /// The broker's status.
    pub async fn explain(&self, request: proto::ExplainRequest) -> Result<proto::ExplainReply, Status> {
        let explain = |mut attached: Attached| {
            let request = request.clone();
            async move { attached.client.explain(request).await }
        };
        self.ask(explain).await
    }

    /// Has one node measure the way to another one, or tells how that went.
    ///
    /// # Errors
    /// The broker's status.
    pub async fn measure(&self, request: proto::MeasureRequest) -> Result<proto::MeasureReply, Status> {
        let measure = |mut attached: Attached| {
            let request = request.clone();
            async move { attached.client.measure(request).await }
        };
        self.ask(measure).await
    }

    /// Tells how a job is doing.
    pub fn report(&self, report: proto::JobReport) {
        // Reports are totals: the next one says what this one would have.
        let _ = self.up_tx.try_send(attach_up::Kind::Job(report));
    }
}

#[tonic::async_trait]
impl ControlPlane for Upstream {
    fn site(&self) -> &str {
        &self.site
    }

    async fn attached(&self) {
        // It ends only with the agent.
        let _ = self.attached.clone().wait_for(Option::is_some).await;
    }

    async fn lookup(&self, node: Ipv4Addr) -> Result<Arc<proto::LookupReply>, Status> {
        if let Some(reply) = lock(&self.contacts).get(&node) {
            return Ok(reply.clone());
        }
        let request = proto::LookupRequest { virtual_address: node.into(), name: String::new() };
        let lookup = |mut attached: Attached| {
            let request = request.clone();
            async move { attached.client.lookup(request).await }
        };
        let reply = Arc::new(self.ask(lookup).await?);
        lock(&self.contacts).insert(node, reply.clone());
        Ok(reply)
    }

    fn forget(&self, node: Ipv4Addr) {
        lock(&self.contacts).remove(&node);
    }

    async fn rendezvous(&self, request: proto::RendezvousRequest) -> Result<proto::RendezvousReply, Status> {
        let rendezvous = |mut attached: Attached| {
            let initiator = attached.address.ip().into();
            let request = proto::RendezvousRequest { initiator, ..request.clone() };
            async move {
                let mut reply = attached.client.rendezvous(request).await?;
                let reply_mut = reply.get_mut();
                if reply_mut.via_gateway && reply_mut.gateway_address.is_empty() {
                    reply_mut.gateway_address = attached.gateway.to_string();
                }
                Ok(reply)
            }
        };
        // Asked twice, it makes two rendezvous, to one of which nobody comes.
        self.ask(rendezvous).await
    }

    async fn probe(&self, request: proto::ProbeRequest) -> Result<proto::ProbeReply, Status> {
        let Attached { address, mut client, .. } = self.attachment().await?;
        let request = proto::ProbeRequest { initiator: address.ip().into(), ..request };
        within_deadline(client.probe(request)).await
    }

    async fn grid(&self) -> Result<proto::GridReply, Status> {
        self.ask(|mut attached: Attached| async move { attached.client.grid(proto::GridRequest {}).await })
            .await
    }

    async fn send(&self, kind: attach_up::Kind) {
        // It fails only when the agent ends.
        let _ = self.up_tx.send(kind).await;
    }
}

/// Whether the connection to the gateway broke, rather than that the gateway or
/// the broker said no.
fn broke(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

async fn within_deadline<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    let late = || {
        Status::new(Code::DeadlineExceeded, format!("the gateway did not answer within {CALL_DEADLINE:?}"))
    };
    Ok(tokio::time::timeout(CALL_DEADLINE, call).await.map_err(|_| late())??.into_inner())
}
