//! The server's check that a client's certificate is not revoked, within the handshake:
//! so the client receives the TLS alert `certificate_revoked` (RFC 8446, 6.2), and can
//! tell its user.

use std::cell::RefCell;
use std::future::Future;
use std::sync::{Arc, Mutex};

use isthmus_service::lock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use tokio::sync::watch;

use crate::peers::{Certified, Peers, Refusal};

/// Most sessions that a server keeps, as rustls does by default.
const SESSIONS: usize = 256;

tokio::task_local! {
    static REFUSAL: RefCell<Option<Refusal>>;
}

/// Runs a handshake. Also returns why the handshake refused the client's certificate, if it did.
pub(crate) async fn with_refusal<T>(handshake: impl Future<Output = T>) -> (T, Option<Refusal>) {
    REFUSAL
        .scope(RefCell::default(), async {
            let result = handshake.await;
            (result, REFUSAL.with(RefCell::take))
        })
        .await
}

/// Verifies as another verifier does, and refuses revoked certificates.
#[derive(Debug)]
pub(super) struct Unrevoked {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) peers: Peers,
}

impl ClientCertVerifier for Unrevoked {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now)?;
        let certified = Certified::read(end_entity).map_err(|error| Error::General(error.to_string()))?;
        match self.peers.check_revoked(&certified) {
            Ok(()) => Ok(verified),
            Err(refusal) => {
                // Without a scope the caller gets rustls's own error.
                let _ = REFUSAL.try_with(|slot| slot.replace(Some(refusal)));
                Err(Error::InvalidCertificate(CertificateError::Revoked))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// A server's sessions. A resumed handshake verifies no certificate, so a revocation
/// has all sessions forgotten.
pub(super) struct Sessions(Mutex<(Arc<ServerSessionMemoryCache>, watch::Receiver<()>)>);

impl Sessions {
    pub(super) fn new(peers: &Peers) -> Self {
        Self(Mutex::new((ServerSessionMemoryCache::new(SESSIONS), peers.changes())))
    }

    fn present(&self) -> Arc<ServerSessionMemoryCache> {
        let mut present = lock(&self.0);
        if present.1.has_changed().unwrap_or(true) {
            present.1.mark_unchanged();
            present.0 = ServerSessionMemoryCache::new(SESSIONS);
        }
        present.0.clone()
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.present().put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.present().get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.present().take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}
