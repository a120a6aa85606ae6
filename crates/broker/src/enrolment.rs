//! Issues certificates for join tokens, and renews certificates.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use isthmus_identity::authority::AuthorityError;
use isthmus_identity::peers::{Certified, Refusal};
use isthmus_identity::pilot;
use isthmus_identity::signed::renewal;
use isthmus_identity::token::{JoinToken, TokenError, Verified};
use isthmus_identity::{Authority, CLOCK_SKEW, Identity, Role, audit};
use isthmus_rpc::grpc;
use isthmus_service::allowance::Allowance;
use isthmus_service::clock::unix_seconds;
use isthmus_service::lock;
use isthmus_wire::bounds::NODES_PER_SITE;
use isthmus_wire::proto::enrolment_server::Enrolment;
use isthmus_wire::{Label, proto};
use ring::digest::{SHA256, digest};
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use crate::broker::{Broker, store_status};
use crate::members::{self, Admission, Ended, OfPilot, Renewal, TokenUse, UsedToken};
use crate::store::Store;

/// Most certificates that a party gets within an hour. A party needs a certificate in 20 days. A
/// party that can't write its certificate to disk asks each gateway of its site again every 10
/// minutes: 96 times an hour.
const CERTIFICATES: u32 = 100;
const HOUR: Duration = Duration::from_secs(3600);
/// Most parties that are counted within an hour.
const PARTIES: usize = 16 * NODES_PER_SITE;

pub(crate) struct EnrolmentService {
    broker: Arc<Broker>,
    /// Counts the certificates of each identity. A join is counted by its token, too, which is
    /// another right. A renewal is counted by the gateway that passed it on. So a gateway that
    /// sends a request again uses up its own part only.
    issued: Mutex<Allowance<String>>,
    /// Locked while a token is used: uses of one token exclude each other in the store, and would all
    /// have to be tried again for each one that succeeds.
    joining: tokio::sync::Mutex<()>,
}

#[tonic::async_trait]
impl Enrolment for EnrolmentService {
    async fn join(
        &self,
        request: Request<proto::JoinRequest>,
    ) -> Result<Response<proto::Certificate>, Status> {
        let peer = grpc::peer(&request).cloned();
        let from = peer.as_ref().map(|peer| peer.address);
        let request = request.into_inner();
        let result = self.join(&request).await;
        let entry = match &result {
            Ok((identity, _)) => {
                info!(%identity, ?from, "joined");
                audit::Entry::done("join").by(identity)
            }
            Err(status) => {
                warn!(?from, reason = status.message(), "join refused");
                let entry = audit::Entry::refused("join", status.message()).about(requested(&request));
                // The gateway that passed the request on.
                match peer.as_ref().and_then(|peer| peer.identity.as_deref()) {
                    Some(gateway) => entry.by(gateway),
                    None => entry,
                }
            }
        };
        entry.from(from).record();
        result.map(|(_, certificate)| Response::new(certificate))
    }

    async fn renew(
        &self,
        request: Request<proto::RenewRequest>,
    ) -> Result<Response<proto::Certificate>, Status> {
        let caller = grpc::caller(&request)?;
        let from = grpc::peer(&request).map(|peer| peer.address);
        let request = request.into_inner();
        let result = self.renew(&caller, &request).await;
        let entry = match &result {
            Ok((identity, _)) => {
                info!(%identity, "certificate renewed");
                audit::Entry::done("renew").by(identity)
            }
            Err(status) => {
                warn!(%caller, reason = status.message(), "renewal refused");
                audit::Entry::refused("renew", status.message()).by(&caller).about(renewed(&request))
            }
        };
        entry.from(from).record();
        result.map(|(_, certificate)| Response::new(certificate))
    }

    async fn end_pilot(
        &self,
        request: Request<proto::EndPilotRequest>,
    ) -> Result<Response<proto::EndPilotReply>, Status> {
        let caller = grpc::caller(&request)?;
        let from = grpc::peer(&request).map(|peer| peer.address);
        let request = request.into_inner();
        let result = self.end_pilot(&request).await;
        let entry = match &result {
            Ok((identity, members)) => {
                info!(%identity, members, "pilot ended");
                audit::Entry::done("end pilot").by(identity).about(format!("{members} members"))
            }
            Err(status) => {
                warn!(%caller, reason = status.message(), "a pilot isn't ended");
                audit::Entry::refused("end pilot", status.message()).by(&caller)
            }
        };
        entry.from(from).record();
        result.map(|(_, members)| Response::new(proto::EndPilotReply { members }))
    }
}

impl EnrolmentService {
    pub(crate) fn new(broker: Arc<Broker>) -> Self {
        let issued = Mutex::new(Allowance::new(CERTIFICATES, HOUR, PARTIES));
        Self { broker, issued, joining: tokio::sync::Mutex::default() }
    }

    /// Counts a certificate for a party. Each certificate is a line of the audit log and a write to
    /// disk.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if a party has had too many.
    fn count(&self, party: &str, identity: &Identity) -> Result<(), Status> {
        if lock(&self.issued).allow(party, Instant::now()) {
            return Ok(());
        }
        Err(too_often(identity))
    }

    async fn join(&self, request: &proto::JoinRequest) -> Result<(Identity, proto::Certificate), Status> {
        let now = SystemTime::now();
        let verified = JoinToken::verify(request, &self.broker.state.join_key, &self.broker.verifier, now);
        let Verified { token, by } = verified.map_err(token_status)?;
        let name = (!request.name.is_empty()).then(|| request.name.parse::<Label>()).transpose();
        let name = name.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let identity = token.identity(name, request.gateway).map_err(token_status)?;
        if request.gateway
            && let Some(reason) = self.broker.registry().in_the_way(&identity)
        {
            return Err(Status::failed_precondition(reason));
        }
        // Before the token is used: a malformed request must not use it up.
        self.certificate(&identity, &request.signing_request, (unix_seconds(now), 0))?;
        // Its site's clock may be ahead, by which peers there judge the certificate.
        let life = token.delegation.as_ref().map_or(Duration::ZERO, |found| found.life + CLOCK_SKEW);
        let pilot = by.as_ref().map(|by| OfPilot { by, life });
        let used = UsedToken {
            // A pilot's nodes may have certificates for so long after they have joined.
            expiry_unix_seconds: unix_seconds(token.invitation.expires).saturating_add(life.as_secs()),
            request_sha256: sha256(&request.mac),
            closed: false,
            minted_by: by.as_ref().map(|by| members::member(&by.identity)),
        };
        let (id, places) = (token.id, token.places(identity.role()));
        let pilot_nodes = if identity.role() == Role::Agent { token.invitation.pilot_nodes } else { 0 };
        let admission = Admission { id, used, places, identity: &identity, pilot_nodes, pilot };
        // A request that was sent before gets its certificate again.
        let by_token = id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let may = || self.count(&format!("{} {by_token}", identity.uri()), &identity).is_ok();
        let store = &*self.broker.store;
        let joining = self.joining.lock().await;
        let result = members::use_token(store, &admission, unix_seconds(now), may).await;
        drop(joining);
        match result.map_err(store_status)? {
            TokenUse::Accepted { issued, until } => {
                let certificate = self.certificate(&identity, &request.signing_request, (issued, until))?;
                Ok((identity, certificate))
            }
            TokenUse::Closed if by.is_some() => {
                Err(Status::permission_denied("the pilot has ended that the join token is for"))
            }
            TokenUse::NoPilots => Err(Status::permission_denied(format!(
                "{} may have no pilots: that needs a join token with this right (isthmus grid invite --pilot-nodes N)",
                by.map_or_else(|| "the agent".to_owned(), |by| by.identity.to_string())
            ))),
            TokenUse::TooManyPilots(most) => Err(Status::permission_denied(format!(
                "the pilots of {} may have {most} nodes at one time, and have as many; end some, or ask for a join \
                 token with more (isthmus grid invite --pilot-nodes N)",
                by.map_or_else(|| "the agent".to_owned(), |by| by.identity.to_string())
            ))),
            TokenUse::Closed => Err(Status::permission_denied(
                "an administrator of the grid has closed the join token, as one of those who joined by it was \
                 revoked; ask for a new one (isthmus grid invite)",
            )),
            TokenUse::UsedBefore if places.is_some() => Err(Status::permission_denied(format!(
                "{identity} joined by this token before, and was revoked or removed since, or has joined by \
                 another one; ask for a new one (isthmus grid invite)"
            ))),
            TokenUse::UsedBefore => Err(Status::permission_denied(
                "the join token was used before, and each is good once; \
                 ask for a new one (isthmus grid invite)",
            )),
            TokenUse::UsedUp(most) => Err(Status::permission_denied(format!(
                "the join token is good for {most} {}{}, and as many have joined by it; ask for a new one (isthmus \
                 grid invite)",
                if request.gateway { "gateway" } else { "node" },
                if most == 1 { "" } else { "s" }
            ))),
            TokenUse::NameTaken(uri) => Err(name_taken(&identity, &uri)),
            TokenUse::TooOften => Err(too_often(&identity)),
        }
    }

    async fn renew(
        &self,
        caller: &Identity,
        request: &proto::RenewRequest,
    ) -> Result<(Identity, proto::Certificate), Status> {
        let (authority, now) = (&self.broker.state.authority, SystemTime::now());
        // Before the cryptography. A gateway asks for its agents, too.
        if caller.role() != Role::Gateway {
            self.count(&caller.uri(), caller)?;
        }
        let identity = proven(request, authority, now)?;
        if caller.role() == Role::Gateway {
            self.count(&format!("{} {}", caller.uri(), identity.uri()), &identity)?;
        }
        let times = may_renew(&*self.broker.store, &identity, request, now).await?;
        let certificate = self.certificate(&identity, &request.signing_request, times)?;
        Ok((identity, certificate))
    }

    /// Ends a pilot. Returns the agent that has minted its token, and how many nodes have ended.
    async fn end_pilot(&self, request: &proto::EndPilotRequest) -> Result<(Identity, u32), Status> {
        let now = SystemTime::now();
        let (id, by) = pilot::verify_end(request, &self.broker.verifier, now).map_err(token_status)?;
        let (store, expires) = (&*self.broker.store, request.token_expires_unix_seconds);
        let ended = members::end_pilot(store, id, &by.identity, expires, unix_seconds(now)).await;
        match ended.map_err(store_status)? {
            Ended::Done { members, revision } => {
                self.broker
                    .reached(revision)
                    .await
                    .map_err(|error| Status::unavailable(error.to_string()))?;
                Ok((by.identity, members))
            }
            Ended::NotMinted => Err(Status::permission_denied(format!(
                "{} isn't the member that minted the pilot's token",
                by.identity
            ))),
            Ended::TooMany => Err(Status::resource_exhausted(format!(
                "{} has ended too many pilots without nodes; the grid remembers no more of them until some of their \
                 tokens expire",
                by.identity
            ))),
        }
    }

    /// A certificate that is dated `issued` and ends at `until` at the latest, unless that is zero.
    /// Both are in seconds since 1970.
    fn certificate(
        &self,
        identity: &Identity,
        signing_request: &[u8],
        (issued, until): (u64, u64),
    ) -> Result<proto::Certificate, Status> {
        let authority = &self.broker.state.authority;
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let until = (until > 0).then(|| at(until));
        let signed = authority.sign_request_until(identity, signing_request, at(issued), until);
        let certificate_pem = signed.map_err(|error| match error {
            AuthorityError::Request(_) => Status::invalid_argument(error.to_string()),
            AuthorityError::Certificate(_) | AuthorityError::File(_) => {
                warn!(%error, "cannot sign a certificate");
                Status::internal("the broker cannot sign certificates; see its log")
            }
        })?;
        Ok(proto::Certificate { certificate_pem, authority_pem: authority.certificate_pem().to_owned() })
    }
}

/// The identity that a request renews. The request's proof decides, not the caller: a gateway only
/// passes requests on.
fn proven(request: &proto::RenewRequest, authority: &Authority, now: SystemTime) -> Result<Identity, Status> {
    renewal::verify(request, authority, now).map_err(|error| Status::permission_denied(error.to_string()))
}

/// The time at which the new certificate of a proven identity is to be dated, and when it ends at the
/// latest (0: no such bound), in seconds since 1970. Notes that the certificate is issued.
async fn may_renew(
    store: &dyn Store,
    identity: &Identity,
    request: &proto::RenewRequest,
    now: SystemTime,
) -> Result<(u64, u64), Status> {
    let former = Certified::read(shown(request));
    let former = former.map_err(|error| Status::invalid_argument(error.to_string()))?.issued;
    let renewal = match identity.role() {
        Role::Agent | Role::Gateway | Role::Relay | Role::Admin => {
            members::renew(store, identity, unix_seconds(former), unix_seconds(now)).await
        }
        // The broker renews its own certificate.
        Role::Broker => Ok(Renewal::NotMember),
    };
    match renewal.map_err(store_status)? {
        Renewal::Accepted { issued, until } => Ok((issued, until)),
        Renewal::NotMember => Err(Status::permission_denied(format!(
            "{identity} is not a member of the grid; join again with a new token"
        ))),
        Renewal::Revoked { until } => {
            let before = UNIX_EPOCH + Duration::from_secs(until);
            let identity = identity.clone();
            Err(Status::permission_denied(Refusal::Revoked { identity, before }.to_string()))
        }
    }
}

/// What a request to join asks for, as the request itself says.
fn requested(request: &proto::JoinRequest) -> String {
    match JoinToken::read(&request.token) {
        Ok(token) => format!("{} under the name {:?}", token.invitation, request.name),
        Err(_) => format!("no join token, under the name {:?}", request.name),
    }
}

/// The certificate that a request renews, in DER; empty if the request shows none.
fn shown(request: &proto::RenewRequest) -> &[u8] {
    request.certificates.first().map_or(&[], Vec::as_slice)
}

/// The identity of the certificate that a request to renew shows, proven or not.
fn renewed(request: &proto::RenewRequest) -> String {
    Identity::from_certificate(shown(request))
        .map_or_else(|_| "no certificate".to_owned(), |identity| identity.uri())
}

/// The message to a join under a name of another owner.
fn name_taken(identity: &Identity, holder: &str) -> Status {
    let owner = |identity: Option<&Identity>| {
        identity
            .and_then(Identity::owner)
            .map_or_else(|| "no user".to_owned(), |owner| format!("user {owner}"))
    };
    let holder = Identity::from_uri(holder).ok();
    if holder.as_ref().is_some_and(|holder| holder.owner() == identity.owner()) {
        return Status::already_exists(format!(
            "{identity} is a member of the grid that stays, and a pilot's node needs a name of its own"
        ));
    }
    Status::already_exists(format!(
        "{identity} is a member of the grid and belongs to {}, and the join token is for {}; join under another \
         --name, or have an administrator free the name (isthmus grid remove)",
        owner(holder.as_ref()),
        owner(Some(identity))
    ))
}

/// The message to a party that has had too many certificates.
fn too_often(identity: &Identity) -> Status {
    Status::resource_exhausted(format!(
        "{identity} has asked for {CERTIFICATES} certificates within an hour, and gets no more in this hour; see its \
         log for why it doesn't keep them"
    ))
}

fn token_status(error: TokenError) -> Status {
    match error {
        TokenError::Malformed(_) | TokenError::Identity(_) => Status::invalid_argument(error.to_string()),
        TokenError::Forged
        | TokenError::NoSite(_)
        | TokenError::NodesOnly(_)
        | TokenError::Expired { .. }
        | TokenError::OtherName { .. }
        | TokenError::Agent(_)
        | TokenError::Unmade(_) => Status::permission_denied(error.to_string()),
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use isthmus_identity::Credentials;
    use isthmus_identity::credentials::SigningRequest;

    use super::*;
    use crate::store::Memory;

    #[tokio::test]
    async fn members_alone_renew() {
        let now = SystemTime::now();
        let authority = Authority::create("demo", now).unwrap();
        let store = Memory::new(Arc::new(Instant::now));
        for (id, uri) in [(1, "isthmus:///agent/alpha/n1/anna"), (2, "isthmus:///gateway/alpha/login1/")] {
            let expiry_unix_seconds = unix_seconds(now) + 60;
            let request_sha256 = [id; 32];
            let used = UsedToken { expiry_unix_seconds, request_sha256, closed: false, minted_by: None };
            let identity = Identity::from_uri(uri).unwrap();
            let (id, places, pilot_nodes, pilot) = ([id; 16], None, 0, None);
            let admission = Admission { id, used, places, identity: &identity, pilot_nodes, pilot };
            let accepted = members::use_token(&store, &admission, unix_seconds(now), || true);
            assert_eq!(accepted.await, Ok(TokenUse::Accepted { issued: unix_seconds(now), until: 0 }));
        }
        members::enrol_first_administrator(&store).await.unwrap();
        for (uri, want) in [
            ("isthmus:///agent/alpha/n1/anna", true),
            ("isthmus:///gateway/alpha/login1/", true),
            ("isthmus:///admin//admin/", true),
            // The name belongs to another owner now, or to no member.
            ("isthmus:///agent/alpha/n1/berta", false),
            ("isthmus:///agent/alpha/n2/anna", false),
            ("isthmus:///gateway/alpha/gateway/", false),
            ("isthmus:///relay//r1/", false),
            ("isthmus:///admin//anna/", false),
            ("isthmus:///broker//broker/", false),
        ] {
            let identity = Identity::from_uri(uri).unwrap();
            let key = SigningRequest::new().unwrap();
            let certificate = authority.sign(&identity, key.public_key(), now).unwrap();
            let holder = Credentials::new(&key, &certificate, authority.certificate_pem(), "").unwrap();
            let request = renewal::request(&holder, &SigningRequest::new().unwrap().der, now).unwrap();
            let proven = proven(&request, &authority, now).unwrap();
            assert_eq!(proven, identity);
            let renewing = may_renew(&store, &proven, &request, now).await;
            assert_eq!(renewing.ok(), want.then_some((unix_seconds(now), 0)), "{uri}");
        }
    }
}
