//! One attachment of an agent, from its first message to its end.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use isthmus_net::grpc::attachments::{self, Down};
use isthmus_net::{Identity, Owner, grpc};
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::{debug, info, warn};

use crate::roster::SessionId;
use crate::service::Gateway;
use crate::way_out;

/// Takes up an attachment; a task of its own then drives it to its end.
pub(crate) async fn attach(
    gateway: &Arc<Gateway>,
    caller: &Identity,
    from: IpAddr,
    came_to: SocketAddr,
    mut inbound: Streaming<proto::AttachUp>,
) -> Result<ReceiverStream<Down>, Status> {
    let Some(attach_up::Kind::NodeUp(mut contact)) = attachments::first_message(&mut inbound).await? else {
        return Err(Status::invalid_argument("an agent must say first that its node is up"));
    };
    // The certificate has the last word on who it is and whose.
    contact.node = caller.name().to_string();
    if let Some(owner) = caller.owner() {
        contact.owner = owner.to_string();
    }
    (contact.from, contact.gateway_address) = (from.to_string(), came_to.to_string());
    // What else it says of the outside is looked at later: that takes a while.
    let said = contact.seen.clone();
    contact.seen = match (gateway.nodes_dial_out, said.clone()) {
        (None, said) => said,
        (declared, said) => Some(way_out::declared(declared, said.unwrap_or_default(), false)),
    };
    let attached = gateway.roster().attach(caller.name(), from, contact);
    let (session, effects) = match attached {
        Ok(attached) => attached,
        Err(refused) => {
            warn!(%caller, %from, %refused, "attachment refused");
            return Ok(attachments::refusal(refused.0));
        }
    };
    let opened = gateway.sessions.open(session);
    gateway.carry_out(effects);
    if !gateway.upstream.is_attached() {
        let cut_off = attach_down::Kind::CutOff(proto::CutOff { cut_off: true });
        gateway.sessions.send(session, cut_off);
    }
    info!(%caller, %from, "attached");
    let attachment = Attachment {
        gateway: gateway.clone(),
        caller: caller.to_string(),
        owner: caller.owner().cloned(),
        session,
        said,
        inbound,
        closed: opened.closed,
    };
    tokio::spawn(attachment.drive());
    Ok(ReceiverStream::new(opened.down_rx))
}

struct Attachment {
    gateway: Arc<Gateway>,
    caller: String,
    owner: Option<Owner>,
    session: SessionId,
    /// What the agent said of the outside when it came.
    said: Option<proto::Seen>,
    inbound: Streaming<proto::AttachUp>,
    closed: CancellationToken,
}

impl Attachment {
    async fn drive(mut self) {
        if let Some(said) = self.said.take().filter(|said| said.way_out() == proto::WayOut::No) {
            self.seen(said).await;
        }
        let end = loop {
            tokio::select! {
                message = self.inbound.message() => match message {
                    Ok(Some(message)) => self.handle(message.kind).await,
                    Ok(None) => break "it left".to_owned(),
                    Err(status) => break grpc::reason(&status),
                },
                () = self.closed.cancelled() => break "the gateway ended it".to_owned(),
            }
        };
        info!(caller = self.caller, reason = end, "detached");
        if self.gateway.sessions.have_ended() {
            return;
        }
        let effects = self.gateway.roster().detach(self.session);
        self.gateway.sessions.remove(self.session);
        self.gateway.carry_out(effects);
    }

    async fn seen(&self, seen: proto::Seen) {
        let seen = way_out::judge(&self.gateway, seen).await;
        let enclosed = seen.way_out() == proto::WayOut::No;
        let effects = self.gateway.roster().seen(self.session, seen);
        self.gateway.carry_out(effects);
        if enclosed {
            // It may have asked for plans while it was still to be seen whether
            // that is so.
            self.gateway.forget_contacts();
        }
    }

    async fn handle(&self, kind: Option<attach_up::Kind>) {
        match kind {
            Some(attach_up::Kind::Job(mut report)) => {
                if let Some(owner) = &self.owner {
                    report.owner = owner.to_string();
                }
                let effects = self.gateway.roster().job_report(self.session, report);
                match effects {
                    Ok(effects) => self.gateway.carry_out(effects),
                    Err(refused) => warn!(caller = self.caller, %refused, "job report passed over"),
                }
            }
            Some(attach_up::Kind::Seen(seen)) => self.seen(seen).await,
            Some(attach_up::Kind::Measured(report)) => {
                let effect = self.gateway.roster().measured(self.session, report);
                self.gateway.carry_out(effect.into_iter().collect());
            }
            Some(answer @ attach_up::Kind::DialAnswer(_)) => self.gateway.upstream.tell(answer),
            None => debug!("message of a newer version, passed over"),
            Some(
                attach_up::Kind::NodeUp(_)
                | attach_up::Kind::NodeDown(_)
                | attach_up::Kind::GatewayUp(_)
                | attach_up::Kind::RelayUp(_)
                | attach_up::Kind::RelayReport(_)
                | attach_up::Kind::Probed(_)
                | attach_up::Kind::GatewayReach(_),
            ) => warn!(caller = self.caller, "message that agents don't send, passed over"),
        }
    }
}
