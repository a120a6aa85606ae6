//! Opens attachments to gateways, and handles the messages of a gateway.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_identity::{Credentials, Identity};
use isthmus_rpc::grpc;
use isthmus_rpc::rendezvous::{Order, Peer};
use isthmus_service::clock::since_1970;
use isthmus_service::lock;
use isthmus_service::mac;
use isthmus_trunk::Incarnation;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::own_gateway_client::OwnGatewayClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use isthmus_wire::{GridName, VirtualAddress};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tracing::{debug, warn};

use crate::uplink::announcement;
use crate::uplink::attached::Contacts;
use crate::uplink::known::Known;

/// How long a gateway may take to answer an attachment.
const WELCOME_DEADLINE: Duration = Duration::from_secs(15);
/// How long a gateway may be without the broker before another one is tried.
const CUT_OFF: Duration = Duration::from_secs(5);
/// How long the broker may take to answer by way of another gateway.
const CHECK_DEADLINE: Duration = Duration::from_secs(15);
/// How long the agent still handles messages of a gateway that it leaves: they may
/// have been sent before the gateway knew.
const LINGER: Duration = Duration::from_secs(2);
/// Most messages that wait to be sent to the gateway.
const QUEUE: usize = 64;

/// Why an attachment ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// The gateway refuses this agent; a retry is useless.
    #[error("the gateway refuses this agent: {0}")]
    Refused(String),
    /// The gateway can't be reached, or the connection broke.
    #[error("{0}")]
    Broken(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub(crate) credentials: Credentials,
    pub(crate) gateways: Known,
    /// Time between attempts to return to the first of the gateways.
    pub(crate) return_interval: Duration,
    /// The last announcement of this node.
    pub(crate) node_up: Arc<Mutex<proto::NodeUp>>,
    /// The time and random bits of this agent's start.
    pub(crate) incarnation: Incarnation,
    pub(crate) contacts: Contacts,
    /// The last directory that a gateway sent.
    pub(crate) directory_tx: Arc<watch::Sender<Option<proto::Directory>>>,
    /// The way of the gateway's orders to dial for other nodes.
    pub(crate) dials_tx: mpsc::Sender<Order>,
    /// The way of the gateway's orders to measure the way to another node.
    pub(crate) measures_tx: mpsc::Sender<proto::MeasureOrder>,
}

/// An attachment that a gateway has accepted.
pub(super) struct Session {
    pub(super) index: usize,
    pub(super) gateway: Arc<str>,
    /// The gateway's identity, by its certificate.
    identity: Identity,
    pub(super) address: VirtualAddress,
    pub(super) client: RegistryClient<Channel>,
    pub(super) own_gateway: OwnGatewayClient<Channel>,
    pub(super) enrolment: EnrolmentClient<Channel>,
    up_tx: mpsc::Sender<proto::AttachUp>,
    pub(super) down: Streaming<proto::AttachDown>,
}

/// The effect of a gateway's message on the attachment.
pub(super) enum Change {
    Nothing,
    Address(VirtualAddress),
    CutOff(bool),
    /// The gateway has lost another site's gateway of this name, and the trunk with it.
    Lost(GridName),
    /// The gateway wants another announcement of the node.
    Announce,
}

impl Opener {
    /// Attaches to the gateway at this place of the list.
    pub(super) async fn open(&self, index: usize) -> Result<Session, AttachError> {
        let connected = self.connect(index).await?;
        self.attach(index, connected).await
    }

    async fn connect(&self, index: usize) -> Result<(Channel, Identity), AttachError> {
        let gateway = self.gateways.get(index);
        let gateway = gateway.ok_or_else(|| AttachError::Broken("no gateway is known".to_owned()))?;
        let server_name = self.credentials.identity().upstream_server_name();
        let connected = grpc::connect_identified(&gateway, &server_name, &self.credentials).await;
        connected.map_err(|error| AttachError::Broken(error.to_string()))
    }

    async fn attach(
        &self,
        index: usize,
        (channel, identity): (Channel, Identity),
    ) -> Result<Session, AttachError> {
        let gateway = self.gateways.get(index).unwrap_or_default();
        let own_gateway = OwnGatewayClient::new(channel.clone());
        let enrolment = EnrolmentClient::new(channel.clone());
        let mut client = RegistryClient::new(channel);
        let (up_tx, up_rx) = mpsc::channel(QUEUE);
        let hello = self.announcement(&identity)?;
        let hello = proto::AttachUp { kind: Some(attach_up::Kind::NodeUp(hello)) };
        up_tx.send(hello).await.map_err(|_| AttachError::Broken("the connection broke".to_owned()))?;
        let opening = client.attach(ReceiverStream::new(up_rx));
        let response = timeout(WELCOME_DEADLINE, opening)
            .await
            .map_err(|_| AttachError::Broken(format!("no answer within {WELCOME_DEADLINE:?}")))?
            .map_err(|status| broken(&status))?;
        let own = self.credentials.identity().to_string();
        grpc::check_server(&own, &self.credentials.identity().upstream_server_name(), &response)
            .map_err(|status| broken(&status))?;
        let mut down = response.into_inner();
        let late = |_| AttachError::Broken(format!("no welcome within {WELCOME_DEADLINE:?}"));
        let until = Instant::now() + WELCOME_DEADLINE;
        loop {
            let message = timeout_at(until, down.message()).await.map_err(late)?;
            let message = message.map_err(|status| broken(&status))?;
            let closed = || AttachError::Broken("the gateway closed the connection".to_owned());
            if let Change::Address(address) = self.handle(message.ok_or_else(closed)?, &gateway)? {
                return Ok(Session {
                    index,
                    gateway,
                    identity,
                    address,
                    client,
                    own_gateway,
                    enrolment,
                    up_tx,
                    down,
                });
            }
        }
    }

    /// Makes and keeps the announcement of this node, signed for a gateway, with a number of its
    /// own.
    fn announcement(&self, gateway: &Identity) -> Result<proto::NodeUp, AttachError> {
        let mut node_up = lock(&self.node_up);
        let attachment = unix_micros().max(node_up.attachment + 1);
        let of_this = (attachment, self.incarnation.0);
        *node_up = announcement::signed(&node_up, &self.credentials, gateway, of_this)
            .map_err(|error| AttachError::Broken(format!("cannot sign where this node is: {error}")))?;
        Ok(node_up.clone())
    }

    /// Whether this agent now has another certificate or address than it last announced.
    pub(super) fn is_outdated(&self) -> bool {
        announcement::is_outdated(&lock(&self.node_up), &self.credentials)
    }

    /// Announces this node anew over an open attachment.
    pub(super) async fn announce(&self, session: &Session) -> Result<(), AttachError> {
        session.send(attach_up::Kind::NodeUp(self.announcement(&session.identity)?)).await
    }

    pub(super) fn handle(
        &self,
        message: proto::AttachDown,
        gateway: &Arc<str>,
    ) -> Result<Change, AttachError> {
        match message.kind {
            Some(attach_down::Kind::Welcome(welcome)) => {
                let address = VirtualAddress::new(welcome.virtual_address.into());
                return address.map(Change::Address).ok_or_else(|| {
                    AttachError::Broken("the gateway assigned an address that is not virtual".to_owned())
                });
            }
            Some(attach_down::Kind::Dial(request)) => match Order::read(request, gateway) {
                Ok(Order { initiator: Peer::Gateway(gateway), .. }) => {
                    warn!(%gateway, "an order to dial a gateway is ignored: agents dial for nodes alone");
                }
                Ok(order) => {
                    if self.dials_tx.try_send(order).is_err() {
                        warn!("too many orders to dial at once, one is dropped");
                    }
                }
                Err(error) => warn!(%error, "an order to dial is ignored"),
            },
            Some(attach_down::Kind::Measure(order)) => {
                if self.measures_tx.try_send(order).is_err() {
                    warn!("too many orders to measure at once, one is dropped");
                }
            }
            Some(attach_down::Kind::ContactChanged(changed)) => match changed.virtual_address {
                0 => lock(&self.contacts).clear(),
                address => drop(lock(&self.contacts).remove(&std::net::Ipv4Addr::from(address))),
            },
            Some(attach_down::Kind::Directory(directory)) => {
                self.directory_tx.send_replace(Some(directory));
            }
            Some(attach_down::Kind::SiteGateways(told)) => self.gateways.heard(&told.addresses),
            Some(attach_down::Kind::Revocations(revocations)) => {
                self.credentials.peers().receive(revocations);
            }
            Some(attach_down::Kind::Notice(notice)) => warn!(%gateway, "{}", notice.text),
            Some(attach_down::Kind::Refusal(refusal)) => return Err(AttachError::Refused(refusal.reason)),
            Some(attach_down::Kind::CutOff(cut)) => return Ok(Change::CutOff(cut.cut_off)),
            Some(attach_down::Kind::GatewayLost(lost)) => {
                return Ok(lost.gateway.parse().map_or(Change::Nothing, Change::Lost));
            }
            Some(attach_down::Kind::AnnounceAgain(_)) => return Ok(Change::Announce),
            Some(_) | None => {}
        }
        Ok(Change::Nothing)
    }

    /// Waits for a better gateway than that at `index`, and attaches to it. The first choice is
    /// better. If the present gateway is `cut_off` from the broker, any other is better.
    pub(super) async fn better(self, index: usize, mut cut_off: watch::Receiver<bool>) -> Session {
        loop {
            let is_cut_off = *cut_off.borrow_and_update();
            let pause = if is_cut_off { CUT_OFF } else { self.return_interval };
            tokio::select! {
                () = sleep(jittered(pause)) => {}
                Ok(()) = cut_off.changed() => continue,
            }
            let candidates = if is_cut_off { 0..self.gateways.count() } else { 0..index.min(1) };
            for candidate in candidates.filter(|candidate| *candidate != index) {
                match self.open_checked(candidate).await {
                    Ok(session) => return session,
                    Err(error) => {
                        debug!(gateway = ?self.gateways.get(candidate), %error, "not a better gateway");
                    }
                }
            }
        }
    }

    /// Attaches to the gateway at this place of the list, if the broker answers by way of it.
    async fn open_checked(&self, index: usize) -> Result<Session, AttachError> {
        let (channel, identity) = self.connect(index).await?;
        let mut client = RegistryClient::new(channel.clone());
        let records = Some(proto::list_request::Records::Sites(proto::SiteFilter::default()));
        let anything = proto::ListRequest { page_size: 1, records, ..proto::ListRequest::default() };
        timeout(CHECK_DEADLINE, client.list(anything))
            .await
            .map_err(|_| AttachError::Broken(format!("no answer within {CHECK_DEADLINE:?}")))?
            .map_err(|status| broken(&status))?;
        self.attach(index, (channel, identity)).await
    }
}

impl Session {
    pub(super) async fn send(&self, kind: attach_up::Kind) -> Result<(), AttachError> {
        let message = proto::AttachUp { kind: Some(kind) };
        self.up_tx.send(message).await.map_err(|_| AttachError::Broken("the connection broke".to_owned()))
    }

    /// Handles the late messages of a gateway that the agent has left, for a while.
    pub(super) async fn linger(mut self, opener: Opener) {
        let handling = async {
            while let Ok(Some(message)) = self.down.message().await {
                if opener.handle(message, &self.gateway).is_err() {
                    return;
                }
            }
        };
        let _ = timeout(LINGER, handling).await;
    }
}

/// Microseconds since 1970. They increase over restarts of the agent, too.
fn unix_micros() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX / 2)
}

pub(super) fn broken(status: &Status) -> AttachError {
    match status.code() {
        // The two ends have no version of the protocol in common.
        Code::FailedPrecondition => AttachError::Refused(grpc::reason(status)),
        _ => AttachError::Broken(grpc::reason(status)),
    }
}

/// The pause and up to half of it at random, so that the nodes of a gateway don't return all at
/// once.
fn jittered(pause: Duration) -> Duration {
    let [random] = mac::random::<1>();
    pause + pause * u32::from(random) / 512
}
