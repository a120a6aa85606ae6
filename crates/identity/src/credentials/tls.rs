//! The TLS configurations made of credentials: TLS 1.3 only (RFC 8446).

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};

use super::unrevoked::{Sessions, Unrevoked};
use super::{Credentials, CredentialsError, invalid};
use crate::cryptography::provider;
use crate::peers::Peers;
use crate::secured::{ClientTls, ServerTls};

impl Credentials {
    /// TLS for a server whose clients must show a certificate of the grid. Make the configuration
    /// once and keep it, as it caches sessions.
    ///
    /// # Errors
    /// If the authority's certificate can't be used.
    pub fn server_config(&self, alpn: &[&[u8]]) -> Result<ServerTls, CredentialsError> {
        self.server_config_for(alpn, false)
    }

    /// TLS for a server that also accepts clients without a certificate, for
    /// enrolment.
    ///
    /// # Errors
    /// As [`Credentials::server_config`].
    pub fn enrolling_server_config(&self, alpn: &[&[u8]]) -> Result<ServerTls, CredentialsError> {
        self.server_config_for(alpn, true)
    }

    fn server_config_for(&self, alpn: &[&[u8]], anonymous_too: bool) -> Result<ServerTls, CredentialsError> {
        let provider = provider();
        let verifier = WebPkiClientVerifier::builder_with_provider(self.0.roots.clone(), provider.clone());
        let verifier = if anonymous_too { verifier.allow_unauthenticated() } else { verifier };
        let verifier = verifier.build().map_err(|error| invalid("the authority's certificate")(&error))?;
        let verifier = Arc::new(Unrevoked { verifier, peers: self.0.peers.clone() });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| invalid("TLS")(&error))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(self.0.current.clone());
        config.alpn_protocols = names(alpn);
        config.session_storage = Arc::new(Sessions::new(&self.0.peers));
        Ok(ServerTls::new(config, self.0.peers.clone()))
    }

    /// TLS for a client. Make the configuration once and keep it, as it caches sessions.
    ///
    /// # Errors
    /// If the cryptography can't be set up.
    pub fn client_config(&self, alpn: &[&[u8]]) -> Result<ClientTls, CredentialsError> {
        let config = client_builder()?.with_root_certificates(self.0.roots.clone());
        let mut config = config.with_client_cert_resolver(self.0.current.clone());
        config.alpn_protocols = names(alpn);
        Ok(ClientTls::new(config, self.0.peers.clone(), Some(self.0.current.clone())))
    }
}

/// TLS for a client that has no certificate yet, only that of the authority.
///
/// # Errors
/// If the authority's certificate can't be used.
pub fn anonymous_client_config(
    authority: CertificateDer<'static>,
    alpn: &[&[u8]],
) -> Result<ClientTls, CredentialsError> {
    let mut config = client_builder()?.with_root_certificates(roots(authority)?).with_no_client_auth();
    config.alpn_protocols = names(alpn);
    Ok(ClientTls::new(config, Peers::default(), None))
}

/// The authority as the only root of trust.
pub(crate) fn roots(authority: CertificateDer<'static>) -> Result<RootCertStore, CredentialsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(|error| invalid("the authority's certificate")(&error))?;
    Ok(roots)
}

fn client_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, CredentialsError> {
    let builder = ClientConfig::builder_with_provider(provider());
    builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(|error| invalid("TLS")(&error))
}

fn names(alpn: &[&[u8]]) -> Vec<Vec<u8>> {
    alpn.iter().map(|name| name.to_vec()).collect()
}
