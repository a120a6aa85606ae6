//! The proof in a request to renew a certificate: the certificate in use, and a signature
//! by its key over the request. It is valid whichever services pass the request on.

use std::time::SystemTime;

use isthmus_service::clock::unix_seconds;
use isthmus_service::mac;
use isthmus_wire::proto;

use super::{self as signed, ChainError, Holder, Verifier};
use crate::authority::CLOCK_SKEW;
use crate::credentials::CredentialsError;
use crate::peers::Peers;
use crate::{Authority, Credentials, Identity};

const PURPOSE: &str = "isthmus renewal";

/// Why a proof is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The certificates are not signed by the grid's authority, not valid now, or too many.
    #[error("the certificate to renew is not valid: {0}")]
    Certificate(#[from] ChainError),
    /// The signature is not that of the certificate's key over this request.
    #[error("the request to renew is not signed by the key of the certificate {0}")]
    Signature(Box<Identity>),
    /// The request was signed too long ago, or in the future.
    #[error("the request to renew was signed at another time than now; check both clocks")]
    Time,
}

/// A request to renew, with its proof. The signing request is PKCS #10 in DER.
///
/// # Errors
/// If the key in use can't sign.
pub fn request(
    credentials: &Credentials,
    signing_request: &[u8],
    now: SystemTime,
) -> Result<proto::RenewRequest, CredentialsError> {
    let key = credentials.certified_key();
    let certificates = signed::certificates(&key);
    let signed_unix_seconds = unix_seconds(now);
    let signature = signed::sign(&key, &signed(signing_request, &certificates, signed_unix_seconds))?;
    let signing_request = signing_request.to_vec();
    Ok(proto::RenewRequest { signing_request, certificates, signed_unix_seconds, signature })
}

/// Verifies a request to renew. Returns the identity to certify anew.
///
/// The caller checks that the identity is still a member.
///
/// # Errors
/// [`ProofError`] says why the proof is refused.
pub fn verify(
    request: &proto::RenewRequest,
    authority: &Authority,
    now: SystemTime,
) -> Result<Identity, ProofError> {
    let certificates = &request.certificates;
    let unusable = |error: CredentialsError| ChainError::Certificate(error.to_string());
    // Revocations are the caller's affair, as membership is.
    let verifier = Verifier::new(authority.certificate(), Peers::default()).map_err(unusable)?;
    let Holder { certified, key } = verifier.holder(certificates, now)?;
    let identity = certified.identity;
    let signed = signed(&request.signing_request, certificates, request.signed_unix_seconds);
    if !key.has_signed(&signed, &request.signature) {
        return Err(ProofError::Signature(Box::new(identity)));
    }
    // For as long, a recorded request can be sent again.
    if unix_seconds(now).abs_diff(request.signed_unix_seconds) > CLOCK_SKEW.as_secs() {
        return Err(ProofError::Time);
    }
    Ok(identity)
}

fn signed(signing_request: &[u8], certificates: &[Vec<u8>], unix_seconds: u64) -> Vec<u8> {
    let seconds = unix_seconds.to_be_bytes();
    let mut parts = vec![signing_request, &seconds[..]];
    parts.extend(certificates.iter().map(Vec::as_slice));
    mac::parts(PURPOSE, &parts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::authority::SERVICE_VALIDITY;
    use crate::credentials::SigningRequest;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn issue(authority: &Authority, uri: &str, at: SystemTime) -> Credentials {
        let request = SigningRequest::new().unwrap();
        let identity = Identity::from_uri(uri).unwrap();
        let certificate = authority.sign(&identity, request.public_key(), at).unwrap();
        Credentials::new(&request, &certificate, authority.certificate_pem(), "192.0.2.1:7700").unwrap()
    }

    #[test]
    fn the_holder_of_the_key_alone_renews() {
        let now = SystemTime::now();
        let authority = Authority::create("demo", now - 40 * DAY).unwrap();
        let forger = Authority::create("demo", now - 40 * DAY).unwrap();
        let uri = "isthmus:///agent/alpha/n1/anna";
        let n1 = issue(&authority, uri, now);
        let gateway = issue(&authority, "isthmus:///gateway/alpha//", now);
        let ask = |credentials: &Credentials, at| request(credentials, b"new key", at).unwrap();
        let good = ask(&n1, now);
        let with = |change: &dyn Fn(&mut proto::RenewRequest)| {
            let mut request = good.clone();
            change(&mut request);
            request
        };
        let own = ask(&gateway, now);
        for (what, request, want) in [
            ("as it was made", good.clone(), None),
            ("the same request again", good.clone(), None),
            ("by another holder", own.clone(), Some("gateway")),
            ("expired", ask(&issue(&authority, uri, now - SERVICE_VALIDITY - DAY), now), Some("not valid")),
            ("of another authority", ask(&issue(&forger, uri, now), now), Some("not valid")),
            ("another key to certify", with(&|it| it.signing_request = b"mine".to_vec()), Some("not signed")),
            (
                "signed by another key",
                with(&|it| it.signature.clone_from(&own.signature)),
                Some("not signed"),
            ),
            (
                "another certificate",
                with(&|it| it.certificates.clone_from(&own.certificates)),
                Some("not signed"),
            ),
            (
                "a certificate more",
                with(&|it| it.certificates.extend(own.certificates.clone())),
                Some("not signed"),
            ),
            ("a later time", with(&|it| it.signed_unix_seconds += 60), Some("not signed")),
            ("no signature", with(&|it| it.signature.clear()), Some("not signed")),
            ("no certificate", with(&|it| it.certificates.clear()), Some("0 certificates")),
            ("too many", with(&|it| it.certificates = vec![Vec::new(); 5]), Some("5 certificates")),
            ("no certificate at all", with(&|it| it.certificates[0] = b"x".to_vec()), Some("not valid")),
            ("recorded long ago", ask(&n1, now - CLOCK_SKEW - Duration::from_secs(60)), Some("clocks")),
            ("in the future", ask(&n1, now + CLOCK_SKEW + Duration::from_secs(60)), Some("clocks")),
        ] {
            let result = verify(&request, &authority, now);
            match want {
                None => assert_eq!(result.unwrap().uri(), uri, "{what}"),
                // A gateway may renew its own certificate, and no other.
                Some("gateway") => assert_eq!(result.unwrap(), *gateway.identity(), "{what}"),
                Some(want) => {
                    let error = result.unwrap_err().to_string();
                    assert!(error.contains(want), "{what}: {error}");
                }
            }
        }
    }
}
