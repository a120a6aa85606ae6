//! Joining a grid: a token becomes credentials.

use std::time::Duration;

use isthmus_identity::credentials::{CredentialsError, SigningRequest};
use isthmus_identity::identity::Role;
use isthmus_identity::token::{BearerToken, TokenError};
use isthmus_identity::{Credentials, Identity};
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::{Label, proto};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::{sleep, timeout};
use tonic::{Code, Response, Status};

use crate::grpc::{self, ConnectError};

/// How long the broker may take to answer. A gateway in between may have to wait for the broker.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// How many times a join is tried whose connection breaks. A service that is full closes
/// connections of strangers, such as a party that joins.
const TRIES: u32 = 5;
/// Pause before the second try. It doubles before each further try.
const PAUSE: Duration = Duration::from_millis(250);

/// Waits for an answer of the enrolment service.
pub(crate) async fn answer<T>(
    server_name: &str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    let late =
        |_| Status::deadline_exceeded(format!("{server_name} did not answer within {CALL_DEADLINE:?}"));
    Ok(timeout(CALL_DEADLINE, call).await.map_err(late)??.into_inner())
}

/// Why a party could not join the grid.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token is invalid, or for another name.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// An agent was given no gateway. It attaches to the gateway of its site, and enrols there.
    #[error("an agent joins through the gateway of its site: give its address with --via HOST")]
    NoGateway,
    /// The service to enrol at can't be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The service to enrol at refused, for this reason.
    #[error("the grid refused: {0}")]
    Refused(String),
    /// The service to enrol at refused, because a member of another owner has the name.
    #[error("the grid refused: {0}")]
    NameTaken(String),
    /// The connection broke before the answer, in each try. Has the service's name, and the reason.
    #[error("the connection to {0} broke before its answer: {1}; try again")]
    Broken(String, String),
    /// The answer doesn't match the request.
    #[error("the grid answered with {0}")]
    WrongAnswer(String),
    /// The certificate can't be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Exchanges a token for credentials. `name` is the name of the node, relay or gateway, if the
/// token leaves the choice. `via` is the gateway to enrol at and attach to, which agents need.
/// Other parties enrol at the broker that the token names.
///
/// # Errors
/// [`JoinError`] says why. The token is used up only if a certificate was made.
pub async fn join(token: &str, name: Option<Label>, via: Option<&str>) -> Result<Credentials, JoinError> {
    join_as(token, name, via, false).await
}

/// Exchanges a token for credentials, as [`join`] does. With `gateway`, a site's token makes the
/// party a gateway of the site.
///
/// # Errors
/// As [`join`].
pub async fn join_as(
    token: &str,
    name: Option<Label>,
    via: Option<&str>,
    gateway: bool,
) -> Result<Credentials, JoinError> {
    let bearer = BearerToken::read(token)?;
    let token = &bearer.public;
    let identity = token.identity(name, gateway)?;
    let address = match (via, identity.role()) {
        (Some(via), _) => via,
        (None, Role::Agent) => return Err(JoinError::NoGateway),
        (None, _) => &token.invitation.broker,
    };
    let server_name = identity.upstream_server_name();
    let request = SigningRequest::new()?;
    let message = bearer.request(name_to_send(&identity), request.der.clone(), gateway)?;
    let answer = send(address, &server_name, &token.authority, &message).await?;
    // TLS has checked the token's authority; the answer must name the same authority.
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

/// Sends the request to join, and sends it again if the connection breaks. The broker answers the
/// same request twice.
async fn send(
    address: &str,
    server_name: &str,
    authority: &CertificateDer<'static>,
    message: &proto::JoinRequest,
) -> Result<proto::Certificate, JoinError> {
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match send_once(address, server_name, authority, message.clone()).await {
            Err(JoinError::Connect(error)) if error.broke => {}
            Err(JoinError::Broken(..)) => {}
            answer => return answer,
        }
        sleep(pause).await;
        pause *= 2;
    }
    send_once(address, server_name, authority, message.clone()).await
}

async fn send_once(
    address: &str,
    server_name: &str,
    authority: &CertificateDer<'static>,
    message: proto::JoinRequest,
) -> Result<proto::Certificate, JoinError> {
    let channel = grpc::connect_unidentified(address, server_name, authority.clone()).await?;
    let answer = answer(server_name, EnrolmentClient::new(channel).join(message)).await;
    answer.map_err(|status| {
        let reason = grpc::reason(&status);
        if grpc::call::broke(&status) {
            JoinError::Broken(server_name.to_owned(), reason)
        } else if status.code() == Code::AlreadyExists {
            JoinError::NameTaken(reason)
        } else {
            JoinError::Refused(reason)
        }
    })
}

fn name_to_send(identity: &Identity) -> String {
    match identity.role() {
        Role::Agent | Role::Relay | Role::Gateway => identity.name().to_string(),
        Role::Broker | Role::Admin => String::new(),
    }
}
