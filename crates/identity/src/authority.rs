//! The grid's certificate authority: a root that every party trusts, and an intermediate
//! that signs the parties' certificates. Both have ECDSA P-256 keys.
//!
//! | file | what |
//! |---|---|
//! | `ca.pem` | the root's certificate, 10 years |
//! | `ca-key.pem` (0600) | the root's key; it signs intermediates alone and may be kept elsewhere |
//! | `signing.pem` (0600) | the intermediate: its certificate, 1 year, and its key |
//!
//! A party's certificate has the intermediate's with it, in one PEM text.

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_service::files::{self, FileError};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
    SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::{Identity, Role};

/// Validity of the authority's own certificate: ten years.
pub(crate) const AUTHORITY_VALIDITY: Duration = Duration::from_secs(10 * 365 * DAY);
/// Validity of services' certificates. It is longer than a site is down over the holidays, and
/// short enough to limit the use of a stolen key.
pub const SERVICE_VALIDITY: Duration = Duration::from_secs(30 * DAY);
pub(crate) const ADMIN_VALIDITY: Duration = Duration::from_secs(365 * DAY);

/// Validity of the intermediate, which bounds that of the certificates that it signs.
const SIGNING_VALIDITY: Duration = Duration::from_secs(365 * DAY);
/// How long before the intermediate's end the broker begins to warn.
pub const SIGNING_ENDS_SOON: Duration = Duration::from_secs(30 * DAY);

/// Validity of a certificate of this role.
pub fn validity(role: Role) -> Duration {
    if role == Role::Admin { ADMIN_VALIDITY } else { SERVICE_VALIDITY }
}

/// Name of the authority's certificate in a state directory.
pub(crate) const CERTIFICATE_FILE: &str = "ca.pem";
/// Name of the authority's key in the broker's state directory, until it is moved away.
pub const KEY_FILE: &str = "ca-key.pem";
const SIGNING_FILE: &str = "signing.pem";

const DAY: u64 = 24 * 3600;
/// Certificates are valid from so long before they are made, for clocks that are late. When one was issued
/// is reckoned from that, so it can't change without former certificates seeming younger or older.
pub(crate) const BACKDATED: Duration = Duration::from_secs(3600);
/// By how much the clock of a service may be wrong. That of a cluster whose time zone is wrong is so by an
/// hour.
pub const CLOCK_SKEW: Duration = Duration::from_secs(2 * 3600);

/// Why the authority can't do what it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file couldn't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A certificate or key couldn't be made or read.
    #[error("the grid's certificate authority: {0}")]
    Certificate(String),
    /// The bytes aren't a valid signing request.
    #[error("the certificate signing request is not valid: {0}")]
    Request(String),
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> Self {
        Self::Certificate(error.to_string())
    }
}

/// The grid's certificate authority, which signs certificates.
pub struct Authority {
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    /// The root's key in PEM, if the authority was just made.
    key_pem: Option<String>,
    signing: RwLock<Arc<Signing>>,
}

/// The intermediate, whose key signs the certificates of services.
struct Signing {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    not_after: SystemTime,
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
        let name = format!("{NAME}{grid}");
        let params = authority_params(&name, 1, now, AUTHORITY_VALIDITY)?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let key_pem = key.serialize_pem();
        let certificate_pem = CertifiedIssuer::self_signed(params, key)?.pem();
        let certificate = certificate_of(&certificate_pem)?;
        let signing = Signing::from_pem(&Signing::create(&certificate, &key_pem, now)?, &certificate)?;
        let signing = RwLock::new(Arc::new(signing));
        Ok(Self { certificate_pem, certificate, key_pem: Some(key_pem), signing })
    }

    /// Reads the authority of a broker's state directory. The root's key need not be there.
    ///
    /// # Errors
    /// If its files are missing, readable by others, or malformed.
    pub fn load(directory: &Path) -> Result<Self, AuthorityError> {
        let certificate_pem = files::read(&directory.join(CERTIFICATE_FILE))?;
        let certificate = certificate_of(&certificate_pem)?;
        let signing = Signing::load(directory, &certificate)?;
        Ok(Self { certificate_pem, certificate, key_pem: None, signing: RwLock::new(Arc::new(signing)) })
    }

    /// Writes the authority into a broker's state directory.
    ///
    /// # Errors
    /// If the files can't be written.
    pub fn save(&self, directory: &Path) -> Result<(), AuthorityError> {
        if let Some(key_pem) = &self.key_pem {
            files::write(&directory.join(KEY_FILE), key_pem.as_bytes(), 0o600)?;
        }
        let signing = self.signing();
        let signing = signing.certificate_pem.clone() + &signing.issuer.key().serialize_pem();
        files::write(&directory.join(SIGNING_FILE), signing.as_bytes(), 0o600)?;
        files::write(&directory.join(CERTIFICATE_FILE), self.certificate_pem.as_bytes(), 0o644)?;
        Ok(())
    }

    /// Makes a new intermediate in a state directory that holds `ca.pem`, with the root's
    /// key in `key_file`. Returns when it ends.
    ///
    /// # Errors
    /// If a file can't be used, or the key is of another authority.
    pub fn renew_signing(
        directory: &Path,
        key_file: &Path,
        now: SystemTime,
    ) -> Result<SystemTime, AuthorityError> {
        let certificate = certificate_of(&files::read(&directory.join(CERTIFICATE_FILE))?)?;
        let signing = Signing::create(&certificate, &files::read_secret(key_file)?, now)?;
        let ends = Signing::from_pem(&signing, &certificate)?.not_after;
        files::write(&directory.join(SIGNING_FILE), signing.as_bytes(), 0o600)?;
        Ok(ends)
    }

    /// Reads the intermediate again. Returns whether it is another intermediate than before.
    ///
    /// # Errors
    /// If its file can't be used; the former intermediate stays in use.
    pub fn reload_signing(&self, directory: &Path) -> Result<bool, AuthorityError> {
        let signing = Signing::load(directory, &self.certificate)?;
        if signing.certificate_pem == self.signing().certificate_pem {
            return Ok(false);
        }
        *self.signing.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(signing);
        Ok(true)
    }

    /// When the intermediate's certificate ends.
    pub fn signing_ends(&self) -> SystemTime {
        self.signing().not_after
    }

    fn signing(&self) -> Arc<Signing> {
        // A writer only replaces the pointer, so the value is always whole.
        self.signing.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The authority's certificate in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's certificate in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Signs a certificate for the key of a signing request (PKCS #10, DER; RFC 2986). The
    /// request's signature is checked. Its names are ignored: the caller passes the identity.
    ///
    /// # Errors
    /// If the request isn't valid, or the certificate can't be made.
    pub fn sign_request(
        &self,
        identity: &Identity,
        signing_request: &[u8],
        now: SystemTime,
    ) -> Result<String, AuthorityError> {
        self.sign_request_until(identity, signing_request, now, None)
    }

    /// Signs as [`Authority::sign_request`] does. The certificate isn't valid after `until`.
    ///
    /// # Errors
    /// As [`Authority::sign_request`].
    pub fn sign_request_until(
        &self,
        identity: &Identity,
        signing_request: &[u8],
        now: SystemTime,
        until: Option<SystemTime>,
    ) -> Result<String, AuthorityError> {
        let request =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(signing_request))
                .map_err(|error| AuthorityError::Request(error.to_string()))?;
        if request.public_key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(AuthorityError::Request("its key is not an ECDSA P-256 key".to_owned()));
        }
        self.sign_until(identity, &request.public_key, now, until)
    }

    /// Signs a certificate for a key. Returns it in PEM, followed by the intermediate's
    /// certificate.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn sign(
        &self,
        identity: &Identity,
        key: &impl PublicKeyData,
        now: SystemTime,
    ) -> Result<String, AuthorityError> {
        self.sign_until(identity, key, now, None)
    }

    fn sign_until(
        &self,
        identity: &Identity,
        key: &impl PublicKeyData,
        now: SystemTime,
        until: Option<SystemTime>,
    ) -> Result<String, AuthorityError> {
        let signing = self.signing();
        if signing.not_after <= now {
            return Err(AuthorityError::Certificate(
                "its signing certificate has ended; make a new one with `isthmus grid sign`".to_owned(),
            ));
        }
        let ends = (now + validity(identity.role())).min(signing.not_after);
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
        params.not_before = (now - BACKDATED).into();
        params.not_after = until.map_or(ends, |until| ends.min(until)).into();
        params.serial_number = Some(random_serial_number()?);
        Ok(params.signed_by(key, &signing.issuer)?.pem() + &signing.certificate_pem)
    }
}

impl Signing {
    /// Makes an intermediate: its certificate and key in PEM.
    fn create(
        authority: &CertificateDer<'_>,
        authority_key_pem: &str,
        now: SystemTime,
    ) -> Result<String, AuthorityError> {
        let root_key = KeyPair::from_pem(authority_key_pem)?;
        if public_key(authority)? != root_key.der_bytes() {
            return Err(AuthorityError::Certificate("its key doesn't belong to its certificate".to_owned()));
        }
        let root = Issuer::from_ca_cert_der(authority, root_key)?;
        let mut params = authority_params("isthmus grid signing", 0, now, SIGNING_VALIDITY)?;
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        Ok(params.signed_by(&key, &root)?.pem() + &key.serialize_pem())
    }

    fn load(directory: &Path, authority: &CertificateDer<'_>) -> Result<Self, AuthorityError> {
        Self::from_pem(&files::read_secret(&directory.join(SIGNING_FILE))?, authority)
    }

    /// Reads the intermediate's certificate and key. They must belong together, and to this
    /// authority.
    fn from_pem(pem: &str, authority: &CertificateDer<'_>) -> Result<Self, AuthorityError> {
        let wrong = |reason: &str| AuthorityError::Certificate(format!("{SIGNING_FILE}: {reason}"));
        let certificate = certificate_of(pem)?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| wrong(&error.to_string()))?;
        let key = KeyPair::try_from(&key)?;
        if public_key(&certificate)? != key.der_bytes() {
            return Err(wrong("the key doesn't belong to the certificate"));
        }
        let (_, parsed) =
            X509Certificate::from_der(&certificate).map_err(|error| wrong(&error.to_string()))?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public_key(authority)?)
            .verify(parsed.tbs_certificate.as_ref(), &parsed.signature_value.data)
            .map_err(|_| wrong("it is not signed by this grid's authority"))?;
        let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        let end = pem.find(KEY_HEADER).ok_or_else(|| wrong("the key is before the certificate"))?;
        Ok(Self {
            certificate_pem: pem[..end].to_owned(),
            not_after: UNIX_EPOCH + Duration::from_secs(seconds),
            issuer: Issuer::from_ca_cert_der(&certificate, key)?,
        })
    }
}

/// What the name of an authority begins with. The grid's name follows.
const NAME: &str = "isthmus grid ";

/// The name of the grid with this authority; `None` if the certificate isn't a grid's.
pub(crate) fn grid_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    name.strip_prefix(NAME).map(str::to_owned)
}

/// The line with which the key begins in the intermediate's file, after the certificate.
const KEY_HEADER: &str = "-----BEGIN PRIVATE KEY";

/// The parameters of a certificate that signs others, over at most `depth` further authorities.
fn authority_params(
    name: &str,
    depth: u8,
    now: SystemTime,
    validity: Duration,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(depth));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + validity).into();
    params.serial_number = Some(random_serial_number()?);
    Ok(params)
}

fn certificate_of(pem: &str) -> Result<CertificateDer<'static>, AuthorityError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| AuthorityError::Certificate(error.to_string()))
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

/// A serial number as RFC 5280 section 4.1.2.2 wants it: positive, at most 20 bytes, never twice.
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
        assert_eq!(grid_name(authority.certificate()).as_deref(), Some("demo"));
        authority.save(directory.path()).unwrap();
        let loaded = Authority::load(directory.path()).unwrap();
        assert_eq!(loaded.certificate(), authority.certificate());

        let other = Authority::create("other", SystemTime::now()).unwrap();
        files::write(&directory.path().join(CERTIFICATE_FILE), other.certificate_pem().as_bytes(), 0o644)
            .unwrap();
        assert!(Authority::load(directory.path()).is_err(), "an intermediate of another authority");
    }

    #[test]
    fn the_root_s_key_may_be_elsewhere() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = SystemTime::now();
        Authority::create("demo", now).unwrap().save(directory.path()).unwrap();
        let key = elsewhere.path().join("key.pem");
        std::fs::rename(directory.path().join(KEY_FILE), &key).unwrap();
        let authority = Authority::load(directory.path()).unwrap();
        let sign = |at| authority.sign(&agent(), &KeyPair::generate().unwrap(), at);
        let ends = |pem: &str| {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            X509Certificate::from_der(&der).unwrap().1.validity().not_after.timestamp()
        };
        let late = now + Duration::from_secs(350 * DAY);
        let bounded = ends(&sign(late).unwrap());
        assert_eq!(
            u64::try_from(bounded).unwrap(),
            isthmus_service::clock::unix_seconds(authority.signing_ends())
        );
        let after = now + SIGNING_VALIDITY + BACKDATED;
        assert!(sign(after).unwrap_err().to_string().contains("isthmus grid sign"));

        assert!(!authority.reload_signing(directory.path()).unwrap());
        let renewed = Authority::renew_signing(directory.path(), &key, late).unwrap();
        assert!(authority.reload_signing(directory.path()).unwrap());
        assert_eq!(authority.signing_ends(), renewed);
        assert!(ends(&sign(late).unwrap()) > bounded);

        let other = Authority::create("demo", now).unwrap();
        other.save(elsewhere.path()).unwrap();
        let foreign = Authority::renew_signing(directory.path(), &elsewhere.path().join(KEY_FILE), now);
        assert!(foreign.is_err(), "a key of another authority");
    }
}
