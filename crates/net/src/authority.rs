//! The grid's certificate authority: one self-signed ECDSA P-256 certificate
//! whose key the broker holds. Every certificate of the grid is signed by it
//! directly.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
    SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::files::{self, FileError};
use crate::identity::{Identity, Role};

/// Validity of the authority's own certificate: ten years.
pub(crate) const AUTHORITY_VALIDITY: Duration = Duration::from_secs(10 * 365 * DAY);
/// Validity of services' certificates: longer than a site is down over the
/// holidays, and short enough to limit the use of a stolen key.
pub const SERVICE_VALIDITY: Duration = Duration::from_secs(30 * DAY);
pub(crate) const ADMIN_VALIDITY: Duration = Duration::from_secs(365 * DAY);

/// Name of the authority's certificate in a state directory.
pub(crate) const CERTIFICATE_FILE: &str = "ca.pem";
/// Name of the authority's key in the broker's state directory.
pub(crate) const KEY_FILE: &str = "ca-key.pem";

const DAY: u64 = 24 * 3600;
/// Certificates are valid from a little before they are made, for clocks that are
/// late.
pub(crate) const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// An error of the authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file couldn't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A certificate or key couldn't be made or read.
    #[error("the grid's certificate authority: {0}")]
    Certificate(String),
    /// A signing request wasn't one.
    #[error("the certificate signing request is not valid: {0}")]
    Request(String),
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> Self {
        Self::Certificate(error.to_string())
    }
}

/// The authority: signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    certificate: CertificateDer<'static>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new authority for a grid of this name, valid from `now`.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn create(grid: &str, now: SystemTime) -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(&format!("isthmus grid {grid}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.not_before = (now - CLOCK_SKEW).into();
        params.not_after = (now + AUTHORITY_VALIDITY).into();
        params.serial_number = Some(random_serial_number()?);
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let key_pem = key.serialize_pem();
        let certificate_pem = CertifiedIssuer::self_signed(params, key)?.pem();
        Self::from_pem(certificate_pem, &key_pem)
    }

    /// Reads the authority of a broker's state directory.
    ///
    /// # Errors
    /// If its files are missing, readable by others or not what they should be.
    pub fn load(directory: &Path) -> Result<Self, AuthorityError> {
        let certificate_pem = files::read(&directory.join(CERTIFICATE_FILE))?;
        Self::from_pem(certificate_pem, &files::read_secret(&directory.join(KEY_FILE))?)
    }

    /// Writes the authority into a broker's state directory.
    ///
    /// # Errors
    /// If the files can't be written.
    pub fn save(&self, directory: &Path) -> Result<(), AuthorityError> {
        files::write(&directory.join(KEY_FILE), self.issuer.key().serialize_pem().as_bytes(), 0o600)?;
        files::write(&directory.join(CERTIFICATE_FILE), self.certificate_pem.as_bytes(), 0o644)?;
        Ok(())
    }

    fn from_pem(certificate_pem: String, key_pem: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(key_pem)?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|error| AuthorityError::Certificate(error.to_string()))?;
        if public_key(&certificate)? != key.der_bytes() {
            return Err(AuthorityError::Certificate("its key doesn't belong to its certificate".to_owned()));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { issuer, certificate_pem, certificate })
    }

    /// The authority's certificate in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's certificate in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Signs a certificate for the key of a signing request (PKCS #10, DER;
    /// RFC 2986). The request's signature is checked; its names are ignored, the
    /// caller passes the identity.
    ///
    /// # Errors
    /// If the request isn't valid.
    pub fn sign_request(
        &self,
        identity: &Identity,
        signing_request: &[u8],
        now: SystemTime,
    ) -> Result<String, AuthorityError> {
        let request =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(signing_request))
                .map_err(|error| AuthorityError::Request(error.to_string()))?;
        if request.public_key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(AuthorityError::Request("its key is not an ECDSA P-256 key".to_owned()));
        }
        self.sign(identity, &request.public_key, now)
    }

    /// Signs a certificate for a key, in PEM.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn sign(
        &self,
        identity: &Identity,
        key: &impl PublicKeyData,
        now: SystemTime,
    ) -> Result<String, AuthorityError> {
        let validity = if identity.role() == Role::Admin { ADMIN_VALIDITY } else { SERVICE_VALIDITY };
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(&identity.server_name());
        params.subject_alt_names = vec![
            SanType::DnsName(identity.server_name().try_into()?),
            SanType::URI(identity.uri().try_into()?),
        ];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match identity.role() {
            Role::Admin => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Role::Broker | Role::Gateway | Role::Agent | Role::Relay => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
        };
        params.use_authority_key_identifier_extension = true;
        params.not_before = (now - CLOCK_SKEW).into();
        params.not_after = (now + validity).into();
        params.serial_number = Some(random_serial_number()?);
        Ok(params.signed_by(key, &self.issuer)?.pem())
    }
}

pub(crate) fn public_key(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, AuthorityError> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|error| AuthorityError::Certificate(error.to_string()))?;
    Ok(certificate.public_key().subject_public_key.data.to_vec())
}

fn distinguished_name(common_name: &str) -> DistinguishedName {
    // RFC 5280 appendix A.1 allows a common name 64 characters.
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name.chars().take(64).collect::<String>());
    name
}

/// RFC 5280 section 4.1.2.2: positive, at most 20 bytes, never twice.
fn random_serial_number() -> Result<SerialNumber, AuthorityError> {
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| AuthorityError::Certificate("the system has no randomness".to_owned()))?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Identity {
        Identity::from_uri("isthmus:///agent/alpha/n1/anna").unwrap()
    }

    fn request() -> (KeyPair, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        // Names that the authority must ignore.
        let params = CertificateParams::new(vec!["broker".to_owned()]).unwrap();
        let request = params.serialize_request(&key).unwrap();
        (key, request.der().to_vec())
    }

    #[test]
    fn the_request_decides_the_key_and_nothing_else() {
        let now = SystemTime::now();
        let authority = Authority::create("demo", now).unwrap();
        let (key, request) = request();
        let pem = authority.sign_request(&agent(), &request, now).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(Identity::from_certificate(&der), Ok(agent()));
        assert_eq!(public_key(&der).unwrap(), key.der_bytes());
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        assert!(!certificate.is_ca());
        let validity = certificate.validity();
        let days = (validity.not_after.timestamp() - validity.not_before.timestamp()) / 86_400;
        assert_eq!(days, 30);
    }

    #[test]
    fn invalid_requests_are_refused() {
        let authority = Authority::create("demo", SystemTime::now()).unwrap();
        let mut forged = request().1;
        let last = forged.len() - 1;
        forged[last] ^= 1;
        for bytes in [&[][..], b"hello", &forged] {
            let result = authority.sign_request(&agent(), bytes, SystemTime::now());
            assert!(matches!(result, Err(AuthorityError::Request(_))), "{result:?}");
        }
    }

    #[test]
    fn saved_and_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create("demo", SystemTime::now()).unwrap();
        authority.save(directory.path()).unwrap();
        let loaded = Authority::load(directory.path()).unwrap();
        assert_eq!(loaded.certificate(), authority.certificate());

        let other = Authority::create("other", SystemTime::now()).unwrap();
        files::write(&directory.path().join(CERTIFICATE_FILE), other.certificate_pem().as_bytes(), 0o644)
            .unwrap();
        assert!(Authority::load(directory.path()).is_err(), "a key of another authority");
    }
}
