//! The registry, as agents call it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_plan::{Dial, Route};
use isthmus_rpc::grpc;
use isthmus_rpc::grpc::Repeat;
use isthmus_rpc::grpc::attachments::Down;
use isthmus_rpc::rendezvous::{self, take_leg};
use isthmus_service::lock;
use isthmus_wire::bounds::Bounded as _;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::registry_server::Registry;
use isthmus_wire::proto::{self, rendezvous_reply};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::alone::Answer;
use crate::attach;
use crate::gateway::Gateway;
use crate::site_trunks;

/// Most of an agent's budget for a rendezvous, which grows with the way.
const RENDEZVOUS: Duration = Duration::from_secs(60);

pub(crate) struct RegistryService(pub(crate) Arc<Gateway>);

/// Calls that the broker answers: `call(Request) -> Reply, check, "what fails"`. The check is a
/// function of the gateway and the request, which it may complete. The macro writes out what
/// `async_trait` makes of an `async fn`.
macro_rules! passed_on {
    ($($call:ident($request:ident) -> $reply:ident, $check:path, $what:literal;)*) => {$(
        fn $call<'a, 'f>(
            &'a self,
            request: Request<proto::$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<proto::$reply>, Status>> + Send + 'f>>
        where
            'a: 'f,
            Self: 'f,
        {
            Box::pin(async move {
                let request = $check(&self.0, request)?;
                let call = |channel, request| async move { RegistryClient::new(channel).$call(request).await };
                self.0.upstream.pass_on($what, Repeat::Never, request, call).await.map(Response::new)
            })
        }
    )*};
}

/// Checks a call that any agent of this site may make. The broker answers for the agent's owner.
fn for_owner(
    gateway: &Gateway,
    mut request: Request<proto::MeasureRequest>,
) -> Result<Request<proto::MeasureRequest>, Status> {
    request.get_mut().identity = gateway.own_agent(&request)?.uri();
    Ok(request)
}

/// Checks a call that an agent of this site may make for its own node only.
fn for_own_node(
    gateway: &Gateway,
    request: Request<proto::ProbeRequest>,
) -> Result<Request<proto::ProbeRequest>, Status> {
    let caller = gateway.own_agent(&request)?;
    gateway.check_initiator(&caller, request.get_ref().initiator)?;
    Ok(request)
}

fn gateways_alone() -> Status {
    Status::permission_denied("only gateways dial gateways of other sites as such")
}

#[tonic::async_trait]
impl Registry for RegistryService {
    type AttachStream = ReceiverStream<Down>;

    passed_on! {
        measure(MeasureRequest) -> MeasureReply, for_owner, "have a way measured";
        probe(ProbeRequest) -> ProbeReply, for_own_node, "have this node probed";
    }

    async fn list(
        &self,
        mut request: Request<proto::ListRequest>,
    ) -> Result<Response<proto::ListReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        request.get_mut().identity = caller.uri();
        request.get_ref().check().map_err(|error| Status::invalid_argument(error.to_string()))?;
        let asked = request.get_ref().clone();
        let call = |channel, request| async move { RegistryClient::new(channel).list(request).await };
        let call = self.0.upstream.pass_on("list the grid", Repeat::Never, request, call);
        match self.0.ask_broker(asked.without_broker, call).await? {
            Answer::Brokers(reply) => {
                lock(&self.0.told).take(&reply, Instant::now());
                Ok(Response::new(reply))
            }
            Answer::Away(away) => self.0.list_alone(&caller, &asked, away).map(Response::new),
        }
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainReply>, Status> {
        self.0.own_agent(&request)?;
        let asked = request.get_ref().clone();
        let call = |channel, request| async move { RegistryClient::new(channel).explain(request).await };
        let call = self.0.upstream.pass_on("explain a plan", Repeat::Never, request, call);
        match self.0.ask_broker(asked.without_broker, call).await? {
            Answer::Brokers(reply) => Ok(Response::new(reply)),
            Answer::Away(away) => self.0.explain_alone(&asked, away).map(Response::new),
        }
    }

    async fn attach(
        &self,
        request: Request<Streaming<proto::AttachUp>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let caller = self.0.own_agent(&request)?;
        let own = format!("the gateway of site {}", self.0.site);
        grpc::check_caller(&own, &caller.to_string(), &request)?;
        let ends = grpc::peer(&request).map(|peer| (peer.address.ip(), peer.local));
        let ends = ends.ok_or_else(|| Status::internal("a connection without an address"))?;
        let attached = attach::attach(&self.0, &caller, ends, request.into_inner()).await?;
        Ok(grpc::with_versions(Response::new(attached)))
    }

    async fn lookup(
        &self,
        request: Request<proto::LookupRequest>,
    ) -> Result<Response<proto::LookupReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        if !request.get_ref().gateway.is_empty() {
            return Err(gateways_alone());
        }
        self.0.lookup(&caller, request.get_ref()).await.map(Response::new)
    }

    async fn rendezvous(
        &self,
        request: Request<proto::RendezvousRequest>,
    ) -> Result<Response<proto::RendezvousReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        let from = grpc::peer(&request).map(|peer| peer.address.ip());
        self.0.check_initiator(&caller, request.get_ref().initiator)?;
        // Fields that no broker needs end here.
        let checked = rendezvous::Request::try_from(request.get_ref());
        let checked = checked.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let from = from.ok_or_else(|| Status::internal("a connection without an address"))?;
        let destination = checked.to.node().ok_or_else(gateways_alone)?;
        let asked = (&checked, destination);
        if checked.way.way() == (Route::TwoGateway, Dial::Trunk) {
            return site_trunks::streams::open(&self.0, (&caller, from), asked).await.map(Response::new);
        }
        if self.0.upstream.reached().await.is_err() {
            return self.0.rendezvous_alone((&caller, from), asked).await.map(Response::new);
        }
        let budget = grpc::budget(&request, RENDEZVOUS);
        let request = proto::RendezvousRequest::from(checked);
        let call = |channel, request| async move { RegistryClient::new(channel).rendezvous(request).await };
        let mut reply =
            self.0.upstream.call("arrange a rendezvous", (Repeat::Never, budget), request, call).await?;
        if let Some(rendezvous_reply::Way::OwnGateway(at)) = &mut reply.way {
            let (connection, leg) = take_leg(at).map_err(|error| Status::internal(error.to_string()))?;
            self.0.streams.expect(connection, from);
            if let Some(leg) = leg {
                self.0.dial(&leg).await?;
            }
        }
        Ok(Response::new(reply))
    }
}
