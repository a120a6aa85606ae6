//! Enrolment of the site's agents, which may reach only their gateway: it passes
//! the calls on to the broker.

use std::sync::Arc;

use isthmus_identity::Role;
use isthmus_identity::token::JoinToken;
use isthmus_rpc::grpc::Repeat;
use isthmus_wire::proto;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::enrolment_server::Enrolment;
use tonic::{Request, Response, Status};

use crate::gateway::Gateway;

pub(crate) struct EnrolmentService(pub(crate) Arc<Gateway>);

#[tonic::async_trait]
impl Enrolment for EnrolmentService {
    async fn join(
        &self,
        request: Request<proto::JoinRequest>,
    ) -> Result<Response<proto::Certificate>, Status> {
        // The request has the token's public part, which the broker verifies. Tokens for other
        // roles or sites need not reach the broker.
        let token = JoinToken::read(&request.get_ref().token)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let token = token.invitation;
        if token.role != Role::Agent || token.site.as_ref() != Some(&self.0.site) {
            let site = token.site.map(|site| format!(" of site {site}")).unwrap_or_default();
            return Err(Status::permission_denied(format!(
                "this gateway enrols agents of site {}, and the token is for a {}{site}",
                self.0.site, token.role
            )));
        }
        if request.get_ref().gateway {
            return Err(Status::permission_denied(format!(
                "this gateway enrols agents of site {}; a gateway joins at the broker",
                self.0.site
            )));
        }
        let join = |channel, request| async move { EnrolmentClient::new(channel).join(request).await };
        self.0.upstream.pass_on("join", Repeat::IfUnavailable, request, join).await.map(Response::new)
    }

    async fn renew(
        &self,
        request: Request<proto::RenewRequest>,
    ) -> Result<Response<proto::Certificate>, Status> {
        self.0.own_agent(&request)?;
        let renew = |channel, request| async move { EnrolmentClient::new(channel).renew(request).await };
        let what = "renew a certificate";
        self.0.upstream.pass_on(what, Repeat::IfUnavailable, request, renew).await.map(Response::new)
    }

    async fn end_pilot(
        &self,
        request: Request<proto::EndPilotRequest>,
    ) -> Result<Response<proto::EndPilotReply>, Status> {
        self.0.own_agent(&request)?;
        let end = |channel, request| async move { EnrolmentClient::new(channel).end_pilot(request).await };
        self.0.upstream.pass_on("end a pilot", Repeat::IfUnavailable, request, end).await.map(Response::new)
    }
}
