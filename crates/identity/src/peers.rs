//! Which certificates of peers are good: until they end, and unless they are revoked.
//!
//! TLS verifies a certificate in a full handshake only, and a connection may outlast
//! it. So each end of a connection checks the peer's certificate after every handshake,
//! and waits for its end as long as the connection lasts. A peer that renews its
//! certificate in time shows the new one in its next full handshake, which extends all
//! its connections.

mod revoked;
#[cfg(test)]
mod tests;
mod watched;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_service::lock;
use tokio::sync::watch;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authority::BACKDATED;
use crate::identity::IdentityError;
use crate::{Identity, Role};

pub use revoked::{RevocationError, Revoked, messages};
pub use watched::{WatchedCertificate, refused};

use revoked::Revocations;

/// How many identities' latest certificates are kept before ended certificates are forgotten.
const KEPT: usize = 1024;

/// What a service says when a peer has refused the service's own certificate as revoked.
pub const REVOKED_HERE: &str = "an administrator of the grid has revoked the certificate of this service; with a \
    new token (isthmus grid invite) `isthmus join --force` makes it a member again";

/// The facts that a peer's certificate states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    /// The identity in the certificate.
    pub identity: Identity,
    /// When the certificate was issued.
    pub issued: SystemTime,
    /// When the certificate ends.
    pub ends: SystemTime,
}

impl Certified {
    /// Reads a certificate in DER, which TLS has verified. This checks no signature.
    ///
    /// # Errors
    /// If the certificate isn't a grid's.
    pub fn read(der: &[u8]) -> Result<Self, IdentityError> {
        let identity = Identity::from_certificate(der)?;
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|_| IdentityError::Certificate("it can't be parsed".to_owned()))?;
        let time = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let validity = certificate.validity();
        let issued = time(validity.not_before.timestamp()) + BACKDATED;
        Ok(Self { identity, issued, ends: time(validity.not_after.timestamp()) })
    }
}

/// Why a peer's certificate is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The certificate has ended.
    #[error(
        "the certificate of {identity} ended at {}; it must join again with a new token (isthmus grid invite)",
        humantime::format_rfc3339_seconds(*.ended)
    )]
    Ended {
        /// The identity in the certificate.
        identity: Identity,
        /// When the certificate ended.
        ended: SystemTime,
    },
    /// The certificate was issued before its identity was revoked.
    #[error(
        "the certificates of {identity} issued until {} are revoked; to let it in again, invite it anew \
         (isthmus grid invite)",
        humantime::format_rfc3339_seconds(*.before)
    )]
    Revoked {
        /// The identity in the certificate.
        identity: Identity,
        /// Certificates that were issued until this time are refused.
        before: SystemTime,
    },
}

impl Refusal {
    /// The identity whose certificate is refused.
    pub fn identity(&self) -> &Identity {
        match self {
            Self::Ended { identity, .. } | Self::Revoked { identity, .. } => identity,
        }
    }
}

/// The latest certificate that an identity has shown.
#[derive(Debug)]
struct Latest {
    issued: SystemTime,
    ends: SystemTime,
    /// Counts the identity's open connections by its clones.
    open: Arc<()>,
}

/// The certificates of a process's peers. Cheap to clone; all clones share them.
#[derive(Debug, Clone, Default)]
pub struct Peers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    latest: Mutex<HashMap<Identity, Latest>>,
    revoked: RwLock<Revocations>,
    changed: watch::Sender<()>,
    /// Whether a peer has refused this process's own certificate as revoked.
    revoked_here: AtomicBool,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            latest: Mutex::default(),
            revoked: RwLock::default(),
            changed: watch::Sender::new(()),
            revoked_here: AtomicBool::new(false),
        }
    }
}

impl Peers {
    /// Accepts the certificate that a peer has shown in a handshake, or refuses it.
    ///
    /// # Errors
    /// If the certificate has ended at `now` or is revoked.
    pub fn accept(&self, certificate: Certified, now: SystemTime) -> Result<WatchedCertificate, Refusal> {
        self.check_revoked(&certificate)?;
        if certificate.ends <= now {
            return Err(Refusal::Ended { identity: certificate.identity, ended: certificate.ends });
        }
        let mut latest = lock(&self.0.latest);
        if latest.len() >= KEPT {
            latest.retain(|_, latest| latest.ends > now || Arc::strong_count(&latest.open) > 1);
        }
        let Certified { identity, issued, ends } = certificate.clone();
        let entry = latest.entry(identity).or_insert_with(|| Latest { issued, ends, open: Arc::default() });
        // A pilot's certificate may end before an earlier one of the same name.
        if (issued, ends) > (entry.issued, entry.ends) {
            (entry.issued, entry.ends) = (issued, ends);
        }
        let open = entry.open.clone();
        drop(latest);
        Ok(WatchedCertificate::new(self.clone(), certificate, open))
    }

    /// Whether a peer has refused this process's own certificate as revoked, and none has accepted
    /// it since. A call may end before it learns this reason.
    pub fn is_revoked_here(&self) -> bool {
        self.0.revoked_here.load(Relaxed)
    }

    /// Notes that a peer has refused or accepted this process's own certificate.
    pub(crate) fn set_revoked_here(&self, revoked: bool) {
        self.0.revoked_here.store(revoked, Relaxed);
    }

    /// The time until which connections with this certificate may last.
    ///
    /// # Errors
    /// If connections with the certificate may not last at `now`.
    pub fn until(&self, certificate: &Certified, now: SystemTime) -> Result<SystemTime, Refusal> {
        self.check_revoked(certificate)?;
        let latest = lock(&self.0.latest).get(&certificate.identity).map(|latest| latest.ends);
        let ends = latest.map_or(certificate.ends, |latest| latest.max(certificate.ends));
        if now < ends {
            Ok(ends)
        } else {
            Err(Refusal::Ended { identity: certificate.identity.clone(), ended: ends })
        }
    }

    /// The agents with open connections whose latest certificate has less than a sixth of its life
    /// left. By then, most have renewed their certificates, and haven't shown them yet.
    pub fn agents_to_verify(&self, now: SystemTime) -> Vec<Identity> {
        let due = |latest: &Latest| {
            let life = latest.ends.duration_since(latest.issued).unwrap_or_default();
            Arc::strong_count(&latest.open) > 1 && now >= latest.issued + life * 5 / 6
        };
        let latest = lock(&self.0.latest);
        let agents = latest.iter().filter(|(identity, _)| identity.role() == Role::Agent);
        agents.filter(|(_, latest)| due(latest)).map(|(identity, _)| identity.clone()).collect()
    }
}
