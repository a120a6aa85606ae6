//! A service's own certificate and key, and the TLS configurations made of them:
//! both ends show certificates of the grid's authority.
//!
//! A state directory holds:
//!
//! | file | mode | what |
//! |---|---|---|
//! | `identity.pem` | 0644 | the certificate |
//! | `key.pem` | 0600 | its private key |
//! | `ca.pem` | 0644 | the authority's certificate |
//! | `identity.toml` | 0644 | the identity in readable form, and the address to attach to |

pub(crate) mod material;
#[cfg(test)]
mod tests;
mod tls;
pub(crate) mod unrevoked;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use isthmus_service::files::{self, FileError};
use rcgen::{CertificateParams, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use crate::attachment::Attachment;
use crate::authority::CERTIFICATE_FILE as AUTHORITY_FILE;
use crate::identity::{Identity, IdentityError};
use crate::peers::{Peers, REVOKED_HERE};

use material::{Current, Material};
pub use tls::anonymous_client_config;
pub(crate) use tls::roots;

/// ALPN name (RFC 7301) of HTTP/2, which gRPC uses.
pub const ALPN_H2: &[u8] = b"h2";

const CERTIFICATE_FILE: &str = "identity.pem";
const KEY_FILE: &str = "key.pem";
const SUMMARY_FILE: &str = "identity.toml";

/// Why credentials can't be used or made.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The state directory has no credentials yet.
    #[error("{directory} holds no identity: run `isthmus join --state {directory}` with a join token first")]
    Missing {
        /// The path of the state directory.
        directory: String,
    },
    /// A file couldn't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The certificate isn't a grid's.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A certificate, a key or a setting is invalid.
    #[error("{what}: {reason}")]
    Invalid {
        /// The certificate, key or setting that is invalid.
        what: &'static str,
        /// Why it is invalid.
        reason: String,
    },
    /// The certificate has expired.
    #[error("the certificate of {identity} expired; join again with a new token")]
    Expired {
        /// The identity in the certificate.
        identity: String,
    },
}

pub(crate) fn invalid(what: &'static str) -> impl Fn(&dyn fmt::Display) -> CredentialsError {
    move |reason| CredentialsError::Invalid { what, reason: reason.to_string() }
}

/// The certificate of the authority that the party with these credentials trusts.
pub(crate) fn authority_of(credentials: &Credentials) -> Result<CertificateDer<'static>, CredentialsError> {
    CertificateDer::from_pem_slice(credentials.authority_pem().as_bytes())
        .map_err(|error| invalid("the authority's certificate")(&error))
}

/// A new private key (ECDSA P-256) and the request to certify it.
pub struct SigningRequest {
    key: KeyPair,
    /// PKCS #10 in DER (RFC 2986), with no names in it.
    pub der: Vec<u8>,
}

impl fmt::Debug for SigningRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningRequest").finish_non_exhaustive()
    }
}

impl SigningRequest {
    /// Makes a key and its request.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn new() -> Result<Self, CredentialsError> {
        let wrong = |error: rcgen::Error| invalid("a new key")(&error);
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(wrong)?;
        let request = CertificateParams::default().serialize_request(&key).map_err(wrong)?;
        Ok(Self { der: request.der().to_vec(), key })
    }

    /// The public key of the request.
    pub fn public_key(&self) -> &impl rcgen::PublicKeyData {
        &self.key
    }
}

/// A certificate with its key and its authority. Cheap to clone; all clones use the
/// certificate of the last [`Credentials::renew`].
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    identity: Identity,
    upstream: String,
    authority_pem: String,
    roots: Arc<RootCertStore>,
    current: Arc<Current>,
    peers: Peers,
    attachment: Attachment,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Credentials").field(&self.0.identity).finish()
    }
}

#[derive(Serialize, Deserialize)]
struct Summary {
    role: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    site: String,
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    owner: String,
    /// The address to attach to, `HOST:PORT`.
    upstream: String,
}

impl Credentials {
    /// Credentials of a key, the certificate made for it, the authority's certificate and the
    /// address to attach to.
    ///
    /// # Errors
    /// If key, certificate and authority don't belong together.
    pub fn new(
        request: &SigningRequest,
        certificate_pem: &str,
        authority_pem: &str,
        upstream: &str,
    ) -> Result<Self, CredentialsError> {
        Self::from_pem(certificate_pem, &request.key.serialize_pem(), authority_pem, upstream)
    }

    /// Reads the credentials of a state directory.
    ///
    /// # Errors
    /// If the directory has no credentials, the key is readable by others, or the parts don't
    /// belong together.
    pub fn load(directory: &Path) -> Result<Self, CredentialsError> {
        if !directory.join(CERTIFICATE_FILE).exists() {
            return Err(CredentialsError::Missing { directory: directory.display().to_string() });
        }
        let summary: Summary = toml::from_str(&files::read(&directory.join(SUMMARY_FILE))?)
            .map_err(|error| invalid(SUMMARY_FILE)(&error))?;
        Self::from_pem(
            &files::read(&directory.join(CERTIFICATE_FILE))?,
            &files::read_secret(&directory.join(KEY_FILE))?,
            &files::read(&directory.join(AUTHORITY_FILE))?,
            &summary.upstream,
        )
    }

    /// Writes the credentials into a state directory, which is made if necessary.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn save(&self, directory: &Path) -> Result<(), CredentialsError> {
        files::create_directory(directory)?;
        let identity = self.identity();
        let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
        let summary = toml::to_string(&Summary {
            role: identity.role().to_string(),
            site: text(identity.site().map(isthmus_wire::Label::as_str)),
            name: identity.name().to_string(),
            owner: text(identity.owner().map(crate::Owner::as_str)),
            upstream: self.0.upstream.clone(),
        })
        .map_err(|error| invalid(SUMMARY_FILE)(&error))?;
        let material = self.0.current.material();
        files::write(&directory.join(KEY_FILE), material.key_pem.0.as_bytes(), 0o600)?;
        files::write(&directory.join(AUTHORITY_FILE), self.0.authority_pem.as_bytes(), 0o644)?;
        files::write(&directory.join(SUMMARY_FILE), summary.as_bytes(), 0o644)?;
        files::write(&directory.join(CERTIFICATE_FILE), material.certificate_pem.as_bytes(), 0o644)?;
        Ok(())
    }

    /// Removes the credentials of a state directory, if there are some.
    ///
    /// # Errors
    /// If a file can't be removed.
    pub fn remove(directory: &Path) -> std::io::Result<()> {
        for file in [CERTIFICATE_FILE, KEY_FILE, SUMMARY_FILE, AUTHORITY_FILE] {
            match std::fs::remove_file(directory.join(file)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn from_pem(
        certificate_pem: &str,
        key_pem: &str,
        authority_pem: &str,
        upstream: &str,
    ) -> Result<Self, CredentialsError> {
        let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes())
            .map_err(|error| invalid("the authority's certificate")(&error))?;
        let (identity, material) = Material::from_pem(certificate_pem, key_pem)?;
        Ok(Self(Arc::new(Inner {
            identity,
            upstream: upstream.to_owned(),
            authority_pem: authority_pem.to_owned(),
            roots: Arc::new(roots(authority)?),
            current: Arc::new(Current::new(material)),
            peers: Peers::default(),
            attachment: Attachment::default(),
        })))
    }

    /// Replaces the certificate in use by a new certificate of the same identity. Every further
    /// handshake uses the new one.
    ///
    /// # Errors
    /// If the new certificate is of another identity, or doesn't belong to the key.
    pub fn renew(&self, request: &SigningRequest, certificate_pem: &str) -> Result<(), CredentialsError> {
        let (identity, material) = Material::from_pem(certificate_pem, &request.key.serialize_pem())?;
        if identity != self.0.identity {
            let reason = format!("it is for {identity}, not {}", self.0.identity);
            return Err(CredentialsError::Invalid { what: "the renewed certificate", reason });
        }
        self.0.current.replace(material);
        Ok(())
    }

    /// The certificate in use with its key.
    pub(crate) fn certified_key(&self) -> Arc<CertifiedKey> {
        self.0.current.material().key.clone()
    }

    /// The identity in the certificate.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// The certificates of this process's peers.
    pub fn peers(&self) -> &Peers {
        &self.0.peers
    }

    /// The attachment of this process's service.
    pub fn attachment(&self) -> &Attachment {
        &self.0.attachment
    }

    /// An attempt to attach begins. What another peer than the next service has claimed of this
    /// process's certificate meanwhile doesn't count.
    pub fn attaching(&self) {
        self.0.peers.set_revoked_here(false);
    }

    /// Notes that an attempt to attach has failed, or that the attachment has ended, and returns
    /// why: a call may end before it learns that the certificate is revoked.
    pub fn not_attached(&self, reason: &str) -> String {
        let revoked = self.0.peers.is_revoked_here();
        let reason = if revoked { REVOKED_HERE } else { reason };
        self.0.attachment.failed(reason, revoked);
        reason.to_owned()
    }

    /// Whether the credentials are of the grid with this authority.
    pub fn are_of(&self, authority: &CertificateDer<'_>) -> bool {
        authority_of(self).is_ok_and(|own| own == *authority)
    }

    /// These credentials with another address to attach to.
    ///
    /// # Errors
    /// As [`Credentials::load`].
    pub fn with_upstream(&self, upstream: &str) -> Result<Self, CredentialsError> {
        let material = self.0.current.material();
        Self::from_pem(&material.certificate_pem, &material.key_pem.0, &self.0.authority_pem, upstream)
    }

    /// The address to attach to, `HOST:PORT`.
    pub fn upstream(&self) -> &str {
        &self.0.upstream
    }

    /// The authority's certificate in PEM.
    pub fn authority_pem(&self) -> &str {
        &self.0.authority_pem
    }

    /// When the certificate should be renewed: after two thirds of its life.
    pub fn renewal_due(&self) -> SystemTime {
        let material = self.0.current.material();
        let life = material.not_after.duration_since(material.not_before).unwrap_or_default();
        material.not_before + life * 2 / 3
    }

    /// Checks that the certificate is still valid.
    ///
    /// # Errors
    /// If the certificate has expired.
    pub fn check(&self, now: SystemTime) -> Result<(), CredentialsError> {
        if now < self.0.current.material().not_after {
            Ok(())
        } else {
            Err(CredentialsError::Expired { identity: self.0.identity.to_string() })
        }
    }
}
