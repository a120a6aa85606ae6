//! The attachment of an agent, from its first message to its end.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_identity::peers::messages;
use isthmus_identity::{Identity, Owner};
use isthmus_rpc::grpc;
use isthmus_rpc::grpc::attachments::{self, Down};
use isthmus_service::lock;
use isthmus_service::silence::INTERVAL;
use isthmus_wire::bounds::{Bounded as _, LONG_TEXT, clean, cut_job, cut_path, cut_seen};
use isthmus_wire::patience;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::{debug, info, warn};

use crate::gateway::Gateway;
use crate::heads::Heads;
use crate::roster::{Refused, SessionId};
use crate::way_out;

/// How many times an agent may announce its node anew within [`ANNOUNCED`]. It does so when its
/// certificate or an address changes, or when the gateway asks for it.
const ANNOUNCEMENTS: u32 = 30;
const ANNOUNCED: Duration = Duration::from_secs(60);

/// Accepts an attachment, and starts a task that reads its messages until it ends.
/// `from` is the agent's address, `connected_to` the gateway's.
pub(crate) async fn attach(
    gateway: &Arc<Gateway>,
    caller: &Identity,
    (from, connected_to): (IpAddr, SocketAddr),
    mut inbound: Streaming<proto::AttachUp>,
) -> Result<ReceiverStream<Down>, Status> {
    let Some(attach_up::Kind::NodeUp(mut contact)) = attachments::first_message(&mut inbound).await? else {
        return Err(Status::invalid_argument("an agent's first message must announce its node"));
    };
    certified(&mut contact, caller, (from, connected_to));
    if contact.seen.as_mut().is_some_and(cut_seen) {
        warn!(%caller, "this agent's findings are longer than allowed, and were cut");
    }
    // Judging its way out takes a while, and follows in the attachment's task.
    let reported = contact.seen.clone();
    if gateway.nodes_dial_out.is_some() {
        let reported = reported.clone().unwrap_or_default();
        contact.seen = Some(way_out::declared(gateway.nodes_dial_out, reported, false));
    }
    let attached = contact.check().map_err(|error| Refused(error.to_string()));
    let attached = attached.and_then(|()| gateway.roster().attach(caller.name(), from, contact));
    let (session, effects) = match attached {
        Ok(attached) => attached,
        Err(refused) => {
            warn!(%caller, %refused, "attachment refused");
            return Ok(attachments::refusal(refused.0));
        }
    };
    let opened = gateway.sessions.open(session);
    gateway.carry_out(effects);
    if !gateway.upstream.is_attached() {
        let cut_off = attach_down::Kind::CutOff(proto::CutOff { cut_off: true });
        gateway.sessions.send(session, cut_off);
    }
    for revocations in messages(gateway.credentials.peers().revoked()) {
        gateway.sessions.send(session, attach_down::Kind::Revocations(revocations));
    }
    let nodes = gateway.roster().sessions().count();
    if let Some(directory) = gateway.directory.for_agent(&gateway.site, nodes) {
        gateway.sessions.send(session, attach_down::Kind::Directory(directory));
    }
    let site_gateways = lock(&gateway.site_gateways).clone();
    if let Some(gateways) = site_gateways {
        gateway.sessions.send(session, attach_down::Kind::SiteGateways(gateways));
    }
    info!(%caller, %from, "attached");
    let attachment = Attachment {
        gateway: gateway.clone(),
        identity: caller.clone(),
        caller: caller.to_string(),
        ends: (from, connected_to),
        session,
        reported,
        doubted: None,
        announced: (Instant::now(), 0),
        heads: Heads::default(),
        inbound,
        closed: opened.closed,
    };
    tokio::spawn(attachment.drive());
    Ok(ReceiverStream::new(opened.down_rx))
}

/// Puts into a contact what the agent doesn't say itself: name and owner from its certificate, and
/// addresses from its connection.
fn certified(contact: &mut proto::NodeUp, caller: &Identity, (from, connected_to): (IpAddr, SocketAddr)) {
    contact.node = caller.name().to_string();
    contact.owner = caller.owner().map_or_else(String::new, Owner::to_string);
    (contact.from, contact.gateway_address) = (from.to_string(), connected_to.to_string());
}

struct Attachment {
    gateway: Arc<Gateway>,
    identity: Identity,
    /// The agent's name in logs.
    caller: String,
    /// The agent's address, and the gateway's address that it connected to.
    ends: (IpAddr, SocketAddr),
    session: SessionId,
    /// The agent's findings when it attached.
    reported: Option<proto::Seen>,
    /// The agent's report that its node can't dial out, as long as the gateway doesn't believe it.
    doubted: Option<proto::Seen>,
    /// Since when announcements are counted, and how many the agent has sent.
    announced: (Instant, u32),
    /// The agent's signs of life, for the jobs that it heads.
    heads: Heads,
    inbound: Streaming<proto::AttachUp>,
    closed: CancellationToken,
}

impl Attachment {
    async fn drive(mut self) {
        if let Some(seen) = self.reported.take().filter(|seen| seen.way_out() == proto::WayOut::No) {
            self.seen(seen).await;
        }
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut again = tokio::time::interval(way_out::AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        let end = loop {
            tokio::select! {
                // Signs of life that have arrived count before the silence is judged.
                biased;
                message = self.inbound.message() => match message {
                    Ok(Some(message)) => self.handle(message.kind).await,
                    Ok(None) => break "the agent ended it".to_owned(),
                    Err(status) => break grpc::reason(&status),
                },
                () = self.closed.cancelled() => break "the gateway ended it".to_owned(),
                _ = ticks.tick(), if self.heads.are_expected() => self.passed(&mut last),
                _ = again.tick(), if self.doubted.is_some() => self.judge_again().await,
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

    async fn seen(&mut self, mut seen: proto::Seen) {
        if cut_seen(&mut seen) {
            self.warn("this node's findings", "they are longer than allowed, and were cut");
        }
        if let Err(error) = seen.check() {
            return self.warn("this node's findings", &error.to_string());
        }
        let judged = self.judge(seen.clone()).await;
        let is_doubted = seen.way_out() == proto::WayOut::No && judged.way_out() == proto::WayOut::Unknown;
        self.doubted = is_doubted.then_some(seen);
        self.take(judged);
    }

    /// The findings of the agent, with its way out judged.
    async fn judge(&self, seen: proto::Seen) -> proto::Seen {
        let Gateway { nodes_dial_out, answered, directory, site, .. } = &*self.gateway;
        way_out::judge(*nodes_dial_out, seen, answered.is_true(directory, site)).await
    }

    /// Asks anew whether relays or gateways outside answer this gateway.
    async fn judge_again(&mut self) {
        let Some(seen) = self.doubted.clone() else { return };
        let judged = self.judge(seen).await;
        if judged.way_out() == proto::WayOut::No {
            self.doubted = None;
            self.take(judged);
        }
    }

    /// Takes in the findings of an agent, with its way out judged.
    fn take(&self, seen: proto::Seen) {
        let enclosed = seen.way_out() == proto::WayOut::No;
        let effects = self.gateway.roster().seen(self.session, seen);
        self.gateway.carry_out(effects);
        if enclosed {
            // Plans that agents hold may be from before this was judged.
            self.gateway.plans_changed();
        }
    }

    /// Takes in that the agent has signed anew where it is.
    fn announced(&mut self, mut contact: proto::NodeUp) {
        let (since, count) = &mut self.announced;
        if since.elapsed() >= ANNOUNCED {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
        if *count > ANNOUNCEMENTS {
            return debug!(caller = self.caller, "it announces its node too often: dropped");
        }
        certified(&mut contact, &self.identity, self.ends);
        contact.seen = None;
        match contact.check() {
            Ok(()) => {
                let effects = self.gateway.roster().announced(self.session, contact);
                self.gateway.carry_out(effects);
            }
            Err(error) => self.warn("an announcement of its node", &error.to_string()),
        }
    }

    /// Logs the fault of an agent's message, and sends it to the agent.
    fn warn(&self, what: &str, reason: &str) {
        warn!(caller = self.caller, reason, "a fault in {what}");
        let text = format!("the gateway of site {} on {what}: {reason}", self.gateway.site);
        self.gateway.sessions.send(self.session, attach_down::Kind::Notice(proto::Notice { text }));
    }

    /// Takes in that the agent has shown that it lives, at the head of a job.
    fn head_lives(&mut self, life: &proto::HeadLives) {
        if !self.gateway.roster().is_head(self.session, &life.job) {
            return;
        }
        let late = Duration::from_millis(life.late_ms.into());
        if self.heads.heard(&life.job, late, patience::read(life.patience_seconds)) {
            let effect = self.gateway.roster().head_frozen(self.session, &life.job, false);
            self.gateway.carry_out(effect.into_iter().collect());
        }
    }

    /// Takes in that time has passed without a message.
    fn passed(&mut self, last: &mut Instant) {
        let since = last.elapsed();
        *last = Instant::now();
        for job in self.heads.passed(since) {
            warn!(
                caller = self.caller,
                job, "the agent at the job's head is frozen: other sites end the job"
            );
            let effect = self.gateway.roster().head_frozen(self.session, &job, true);
            self.gateway.carry_out(effect.into_iter().collect());
        }
    }

    async fn handle(&mut self, kind: Option<attach_up::Kind>) {
        match kind {
            Some(attach_up::Kind::Job(mut report)) => {
                report.owner = self.identity.owner().map_or_else(String::new, Owner::to_string);
                cut_job(&mut report);
                if report.ended {
                    self.heads.ended(&report.job);
                }
                let checked = report.check().map_err(|error| Refused(error.to_string()));
                let effects = checked.and_then(|()| self.gateway.roster().job_report(self.session, report));
                match effects {
                    Ok(effects) => self.gateway.carry_out(effects),
                    Err(refused) => self.warn("a job's report", &refused.0),
                }
            }
            Some(attach_up::Kind::NodeUp(contact)) => self.announced(contact),
            Some(attach_up::Kind::HeadLives(life)) => self.head_lives(&life),
            Some(attach_up::Kind::Seen(seen)) => self.seen(seen).await,
            Some(attach_up::Kind::Measured(mut report)) => {
                cut_path(&mut report);
                if let Err(error) = report.check() {
                    return self.warn("a measurement", &error.to_string());
                }
                let effect = self.gateway.roster().measured(self.session, report);
                self.gateway.carry_out(effect.into_iter().collect());
            }
            Some(attach_up::Kind::DialAnswer(mut answer)) => {
                if let Some(proto::dial_answer::Result::Failure(failure)) = &mut answer.result {
                    clean(failure, LONG_TEXT);
                }
                match answer.check() {
                    Ok(()) => self.gateway.upstream.send(attach_up::Kind::DialAnswer(answer)),
                    Err(error) => self.warn("an answer to a request to dial", &error.to_string()),
                }
            }
            None => debug!("a message of a newer version is ignored"),
            Some(
                attach_up::Kind::NodeDown(_)
                | attach_up::Kind::GatewayUp(_)
                | attach_up::Kind::RelayUp(_)
                | attach_up::Kind::RelayReport(_)
                | attach_up::Kind::Probed(_)
                | attach_up::Kind::NodesSeen(_)
                | attach_up::Kind::GatewayReach(_),
            ) => warn!(caller = self.caller, "a message that agents don't send is ignored"),
        }
    }
}
