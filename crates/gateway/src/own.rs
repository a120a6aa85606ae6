//! What the gateway tells the agents of its site of itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isthmus_rpc::{grpc, packets};
use isthmus_wire::JobId;
use isthmus_wire::proto::own_gateway_server::OwnGateway;
use isthmus_wire::proto::{
    CarriedReply, CarriedRequest, PacketsReply, PacketsRequest, TrunksReply, TrunksRequest,
};
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};

use crate::gateway::Gateway;

/// How long large packets may be tried.
const PACKETS: Duration = Duration::from_secs(8);

pub(crate) struct OwnGatewayService {
    gateway: Arc<Gateway>,
    /// The last result of trying large packets, and when trying began.
    packets: Mutex<Option<(Instant, PacketsReply)>>,
}

impl OwnGatewayService {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, packets: Mutex::default() }
    }

    /// Tries whether large packets pass between this gateway and the broker.
    async fn try_packets(&self) -> Result<PacketsReply, Status> {
        let credentials = &self.gateway.credentials;
        let tls = credentials.client_config(&[packets::PROTOCOL]);
        let tls = tls.map_err(|error| Status::internal(error.to_string()))?.without_resumption();
        let identity = credentials.identity();
        let ends = (&*identity.server_name(), &*identity.upstream_server_name());
        let hole = packets::hole_towards(ends, credentials.upstream(), &tls).await;
        Ok(PacketsReply { holes: hole.into_iter().collect() })
    }
}

#[tonic::async_trait]
impl OwnGateway for OwnGatewayService {
    async fn trunks(&self, request: Request<TrunksRequest>) -> Result<Response<TrunksReply>, Status> {
        self.gateway.own_agent(&request)?;
        let reply = match &self.gateway.site_trunks {
            Some(trunks) => trunks.seen().await,
            None => TrunksReply::default(),
        };
        Ok(Response::new(reply))
    }

    async fn carried(&self, request: Request<CarriedRequest>) -> Result<Response<CarriedReply>, Status> {
        let caller = self.gateway.own_agent(&request)?;
        let id = request
            .get_ref()
            .job
            .as_slice()
            .try_into()
            .map_err(|_| Status::invalid_argument("no job's id"))?;
        let trunks = self.gateway.site_trunks.as_ref();
        let carried = trunks.map(|trunks| trunks.carried.take(caller.name(), JobId(id)));
        Ok(Response::new(CarriedReply { carried: carried.unwrap_or_default() }))
    }

    async fn packets(&self, request: Request<PacketsRequest>) -> Result<Response<PacketsReply>, Status> {
        self.gateway.own_agent(&request)?;
        let asked = Instant::now();
        let trying = async {
            // One test runs at a time, however many callers ask. All who wait get the next result.
            let mut last = self.packets.lock().await;
            if let Some((_, reply)) = last.as_ref().filter(|(began, _)| *began >= asked) {
                return Ok(Response::new(reply.clone()));
            }
            let began = Instant::now();
            let reply = self.try_packets().await?;
            *last = Some((began, reply.clone()));
            Ok(Response::new(reply))
        };
        let late = |late| Status::deadline_exceeded(format!("{late}"));
        grpc::budget(&request, PACKETS).bound(trying).await.map_err(late)?
    }
}
