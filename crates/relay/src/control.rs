//! The relay's attachment to the broker. The relay announces itself, receives the key
//! of tickets, and reports its counters. Spliced connections don't depend on it.

use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::plane::{Plane, Totals};
use isthmus_identity::Credentials;
use isthmus_rpc::grpc::{self, ConnectError};
use isthmus_service::mac::Secret;
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

/// The data for attaching, and the parts of the relay that use the attachment.
pub(crate) struct Attachment {
    pub(crate) credentials: Credentials,
    /// Where agents reach the relay.
    pub(crate) address: String,
    pub(crate) plane: Arc<Plane>,
    pub(crate) keys_tx: watch::Sender<Option<Secret>>,
    pub(crate) prober: Arc<Prober>,
}

impl Attachment {
    /// Attaches, and attaches again whenever the attachment is lost.
    pub(crate) async fn keep(self) {
        let mut pause = PAUSES.0;
        loop {
            self.credentials.attaching();
            let mut attached = false;
            let lost = match self.attach().await {
                Ok(down) => {
                    attached = true;
                    self.credentials.attachment().begun();
                    self.stay(down).await
                }
                Err(lost) => lost,
            };
            pause = if attached { PAUSES.0 } else { pause };
            let lost = self.credentials.not_attached(&lost.to_string());
            tracing::warn!(reason = lost, retry_in = ?pause, "not attached to the broker");
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Attaches and takes the key of tickets from the broker's first message.
    async fn attach(&self) -> Result<Session, Lost> {
        let channel = grpc::connect(self.credentials.upstream(), "broker", &self.credentials).await?;
        let (up_tx, up_rx) = mpsc::channel(UP_BOUND);
        let announcement = RelayUp {
            name: self.credentials.identity().name().to_string(),
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
        tracing::info!(broker = self.credentials.upstream(), address = %self.address, "attached to the broker");
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
                    let report = report(self.plane.totals());
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
                let key = Secret::from_slice(&message.key)
                    .ok_or_else(|| self.broke(format!("its key has {} bytes, not 32", message.key.len())))?;
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

fn report(totals: Totals) -> RelayReport {
    RelayReport { connections: totals.connections, bytes: totals.bytes }
}
