//! The attachment to the broker of a relay, or of a gateway that relays. It announces itself, receives
//! the key of tickets, and reports its counters. Spliced connections don't depend on it.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_carry::plane::Totals;
use isthmus_identity::Credentials;
use isthmus_rpc::grpc::{self, ConnectError};
use isthmus_service::mac::Secret;
use isthmus_splice::TicketKey;
use isthmus_wire::RelayName;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{AttachDown, AttachUp, ProbeReport, RelayReport, RelayUp, attach_down, attach_up};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::prober::Prober;

/// Longest wait for the broker's answer to a new attachment.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// How often the relay reports its counters, if they have changed.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Pauses between attempts to attach: the shortest, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// The longest pause of a gateway that the broker refuses as a relay: it may want none.
const REFUSED_PAUSE: Duration = Duration::from_secs(300);
/// Messages to the broker that may wait to be sent: the first message, one report of counters, and
/// results of probes.
const UP_BOUND: usize = 66;
/// Most results of probes that wait to be sent.
const PROBES_BOUND: usize = 64;

/// Why the relay isn't attached to the broker.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the broker at {address} refused: {reason}")]
    Refused { address: String, reason: String },
    #[error("the attachment to the broker at {address} broke: {reason}")]
    Broke { address: String, reason: String },
}

/// What attaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A relay. It is of no use while it isn't attached, and says so.
    Relay,
    /// A gateway that relays besides.
    Gateway,
}

/// The data for attaching, and the parts of the service that use the attachment.
pub struct Attachment {
    /// What attaches.
    pub kind: Kind,
    /// The credentials of the service.
    pub credentials: Credentials,
    /// The name as a relay.
    pub name: RelayName,
    /// Where agents reach the relay.
    pub address: String,
    /// The counters of what was relayed.
    pub totals: Box<dyn Fn() -> Totals + Send + Sync>,
    /// Most connections at once.
    pub most: u64,
    /// Gets the keys of tickets.
    pub keys_tx: watch::Sender<Option<TicketKey>>,
    /// Carries out reach tests.
    pub prober: Arc<Prober>,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, address, .. } = self;
        f.debug_struct("Attachment")
            .field("kind", kind)
            .field("name", name)
            .field("address", address)
            .finish_non_exhaustive()
    }
}

impl Attachment {
    /// Attaches, and attaches again whenever the attachment is lost. Never returns.
    pub async fn keep(&self) -> Infallible {
        let mut pause = PAUSES.0;
        let mut told = String::new();
        loop {
            if self.kind == Kind::Relay {
                self.credentials.attaching();
            }
            let lost = match self.attach().await {
                Ok(session) => {
                    pause = PAUSES.0;
                    if self.kind == Kind::Relay {
                        self.credentials.attachment().begun();
                    }
                    self.stay(session).await
                }
                Err(lost) => lost,
            };
            let (reason, is_refused) = (lost.to_string(), matches!(lost, Lost::Refused { .. }));
            match self.kind {
                Kind::Relay => {
                    let reason = self.credentials.not_attached(&reason);
                    tracing::warn!(reason, retry_in = ?pause, "not attached to the broker");
                }
                // The gateway tells of all else itself.
                Kind::Gateway if is_refused && reason != told => {
                    tracing::info!(reason, "relays nothing for other sites");
                    told = reason;
                }
                Kind::Gateway => tracing::debug!(reason, retry_in = ?pause, "relays nothing for other sites"),
            }
            sleep(pause).await;
            let longest = if self.kind == Kind::Gateway && is_refused { REFUSED_PAUSE } else { PAUSES.1 };
            pause = (pause * 2).min(longest);
        }
    }

    /// Attaches and takes the key of tickets from the broker's first message.
    async fn attach(&self) -> Result<Session, Lost> {
        let channel = grpc::connect(self.credentials.upstream(), "broker", &self.credentials).await?;
        let (up_tx, up_rx) = mpsc::channel(UP_BOUND);
        let announcement = RelayUp {
            name: self.name.to_string(),
            address: self.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        // The receiver exists and the channel is empty.
        let _ = up_tx.try_send(AttachUp { kind: Some(attach_up::Kind::RelayUp(announcement)) });
        let own = self.credentials.identity().to_string();
        let answer = async {
            let mut client = RegistryClient::new(channel);
            let response = client.attach(ReceiverStream::new(up_rx)).await?;
            grpc::check_server(&own, "the broker", &response)?;
            let mut down = response.into_inner();
            let first = down.message().await?;
            Ok::<_, Status>((down, first))
        };
        let (down, first) = match timeout(ANSWER_DEADLINE, answer).await {
            Ok(answer) => answer.map_err(|status| self.broke(grpc::reason(&status)))?,
            Err(_) => return Err(self.broke(format!("no answer within {} s", ANSWER_DEADLINE.as_secs()))),
        };
        let (probes_tx, probes_rx) = mpsc::channel(PROBES_BOUND);
        self.on_message(first, &probes_tx)?;
        tracing::info!(broker = self.credentials.upstream(), address = %self.address, "attached to the broker as a relay");
        Ok(Session { up_tx, down, probes_tx, probes_rx })
    }

    /// Receives the broker's messages and reports the counters until the attachment is lost.
    async fn stay(&self, mut session: Session) -> Lost {
        let mut reported = RelayReport::default();
        let mut ticks = interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = session.down.message() => {
                    let outcome = match message {
                        Ok(message) => self.on_message(message, &session.probes_tx),
                        Err(status) => Err(self.broke(grpc::reason(&status))),
                    };
                    if let Err(lost) = outcome {
                        return lost;
                    }
                }
                Some(report) = session.probes_rx.recv() => {
                    let message = AttachUp { kind: Some(attach_up::Kind::Probed(report)) };
                    // Full: the broker's call that waits for it ends by its deadline.
                    let _ = session.up_tx.try_send(message);
                }
                _ = ticks.tick() => {
                    let report = report((self.totals)(), self.most);
                    let message = AttachUp { kind: Some(attach_up::Kind::RelayReport(report)) };
                    // Full: the broker is slow, and the next report has all totals.
                    if report != reported && session.up_tx.try_send(message).is_ok() {
                        reported = report;
                    }
                }
            }
        }
    }

    fn on_message(
        &self,
        message: Option<AttachDown>,
        probes_tx: &mpsc::Sender<ProbeReport>,
    ) -> Result<(), Lost> {
        let Some(AttachDown { kind }) = message else {
            return Err(self.broke("it ended the attachment"));
        };
        match kind {
            Some(attach_down::Kind::RelayKey(message)) => {
                let secret = Secret::from_slice(&message.key)
                    .ok_or_else(|| self.broke(format!("its key has {} bytes, not 32", message.key.len())))?;
                let key = TicketKey::received(secret, message.unix_seconds, SystemTime::now());
                self.keys_tx.send_replace(Some(key));
                Ok(())
            }
            Some(attach_down::Kind::Refusal(refusal)) => {
                Err(Lost::Refused { address: self.credentials.upstream().to_owned(), reason: refusal.reason })
            }
            Some(attach_down::Kind::Probe(order)) => {
                self.prober.order(order, probes_tx.clone());
                Ok(())
            }
            Some(attach_down::Kind::Notice(notice)) => {
                tracing::warn!("{}", notice.text);
                Ok(())
            }
            None => {
                tracing::debug!("message of a newer version, dropped");
                Ok(())
            }
            Some(
                attach_down::Kind::Welcome(_)
                | attach_down::Kind::Dial(_)
                | attach_down::Kind::ContactChanged(_)
                | attach_down::Kind::Measure(_)
                | attach_down::Kind::Expect(_)
                | attach_down::Kind::SiteNode(_)
                | attach_down::Kind::Directory(_)
                | attach_down::Kind::Revocations(_)
                | attach_down::Kind::SiteGateways(_)
                | attach_down::Kind::CutOff(_)
                | attach_down::Kind::AnnounceAgain(_)
                | attach_down::Kind::GatewayLost(_),
            ) => Err(self.broke("it sent a message that is not for relays")),
        }
    }

    fn broke(&self, reason: impl Into<String>) -> Lost {
        Lost::Broke { address: self.credentials.upstream().to_owned(), reason: reason.into() }
    }
}

struct Session {
    /// From the relay to the broker.
    up_tx: mpsc::Sender<AttachUp>,
    /// From the broker to the relay.
    down: Streaming<AttachDown>,
    /// From the prober to this attachment, which passes the results on to the broker.
    probes_tx: mpsc::Sender<ProbeReport>,
    probes_rx: mpsc::Receiver<ProbeReport>,
}

fn report(totals: Totals, most: u64) -> RelayReport {
    let Totals { connections, running, bytes } = totals;
    RelayReport { connections, bytes, room: Some(most.saturating_sub(running)) }
}
