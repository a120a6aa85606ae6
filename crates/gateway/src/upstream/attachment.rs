//! Attaches the gateway to the broker, again and again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_rpc::grpc;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use tracing::{error, info, warn};

use super::orders::handle;
use super::{BROKER, Outbox, QUEUE, beside};
use crate::gateway::Gateway;

/// How long the broker may take to open the attachment, and to take a message. At 1 s of
/// round trip, a segment of a new connection that is lost twice takes 9 s (RFC 6298).
const CALL_DEADLINE: Duration = Duration::from_secs(15);
/// First and longest pause between attempts to attach.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// The shortest pause between attempts to attach while a call waits for the broker.
const WANTED: Duration = Duration::from_secs(1);

/// Keeps the gateway attached; never returns.
pub(crate) async fn run(gateway: Arc<Gateway>, mut outbox: Outbox) {
    let broker = gateway.credentials.upstream().to_owned();
    let mut pause = BACKOFF.0;
    // A connection that was made beside the former connection, which is silent.
    let mut next = None;
    loop {
        gateway.credentials.attaching();
        let reason = match attach(&gateway, &mut outbox, &mut pause, next.take()).await {
            Ended::Replaced(channel) => {
                next = Some(channel);
                continue;
            }
            Ended::Failed(reason) => reason,
        };
        if gateway.upstream.failed() {
            gateway.send_cut_off(true);
        }
        let reason = gateway.credentials.not_attached(&reason);
        warn!(broker, reason, retry_in = ?pause, "not attached to the broker");
        tokio::select! {
            () = sleep(pause) => {}
            () = async {
                sleep(WANTED).await;
                gateway.upstream.wanted.awaited().await;
            } => {}
        }
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Why an attachment has ended, and what follows.
enum Ended {
    Failed(String),
    /// Another connection was made while the attachment's own was silent.
    Replaced(Channel),
}

/// Drives an attachment from its beginning to its end, over the connection `next` if there is one.
async fn attach(
    gateway: &Arc<Gateway>,
    outbox: &mut Outbox,
    pause: &mut Duration,
    next: Option<Channel>,
) -> Ended {
    let broker = gateway.credentials.upstream();
    let channel = match next {
        Some(channel) => channel,
        None => match beside::connect(gateway).await {
            Ok(channel) => channel,
            Err(error) => return Ended::Failed(error.to_string()),
        },
    };
    // Relays may be at the broker's host. If its addresses aren't found now, those found before
    // hold.
    if let Ok(Ok(found)) = timeout(CALL_DEADLINE, tokio::net::lookup_host(broker)).await {
        gateway.directory.found_broker(found.map(|address| address.ip()));
    }
    let (up_tx, up_rx) = mpsc::channel(QUEUE);
    // The announcements replace what waits for the former connection.
    while outbox.0.try_recv().is_ok() {}
    let opening = Instant::now();
    let down = match open(gateway, channel.clone(), &up_tx, up_rx).await {
        Ok(down) => down,
        Err(status) => return Ended::Failed(grpc::reason(&status)),
    };
    let round_trip = opening.elapsed();
    info!(broker, "attached to the broker");
    gateway.roster().clear_elsewhere();
    gateway.forget_contacts();
    gateway.upstream.attached(channel.clone());
    gateway.credentials.attachment().begun();
    gateway.send_cut_off(false);
    *pause = BACKOFF.0;
    let ended = tokio::select! {
        ended = drive(gateway, outbox, down, up_tx) => ended,
        another = beside::another(gateway, &channel, round_trip) => return Ended::Replaced(another),
    };
    Ended::Failed(match ended {
        AttachmentEnd::Broken(reason) => reason,
        AttachmentEnd::Refused(reason) => {
            error!(broker, reason, "the broker refuses this gateway");
            *pause = BACKOFF.1;
            reason
        }
    })
}

/// The address at which the site's agents may reach the gateway, if it listens on all addresses:
/// the address that faces the broker. Empty if the gateway listens at a given address, or if the
/// address isn't known.
async fn likely_address(gateway: &Gateway) -> String {
    let Ok(listening) = gateway.hello.address.parse::<SocketAddr>() else { return String::new() };
    if !listening.ip().is_unspecified() {
        return String::new();
    }
    let own = async {
        // Nothing is sent: the kernel chooses the address by its routes.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        socket.connect(gateway.credentials.upstream()).await?;
        socket.local_addr()
    };
    match timeout(CALL_DEADLINE, own).await {
        Ok(Ok(own)) => SocketAddr::new(own.ip(), listening.port()).to_string(),
        Ok(Err(_)) | Err(_) => String::new(),
    }
}

/// Opens the attachment, and announces the site's nodes and jobs.
async fn open(
    gateway: &Gateway,
    channel: Channel,
    up_tx: &mpsc::Sender<proto::AttachUp>,
    up_rx: mpsc::Receiver<proto::AttachUp>,
) -> Result<Streaming<proto::AttachDown>, Status> {
    let hello = proto::GatewayUp {
        outside_address: gateway.outside_address(),
        likely_address: likely_address(gateway).await,
        ..gateway.hello.clone()
    };
    let hello = std::iter::once(attach_up::Kind::GatewayUp(hello));
    let announcements: Vec<_> = hello.chain(gateway.announcements()).collect();
    let mut client = RegistryClient::new(channel);
    let opening = timeout(CALL_DEADLINE, client.attach(ReceiverStream::new(up_rx)));
    // The queue may be too short for all announcements, so they are sent while the
    // stream opens.
    let announcing = async {
        for kind in announcements {
            if up_tx.send(proto::AttachUp { kind: Some(kind) }).await.is_err() {
                break;
            }
        }
    };
    let (stream, ()) = tokio::join!(opening, announcing);
    let late = |_| Err(Status::unavailable(format!("no answer within {CALL_DEADLINE:?}")));
    let stream = stream.unwrap_or_else(late)?;
    grpc::check_server(&format!("the gateway of site {}", gateway.site), BROKER, &stream)?;
    Ok(stream.into_inner())
}

/// How the exchange of messages over an attachment ended.
enum AttachmentEnd {
    Broken(String),
    Refused(String),
}

/// Passes messages both ways until the attachment ends.
async fn drive(
    gateway: &Arc<Gateway>,
    outbox: &mut Outbox,
    mut down: Streaming<proto::AttachDown>,
    up_tx: mpsc::Sender<proto::AttachUp>,
) -> AttachmentEnd {
    let reason = loop {
        tokio::select! {
            message = down.message() => match message {
                Ok(Some(proto::AttachDown { kind: Some(attach_down::Kind::Refusal(refusal)) }))
                    if refusal.node.is_empty() =>
                {
                    return AttachmentEnd::Refused(refusal.reason);
                }
                Ok(Some(message)) => {
                    if let Some(kind) = message.kind {
                        handle(gateway, kind);
                    }
                }
                Ok(None) => break "the broker ended the attachment".to_owned(),
                Err(status) => break grpc::reason(&status),
            },
            Some(kind) = outbox.0.recv() => {
                let message = proto::AttachUp { kind: Some(kind) };
                match timeout(CALL_DEADLINE, up_tx.send(message)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => break "the connection broke".to_owned(),
                    Err(_) => break format!("the broker read nothing for {CALL_DEADLINE:?}"),
                }
            }
            () = gateway.upstream.resync.notified() => break "too many messages wait for the broker".to_owned(),
        }
    };
    AttachmentEnd::Broken(reason)
}
