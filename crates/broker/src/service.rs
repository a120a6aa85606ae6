//! The calls of the registry's service.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_identity::{Identity, Role};
use isthmus_registry::{LookupError, ProbeError, ProbeRequest, RendezvousError, View};
use isthmus_rpc::connection;
use isthmus_rpc::grpc;
use isthmus_rpc::grpc::attachments::Down;
use isthmus_rpc::rendezvous::{self, RequestWay};
use isthmus_service::clock::unix_seconds;
use isthmus_wire::proto::registry_server::Registry as RegistryService;
use isthmus_wire::{Label, proto};
use tokio::time::timeout_at;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::broker::{Broker, store_status};
use crate::members;
use crate::rendezvous::acceptors_answer;
use crate::{attach, probes};

/// How long a rendezvous waits for a node whose gateway detached, until the node attaches to
/// another gateway.
const RETURN: Duration = Duration::from_secs(3);
/// How long arranging a rendezvous may take if the caller gave no deadline.
const RENDEZVOUS: Duration = Duration::from_secs(60);

/// The site of the calling gateway.
fn site_of_gateway(caller: &Identity) -> Result<&Label, Status> {
    match (caller.role(), caller.site()) {
        (Role::Gateway, Some(site)) => Ok(site),
        _ => Err(Status::permission_denied(format!(
            "only gateways may do this, and this is {caller}; agents ask the gateway of their site"
        ))),
    }
}

pub(crate) struct Service(pub(crate) Arc<Broker>);

#[tonic::async_trait]
impl RegistryService for Service {
    type AttachStream = ReceiverStream<Down>;

    async fn attach(
        &self,
        request: Request<Streaming<proto::AttachUp>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let caller = grpc::caller(&request)?;
        grpc::check_caller("the broker", &caller.to_string(), &request)?;
        let from = grpc::peer(&request).map(|peer| peer.address);
        let attached = attach::attach(&self.0, (&caller, from), request.into_inner()).await?;
        Ok(grpc::with_versions(Response::new(attached)))
    }

    async fn lookup(
        &self,
        request: Request<proto::LookupRequest>,
    ) -> Result<Response<proto::LookupReply>, Status> {
        let caller = grpc::caller(&request)?;
        let site = site_of_gateway(&caller)?;
        let reply = self.0.registry().lookup((site, caller.name()), request.get_ref());
        reply.map(Response::new).map_err(|error| lookup_status(&error))
    }

    async fn rendezvous(
        &self,
        request: Request<proto::RendezvousRequest>,
    ) -> Result<Response<proto::RendezvousReply>, Status> {
        let caller = grpc::caller(&request)?;
        let site = site_of_gateway(&caller)?;
        let deadline = grpc::budget(&request, RENDEZVOUS);
        let request = rendezvous::Request::try_from(request.get_ref());
        let request = request.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let connection = connection::new_id();
        let now = unix_seconds(SystemTime::now());
        let (until, mut node_changed) = (deadline.part(RETURN).at(), self.0.node_changed.subscribe());
        let (mut reply, effects) = loop {
            let arranged = self.0.registry().rendezvous((site, caller.name()), &request, connection, now);
            match arranged {
                Err(RendezvousError::Lookup(LookupError::Absent(_)))
                    if timeout_at(until, node_changed.changed()).await.is_ok() => {}
                arranged => break arranged.map_err(rendezvous_status)?,
            }
        };
        if let RequestWay::Punch { rendezvous, .. } | RequestWay::Traverse { rendezvous, .. } = request.way {
            let waiting = self.0.rendezvous.wait_for(rendezvous);
            self.0.sessions.carry_out(effects);
            let (way, signature) = acceptors_answer(waiting, deadline).await?;
            (reply.way, reply.signature) = (Some(way), signature);
        } else {
            self.0.sessions.carry_out(effects);
        }
        Ok(Response::new(reply))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainReply>, Status> {
        grpc::caller(&request)?;
        let reply = self.0.registry().explain(request.get_ref());
        reply.map(Response::new).map_err(|error| lookup_status(&error))
    }

    async fn probe(
        &self,
        request: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeReply>, Status> {
        let caller = grpc::caller(&request)?;
        let site = site_of_gateway(&caller)?;
        let (id, now) = (connection::new_id(), unix_seconds(SystemTime::now()));
        let request = ProbeRequest::try_from(request.into_inner());
        let request = request.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let ordered = self.0.registry().probe(site, &request, id, now);
        let effect = ordered.map_err(|error| match &error {
            ProbeError::NotYours(_) => Status::permission_denied(error.to_string()),
            ProbeError::TooOften => Status::resource_exhausted(error.to_string()),
            ProbeError::NoRelay(_) => Status::unavailable(error.to_string()),
        })?;
        let waiting = self.0.probes.wait_for(id);
        self.0.sessions.carry_out(vec![effect]);
        probes::reply(waiting).await.map(Response::new)
    }

    async fn measure(
        &self,
        request: Request<proto::MeasureRequest>,
    ) -> Result<Response<proto::MeasureReply>, Status> {
        let view = self.view(&request, &request.get_ref().identity).await?;
        let now = unix_seconds(SystemTime::now());
        let measured = self.0.registry().measure(&view, request.get_ref(), now);
        let (reply, effects) = measured.map_err(rendezvous_status)?;
        self.0.sessions.carry_out(effects);
        Ok(Response::new(reply))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        let view = self.view(&request, &request.get_ref().identity).await?;
        let reply = self.0.registry().list(&view, request.get_ref());
        reply.map(Response::new).map_err(|refused| Status::invalid_argument(refused.0))
    }
}

impl Service {
    /// The view of the caller, or of the agent for which a gateway passes the call on.
    async fn view<T>(&self, request: &Request<T>, uri: &str) -> Result<View, Status> {
        let caller = grpc::caller(request)?;
        match (caller.role(), caller.site()) {
            (Role::Admin, _) => Ok(View::All),
            (Role::Gateway, Some(site)) if uri.is_empty() => Ok(View::Site(site.clone())),
            (Role::Gateway, Some(site)) => {
                let agent = Identity::from_uri(uri).ok();
                let agent = agent.filter(|agent| agent.role() == Role::Agent && agent.site() == Some(site));
                let member = match &agent {
                    Some(agent) => members::is_member(&*self.0.store, agent).await.map_err(store_status)?,
                    None => false,
                };
                let agent = agent.filter(|_| member).ok_or_else(|| {
                    Status::permission_denied(format!(
                        "{caller} may not ask for {uri:?}, which is no agent of it"
                    ))
                })?;
                let owner = agent.owner().map_or_else(String::new, ToString::to_string);
                Ok(View::Owner { owner, caller: uri.to_owned() })
            }
            _ => Err(Status::permission_denied(format!("{caller} may not ask the broker"))),
        }
    }
}

fn rendezvous_status(error: RendezvousError) -> Status {
    match &error {
        RendezvousError::Lookup(error) => lookup_status(error),
        RendezvousError::TooOften(_) => Status::resource_exhausted(error.to_string()),
        RendezvousError::NotYours(_) => Status::permission_denied(error.to_string()),
        RendezvousError::Unavailable(told) => {
            grpc::with_remedy(Status::unavailable(error.to_string()), told.remedy)
        }
    }
}

fn lookup_status(error: &LookupError) -> Status {
    let status = match error {
        LookupError::Unknown(_) => Status::not_found(error.to_string()),
        LookupError::Absent(_) | LookupError::NoGateway(_) => Status::unavailable(error.to_string()),
    };
    grpc::with_remedy(status, error.remedy())
}
