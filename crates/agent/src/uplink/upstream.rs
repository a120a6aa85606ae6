//! The rest of the agent's interface to its gateway: calls and reports.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_identity::Credentials;
use isthmus_net::relay_places::RelayPlaces;
use isthmus_reach::{ControlPlane, Relays};
use isthmus_rpc::grpc::{Call, Connections, Repeat};
use isthmus_rpc::rendezvous::{self, Order, Peer, Reply, RequestWay};
use isthmus_service::Deadline;
use isthmus_service::lock;
use isthmus_trunk::Incarnation;
use isthmus_wire::proto::{self, attach_up};
use isthmus_wire::{GridName, JobId, VirtualAddress, bounds};
use tokio::sync::{mpsc, watch};
use tonic::{Request, Response, Status};

use crate::uplink::attached::{Attached, Contacts};
use crate::uplink::attachment::Attachment;
use crate::uplink::known::Known;
use crate::uplink::opener::Opener;

/// The budget of a call to the gateway that has no deadline of its own.
const CALL: Duration = Duration::from_secs(15);
/// How long a gateway's answer is awaited after the gateway has been replaced.
const GRACE: Duration = Duration::from_millis(100);
/// How long the first directory may take, after the agent has attached.
const DIRECTORY_DEADLINE: Duration = Duration::from_secs(5);
/// Most messages that wait to be sent to the gateway.
const QUEUE: usize = 64;
/// Most lost gateways that the jobs here aren't told of yet; of further ones they aren't told.
const LOST: usize = 16;

/// The agent's attachment, as the rest of the agent uses it.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    attached: watch::Receiver<Option<Attached>>,
    /// This node's virtual address, from the first attachment on.
    own_address: Arc<Mutex<Option<VirtualAddress>>>,
    /// Why the last attempt to attach failed.
    failure: Arc<Mutex<String>>,
    contacts: Contacts,
    /// The last directory that a gateway sent; `None` until one has.
    directory: watch::Receiver<Option<proto::Directory>>,
    /// The way of messages from the rest of the agent to the gateway.
    up_tx: mpsc::Sender<attach_up::Kind>,
    site: Arc<str>,
    /// Tells of each gateway that was lost.
    lost: Arc<tokio::sync::Mutex<mpsc::Receiver<LostGateway>>>,
}

/// A gateway that is gone, and what it carried.
#[derive(Debug)]
pub(crate) enum LostGateway {
    /// The gateway that this agent was attached to: its address, `HOST:PORT`, and why the attachment
    /// has ended.
    Own(Arc<str>, String),
    /// Another site's gateway, whose trunk with the gateway of this node has ended.
    Other(GridName),
}

/// Makes the attachment's task, and the interface to it for the rest of the agent. The task tries
/// to return to the first of the `gateways` every `return_interval`.
pub(crate) fn upstream(
    credentials: Credentials,
    (gateways, return_interval): (Known, Duration),
    (node_up, incarnation): (proto::NodeUp, Incarnation),
    dials_tx: mpsc::Sender<Order>,
    measures_tx: mpsc::Sender<proto::MeasureOrder>,
) -> (Upstream, Attachment) {
    let (attached_tx, attached) = watch::channel(None);
    let (up_tx, up_rx) = mpsc::channel(QUEUE);
    let (lost_tx, lost_rx) = mpsc::channel(LOST);
    let (contacts, own_address) = (Contacts::default(), Arc::default());
    let failure: Arc<Mutex<String>> = Arc::default();
    let site = credentials.identity().site().map(ToString::to_string).unwrap_or_default().into();
    let (directory_tx, directory) = watch::channel(None);
    let upstream = Upstream {
        attached,
        own_address: Arc::clone(&own_address),
        failure: failure.clone(),
        contacts: contacts.clone(),
        directory,
        up_tx,
        site,
        lost: Arc::new(lost_rx.into()),
    };
    let node_up = Arc::new(Mutex::new(node_up));
    let opener = Opener {
        credentials,
        gateways,
        return_interval,
        node_up,
        incarnation,
        contacts,
        directory_tx: Arc::new(directory_tx),
        dials_tx,
        measures_tx,
    };
    (upstream, Attachment::new(opener, (attached_tx, lost_tx), (own_address, failure), up_rx))
}

impl Upstream {
    /// This node's virtual address, if the agent is attached or has been.
    pub(crate) fn own_address(&self) -> Option<VirtualAddress> {
        *lock(&self.own_address)
    }

    /// The next gateway that is lost.
    pub(crate) async fn next_lost(&self) -> LostGateway {
        match self.lost.lock().await.recv().await {
            Some(lost) => lost,
            // The agent ends.
            None => std::future::pending().await,
        }
    }

    /// The trunks that the gateway keeps with gateways of other sites.
    ///
    /// # Errors
    /// The gateway's status.
    pub(crate) async fn site_trunks(&self, limit: Duration) -> Result<proto::TrunksReply, Status> {
        let ask = |mut attached: Attached, request| async move { attached.own_gateway.trunks(request).await };
        idempotent(limit.into()).send(self, proto::TrunksRequest {}, ask).await
    }

    /// A node's contact and the plan for it, from the cache or the gateway.
    ///
    /// # Errors
    /// The gateway's status; `UNAVAILABLE` if it can't be reached by the deadline.
    pub(crate) async fn contact(
        &self,
        node: Ipv4Addr,
        deadline: Deadline,
    ) -> Result<Arc<proto::LookupReply>, Status> {
        if let Some(reply) = lock(&self.contacts).get(&node) {
            return Ok(reply.clone());
        }
        let request =
            proto::LookupRequest { virtual_address: node.into(), ..proto::LookupRequest::default() };
        let lookup = |mut attached: Attached, request| async move { attached.client.lookup(request).await };
        let reply = Arc::new(idempotent(deadline).send(self, request, lookup).await?);
        lock(&self.contacts).insert(node, reply.clone());
        Ok(reply)
    }

    /// Has the gateway try whether large packets pass between it and the broker.
    ///
    /// # Errors
    /// The gateway's status.
    pub(crate) async fn packets(&self, limit: Duration) -> Result<proto::PacketsReply, Status> {
        let ask =
            |mut attached: Attached, request| async move { attached.own_gateway.packets(request).await };
        idempotent(limit.into()).send(self, proto::PacketsRequest {}, ask).await
    }

    /// Has the grid end the nodes of a pilot.
    ///
    /// # Errors
    /// The broker's status.
    pub(crate) async fn end_pilot(
        &self,
        request: proto::EndPilotRequest,
        limit: Duration,
    ) -> Result<proto::EndPilotReply, Status> {
        let end =
            |mut attached: Attached, request| async move { attached.enrolment.end_pilot(request).await };
        idempotent(limit.into()).send(self, request, end).await
    }

    /// The address of the gateway that this agent is attached to; `None` if it isn't attached.
    pub(crate) fn gateway(&self) -> Option<Arc<str>> {
        self.attached.borrow().as_ref().map(|attached| attached.gateway.clone())
    }

    /// What the gateway has carried from this node over its trunks, for a job that has ended. A
    /// gateway tells that only once.
    ///
    /// # Errors
    /// The gateway's status; `UNAVAILABLE` if the agent isn't attached to this gateway.
    pub(crate) async fn carried(
        &self,
        job: JobId,
        gateway: &str,
        limit: Duration,
    ) -> Result<Vec<proto::Carried>, Status> {
        let ask = |mut attached: Attached, request| async move {
            if *attached.gateway != *gateway {
                return Err(Status::unavailable(format!("this agent has left the gateway at {gateway}")));
            }
            attached.own_gateway.carried(request).await
        };
        let request = proto::CarriedRequest { job: job.0.to_vec() };
        let once = Call { repeat: Repeat::Never, ..idempotent(limit.into()) };
        Ok(once.send(self, request, ask).await?.carried)
    }

    /// Explains how one node would reach another.
    ///
    /// # Errors
    /// The broker's status.
    pub(crate) async fn explain(
        &self,
        request: proto::ExplainRequest,
    ) -> Result<proto::ExplainReply, Status> {
        let explain = |mut attached: Attached, request| async move { attached.client.explain(request).await };
        idempotent(CALL.into()).send(self, request, explain).await
    }

    /// Has one node measure the way to another one, or returns the last result.
    ///
    /// # Errors
    /// The broker's status.
    pub(crate) async fn measure(
        &self,
        request: proto::MeasureRequest,
    ) -> Result<proto::MeasureReply, Status> {
        let measure = |mut attached: Attached, request| async move { attached.client.measure(request).await };
        idempotent(CALL.into()).send(self, request, measure).await
    }

    /// One page of the broker's records.
    ///
    /// # Errors
    /// The broker's status.
    pub(crate) async fn list(&self, request: proto::ListRequest) -> Result<proto::ListReply, Status> {
        let list = |mut attached: Attached, request| async move { attached.client.list(request).await };
        idempotent(CALL.into()).send(self, request, list).await
    }

    /// Whether the broker answers within this time.
    pub(crate) async fn hears_of_broker(&self, limit: Duration) -> bool {
        let records = Some(proto::list_request::Records::Sites(proto::SiteFilter::default()));
        let anything = proto::ListRequest { page_size: 1, records, ..proto::ListRequest::default() };
        tokio::time::timeout(limit, self.list(anything)).await.is_ok_and(|answer| answer.is_ok())
    }

    /// Shows the gateway that the head of a job, this agent, isn't frozen. While the agent isn't
    /// attached, job reports need the room, so this sends nothing if the queue is half full.
    pub(crate) fn head_lives(&self, life: proto::HeadLives) {
        if self.up_tx.capacity() > QUEUE / 2 {
            let _ = self.up_tx.try_send(attach_up::Kind::HeadLives(life));
        }
    }

    /// Reports the state of a job to the gateway. Lists that are too long are cut.
    pub(crate) fn report(&self, mut report: proto::JobReport) {
        bounds::cut_job(&mut report);
        if report.ended {
            // Nothing replaces a job's last report, so it must wait for room.
            let up_tx = self.up_tx.clone();
            tokio::spawn(async move {
                // It fails only when the agent ends.
                let _ = up_tx.send(attach_up::Kind::Job(report)).await;
            });
            return;
        }
        // Reports are totals, so the next one replaces one that is lost.
        let _ = self.up_tx.try_send(attach_up::Kind::Job(report));
    }
}

/// How a call is made that may be sent twice: if the gateway is lost before it has answered, the
/// next gateway gets the call.
fn idempotent(deadline: Deadline) -> Call<'static> {
    Call { server: "the gateway", deadline, repeat: Repeat::IfBroken }
}

#[tonic::async_trait]
impl Connections for Upstream {
    type Connection = Attached;

    async fn get(&self, former: Option<&Attached>) -> Option<Attached> {
        let mut attached = self.attached.clone();
        let another = |now: &Option<Attached>| match (now, former) {
            (Some(now), Some(former)) => now.number != former.number,
            (now, _) => now.is_some(),
        };
        attached.wait_for(another).await.ok()?.clone()
    }

    async fn lost(&self, attached: &Attached) {
        let _ = self.attached.clone().wait_for(|now| is_another(now.as_ref(), attached)).await;
        // A channel that is still open may answer.
        tokio::time::sleep(GRACE).await;
    }

    fn is_lost(&self, attached: &Attached) -> bool {
        is_another(self.attached.borrow().as_ref(), attached)
    }

    fn absent(&self) -> Status {
        let failure = lock(&self.failure).clone();
        let reason = if failure.is_empty() { failure } else { format!(": {failure}") };
        Status::unavailable(format!("this agent is not attached to its gateway{reason}"))
    }
}

fn is_another(now: Option<&Attached>, attached: &Attached) -> bool {
    now.is_none_or(|now| now.number != attached.number)
}

#[tonic::async_trait]
impl ControlPlane for Upstream {
    fn site(&self) -> &str {
        &self.site
    }

    async fn lookup(&self, peer: &Peer, deadline: Deadline) -> Result<Arc<proto::LookupReply>, Status> {
        self.contact(node(peer)?, deadline).await
    }

    fn forget(&self, peer: &Peer) {
        peer.node().map(|node| lock(&self.contacts).remove(&node));
    }

    async fn rendezvous(
        &self,
        peer: &Peer,
        (way, segment): (RequestWay, Option<u16>),
        deadline: Deadline,
    ) -> Result<Reply, Status> {
        // The initiator is filled in once an attachment is found.
        let to = Peer::Node(node(peer)?);
        let request = rendezvous::Request { to, initiator: Ipv4Addr::UNSPECIFIED, way, segment };
        let request = proto::RendezvousRequest::from(request);
        let rendezvous = |mut attached: Attached, mut request: Request<proto::RendezvousRequest>| async move {
            request.get_mut().initiator = attached.address.ip().into();
            let reply = attached.client.rendezvous(request).await?;
            let reply = Reply::read(reply.into_inner(), &attached.gateway);
            reply.map(Response::new).map_err(|error| Status::internal(error.to_string()))
        };
        // A request that is sent twice makes two rendezvous, one of which expires.
        idempotent(deadline).send(self, request, rendezvous).await
    }

    fn relay_places(&self) -> RelayPlaces {
        let directory = self.directory.borrow();
        directory.as_ref().map(|told| RelayPlaces::new(&told.relay_places)).unwrap_or_default()
    }

    async fn send(&self, kind: attach_up::Kind) {
        // It fails only when the agent ends.
        let _ = self.up_tx.send(kind).await;
    }
}

/// The virtual address of a party to be dialed: agents dial nodes alone.
fn node(peer: &Peer) -> Result<Ipv4Addr, Status> {
    peer.node().ok_or_else(|| Status::unimplemented(format!("an agent doesn't dial {peer}")))
}

#[tonic::async_trait]
impl Relays for Upstream {
    async fn attached(&self) {
        // It fails only when the agent ends.
        let _ = self.attached.clone().wait_for(Option::is_some).await;
    }

    async fn probe(
        &self,
        request: proto::ProbeRequest,
        deadline: Deadline,
    ) -> Result<proto::ProbeReply, Status> {
        let probe = |mut attached: Attached, mut request: Request<proto::ProbeRequest>| async move {
            request.get_mut().initiator = attached.address.ip().into();
            attached.client.probe(request).await
        };
        Call { repeat: Repeat::Never, ..idempotent(deadline) }.send(self, request, probe).await
    }

    async fn directory(&self) -> Result<proto::Directory, Status> {
        let mut directory = self.directory.clone();
        let waiting = tokio::time::timeout(DIRECTORY_DEADLINE, directory.wait_for(Option::is_some)).await;
        let found = waiting.ok().and_then(|found| found.ok().and_then(|found| found.clone()));
        found.ok_or_else(|| {
            Status::unavailable(
                "the gateway has not sent the grid's relays; is it attached to the broker? See its log",
            )
        })
    }

    async fn directory_changed(&self, known: &proto::Directory) {
        let mut directory = self.directory.clone();
        // It fails only when the agent ends.
        let _ = directory.wait_for(|now| now.as_ref().is_some_and(|now| now != known)).await;
    }
}
