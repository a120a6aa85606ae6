//! The agent's attachment to one of its site's gateways. When that gateway is lost,
//! the agent attaches to another one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_rpc::seen::for_plans;
use isthmus_service::lock;
use isthmus_wire::VirtualAddress;
use isthmus_wire::proto::{self, attach_up};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, sleep};
use tracing::{info, warn};

use crate::uplink::attached::Attached;
use crate::uplink::opener::{AttachError, Change, Opener, Session, broken};
use crate::uplink::upstream::LostGateway;

/// First and longest pause between attempts to attach, once all gateways have
/// been tried.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// How often the agent looks whether its certificate was renewed.
const LOOK: Duration = Duration::from_secs(30);
/// Shortest time between two announcements of the node for which its gateway asks.
const AGAIN: Duration = Duration::from_secs(1);

/// The task that keeps the agent attached: see [`Attachment::run`].
#[derive(Debug)]
pub(crate) struct Attachment {
    opener: Opener,
    attached_tx: watch::Sender<Option<Attached>>,
    lost_tx: mpsc::Sender<LostGateway>,
    own_address: Arc<Mutex<Option<VirtualAddress>>>,
    /// Why the last attempt to attach failed.
    failure: Arc<Mutex<String>>,
    up_rx: mpsc::Receiver<attach_up::Kind>,
    /// The last report of each running job, to be sent to another gateway again.
    jobs: BTreeMap<String, proto::JobReport>,
    /// The number of attachments so far.
    number: u64,
}

impl Attachment {
    pub(crate) fn new(
        opener: Opener,
        (attached_tx, lost_tx): (watch::Sender<Option<Attached>>, mpsc::Sender<LostGateway>),
        (own_address, failure): (Arc<Mutex<Option<VirtualAddress>>>, Arc<Mutex<String>>),
        up_rx: mpsc::Receiver<attach_up::Kind>,
    ) -> Self {
        Self { opener, attached_tx, lost_tx, own_address, failure, up_rx, jobs: BTreeMap::new(), number: 0 }
    }

    /// Keeps the agent attached, until the gateway refuses it.
    ///
    /// # Errors
    /// Only [`AttachError::Refused`], and only before the first attachment. Later, jobs
    /// may be running, and the agent tries again.
    pub(crate) async fn run(mut self) -> Result<(), AttachError> {
        let (mut index, mut failed, mut pause) = (0, 0, BACKOFF.0);
        loop {
            self.opener.credentials.attaching();
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
            let error = self.opener.credentials.not_attached(&error.to_string());
            *lock(&self.failure) = error.clone();
            let former = self.attached_tx.send_replace(None);
            if let Some(Attached { gateway, .. }) = former {
                // A full queue has enough of them.
                let _ = self.lost_tx.try_send(LostGateway::Own(gateway, error.clone()));
            }
            let (gateway, count) = (self.opener.gateways.get(index), self.opener.gateways.count().max(1));
            let gateway = gateway.unwrap_or_default();
            (failed, index) = (failed + 1, (index + 1) % count);
            if failed % count == 0 {
                warn!(%gateway, %error, retry_in = ?pause, "not attached");
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
            } else {
                warn!(%gateway, %error, "not attached; trying the next gateway");
            }
        }
    }

    /// Serves an attachment, and those that follow it without a gap. Returns the index of the
    /// gateway that was lost in the end, and why.
    async fn serve(&mut self, mut session: Session) -> (usize, AttachError) {
        loop {
            self.publish(&session);
            if let Err(error) = self.send_jobs(&session).await {
                return (session.index, error);
            }
            let cut_off = watch::Sender::new(false);
            let better = self.opener.clone().better(session.index, cut_off.subscribe());
            tokio::pin!(better);
            let mut looks = interval(LOOK);
            let mut announced = Instant::now();
            let next = loop {
                let change = tokio::select! {
                    message = session.down.message() => match message {
                        Ok(Some(message)) => self.opener.handle(message, &session.gateway),
                        Ok(None) => {
                            Err(AttachError::Broken("the gateway closed the connection".to_owned()))
                        }
                        Err(status) => Err(broken(&status)),
                    },
                    Some(kind) = self.up_rx.recv() => {
                        self.note(&kind);
                        session.send(kind).await.map(|()| Change::Nothing)
                    }
                    _ = looks.tick() => Ok(Change::Nothing),
                    next = &mut better => break next,
                };
                let asked = matches!(change, Ok(Change::Announce)) && announced.elapsed() >= AGAIN;
                if change.is_ok() && (asked || self.opener.is_outdated()) {
                    announced = Instant::now();
                    if let Err(error) = self.opener.announce(&session).await {
                        return (session.index, error);
                    }
                }
                match change {
                    Ok(Change::Nothing | Change::Announce) => {}
                    Ok(Change::Address(address)) => {
                        session.address = address;
                        self.publish(&session);
                    }
                    Ok(Change::Lost(gateway)) => {
                        let _ = self.lost_tx.try_send(LostGateway::Other(gateway));
                    }
                    Ok(Change::CutOff(is)) => {
                        cut_off.send_if_modified(|was| std::mem::replace(was, is) != is);
                    }
                    Err(error) => return (session.index, error),
                }
            };
            let former = std::mem::replace(&mut session, next);
            tokio::spawn(former.linger(self.opener.clone()));
        }
    }

    /// Gives the attachment to the rest of the agent.
    fn publish(&mut self, session: &Session) {
        self.number += 1;
        info!(virtual_address = %session.address, gateway = %session.gateway, "attached");
        self.opener.credentials.attachment().begun();
        // Changes in the meantime were not sent to this agent.
        lock(&self.opener.contacts).clear();
        lock(&self.own_address).replace(session.address);
        self.attached_tx.send_replace(Some(Attached {
            number: self.number,
            address: session.address,
            gateway: session.gateway.clone(),
            client: session.client.clone(),
            own_gateway: session.own_gateway.clone(),
            enrolment: session.enrolment.clone(),
        }));
    }

    /// Keeps what the next gateway needs of a message.
    fn note(&mut self, kind: &attach_up::Kind) {
        match kind {
            attach_up::Kind::Seen(seen) => {
                let former = lock(&self.opener.node_up).seen.replace(seen.clone());
                // Plans depend on what is seen of this node.
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

    async fn send_jobs(&self, session: &Session) -> Result<(), AttachError> {
        for report in self.jobs.values() {
            session.send(attach_up::Kind::Job(report.clone())).await?;
        }
        Ok(())
    }
}
