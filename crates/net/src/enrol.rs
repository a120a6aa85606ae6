//! Joining a grid: a token becomes credentials.

use std::time::Duration;

use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::{Label, proto};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::timeout;

use crate::credentials::{CredentialsError, SigningRequest};
use crate::grpc::{self, ConnectError};
use crate::identity::Role;
use crate::token::{JoinToken, TokenError};
use crate::{Credentials, Identity};

/// How long the broker may take: a gateway in between may have to wait for it.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// Why joining failed.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token is no good, or not for this.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// An agent attaches to the gateway of its site, and enrols there.
    #[error("an agent joins through the gateway of its site: give its address with --via HOST:PORT")]
    NoGateway,
    /// The service to enrol at can't be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It refused.
    #[error("the grid refused: {0}")]
    Refused(String),
    /// It answered something else than what was asked for.
    #[error("the grid answered with {0}")]
    WrongAnswer(String),
    /// The certificate is of no use.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Trades a token for credentials. `name` is the node's, relay's or gateway's, where
/// the token leaves the choice. `via` is the gateway to enrol through and attach
/// to, which agents need; others enrol at the broker that the token names.
///
/// # Errors
/// [`JoinError`]. The token is spent only if a certificate was made, and even
/// then its loss is the only harm.
pub async fn join(token: &str, name: Option<Label>, via: Option<&str>) -> Result<Credentials, JoinError> {
    let text = token.trim();
    let token = JoinToken::read(text)?;
    let identity = token.identity(name)?;
    let address = match (via, identity.role()) {
        (Some(via), _) => via,
        (None, Role::Agent) => return Err(JoinError::NoGateway),
        (None, _) => &token.broker,
    };
    let server_name = identity.upstream_server_name();
    let channel = grpc::connect_unidentified(address, &server_name, token.authority.clone()).await?;
    let request = SigningRequest::new()?;
    let message = proto::JoinRequest {
        token: text.to_owned(),
        name: name_to_send(&identity),
        signing_request: request.der.clone(),
    };
    let answer = timeout(CALL_DEADLINE, EnrolmentClient::new(channel).join(message))
        .await
        .map_err(|_| JoinError::Refused(format!("{server_name} did not answer within {CALL_DEADLINE:?}")))?
        .map_err(|status| JoinError::Refused(grpc::reason(&status)))?
        .into_inner();
    // TLS proved the authority of the token; the answer must not bring in
    // another one.
    let authority = CertificateDer::from_pem_slice(answer.authority_pem.as_bytes()).ok();
    if authority.as_ref() != Some(&token.authority) {
        return Err(JoinError::WrongAnswer("another certificate authority".to_owned()));
    }
    let credentials = Credentials::new(&request, &answer.certificate_pem, &answer.authority_pem, address)?;
    if *credentials.identity() == identity {
        Ok(credentials)
    } else {
        Err(JoinError::WrongAnswer(format!("a certificate for {}, not {identity}", credentials.identity())))
    }
}

fn name_to_send(identity: &Identity) -> String {
    match identity.role() {
        Role::Agent | Role::Relay | Role::Gateway => identity.name().to_string(),
        Role::Broker | Role::Admin => String::new(),
    }
}
