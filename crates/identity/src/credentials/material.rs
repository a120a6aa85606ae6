//! A certificate with its key, and the one in use.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{CredentialsError, invalid};
use crate::Identity;
use crate::cryptography::provider;

/// The certificate in use. TLS configurations read it at every handshake, so that a renewed
/// certificate needs no new configuration.
#[derive(Debug)]
pub(crate) struct Current {
    material: RwLock<Arc<Material>>,
    renewals: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Material {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) certificate_pem: String,
    pub(super) key_pem: Secret,
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
}

pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Current {
    pub(super) fn new(material: Material) -> Self {
        Self { material: RwLock::new(Arc::new(material)), renewals: AtomicU64::new(0) }
    }

    pub(super) fn replace(&self, material: Material) {
        *self.material.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(material);
        self.renewals.fetch_add(1, Ordering::Release);
    }

    /// How many times the certificate was replaced.
    pub(crate) fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Acquire)
    }

    pub(super) fn material(&self) -> Arc<Material> {
        // A writer only replaces the pointer, so the value is always whole.
        self.material.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.material().key.clone())
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.material().key.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Material {
    pub(super) fn from_pem(
        certificate_pem: &str,
        key_pem: &str,
    ) -> Result<(Identity, Self), CredentialsError> {
        let what = "the certificate";
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| invalid(what)(&error))?;
        let leaf = chain.first().ok_or_else(|| invalid(what)(&"the file is empty"))?.clone();
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|error| invalid("the private key")(&error))?;
        let key = CertifiedKey::from_der(chain, key, &provider())
            .map_err(|error| invalid("the certificate and its key")(&error))?;
        let identity = Identity::from_certificate(&leaf)?;
        let (_, certificate) = X509Certificate::from_der(&leaf).map_err(|error| invalid(what)(&error))?;
        let time = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let material = Self {
            key: Arc::new(key),
            certificate_pem: certificate_pem.to_owned(),
            key_pem: Secret(key_pem.to_owned()),
            not_before: time(certificate.validity().not_before.timestamp()),
            not_after: time(certificate.validity().not_after.timestamp()),
        };
        Ok((identity, material))
    }
}
