//! An attachment of a gateway or relay, from its first message to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_identity::{Identity, Role, audit};
use isthmus_registry::records::{self, GatewayRecord, NodeRecord};
use isthmus_registry::{JobChange, Party, Refused, Registry, SessionId};
use isthmus_rpc::grpc;
use isthmus_rpc::grpc::attachments::{self, Down};
use isthmus_rpc::rendezvous::read_answer;
use isthmus_service::mac::Secret;
use isthmus_wire::bounds::Bounded as _;
use isthmus_wire::proto::{self, attach_down, attach_up};
use isthmus_wire::{GridName, JobId, Label, RelayName};
use prost::Message as _;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::{debug, info, warn};

use crate::announced;
use crate::broker::{Broker, store_status};
use crate::fold::{NotWritten, RecordChange};
use crate::members;
use crate::store::{Record, StoreError, Transaction};

/// How long the records of an attachment last without keep-alives. That is longer than it takes to
/// notice a dead connection.
const LEASE: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The party that attaches, with its first message.
enum Newcomer {
    Gateway(Label, proto::GatewayUp),
    Relay(RelayName, proto::RelayUp),
}

/// Begins an attachment. A task of its own then drives it to its end.
pub(crate) async fn attach(
    broker: &Arc<Broker>,
    (caller, from): (&Identity, Option<SocketAddr>),
    mut inbound: Streaming<proto::AttachUp>,
) -> Result<ReceiverStream<Down>, Status> {
    let first = attachments::first_message(&mut inbound).await?;
    let newcomer = match (caller.role(), caller.site(), first) {
        (Role::Gateway, Some(site), Some(attach_up::Kind::GatewayUp(up))) => {
            Newcomer::Gateway(site.clone(), up)
        }
        (Role::Relay, _, Some(attach_up::Kind::RelayUp(up))) => {
            Newcomer::Relay(RelayName::Relay(caller.name().clone()), up)
        }
        (Role::Gateway, Some(site), Some(attach_up::Kind::RelayUp(up))) => {
            let gateway = GridName { node: caller.name().clone(), site: site.clone() };
            Newcomer::Relay(RelayName::Gateway(gateway), up)
        }
        _ => {
            return Err(Status::permission_denied(format!(
                "{caller} may not attach with this first message"
            )));
        }
    };
    // In a task, so that a caller that stops waiting leaves no record half written.
    let begun = broker.tasks.spawn(begin(broker.clone(), (caller.clone(), from), newcomer, inbound)).await;
    begun.unwrap_or_else(|_| Err(Status::internal("the broker failed; see its log")))
}

async fn begin(
    broker: Arc<Broker>,
    (caller, from): (Identity, Option<SocketAddr>),
    newcomer: Newcomer,
    inbound: Streaming<proto::AttachUp>,
) -> Result<ReceiverStream<Down>, Status> {
    let (name, new_key) = (caller.name(), Secret::random());
    let session = broker.store.grant(LEASE).await.map_err(store_status)?;
    let party = match &newcomer {
        Newcomer::Gateway(site, _) => Party::gateway(site, name),
        Newcomer::Relay(relay, _) => Party::Relay(relay.clone()),
    };
    let opened = broker.sessions.open(party.clone(), session);
    let written = match &newcomer {
        Newcomer::Gateway(site, up) => {
            let make = |registry: &Registry, _: Option<&Record>| {
                let record = registry.gateway_record(site, name, up, &new_key)?;
                Ok(RecordChange::Put(record.encode_to_vec()))
            };
            broker.write((&records::gateway_key(site, name), session), |write| write, make).await
        }
        Newcomer::Relay(relay, up) => {
            let make = |registry: &Registry, _: Option<&Record>| {
                Ok(RecordChange::Put(registry.relay_record(relay, up, &new_key)?.encode_to_vec()))
            };
            broker.write((&records::relay_key(relay), session), |write| write, make).await
        }
    };
    if let Err(not_written) = written {
        end(&broker, session).await;
        return match not_written {
            NotWritten::Refused(refused) => {
                warn!(%caller, %refused, "attachment refused");
                audit::Entry::refused("attach", &refused).by(&caller).from(from).record();
                Ok(attachments::refusal(refused.0))
            }
            NotWritten::Failed(status) => Err(status),
        };
    }
    info!(%caller, "attached");
    audit::Entry::frequent("attach").by(&caller).from(from).record();
    if let Party::Gateway { site, .. } = &party
        && let Some(disagreement) = broker.registry().disagreement(site)
    {
        warn!(%site, disagreement);
    }
    let (identity, caller) = (caller.clone(), caller.to_string());
    let tasks = broker.tasks.clone();
    let attachment = Attachment { broker, identity, caller, party, session, inbound, closed: opened.closed };
    tasks.spawn(attachment.drive());
    Ok(ReceiverStream::new(opened.down_rx))
}

/// Ends an attachment and deletes its records.
async fn end(broker: &Broker, session: SessionId) {
    broker.sessions.remove(session);
    if let Err(error) = broker.store.revoke(session).await {
        warn!(%error, "cannot delete the records of an attachment that has ended; they expire");
    }
}

/// The identity under which the agent of a node with this owner must have joined.
fn member(node: &GridName, owner: &str) -> Result<Identity, Refused> {
    let owner = if owner.is_empty() { None } else { Some(owner.parse()) };
    let owner = owner.transpose().map_err(|error| Refused(format!("owner of {node}: {error}")))?;
    let identity = Identity::new(Role::Agent, Some(node.site.clone()), Some(node.node.clone()), owner);
    identity.map_err(|error| Refused(error.to_string()))
}

fn not_a_member(node: &GridName, owner: &str) -> Refused {
    Refused(format!(
        "no agent {node} of owner {owner:?} has joined the grid; `isthmus join` on that node with a token for \
         this owner makes it a member"
    ))
}

struct Attachment {
    broker: Arc<Broker>,
    identity: Identity,
    /// The caller's name in logs.
    caller: String,
    party: Party,
    session: SessionId,
    inbound: Streaming<proto::AttachUp>,
    closed: CancellationToken,
}

impl Attachment {
    async fn drive(mut self) {
        let mut keep_alive = interval(KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end_reason = loop {
            tokio::select! {
                message = self.inbound.message() => match message {
                    Ok(Some(proto::AttachUp { kind: Some(kind) })) => self.handle(kind).await,
                    Ok(Some(proto::AttachUp { kind: None })) => debug!("message of a newer version, dropped"),
                    Ok(None) => break "it left".to_owned(),
                    Err(status) => break grpc::reason(&status),
                },
                () = self.closed.cancelled() => break "the broker ended it".to_owned(),
                _ = keep_alive.tick() => match self.broker.store.keep_alive(self.session).await {
                    Ok(()) => {}
                    Err(StoreError::NoLease(_)) => break format!("its records were not kept for {LEASE:?}"),
                    Err(error) => warn!(caller = self.caller, %error, "cannot keep its records"),
                },
            }
        };
        info!(caller = self.caller, reason = end_reason, "detached");
        audit::Entry::frequent("detach").by(&self.identity).about(end_reason).record();
        end(&self.broker, self.session).await;
    }

    fn is_gateway(&self) -> bool {
        matches!(self.party, Party::Gateway { .. })
    }

    async fn handle(&self, kind: attach_up::Kind) {
        match kind {
            attach_up::Kind::NodeUp(up) => self.node_up(up).await,
            attach_up::Kind::NodeDown(down) => {
                info!(caller = self.caller, node = down.node, "node down");
                let found = self.broker.registry().node_down_record(self.session, &down);
                let Some((name, _)) = found else { return };
                let make = |registry: &Registry| Ok(registry.node_down_record(self.session, &down));
                if let Err(error) = self.write_node(&name, make).await {
                    warn!(caller = self.caller, node = down.node, %error, "cannot write that the node is down");
                }
            }
            attach_up::Kind::Job(report) => {
                if let Err(error) = self.job_report(&report).await {
                    self.refuse("a job's report", &error);
                }
            }
            attach_up::Kind::RelayReport(report) => {
                self.broker.registry().relay_report(self.session, report);
            }
            attach_up::Kind::DialAnswer(answer) if self.is_gateway() => {
                let checked = answer.check().map_err(|error| error.to_string());
                match checked.and_then(|()| read_answer(answer).map_err(|error| error.to_string())) {
                    Ok((rendezvous, answer)) => self.broker.rendezvous.answer(&rendezvous.0, answer),
                    Err(reason) => self.refuse("an answer to a request to dial", &reason),
                }
            }
            attach_up::Kind::Measured(report) => {
                let measured = self.broker.registry().measured(self.session, report);
                match measured {
                    Ok(effects) => self.broker.sessions.carry_out(effects),
                    Err(refused) => self.refuse("a measurement", &refused),
                }
            }
            attach_up::Kind::GatewayReach(reach) => {
                let make = |registry: &Registry, former| registry.reach_record(self.session, former, &reach);
                if let Err(error) = self.gateway_found(make).await {
                    self.refuse("the result of a reach test", &error);
                }
            }
            attach_up::Kind::Seen(seen) if self.is_gateway() => {
                let make = |registry: &Registry, former| registry.seen_record(self.session, former, &seen);
                if let Err(error) = self.gateway_found(make).await {
                    self.refuse("how a gateway is seen from outside", &error);
                }
            }
            attach_up::Kind::NodesSeen(found) => {
                if let Err(refused) = self.broker.registry().nodes_seen(self.session, found) {
                    self.refuse("findings of nodes", &refused);
                }
            }
            attach_up::Kind::Probed(report) if !self.is_gateway() => {
                self.broker.probes.answer(&report.id, report.reply.unwrap_or_default());
            }
            attach_up::Kind::Probed(_)
            | attach_up::Kind::DialAnswer(_)
            | attach_up::Kind::Seen(_)
            | attach_up::Kind::HeadLives(_) => {
                warn!(caller = self.caller, "message that is not for the broker, dropped");
            }
            attach_up::Kind::GatewayUp(_) | attach_up::Kind::RelayUp(_) => {
                warn!(caller = self.caller, "second first message on one stream, dropped");
            }
        }
    }

    async fn node_up(&self, up: proto::NodeUp) {
        let node = up.node.clone();
        if let Err(error) = self.announce(up).await {
            self.refuse_node(node, &error);
        }
    }

    async fn announce(&self, up: proto::NodeUp) -> Result<(), NotWritten> {
        let Party::Gateway { site, name: gateway } = &self.party else {
            return Err(Refused("only gateways announce nodes".to_owned()).into());
        };
        // Before anything in it is verified.
        up.check().map_err(Refused::from)?;
        let node: Label = up.node.parse().map_err(|error| Refused(format!("{error}")))?;
        let name = GridName { node, site: site.clone() };
        let agent = member(&name, &up.owner)?;
        if !members::is_member(&*self.broker.store, &agent).await? {
            return Err(not_a_member(&name, &up.owner).into());
        }
        let parties = (&agent, &self.identity);
        let up = announced::verified(&self.broker.verifier, parties, up, SystemTime::now())?;
        let before = self.broker.registry().attached_at(&name);
        if self.broker.registry().node_record(self.session, &up)?.is_none() {
            return Ok(());
        }
        let address = self.broker.address_for(&name).await?;
        self.write_node(&name, |registry| registry.node_record(self.session, &up)).await?;
        info!(caller = self.caller, node = up.node, virtual_address = %address, "node up");
        if let Some(event) = announced::event(before.as_ref(), (gateway, up.attachment)) {
            let from = before.map(|(before, _)| format!("from {} ", Party::gateway(site, &before)));
            let moved = from.filter(|_| event == "move").unwrap_or_default();
            let subject = format!("{moved}to {}, listening at {}", self.party, up.address);
            let entry = audit::Entry::frequent(event).by(&agent).from(Some(&up.from));
            entry.about(subject).record();
        }
        Ok(())
    }

    async fn write_node(
        &self,
        name: &GridName,
        make: impl Fn(&Registry) -> Result<Option<(GridName, NodeRecord)>, Refused>,
    ) -> Result<(), NotWritten> {
        let make = |registry: &Registry, _: Option<&Record>| {
            Ok(match make(registry)? {
                Some((_, record)) => RecordChange::Put(record.encode_to_vec()),
                None => RecordChange::None,
            })
        };
        self.broker.write((&records::node_key(name), self.session), self.attached(), make).await
    }

    async fn job_report(&self, report: &proto::JobReport) -> Result<(), NotWritten> {
        let job: JobId = report.job.parse().map_err(|error| Refused(format!("{error}")))?;
        let make = |registry: &Registry, former: Option<&Record>| {
            Ok(match registry.job_change(self.session, &job, report)? {
                Some(JobChange::Running(record)) => {
                    let value = record.encode_to_vec();
                    let same =
                        |former: &Record| former.lease == Some(self.session) && *former.value == *value;
                    if former.is_some_and(same) { RecordChange::None } else { RecordChange::Put(value) }
                }
                Some(JobChange::Ended) => RecordChange::Delete,
                None => RecordChange::None,
            })
        };
        self.broker.write((&records::job_key(&job), self.session), self.attached(), make).await
    }

    /// Changes the record of the gateway by what it has found out of itself.
    async fn gateway_found(
        &self,
        change: impl Fn(&Registry, GatewayRecord) -> Result<GatewayRecord, Refused>,
    ) -> Result<(), NotWritten> {
        let Party::Gateway { site, name } = &self.party else { return Ok(()) };
        let make = |registry: &Registry, former: Option<&Record>| {
            let former = former.and_then(|former| GatewayRecord::decode(&*former.value).ok());
            let former = former.ok_or_else(|| Refused("this gateway is not attached".to_owned()))?;
            Ok(RecordChange::Put(change(registry, former)?.encode_to_vec()))
        };
        let key = records::gateway_key(site, name);
        self.broker.write((&key, self.session), self.attached(), make).await
    }

    /// A condition for each record that this attachment writes: the attachment must still be the
    /// present one of its party.
    fn attached(&self) -> impl Fn(Transaction) -> Transaction {
        let key = match &self.party {
            Party::Gateway { site, name } => records::gateway_key(site, name),
            Party::Relay(name) => records::relay_key(name),
        };
        let session = self.session;
        move |transaction| transaction.held(&key, session)
    }

    /// Drops a message, and sends its sender a notice with the reason.
    fn refuse(&self, what: &str, reason: &dyn std::fmt::Display) {
        warn!(caller = self.caller, %reason, "{what} dropped");
        let text = format!("the broker does not take {what}: {reason}");
        self.broker.sessions.send(self.session, attach_down::Kind::Notice(proto::Notice { text }));
    }

    fn refuse_node(&self, node: String, reason: &NotWritten) {
        warn!(caller = self.caller, node, %reason, "node refused");
        audit::Entry::refused("node", reason).by_name(&self.caller).about(&node).record();
        let refusal = proto::Refusal { reason: reason.to_string(), node };
        self.broker.sessions.send(self.session, attach_down::Kind::Refusal(refusal));
    }
}
