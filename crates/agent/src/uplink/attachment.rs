//! The agent's attachment to one of its site's gateways: says who it is, keeps what
//! the gateway tells, and goes to another gateway when that one is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_net::clock::since_1970;
use isthmus_net::lock;
use isthmus_net::rendezvous::Order;
use isthmus_net::seen::for_plans;
use isthmus_net::{Credentials, grpc, mac};
use isthmus_wire::VirtualAddress;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tracing::{info, warn};

use crate::uplink::attached::{Attached, Contacts};

/// How long the gateway may take to welcome an agent.
const WELCOME_DEADLINE: Duration = Duration::from_secs(15);
/// First and longest pause between attempts to attach, once all gateways have
/// been tried.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// How often an agent that isn't attached to its first choice tries that one.
const RETURN: Duration = Duration::from_secs(20);
/// How long a gateway may be without the broker until another one is tried.
const CUT_OFF: Duration = Duration::from_secs(5);
/// How long the broker may take to answer by way of another gateway.
const CHECK_DEADLINE: Duration = Duration::from_secs(5);
/// How long a gateway that the agent leaves is listened to: what was sent before
/// it knew comes by then.
const LINGER: Duration = Duration::from_secs(2);
/// Messages waiting to be sent.
const QUEUE: usize = 64;

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

/// Opens attachments.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub(crate) credentials: Credentials,
    /// Where the site's gateways are, in the order of this agent's preference.
    pub(crate) gateways: Arc<[Arc<str>]>,
    /// What they are told.
    pub(crate) node_up: Arc<Mutex<proto::NodeUp>>,
    pub(crate) contacts: Contacts,
    /// The directory, as a gateway sent it last.
    pub(crate) directory_tx: Arc<watch::Sender<Option<proto::Directory>>>,
    /// gateway → agent: dial out to meet somebody.
    pub(crate) dials_tx: mpsc::Sender<Order>,
    /// gateway → agent: measure the way to another node.
    pub(crate) measures_tx: mpsc::Sender<proto::MeasureOrder>,
}

/// An attachment that a gateway has welcomed.
struct Session {
    /// Which of the gateways.
    index: usize,
    gateway: Arc<str>,
    address: VirtualAddress,
    client: RegistryClient<Channel>,
    up_tx: mpsc::Sender<proto::AttachUp>,
    down: Streaming<proto::AttachDown>,
}

/// What a message from a gateway changes for the attachment.
enum Told {
    Nothing,
    Address(VirtualAddress),
    CutOff(bool),
}

/// The working end of the attachment; [`Attachment::run`] keeps it up.
#[derive(Debug)]
pub struct Attachment {
    opener: Opener,
    attached_tx: watch::Sender<Option<Attached>>,
    own_address: Arc<Mutex<Option<VirtualAddress>>>,
    up_rx: mpsc::Receiver<attach_up::Kind>,
    /// Running jobs, as told last; another gateway is told of them again.
    jobs: BTreeMap<String, proto::JobReport>,
    /// Attachments so far.
    number: u64,
}

impl Attachment {
    pub(crate) fn new(
        opener: Opener,
        attached_tx: watch::Sender<Option<Attached>>,
        own_address: Arc<Mutex<Option<VirtualAddress>>>,
        up_rx: mpsc::Receiver<attach_up::Kind>,
    ) -> Self {
        Self { opener, attached_tx, own_address, up_rx, jobs: BTreeMap::new(), number: 0 }
    }

    /// Keeps the agent attached, until the gateway refuses it.
    ///
    /// # Errors
    /// Only [`AttachError::Refused`], and only before the agent was ever
    /// attached: afterwards jobs may be running, and it tries again.
    pub async fn run(mut self) -> Result<(), AttachError> {
        let count = self.opener.gateways.len().max(1);
        let (mut index, mut failed, mut pause) = (0, 0, BACKOFF.0);
        loop {
            let error = match self.opener.open(index).await {
                Ok(session) => {
                    (failed, pause) = (0, BACKOFF.0);
                    let error;
                    (index, error) = self.serve(session).await;
                    error
                }
                Err(AttachError::Refused(reason)) if self.number == 0 => {
                    return Err(AttachError::Refused(reason));
                }
                Err(error) => error,
            };
            self.attached_tx.send_replace(None);
            let gateway = self.opener.gateways.get(index).map(ToString::to_string).unwrap_or_default();
            (failed, index) = (failed + 1, (index + 1) % count);
            if failed % count == 0 {
                warn!(gateway, %error, retry_in = ?pause, "not attached");
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
            } else {
                warn!(gateway, %error, "not attached; trying the next gateway");
            }
        }
    }

    /// Drives an attachment, and those that follow it without a gap; gives the
    /// gateway that was lost in the end, and how.
    async fn serve(&mut self, mut session: Session) -> (usize, AttachError) {
        loop {
            self.publish(&session);
            if let Err(error) = self.tell_jobs(&session).await {
                return (session.index, error);
            }
            let cut_off = watch::Sender::new(false);
            let better = self.opener.clone().better(session.index, cut_off.subscribe());
            tokio::pin!(better);
            let next = loop {
                let told = tokio::select! {
                    message = session.down.message() => match message {
                        Ok(Some(message)) => self.opener.handle(message, &session.gateway),
                        Ok(None) => {
                            Err(AttachError::Broken("the gateway closed the connection".to_owned()))
                        }
                        Err(status) => Err(broken(&status)),
                    },
                    Some(kind) = self.up_rx.recv() => {
                        self.note(&kind);
                        session.send(kind).await.map(|()| Told::Nothing)
                    }
                    next = &mut better => break next,
                };
                match told {
                    Ok(Told::Nothing) => {}
                    Ok(Told::Address(address)) => {
                        session.address = address;
                        self.publish(&session);
                    }
                    Ok(Told::CutOff(is)) => {
                        cut_off.send_if_modified(|was| std::mem::replace(was, is) != is);
                    }
                    Err(error) => return (session.index, error),
                }
            };
            let former = std::mem::replace(&mut session, next);
            tokio::spawn(former.linger(self.opener.clone()));
        }
    }

    /// The rest of the agent may use it.
    fn publish(&mut self, session: &Session) {
        self.number += 1;
        info!(virtual_address = %session.address, gateway = %session.gateway, "attached");
        // Whatever changed meanwhile was not told to us.
        lock(&self.opener.contacts).clear();
        lock(&self.own_address).replace(session.address);
        self.attached_tx.send_replace(Some(Attached {
            number: self.number,
            address: session.address,
            gateway: session.gateway.clone(),
            client: session.client.clone(),
        }));
    }

    /// Keeps in mind what the next gateway is to be told.
    fn note(&mut self, kind: &attach_up::Kind) {
        match kind {
            attach_up::Kind::Seen(seen) => {
                let former = lock(&self.opener.node_up).seen.replace(seen.clone());
                // Plans depend on it.
                if for_plans(former.as_ref()) != for_plans(Some(seen)) {
                    lock(&self.opener.contacts).clear();
                }
            }
            attach_up::Kind::Job(report) if report.ended => drop(self.jobs.remove(&report.job)),
            attach_up::Kind::Job(report) => {
                self.jobs.insert(report.job.clone(), report.clone());
            }
            _ => {}
        }
    }

    async fn tell_jobs(&self, session: &Session) -> Result<(), AttachError> {
        for report in self.jobs.values() {
            session.send(attach_up::Kind::Job(report.clone())).await?;
        }
        Ok(())
    }
}

impl Opener {
    /// Attaches to one of the gateways.
    async fn open(&self, index: usize) -> Result<Session, AttachError> {
        let channel = self.connect(index).await?;
        self.attach(index, channel).await
    }

    async fn connect(&self, index: usize) -> Result<Channel, AttachError> {
        let gateway = self.gateways.get(index);
        let gateway = gateway.ok_or_else(|| AttachError::Broken("no gateway is known".to_owned()))?;
        let server_name = self.credentials.identity().upstream_server_name();
        let connected = grpc::connect(gateway, &server_name, &self.credentials).await;
        connected.map_err(|error| AttachError::Broken(error.to_string()))
    }

    async fn attach(&self, index: usize, channel: Channel) -> Result<Session, AttachError> {
        let gateway = self.gateways.get(index).cloned().unwrap_or_default();
        let mut client = RegistryClient::new(channel);
        let (up_tx, up_rx) = mpsc::channel(QUEUE);
        let hello = {
            let mut node_up = lock(&self.node_up);
            node_up.attachment = unix_micros().max(node_up.attachment + 1);
            node_up.clone()
        };
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
            if let Told::Address(address) = self.handle(message.ok_or_else(closed)?, &gateway)? {
                return Ok(Session { index, gateway, address, client, up_tx, down });
            }
        }
    }

    /// What a gateway says.
    fn handle(&self, message: proto::AttachDown, gateway: &Arc<str>) -> Result<Told, AttachError> {
        match message.kind {
            Some(attach_down::Kind::Welcome(welcome)) => {
                let address = VirtualAddress::new(welcome.virtual_address.into());
                return address.map(Told::Address).ok_or_else(|| {
                    AttachError::Broken("was given an address that is not virtual".to_owned())
                });
            }
            Some(attach_down::Kind::Dial(request)) => match Order::read(request, gateway) {
                Ok(order) => {
                    if self.dials_tx.try_send(order).is_err() {
                        warn!("too many requests to dial out at once, one is dropped");
                    }
                }
                Err(error) => warn!(%error, "request to dial passed over"),
            },
            Some(attach_down::Kind::Measure(order)) => {
                if self.measures_tx.try_send(order).is_err() {
                    warn!("too many requests to measure at once, one is dropped");
                }
            }
            Some(attach_down::Kind::ContactChanged(changed)) => match changed.virtual_address {
                0 => lock(&self.contacts).clear(),
                address => drop(lock(&self.contacts).remove(&std::net::Ipv4Addr::from(address))),
            },
            Some(attach_down::Kind::Directory(directory)) => {
                self.directory_tx.send_replace(Some(directory));
            }
            Some(attach_down::Kind::Notice(notice)) => warn!(%gateway, "{}", notice.text),
            Some(attach_down::Kind::Refusal(refusal)) => return Err(AttachError::Refused(refusal.reason)),
            Some(attach_down::Kind::CutOff(cut)) => return Ok(Told::CutOff(cut.cut_off)),
            Some(_) | None => {}
        }
        Ok(Told::Nothing)
    }

    /// Waits for a gateway that is better than the one attached to: the first
    /// choice, or while that one has been `cut_off` from the broker for a while,
    /// any other that isn't.
    async fn better(self, index: usize, mut cut_off: watch::Receiver<bool>) -> Session {
        let count = self.gateways.len();
        if count < 2 {
            std::future::pending::<()>().await;
        }
        loop {
            let is_cut_off = *cut_off.borrow_and_update();
            let pause = if is_cut_off { CUT_OFF } else { RETURN };
            tokio::select! {
                () = sleep(jittered(pause)) => {}
                Ok(()) = cut_off.changed() => continue,
            }
            let candidates = if is_cut_off { 0..count } else { 0..index.min(1) };
            for candidate in candidates.filter(|candidate| *candidate != index) {
                match self.open_checked(candidate).await {
                    Ok(session) => return session,
                    Err(error) => {
                        tracing::debug!(gateway = ?self.gateways.get(candidate), %error, "not a better gateway");
                    }
                }
            }
        }
    }

    /// Attaches to a gateway by way of which the broker answers.
    async fn open_checked(&self, index: usize) -> Result<Session, AttachError> {
        let channel = self.connect(index).await?;
        let mut client = RegistryClient::new(channel.clone());
        let records = Some(proto::list_request::Records::Sites(proto::SiteFilter::default()));
        let anything = proto::ListRequest { page_size: 1, records, ..proto::ListRequest::default() };
        timeout(CHECK_DEADLINE, client.list(anything))
            .await
            .map_err(|_| AttachError::Broken(format!("no answer within {CHECK_DEADLINE:?}")))?
            .map_err(|status| broken(&status))?;
        self.attach(index, channel).await
    }
}

impl Session {
    async fn send(&self, kind: attach_up::Kind) -> Result<(), AttachError> {
        let message = proto::AttachUp { kind: Some(kind) };
        self.up_tx.send(message).await.map_err(|_| AttachError::Broken("the connection broke".to_owned()))
    }

    /// Listens for a while to a gateway that the agent has left.
    async fn linger(mut self, opener: Opener) {
        let listening = async {
            while let Ok(Some(message)) = self.down.message().await {
                if opener.handle(message, &self.gateway).is_err() {
                    return;
                }
            }
        };
        let _ = timeout(LINGER, listening).await;
    }
}

/// Grows over restarts of the agent, too.
fn unix_micros() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX / 2)
}

fn broken(status: &Status) -> AttachError {
    match status.code() {
        // The two ends have no version of the protocol in common.
        Code::FailedPrecondition => AttachError::Refused(grpc::reason(status)),
        _ => AttachError::Broken(grpc::reason(status)),
    }
}

/// Up to half more: the nodes of a gateway are not to come back all at once.
fn jittered(pause: Duration) -> Duration {
    let [random] = mac::random::<1>();
    pause + pause * u32::from(random) / 512
}
