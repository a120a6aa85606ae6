//! Lists the grid's members, and revokes their certificates.

use std::sync::Arc;
use std::time::SystemTime;

use isthmus_identity::{Identity, audit};
use isthmus_rpc::grpc;
use isthmus_service::clock::unix_seconds;
use isthmus_wire::bounds::REVOCATIONS;
use isthmus_wire::proto;
use isthmus_wire::proto::administration_server::Administration;
use tonic::{Request, Response, Status};
use tracing::info;

use crate::broker::{Broker, store_status};
use crate::members;

pub(crate) struct AdministrationService(pub(crate) Arc<Broker>);

#[tonic::async_trait]
impl Administration for AdministrationService {
    async fn members(
        &self,
        request: Request<proto::MembersRequest>,
    ) -> Result<Response<proto::MembersReply>, Status> {
        let after = String::from_utf8(request.into_inner().page_token);
        let after = after.map_err(|_| Status::invalid_argument("this page token is not of this grid"))?;
        let mut later = members::members(&*self.0.store, &after).await.map_err(store_status)?;
        let members: Vec<_> = later.by_ref().take(REVOCATIONS).collect();
        let last = members.last().filter(|_| later.next().is_some());
        let next_page_token = last.map(|member| member.name.clone().into_bytes()).unwrap_or_default();
        Ok(Response::new(proto::MembersReply { members, next_page_token }))
    }

    async fn revoke(
        &self,
        request: Request<proto::RevokeRequest>,
    ) -> Result<Response<proto::RevokeReply>, Status> {
        let caller = grpc::caller(&request)?;
        let from = grpc::peer(&request).map(|peer| peer.address);
        let request = request.into_inner();
        let result = self.revoke(&caller, &request).await;
        let event = if request.remove { "remove" } else { "revoke" };
        let entry = match &result {
            Ok(reply) => {
                let token_closed = reply.token_closed;
                info!(member = request.name, by = %caller, event, token_closed, "certificates revoked");
                audit::Entry::done(event).about(about(reply))
            }
            Err(status) => audit::Entry::refused(event, status.message()).about(&request.name),
        };
        entry.by(&caller).from(from).record();
        result.map(Response::new)
    }
}

impl AdministrationService {
    async fn revoke(
        &self,
        caller: &Identity,
        request: &proto::RevokeRequest,
    ) -> Result<proto::RevokeReply, Status> {
        let proto::RevokeRequest { name, remove, keep_token } = request;
        if *name == members::member(caller) {
            return Err(Status::permission_denied(format!(
                "{caller} can't revoke itself; another administrator can"
            )));
        }
        let now = unix_seconds(SystemTime::now());
        let how = members::How { remove: *remove, keep_token: *keep_token };
        let revoked = members::revoke(&*self.0.store, name, how, now).await.map_err(store_status)?;
        let Some(members::RevokedMember { member, revision, token_ends }) = revoked else {
            return Err(Status::not_found(format!(
                "no member has the name {name:?}; isthmus grid list names them"
            )));
        };
        let pilots = members::end_pilots_of(&*self.0.store, name, now).await.map_err(store_status)?;
        if pilots > 0 {
            info!(member = name, nodes = pilots, "its pilots ended");
        }
        // The revocation is in effect at this broker before the answer.
        self.0.reached(revision).await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(proto::RevokeReply {
            member: Some(member),
            token_ends: token_ends.unwrap_or(0),
            token_closed: token_ends.is_some() && !keep_token,
        })
    }
}

/// The text of the audit log about a revocation.
fn about(reply: &proto::RevokeReply) -> String {
    let identity = reply.member.as_ref().map(|member| member.identity.as_str()).unwrap_or_default();
    let token = if reply.token_closed { ", and its site's join token is closed" } else { "" };
    format!("{identity}{token}")
}
