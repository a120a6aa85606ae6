//! Fresh certificates before the old ones end. Connections that stand go on;
//! every further handshake shows the fresh certificate.

use std::path::Path;
use std::time::{Duration, SystemTime};

use isthmus_wire::proto;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::Credentials;
use crate::credentials::{CredentialsError, SigningRequest};
use crate::grpc::{self, ConnectError};

/// How often the clock is looked at, and pause after a failure. A certificate
/// is due ten days before it ends, which leaves time for 1,440 attempts.
const CHECK: Duration = Duration::from_secs(600);
/// How long the service above may take to answer.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// Why a certificate wasn't renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// The service above can't be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The fresh certificate is of no use, or can't be written.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// It was refused.
    #[error("{0}")]
    Refused(String),
}

/// Renews credentials whenever that is due, and keeps them in their state
/// directory; `upstreams` is where the service above is, one or several. Never
/// returns.
pub async fn keep_fresh(credentials: &Credentials, directory: &Path, upstreams: &[String]) {
    loop {
        if SystemTime::now() >= credentials.renewal_due() {
            let identity = credentials.identity();
            for upstream in upstreams {
                match renew(credentials, directory, upstream).await {
                    Ok(()) => {
                        info!(%identity, "certificate renewed");
                        break;
                    }
                    Err(error) => warn!(%identity, %error, retry_in = ?CHECK, "cannot renew the certificate"),
                }
            }
        }
        sleep(CHECK).await;
    }
}

/// Trades the certificate in use for a fresh one of the same identity, at the
/// service above, which is at `upstream`.
///
/// # Errors
/// [`RenewalError`]; the certificate in use then stays.
pub async fn renew(credentials: &Credentials, directory: &Path, upstream: &str) -> Result<(), RenewalError> {
    let server_name = credentials.identity().upstream_server_name();
    let channel = grpc::connect(upstream, &server_name, credentials).await?;
    let request = SigningRequest::new()?;
    let message = proto::RenewRequest { signing_request: request.der.clone(), identity: String::new() };
    let certificate = timeout(CALL_DEADLINE, EnrolmentClient::new(channel).renew(message))
        .await
        .map_err(|_| RenewalError::Refused(format!("{server_name} did not answer within {CALL_DEADLINE:?}")))?
        .map_err(|status| RenewalError::Refused(grpc::reason(&status)))?;
    credentials.renew(&request, &certificate.into_inner().certificate_pem)?;
    credentials.save(directory)?;
    Ok(())
}
