//! Enrolment of the site's agents, which may reach nobody but their gateway:
//! passed on to the broker.

use std::sync::Arc;

use isthmus_net::Role;
use isthmus_net::grpc::{self, Repeat};
use isthmus_net::token::JoinToken;
use isthmus_wire::proto;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::enrolment_server::Enrolment;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::service::Gateway;
use crate::upstream::WAIT;

pub(crate) struct EnrolmentService(pub(crate) Arc<Gateway>);

#[tonic::async_trait]
impl Enrolment for EnrolmentService {
    async fn join(
        &self,
        request: Request<proto::JoinRequest>,
    ) -> Result<Response<proto::Certificate>, Status> {
        let budget = grpc::budget(&request, WAIT);
        let request = request.into_inner();
        // The broker verifies the token; this spares it what can't be good.
        let token =
            JoinToken::read(&request.token).map_err(|error| Status::invalid_argument(error.to_string()))?;
        if token.role != Role::Agent || token.site.as_ref() != Some(&self.0.site) {
            let site = token.site.map(|site| format!(" of site {site}")).unwrap_or_default();
            return Err(Status::permission_denied(format!(
                "this gateway enrols agents of site {}, and the token is for a {}{site}",
                self.0.site, token.role
            )));
        }
        let join = |mut client: EnrolmentClient<Channel>, request| async move { client.join(request).await };
        self.0
            .upstream
            .enrolment("join", (Repeat::IfUnavailable, budget), request, join)
            .await
            .map(Response::new)
    }

    async fn renew(
        &self,
        request: Request<proto::RenewRequest>,
    ) -> Result<Response<proto::Certificate>, Status> {
        let caller = self.0.own_agent(&request)?;
        let budget = grpc::budget(&request, WAIT);
        let signing_request = request.into_inner().signing_request;
        let request = proto::RenewRequest { signing_request, identity: caller.uri() };
        let renew =
            |mut client: EnrolmentClient<Channel>, request| async move { client.renew(request).await };
        self.0
            .upstream
            .enrolment("renew a certificate", (Repeat::IfUnavailable, budget), request, renew)
            .await
            .map(Response::new)
    }
}
