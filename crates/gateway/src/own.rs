//! What the gateway tells the agents of its site of itself.

use std::sync::Arc;

use isthmus_wire::JobId;
use isthmus_wire::proto::own_gateway_server::OwnGateway;
use isthmus_wire::proto::{CarriedReply, CarriedRequest, TrunksReply, TrunksRequest};
use tonic::{Request, Response, Status};

use crate::gateway::Gateway;

pub(crate) struct OwnGatewayService(pub(crate) Arc<Gateway>);

#[tonic::async_trait]
impl OwnGateway for OwnGatewayService {
    async fn trunks(&self, request: Request<TrunksRequest>) -> Result<Response<TrunksReply>, Status> {
        self.0.own_agent(&request)?;
        let reply = match &self.0.site_trunks {
            Some(trunks) => trunks.seen().await,
            None => TrunksReply::default(),
        };
        Ok(Response::new(reply))
    }

    async fn carried(&self, request: Request<CarriedRequest>) -> Result<Response<CarriedReply>, Status> {
        let caller = self.0.own_agent(&request)?;
        let id = request
            .get_ref()
            .job
            .as_slice()
            .try_into()
            .map_err(|_| Status::invalid_argument("no job's id"))?;
        let trunks = self.0.site_trunks.as_ref();
        let carried = trunks.map(|trunks| trunks.carried.take(caller.name(), JobId(id)));
        Ok(Response::new(CarriedReply { carried: carried.unwrap_or_default() }))
    }
}
