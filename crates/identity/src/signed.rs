//! Statements of a party, signed by the key of its certificate. They are valid whichever
//! services pass them on, and none of those can change them.
//!
//! | module | what |
//! |---|---|
//! | this one | signatures, and the certificates up to the grid's authority |
//! | [`contact`] | where an agent is reached, and which gateway it is attached to |
//! | [`renewal`] | that the holder of a certificate asks for a new one |

pub mod contact;
pub mod renewal;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_service::clock::unix_seconds;
use isthmus_wire::bounds::CERTIFICATES;
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::SignatureScheme;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;

use crate::Credentials;
use crate::authority::public_key;
use crate::credentials::{CredentialsError, authority_of, invalid, roots};
use crate::cryptography::provider;
use crate::peers::{Certified, Peers};

/// Why the certificates of a signer are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// There are no certificates, or too many.
    #[error("it has {0} certificates; 1 to {CERTIFICATES} are allowed")]
    Count(usize),
    /// A certificate is not signed by the grid's authority, not valid now, or revoked.
    #[error("{0}")]
    Certificate(String),
}

/// Verifies what parties of the grid have signed. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Verifier {
    chain: Arc<dyn ClientCertVerifier>,
    /// SHA-256 of the authority's certificate, which stands for the grid.
    pub(crate) grid: [u8; 32],
    peers: Peers,
}

/// The holder of a certificate, as it was verified.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub(crate) certified: Certified,
    /// The key of the certificate.
    pub(crate) key: Key,
}

/// A public key (ECDSA P-256).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(Vec<u8>);

impl Verifier {
    /// Verifies for the grid with this authority. Certificates that `peers` knows as revoked are
    /// refused.
    ///
    /// # Errors
    /// If the authority's certificate can't be used.
    pub fn new(authority: &CertificateDer<'static>, peers: Peers) -> Result<Self, CredentialsError> {
        let roots = Arc::new(roots(authority.clone())?);
        let chain = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        let chain = chain.map_err(|error| invalid("the authority's certificate")(&error))?;
        Ok(Self { chain, grid: grid_id(authority), peers })
    }

    /// The holder of the first of these certificates (DER), if they are valid at `now`.
    ///
    /// # Errors
    /// [`ChainError`] says why the certificates are refused.
    pub(crate) fn holder(&self, certificates: &[Vec<u8>], now: SystemTime) -> Result<Holder, ChainError> {
        let count = ChainError::Count(certificates.len());
        if certificates.len() > CERTIFICATES {
            return Err(count);
        }
        let chain: Vec<_> = certificates.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let (leaf, above) = chain.split_first().ok_or(count)?;
        let wrong = |reason: &dyn std::fmt::Display| ChainError::Certificate(reason.to_string());
        let at = UnixTime::since_unix_epoch(Duration::from_secs(unix_seconds(now)));
        self.chain.verify_client_cert(leaf, above, at).map_err(|error| wrong(&error))?;
        let certified = Certified::read(leaf).map_err(|error| wrong(&error))?;
        self.peers.check_revoked(&certified).map_err(|refusal| wrong(&refusal))?;
        let key = Key(public_key(leaf).map_err(|error| wrong(&error))?);
        Ok(Holder { certified, key })
    }
}

impl Key {
    /// A point of P-256, uncompressed.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Whether the key's holder has signed these bytes.
    pub(crate) fn has_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0).verify(bytes, signature).is_ok()
    }
}

impl Credentials {
    /// A verifier of what other parties of the grid have signed.
    ///
    /// # Errors
    /// If the authority's certificate can't be used.
    pub fn verifier(&self) -> Result<Verifier, CredentialsError> {
        Verifier::new(&authority_of(self)?, self.peers().clone())
    }
}

/// The certificates of a key's holder in DER, the holder's own first.
pub(crate) fn certificates(key: &CertifiedKey) -> Vec<Vec<u8>> {
    key.cert.iter().map(|certificate| certificate.to_vec()).collect()
}

/// Signs some bytes (ECDSA P-256 with SHA-256, in ASN.1).
///
/// # Errors
/// If the key can't sign.
pub(crate) fn sign(key: &CertifiedKey, bytes: &[u8]) -> Result<Vec<u8>, CredentialsError> {
    let wrong = |reason: &dyn std::fmt::Display| invalid("the private key")(reason);
    let signer = key
        .key
        .choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256])
        .ok_or_else(|| wrong(&"it is not an ECDSA P-256 key"))?;
    signer.sign(bytes).map_err(|error| wrong(&error))
}

/// The bytes that stand for a grid in what is signed.
pub(crate) fn grid_id(authority: &CertificateDer<'_>) -> [u8; 32] {
    let mut id = [0; 32];
    id.copy_from_slice(digest(&SHA256, authority).as_ref());
    id
}
