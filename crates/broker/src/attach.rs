//! One attachment of a gateway or relay, from its first message to its end.

use std::sync::Arc;
use std::time::Duration;

use isthmus_net::mac::Secret;
use isthmus_net::{Identity, Role, grpc};
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::{debug, info, warn};

use crate::records;
use crate::registry::{Party, Refused, SessionId};
use crate::service::{Broker, store_status};
use crate::sessions::Down;

/// How long a newcomer may take to say who it is.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// How long a gateway that attached may take to announce its nodes. Its agents
/// may have to find it again first, and try every 5 s at the latest.
const SETTLE: Duration = Duration::from_secs(15);

/// Takes up an attachment; a task of its own then drives it to its end.
pub(crate) async fn attach(
    broker: &Arc<Broker>,
    caller: &Identity,
    mut inbound: Streaming<proto::AttachUp>,
) -> Result<ReceiverStream<Down>, Status> {
    let first = timeout(HELLO_DEADLINE, inbound.message())
        .await
        .map_err(|_| Status::deadline_exceeded(format!("no first message within {HELLO_DEADLINE:?}")))??;
    let (party, session) = match (caller.role(), caller.site(), first.and_then(|message| message.kind)) {
        (Role::Gateway, Some(site), Some(attach_up::Kind::GatewayUp(up))) => {
            let attached = broker.registry().attach_gateway(site, caller.name(), &up, Secret::random());
            if let Some(disagreement) = broker.registry().disagreement(site) {
                warn!(%site, disagreement);
            }
            (Party::gateway(site, caller.name()), attached)
        }
        (Role::Relay, _, Some(attach_up::Kind::RelayUp(up))) => {
            let attached = broker.registry().attach_relay(caller.name(), &up, Secret::random());
            (Party::Relay(caller.name().clone()), attached)
        }
        (Role::Agent, Some(site), _) => {
            return Err(Status::permission_denied(format!(
                "{caller} must attach to the gateway of site {site}, not to the broker; \
                 join again with --via and the gateway's address"
            )));
        }
        _ => {
            return Err(Status::permission_denied(format!(
                "{caller} may not attach with this first message"
            )));
        }
    };
    let (session, effects) = match session {
        Ok(attached) => attached,
        Err(refused) => {
            warn!(%caller, %refused, "attachment refused");
            return Ok(refusal(refused.0));
        }
    };
    let opened = broker.sessions.open(party, session);
    broker.sessions.carry_out(effects);
    info!(%caller, "attached");
    let task = Attachment {
        broker: broker.clone(),
        caller: caller.to_string(),
        is_gateway: caller.role() == Role::Gateway,
        session,
        inbound,
        closed: opened.closed,
    };
    tokio::spawn(task.drive());
    Ok(ReceiverStream::new(opened.down_rx))
}

/// A stream that says no and ends.
fn refusal(reason: String) -> ReceiverStream<Down> {
    let (down_tx, down_rx) = mpsc::channel(1);
    let refusal = attach_down::Kind::Refusal(proto::Refusal { reason, node: String::new() });
    // The queue is empty, and its other end is here.
    let _ = down_tx.try_send(Ok(proto::AttachDown { kind: Some(refusal) }));
    ReceiverStream::new(down_rx)
}

struct Attachment {
    broker: Arc<Broker>,
    caller: String,
    is_gateway: bool,
    session: SessionId,
    inbound: Streaming<proto::AttachUp>,
    closed: CancellationToken,
}

impl Attachment {
    async fn drive(mut self) {
        let settle = sleep(SETTLE);
        tokio::pin!(settle);
        let mut settled = !self.is_gateway;
        let end = loop {
            tokio::select! {
                message = self.inbound.message() => match message {
                    Ok(Some(proto::AttachUp { kind: Some(kind) })) => self.handle(kind).await,
                    Ok(Some(proto::AttachUp { kind: None })) => debug!("message of a newer version, passed over"),
                    Ok(None) => break "it left".to_owned(),
                    Err(status) => break grpc::reason(&status),
                },
                () = self.closed.cancelled() => break "the broker ended it".to_owned(),
                () = &mut settle, if !settled => {
                    settled = true;
                    let effects = self.broker.registry().settle(self.session);
                    self.broker.sessions.carry_out(effects);
                }
            }
        };
        info!(caller = self.caller, reason = end, "detached");
        let gateway = self.broker.registry().gateway_of(self.session);
        let effects = self.broker.registry().detach(self.session);
        self.broker.sessions.remove(self.session);
        self.broker.sessions.carry_out(effects);
        if let Some((site, gateway)) = gateway {
            // A broker that ends meanwhile doesn't wait for it.
            let broker = Arc::downgrade(&self.broker);
            drop(self);
            sleep(SETTLE).await;
            if let Some(broker) = broker.upgrade() {
                let effects = broker.registry().settle_without(&site, &gateway);
                broker.sessions.carry_out(effects);
            }
        }
    }

    async fn handle(&self, kind: attach_up::Kind) {
        match kind {
            attach_up::Kind::NodeUp(up) => self.node_up(up).await,
            attach_up::Kind::NodeDown(down) => {
                info!(caller = self.caller, node = down.node, "node down");
                let effects = self.broker.registry().node_down(self.session, &down);
                self.broker.sessions.carry_out(effects);
            }
            attach_up::Kind::Job(report) => {
                if let Err(refused) = self.broker.registry().job_report(self.session, report) {
                    warn!(caller = self.caller, %refused, "job report passed over");
                }
            }
            attach_up::Kind::RelayReport(report) => {
                self.broker.registry().relay_report(self.session, report);
            }
            attach_up::Kind::DialAnswer(answer) if self.is_gateway => {
                let rendezvous = answer.rendezvous.clone();
                self.broker.rendezvous.answer(&rendezvous, answer);
            }
            attach_up::Kind::Measured(report) => {
                let measured = self.broker.registry().measured(self.session, report);
                match measured {
                    Ok(effects) => self.broker.sessions.carry_out(effects),
                    Err(refused) => warn!(caller = self.caller, %refused, "measurement passed over"),
                }
            }
            attach_up::Kind::GatewayReach(reach) => {
                let told = self.broker.registry().gateway_reach(self.session, reach);
                match told {
                    Ok(effects) => self.broker.sessions.carry_out(effects),
                    Err(refused) => warn!(caller = self.caller, %refused, "passed over"),
                }
            }
            attach_up::Kind::Probed(report) if !self.is_gateway => {
                self.broker.probes.answer(&report.id, report.reply.unwrap_or_default());
            }
            attach_up::Kind::Probed(_) | attach_up::Kind::DialAnswer(_) | attach_up::Kind::Seen(_) => {
                warn!(caller = self.caller, "message that is not for the broker, passed over");
            }
            attach_up::Kind::GatewayUp(_) | attach_up::Kind::RelayUp(_) => {
                warn!(caller = self.caller, "attached twice on one stream, passed over");
            }
        }
    }

    async fn node_up(&self, up: proto::NodeUp) {
        let came = self.broker.registry().node_up(self.session, &up);
        let came = match came {
            Ok(came) => came,
            Err(refused) => return self.refuse_node(up.node, refused),
        };
        if let Some(assignment) = came.assignment {
            info!(node = %assignment.node, virtual_address = %assignment.address, "new node");
            let kept = records::keep_assignment(&*self.broker.store, &assignment).await;
            if let Err(status) = kept.map_err(store_status) {
                return self.refuse_node(up.node, Refused(status.message().to_owned()));
            }
        }
        info!(caller = self.caller, node = up.node, virtual_address = %came.address, "node up");
        self.broker.sessions.carry_out(came.effects);
        self.broker.came.send_replace(());
    }

    fn refuse_node(&self, node: String, refused: Refused) {
        warn!(caller = self.caller, node, %refused, "node refused");
        let refusal = proto::Refusal { reason: refused.to_string(), node };
        self.broker.sessions.send(self.session, attach_down::Kind::Refusal(refusal));
    }
}
