//! The gateway's attachment to the broker: one connection out of the site.
//!
//! When it breaks, it is made again with growing pauses, and the broker is told
//! everything anew. Calls wait for that, bounded by [`WAIT`].

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_net::Deadline;
use isthmus_net::connection::Connection;
use isthmus_net::grpc;
use isthmus_net::grpc::{Call, Connections, Repeat};
use isthmus_net::rendezvous::{Expected, Leg, take_leg};
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up, dial_request};
use isthmus_wire::{ConnectionId, VirtualAddress};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tracing::{debug, error, info, warn};

use crate::service::Gateway;

/// The budget of a call to the broker whose caller gave none.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// How long the broker may take to open the attachment, and to take a message.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// Pause before a call is sent again after the connection broke.
const RETRY: Duration = Duration::from_millis(250);
/// In messages.
const BROKER: &str = "the broker";
/// First and longest pause between attempts to attach.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Messages waiting to be sent to the broker. When it is full the connection
/// is made anew, and the broker told everything.
const QUEUE: usize = 1024;

/// The way to the broker, as the rest of the gateway sees it.
pub(crate) struct Upstream {
    channel: watch::Sender<Option<Channel>>,
    up_tx: mpsc::Sender<attach_up::Kind>,
    resync: Notify,
}

/// The end of the way that [`run`] reads from.
pub(crate) struct Outbox(mpsc::Receiver<attach_up::Kind>);

impl Upstream {
    pub(crate) fn new() -> (Self, Outbox) {
        let (up_tx, up_rx) = mpsc::channel(QUEUE);
        (Self { channel: watch::Sender::new(None), up_tx, resync: Notify::new() }, Outbox(up_rx))
    }

    /// Whether the gateway is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.channel.borrow().is_some()
    }

    /// Tells the broker something, now or with everything else when it is
    /// attached again. Never waits.
    pub(crate) fn tell(&self, kind: attach_up::Kind) {
        if self.up_tx.try_send(kind).is_err() {
            self.resync.notify_one();
        }
    }

    /// Calls the broker; waits for it if it is away. `what` completes "cannot …".
    pub(crate) async fn registry<M: Clone, T, F>(
        &self,
        what: &str,
        (repeat, deadline): (Repeat, Deadline),
        message: M,
        call: impl Fn(RegistryClient<Channel>, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let call = |channel, request| call(RegistryClient::new(channel), request);
        Call { server: BROKER, deadline, repeat }
            .send(&ToBroker { upstream: self, what }, message, call)
            .await
    }

    /// Calls the broker's enrolment, as [`Upstream::registry`].
    pub(crate) async fn enrolment<M: Clone, T, F>(
        &self,
        what: &str,
        (repeat, deadline): (Repeat, Deadline),
        message: M,
        call: impl Fn(EnrolmentClient<Channel>, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let call = |channel, request| call(EnrolmentClient::new(channel), request);
        Call { server: BROKER, deadline, repeat }
            .send(&ToBroker { upstream: self, what }, message, call)
            .await
    }
}

/// The connection to the broker, for a call that `what` describes.
struct ToBroker<'a> {
    upstream: &'a Upstream,
    what: &'a str,
}

#[tonic::async_trait]
impl Connections for ToBroker<'_> {
    type Connection = Channel;

    async fn get(&self, former: Option<&Channel>) -> Option<Channel> {
        if former.is_some() {
            // Until the attachment is found broken, the channel is the same one.
            sleep(RETRY).await;
        }
        let mut channel = self.upstream.channel.subscribe();
        channel.wait_for(Option::is_some).await.ok()?.clone()
    }

    fn absent(&self) -> Status {
        Status::unavailable(format!(
            "cannot {}: the gateway has no connection to the broker. \
             Contacts that were used before still work; see the gateway's log",
            self.what
        ))
    }
}

/// Keeps the gateway attached; never returns.
pub(crate) async fn run(gateway: Arc<Gateway>, mut outbox: Outbox) {
    let broker = gateway.credentials.upstream().to_owned();
    let mut pause = BACKOFF.0;
    loop {
        let reason = attach(&gateway, &mut outbox, &mut pause).await;
        if gateway.upstream.channel.send_replace(None).is_some() {
            gateway.tell_cut_off(true);
        }
        warn!(broker, reason, retry_in = ?pause, "not attached to the broker");
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// One attachment from its beginning to its end; returns why it ended.
async fn attach(gateway: &Arc<Gateway>, outbox: &mut Outbox, pause: &mut Duration) -> String {
    let broker = gateway.credentials.upstream();
    let channel = match grpc::connect(broker, "broker", &gateway.credentials).await {
        Ok(channel) => channel,
        Err(error) => return error.to_string(),
    };
    let (up_tx, up_rx) = mpsc::channel(QUEUE);
    // What waits was meant for the former connection; the roster says it all.
    while outbox.0.try_recv().is_ok() {}
    let hello = proto::GatewayUp { outside_address: gateway.outside_address(), ..gateway.hello.clone() };
    let hello = std::iter::once(attach_up::Kind::GatewayUp(hello));
    let announcements: Vec<_> = hello.chain(gateway.announcements()).collect();
    let mut client = RegistryClient::new(channel.clone());
    // Announcements may be more than fit the queue, so they are sent while the
    // stream opens.
    let opening = async {
        let stream = timeout(CALL_DEADLINE, client.attach(ReceiverStream::new(up_rx))).await;
        stream.unwrap_or_else(|_| Err(Status::unavailable(format!("no answer within {CALL_DEADLINE:?}"))))
    };
    let announcing = async {
        for kind in announcements {
            if up_tx.send(proto::AttachUp { kind: Some(kind) }).await.is_err() {
                break;
            }
        }
    };
    let (stream, ()) = tokio::join!(opening, announcing);
    let own = format!("the gateway of site {}", gateway.site);
    let stream = stream.and_then(|stream| grpc::check_server(&own, "the broker", &stream).map(|_| stream));
    let mut down = match stream {
        Ok(stream) => stream.into_inner(),
        Err(status) => return grpc::reason(&status),
    };
    info!(broker, "attached to the broker");
    gateway.roster().nobody_elsewhere();
    gateway.forget_contacts();
    gateway.upstream.channel.send_replace(Some(channel));
    gateway.tell_cut_off(false);
    *pause = BACKOFF.0;
    loop {
        tokio::select! {
            message = down.message() => match message {
                Ok(Some(proto::AttachDown { kind: Some(attach_down::Kind::Refusal(refusal)) }))
                    if refusal.node.is_empty() =>
                {
                    error!(broker, reason = refusal.reason, "the broker refuses this gateway");
                    *pause = BACKOFF.1;
                    return refusal.reason;
                }
                Ok(Some(message)) => {
                    if let Some(kind) = message.kind {
                        handle(gateway, kind);
                    }
                }
                Ok(None) => return "the broker ended the attachment".to_owned(),
                Err(status) => return grpc::reason(&status),
            },
            Some(kind) = outbox.0.recv() => {
                let message = proto::AttachUp { kind: Some(kind) };
                match timeout(CALL_DEADLINE, up_tx.send(message)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return "the connection broke".to_owned(),
                    Err(_) => return format!("the broker took nothing for {CALL_DEADLINE:?}"),
                }
            }
            () = gateway.upstream.resync.notified() => return "too much waits for the broker".to_owned(),
        }
    }
}

/// What the broker says.
fn handle(gateway: &Arc<Gateway>, kind: attach_down::Kind) {
    match kind {
        attach_down::Kind::Welcome(welcome) => {
            let Some(address) = VirtualAddress::new(welcome.virtual_address.into()) else {
                let address = Ipv4Addr::from(welcome.virtual_address);
                return warn!(node = welcome.node, %address, "the broker gave an address that is not virtual");
            };
            info!(node = welcome.node, virtual_address = %address, "node welcomed");
            let effects = gateway.roster().welcome(&welcome.node, address);
            gateway.carry_out(effects);
        }
        attach_down::Kind::Dial(mut request) => {
            if let Some(dial_request::Way::OwnGateway(at)) = &mut request.way {
                match take_leg(at) {
                    Ok((connection, leg)) => over_this_gateway(gateway, &request.node, connection, leg),
                    Err(error) => return warn!(%error, "request to dial passed over"),
                }
            }
            if let Some(connection) = Connection::of_dial(&request) {
                debug!(%connection, node = request.node, "the broker has a node dial");
            }
            let dial = gateway.roster().dial(request);
            match dial {
                Ok(effect) => gateway.carry_out(vec![effect]),
                Err(refused) => warn!(%refused, "request to dial passed over"),
            }
        }
        attach_down::Kind::Measure(order) => {
            let measure = gateway.roster().measure(order);
            match measure {
                Ok(effect) => gateway.carry_out(vec![effect]),
                Err(refused) => warn!(%refused, "request to measure passed over"),
            }
        }
        attach_down::Kind::ContactChanged(changed) if changed.virtual_address == 0 => {
            gateway.forget_contacts();
        }
        attach_down::Kind::ContactChanged(changed) => {
            if let Some(address) = VirtualAddress::new(changed.virtual_address.into()) {
                gateway.contact_changed(address);
            }
        }
        attach_down::Kind::Refusal(refusal) => {
            warn!(node = refusal.node, reason = refusal.reason, "the broker refuses a node");
            let effects = gateway.roster().refuse(&refusal.node, &refusal.reason);
            gateway.carry_out(effects);
        }
        attach_down::Kind::Expect(order) => match Expected::try_from(order) {
            Ok(Expected { connection, from, leg }) => {
                gateway.streams.expect(connection, from);
                if let Some(leg) = leg {
                    dial(gateway, leg, from.to_string());
                }
            }
            Err(error) => warn!(%error, "order to expect a node passed over"),
        },
        attach_down::Kind::SiteNode(node) => gateway.roster().elsewhere(node),
        attach_down::Kind::Notice(notice) => warn!("{}", notice.text),
        attach_down::Kind::RelayKey(key) => gateway.streams.set_key(&key.key),
        attach_down::Kind::Directory(directory) => gateway.directory_changed(directory),
        // Those are for relays, and for agents.
        attach_down::Kind::Probe(_) | attach_down::Kind::CutOff(_) => {}
    }
}

/// A node is about to come for a stream: it may, and what is to be dialed for it
/// is dialed meanwhile.
fn over_this_gateway(gateway: &Arc<Gateway>, node: &str, connection: ConnectionId, leg: Option<Leg>) {
    let from = gateway.roster().seen_from(node);
    if let Some(from) = from {
        gateway.streams.expect(connection, from);
    }
    if let Some(leg) = leg {
        dial(gateway, leg, node.to_owned());
    }
}

/// Dials for a node, which comes meanwhile.
fn dial(gateway: &Arc<Gateway>, leg: Leg, node: String) {
    let gateway = gateway.clone();
    tokio::spawn(async move {
        if let Err(status) = gateway.dial(&leg).await {
            warn!(node, reason = status.message(), "cannot dial for a node");
        }
    });
}
