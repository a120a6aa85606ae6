//! New certificates before the old ones end. Open connections continue; every
//! further handshake uses the new certificate.

use std::path::Path;
use std::time::{Duration, SystemTime};

use isthmus_identity::Credentials;
use isthmus_identity::credentials::{CredentialsError, SigningRequest};
use isthmus_identity::signed;
use isthmus_service::files;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use nix::fcntl::{Flock, FlockArg};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::enrol;
use crate::grpc::{self, ConnectError};

/// Time between two checks, and the pause after a failure. A certificate is due ten days before it
/// ends, which leaves time for 1,440 attempts.
const CHECK: Duration = Duration::from_secs(600);

/// Why a certificate wasn't renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// The upstream service can't be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The new certificate can't be used or written.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The upstream service refused, or didn't answer.
    #[error("{0}")]
    Refused(String),
}

/// Renews credentials whenever that is due, and writes them to their state directory. `upstreams`
/// returns the addresses of the upstream service. Never returns.
pub async fn keep_fresh(credentials: &Credentials, directory: &Path, upstreams: impl Fn() -> Vec<String>) {
    loop {
        if SystemTime::now() >= credentials.renewal_due() {
            let identity = credentials.identity();
            for upstream in upstreams() {
                match renew(credentials, directory, &upstream).await {
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

/// Renews credentials as [`renew`] does, for a command: of several commands that run at once, only
/// one renews. Returns whether this one did.
///
/// # Errors
/// As [`renew`].
pub async fn renew_alone(
    credentials: &Credentials,
    directory: &Path,
    upstream: &str,
) -> Result<bool, RenewalError> {
    let lock = files::create(&directory.join("renewal.lock"), 0o600).map_err(CredentialsError::from)?;
    let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return Ok(false) };
    if Credentials::load(directory)?.renewal_due() > SystemTime::now() {
        return Ok(false);
    }
    renew(credentials, directory, upstream).await?;
    Ok(true)
}

/// Exchanges the certificate in use for a new certificate of the same identity, at `upstream`.
///
/// # Errors
/// [`RenewalError`]; the certificate in use stays then.
pub async fn renew(credentials: &Credentials, directory: &Path, upstream: &str) -> Result<(), RenewalError> {
    let server_name = credentials.identity().upstream_server_name();
    let channel = grpc::connect(upstream, &server_name, credentials).await?;
    let request = SigningRequest::new()?;
    let message = signed::renewal::request(credentials, &request.der, SystemTime::now())?;
    let certificate = enrol::answer(&server_name, EnrolmentClient::new(channel).renew(message)).await;
    let certificate = certificate.map_err(|status| RenewalError::Refused(grpc::reason(&status)))?;
    credentials.renew(&request, &certificate.certificate_pem)?;
    credentials.save(directory)?;
    // The connections to this upstream service go on with the new certificate.
    let _ = grpc::connect(upstream, &server_name, credentials).await;
    Ok(())
}
